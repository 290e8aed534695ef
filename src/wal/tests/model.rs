//! Random histories against a model: whatever is appended, cut and reopened, what comes back is what a map would hold.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// Entries that go on after the last one, less `back`.
    Entries {
        back: u64,
        sizes: Vec<usize>,
    },
    State(u8),
    Truncate {
        back: u64,
    },
    Release {
        /// Above (or, negative, below) the last entry.
        beyond: i64,
    },
    Reopen {
        from_index: u64,
    },
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<u64, Entry>,
    last: u64,
    released: Option<(u64, u64)>,
    state: Option<Bytes>,
    clock: u64,
}

impl Model {
    fn floor(&self) -> u64 {
        self.released.map_or(0, |(index, _)| index)
    }

    fn records(&mut self, step: &Step) -> Vec<Record> {
        self.clock += 1;
        match step {
            Step::Entries { back, sizes } => {
                let mut index = self.last.saturating_sub(*back).max(self.floor());
                let clock = self.clock;
                let mut next = |size: &usize| {
                    index += 1;
                    Entry { index, term: clock, kind: (clock % 3) as u32, data: vec![clock as u8; *size].into() }
                };
                let entries: Vec<Entry> = sizes.iter().map(&mut next).collect();
                for entry in &entries {
                    self.entries.split_off(&entry.index);
                    self.entries.insert(entry.index, entry.clone());
                    self.last = entry.index;
                }
                entries.into_iter().map(Record::Entry).collect()
            }
            Step::State(byte) => {
                let state = Bytes::from(vec![*byte; 1 + usize::from(*byte)]);
                self.state = Some(state.clone());
                vec![Record::State(state)]
            }
            Step::Truncate { back } => {
                let last_index = self.last.saturating_sub(*back);
                self.entries.split_off(&(last_index + 1));
                self.last = last_index.max(self.floor());
                vec![Record::Truncate { last_index }]
            }
            Step::Release { beyond } => {
                let index = self.last.saturating_add_signed(*beyond);
                if index >= self.floor() {
                    self.released = Some((index, self.clock));
                    self.entries = self.entries.split_off(&(index + 1));
                    self.last = self.last.max(index);
                }
                vec![Record::Released { index, term: self.clock }]
            }
            Step::Reopen { .. } => vec![],
        }
    }

    fn assert_recovered(&self, recovered: &Recovered, from_index: u64) {
        let expected: Vec<&Entry> = self.entries.range(from_index..).map(|(_, entry)| entry).collect();
        assert_eq!(recovered.entries.iter().collect::<Vec<_>>(), expected);
        assert_eq!((&recovered.state, recovered.released), (&self.state, self.released));
        assert_eq!((&recovered.metadata[..], &recovered.repaired), (&b"metadata"[..], &None));
    }
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![4 => 0_usize..200, 2 => 400_usize..1500, 1 => 4000_usize..6000];
    prop_oneof![
        8 => (prop_oneof![3 => Just(0), 1 => 0_u64..8], proptest::collection::vec(size, 1..6))
            .prop_map(|(back, sizes)| Step::Entries { back, sizes }),
        2 => any::<u8>().prop_map(Step::State),
        1 => (0_u64..6).prop_map(|back| Step::Truncate { back }),
        1 => (-12_i64..4).prop_map(|beyond| Step::Release { beyond }),
        1 => (0_u64..60).prop_map(|from_index| Step::Reopen { from_index }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_comes_back_is_what_a_map_would_hold(
        steps in proptest::collection::vec(step(), 1..60),
        from_index in 0_u64..60,
        kept in 0_usize..3,
    ) {
        let temp = TempDir::new().unwrap();
        let options = Options { released_segments_kept: kept, ..SMALL };
        let reopen = |from_index| open_on(Arc::new(RealDisk), temp.path(), from_index, options.clone()).unwrap();
        let mut model = Model::default();
        let mut wal = reopen(1).0;
        let (sender, outcomes) = mpsc::channel();
        let mut appended = 0;
        for step in &steps {
            if let Step::Reopen { from_index } = step {
                wal.close().unwrap();
                let (reopened, recovered) = reopen(*from_index);
                model.assert_recovered(&recovered, *from_index);
                wal = reopened;
            } else {
                let sender = sender.clone();
                let number = appended;
                appended += 1;
                let done = move |outcome: Result<Written, WalError>| sender.send((number, outcome.is_ok())).unwrap();
                wal.append(model.records(step), Box::new(done));
            }
        }
        wal.close().unwrap();
        drop(sender);
        let expected: Vec<_> = (0..appended).map(|number| (number, true)).collect();
        prop_assert_eq!(outcomes.iter().collect::<Vec<_>>(), expected);
        for from_index in [0, from_index] {
            let (wal, recovered) = reopen(from_index);
            model.assert_recovered(&recovered, from_index);
            wal.close().unwrap();
        }
    }
}
