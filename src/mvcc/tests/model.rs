//! The store against a model that keeps every revision's whole state.

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::Index};

use super::*;

type Keys = BTreeMap<Bytes, mvccpb::KeyValue>;

/// One revision: the state after it, and what it changed (whether deleted, pair).
#[derive(Clone, Debug, Default)]
struct Moment {
    keys: Keys,
    changes: Vec<(bool, mvccpb::KeyValue)>,
}

#[derive(Clone, Debug)]
struct Model {
    /// By revision.
    moments: Vec<Moment>,
    compacted: i64,
}

impl Model {
    fn new() -> Model {
        Model { moments: vec![Moment::default(); 2], compacted: -1 }
    }

    fn current(&self) -> i64 {
        self.moments.len() as i64 - 1
    }

    fn keys(&self, revision: i64) -> &Keys {
        &self.moments[if revision <= 0 { self.current() } else { revision } as usize].keys
    }
}

fn model_put(moment: &mut Moment, revision: i64, key: Bytes, value: Bytes, lease: i64) -> Option<mvccpb::KeyValue> {
    let before = moment.keys.get(&key).cloned();
    let kv = mvccpb::KeyValue {
        key: key.clone(),
        create_revision: before.as_ref().map_or(revision, |kv| kv.create_revision),
        mod_revision: revision,
        version: before.as_ref().map_or(1, |kv| kv.version + 1),
        value,
        lease,
    };
    moment.keys.insert(key, kv.clone());
    moment.changes.push((false, kv));
    before
}

fn model_delete(moment: &mut Moment, revision: i64, range: &KeyRange) -> Vec<mvccpb::KeyValue> {
    let gone: Vec<_> = moment.keys.values().filter(|kv| range.contains(&kv.key)).cloned().collect();
    for kv in &gone {
        moment.keys.remove(&kv.key);
        let tombstone = mvccpb::KeyValue { key: kv.key.clone(), mod_revision: revision, ..Default::default() };
        moment.changes.push((true, tombstone));
    }
    gone
}

fn model_range(keys: &Keys, query: &RangeQuery) -> Answer {
    let mut pairs: Vec<_> = keys.values().filter(|kv| query.range.contains(&kv.key)).cloned().collect();
    let count = pairs.len() as i64;
    if query.count_only {
        return (Vec::new(), false, count);
    }
    pairs.retain(|kv| {
        kv.mod_revision >= query.min_mod_revision
            && (query.max_mod_revision == 0 || kv.mod_revision <= query.max_mod_revision)
            && kv.create_revision >= query.min_create_revision
            && (query.max_create_revision == 0 || kv.create_revision <= query.max_create_revision)
    });
    let unfiltered = query.min_mod_revision == 0
        && query.max_mod_revision == 0
        && query.min_create_revision == 0
        && query.max_create_revision == 0;
    let more = query.limit > 0 && pairs.len() as i64 > query.limit;
    if query.order == SortOrder::None && unfiltered && query.limit > 0 {
        pairs.truncate(query.limit as usize + 1);
    }
    let compare = |a: &mvccpb::KeyValue, b: &mvccpb::KeyValue| match query.target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::CreateRevision => a.create_revision.cmp(&b.create_revision),
        SortTarget::ModRevision => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    };
    match query.order {
        SortOrder::None | SortOrder::Ascend => pairs.sort_by(compare),
        SortOrder::Descend => pairs.sort_by(|a, b| compare(b, a)),
    }
    if query.limit > 0 {
        pairs.truncate(query.limit as usize);
    }
    if query.keys_only {
        pairs.iter_mut().for_each(|kv| kv.value = Bytes::new());
    }
    (pairs, more, count)
}

#[derive(Clone, Debug)]
enum TxnOp {
    Put { key: Bytes, value: Bytes, lease: i64, want_previous: bool },
    Delete { range: KeyRange, want_previous: bool },
    Range(RangeQuery, Index),
}

#[derive(Clone, Debug)]
enum Op {
    Txn(Vec<TxnOp>),
    /// A transaction that is dropped.
    Abandoned(Vec<TxnOp>),
    Compact {
        at: Index,
        wait: bool,
    },
    Flush,
    Close,
    Crash,
    Query {
        query: RangeQuery,
        at: Index,
        keys_max: usize,
    },
    Changes {
        from: Index,
        revisions_max: usize,
        bytes_max: usize,
    },
}

fn any_key() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["a", "aa", "b", "ba", "c", "d", "\u{7f}"])
        .prop_map(|key| Bytes::from_static(key.as_bytes()))
}

fn any_range() -> impl Strategy<Value = KeyRange> {
    let end = prop_oneof![4 => Just(Bytes::new()), 2 => Just(Bytes::from_static(b"\0")), 6 => any_key()];
    let start = prop_oneof![1 => Just(Bytes::from_static(b"\0")), 4 => any_key()];
    (start, end).prop_map(|(start, end)| KeyRange::new(start, end))
}

fn any_query() -> impl Strategy<Value = RangeQuery> {
    let order = prop::sample::select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]);
    let target = prop_oneof![
        3 => Just(SortTarget::Key),
        1 => Just(SortTarget::Version),
        1 => Just(SortTarget::CreateRevision),
        1 => Just(SortTarget::ModRevision),
        1 => Just(SortTarget::Value),
    ];
    let filter = || prop_oneof![3 => Just(0), 1 => -2i64..20];
    let filters = [filter().boxed(), filter().boxed(), filter().boxed(), filter().boxed()];
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    (any_range(), -1i64..5, order, target, flags, filters).prop_map(
        |(range, limit, order, target, (keys_only, count_only), [min_mod, max_mod, min_create, max_create])| {
            RangeQuery {
                range,
                revision: 0,
                limit,
                order,
                target,
                keys_only,
                count_only,
                min_mod_revision: min_mod,
                max_mod_revision: max_mod,
                min_create_revision: min_create,
                max_create_revision: max_create,
                after: None,
                known_count: None,
            }
        },
    )
}

fn any_txn_op() -> impl Strategy<Value = TxnOp> {
    let value = prop::sample::select(vec!["", "x", "y"]).prop_map(|value| Bytes::from_static(value.as_bytes()));
    prop_oneof![
        4 => (any_key(), value, 0i64..3, any::<bool>())
            .prop_map(|(key, value, lease, want_previous)| TxnOp::Put { key, value, lease, want_previous }),
        2 => (any_range(), any::<bool>()).prop_map(|(range, want_previous)| TxnOp::Delete { range, want_previous }),
        2 => (any_query(), any::<Index>()).prop_map(|(query, at)| TxnOp::Range(query, at)),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let txn = || prop::collection::vec(any_txn_op(), 1..4);
    prop_oneof![
        12 => txn().prop_map(Op::Txn),
        1 => txn().prop_map(Op::Abandoned),
        2 => (any::<Index>(), any::<bool>()).prop_map(|(at, wait)| Op::Compact { at, wait }),
        3 => Just(Op::Flush),
        1 => Just(Op::Close),
        1 => Just(Op::Crash),
        6 => (any_query(), any::<Index>(), 1usize..4).prop_map(|(query, at, keys_max)| Op::Query { query, at, keys_max }),
        3 => (any::<Index>(), 1usize..5, prop_oneof![Just(usize::MAX), 1usize..300])
            .prop_map(|(from, revisions_max, bytes_max)| Op::Changes { from, revisions_max, bytes_max }),
    ]
}

struct Run {
    path: PathBuf,
    store: Option<Store>,
    model: Model,
    /// What the file holds, and up to which entry.
    flushed: (Model, u64),
    index: u64,
}

impl Run {
    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Txn(ops) => {
                let (txn, moment) = self.play(&ops);
                let changes = txn.end();
                assert_eq!(changes.is_some(), !moment.changes.is_empty());
                if let Some(changes) = changes {
                    assert_changes(&changes, &moment);
                    self.model.moments.push(moment);
                }
                self.end_entry();
            }
            Op::Abandoned(ops) => drop(self.play(&ops)),
            Op::Compact { at, wait } => self.compact(at.index(self.model.moments.len()) as i64, wait),
            Op::Flush => self.flush(),
            Op::Close => {
                self.store().close().unwrap();
                self.flushed = (self.model.clone(), self.index);
                self.reopen();
            }
            Op::Crash => {
                (self.model, self.index) = self.flushed.clone();
                self.reopen();
            }
            Op::Query { query, at, keys_max } => {
                let revision = at.index(self.model.moments.len() + 1) as i64;
                self.check_query(&RangeQuery { revision, ..query }, keys_max);
            }
            Op::Changes { from, revisions_max, bytes_max } => {
                self.check_changes(from.index(self.model.moments.len() + 1) as i64, revisions_max, bytes_max);
            }
        }
        assert_eq!(self.store().revision(), self.model.current());
        assert_eq!(self.store().compact_revision(), self.model.compacted);
    }

    fn play(&self, ops: &[TxnOp]) -> (WriteTxn<'_>, Moment) {
        let mut txn = self.store().write();
        let mut moment = Moment { keys: self.model.keys(0).clone(), changes: Vec::new() };
        let revision = self.model.current() + 1;
        for op in ops.iter().cloned() {
            match op {
                TxnOp::Put { key, value, lease, want_previous } => {
                    let before = model_put(&mut moment, revision, key.clone(), value.clone(), lease);
                    let outcome = txn.put(key.clone(), value, lease, want_previous).unwrap();
                    assert_eq!(outcome.previous, before.filter(|_| want_previous));
                    assert_eq!(txn.get(&key).unwrap().as_ref(), moment.keys.get(&key));
                }
                TxnOp::Delete { range, want_previous } => {
                    let gone = model_delete(&mut moment, revision, &range);
                    let outcome = txn.delete_range(&range, want_previous).unwrap();
                    assert_eq!(outcome.deleted, gone.len() as i64);
                    assert_eq!(outcome.previous, if want_previous { gone } else { Vec::new() });
                }
                TxnOp::Range(query, at) => self.check_txn_range(&txn, &moment, query, at),
            }
            assert_eq!(txn.revision(), revision - i64::from(moment.changes.is_empty()));
        }
        (txn, moment)
    }

    /// A read inside a transaction: of its own state, of an older one, or of one that cannot be read.
    fn check_txn_range(&self, txn: &WriteTxn<'_>, own: &Moment, query: RangeQuery, at: Index) {
        let next = self.model.current() + 1;
        let query = RangeQuery { revision: at.index(next as usize + 1) as i64, ..query };
        let mut pairs = Vec::new();
        let outcome = txn.range(&query, &mut |kv| pairs.push(kv.to_owned()));
        let keys = match query.revision {
            revision if revision == next && own.changes.is_empty() => {
                return assert!(matches!(outcome, Err(MvccError::Future { .. })), "{outcome:?}");
            }
            revision if revision <= 0 || revision == next => &own.keys,
            revision if revision < self.model.compacted => {
                return assert!(matches!(outcome, Err(MvccError::Compacted { .. })), "{outcome:?}");
            }
            revision => self.model.keys(revision),
        };
        let (more, count) = outcome.unwrap();
        assert_eq!((pairs, more, count), model_range(keys, &query), "{query:?}");
    }

    fn end_entry(&mut self) {
        self.index += 1;
        self.store().end_entry(at(self.index));
    }

    fn flush(&mut self) {
        assert_eq!(flush(self.store()).unwrap().index, self.index);
        self.flushed = (self.model.clone(), self.index);
    }

    fn compact(&mut self, revision: i64, wait: bool) {
        let (done, result) = callback();
        let outcome = self.store().compact(revision, wait.then_some(done));
        if revision <= self.model.compacted {
            return assert!(matches!(outcome, Err(MvccError::Compacted { .. })));
        }
        outcome.unwrap();
        self.model.compacted = revision;
        self.end_entry();
        if wait {
            assert_eq!(result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap(), at(self.index));
        }
        // A compaction's entry is written at once: now it is known to be.
        self.flush();
    }

    fn reopen(&mut self) {
        drop(self.store.take());
        let (store, restored) = open(&self.path);
        self.store = Some(store);
        assert_eq!(restored.position.index, self.index);
        let leased = self.model.keys(0).values().filter(|kv| kv.lease != 0);
        assert_eq!(restored.lease_attachments, leased.map(|kv| (kv.lease, kv.key.clone())).collect::<Vec<_>>());
    }

    fn check_query(&self, query: &RangeQuery, keys_max: usize) {
        let answer = read(self.store(), query, keys_max);
        if query.revision > self.model.current() {
            assert!(matches!(answer, Err(MvccError::Future { .. })), "{answer:?}");
        } else if query.revision > 0 && query.revision < self.model.compacted {
            assert!(matches!(answer, Err(MvccError::Compacted { .. })), "{answer:?}");
        } else {
            let keys = self.model.keys(query.revision);
            assert_eq!(answer.unwrap(), model_range(keys, query), "{query:?}");
            if let KeyRange::Single(key) = &query.range {
                assert_eq!(self.store().get(key, query.revision).unwrap().as_ref(), keys.get(key));
            }
        }
    }

    fn check_changes(&self, from: i64, revisions_max: usize, bytes_max: usize) {
        let sets = self.store().changes_since(from, revisions_max, bytes_max);
        if from < self.model.compacted {
            return assert!(matches!(sets, Err(MvccError::Compacted { .. })), "{sets:?}");
        }
        let sets = sets.unwrap();
        let first = from.max(2);
        assert_eq!(sets.is_empty(), first > self.model.current());
        assert!(sets.len() <= revisions_max);
        for (revision, set) in (first..).zip(&sets) {
            assert_eq!(set.revision, revision);
            assert_changes(set, &self.model.moments[revision as usize]);
        }
    }

    /// Reads everything at every revision that can be read, and at one that cannot.
    fn check_all(&self) {
        for revision in self.model.compacted.max(1)..=self.model.current() {
            self.check_query(&RangeQuery { revision, ..RangeQuery::all(everything()) }, 2);
            self.check_changes(revision, usize::MAX, usize::MAX);
        }
        self.check_query(&RangeQuery { revision: self.model.compacted - 1, ..RangeQuery::all(everything()) }, 2);
    }
}

fn assert_changes(set: &ChangeSet, moment: &Moment) {
    let changes: Vec<_> = set.changes.iter().map(|record| (record.tombstone, record.kv.clone())).collect();
    assert_eq!(changes, moment.changes);
    for (sub, record) in (0..).zip(set.changes.iter()) {
        assert_eq!(record.revision, Revision { main: set.revision, sub });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_store_agrees_with_a_model_of_all_revisions(ops in prop::collection::vec(any_op(), 1..50)) {
        let (_dir, path, store) = fresh();
        let mut run = Run { path, store: Some(store), model: Model::new(), flushed: (Model::new(), 0), index: 0 };
        for op in ops {
            run.apply(op);
        }
        run.check_all();
        run.apply(Op::Close);
        run.check_all();
    }
}
