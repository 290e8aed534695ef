//! Any interleaving of writers, watchers, polls and rounds, against what history says each watch must get.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use proptest::prelude::*;

use super::rig::*;
use crate::{
    mvcc::{ChangeSet, KeyRange},
    watch::{Delivery, Event, HubOptions, WatchSpec, WatchStream},
};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const STREAMS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    /// One transaction; keys by index, `None` deletes.
    Commit(Vec<(usize, Option<usize>)>),
    /// The oldest visible change sets reach the hub.
    Notify(usize),
    Round,
    /// The read that was asked for, if one was.
    Read,
    Create {
        stream: usize,
        range: usize,
        start_revision: i64,
        flags: u8,
    },
    Cancel {
        stream: usize,
        which: prop::sample::Index,
    },
    Poll {
        stream: usize,
        count: usize,
    },
    Progress(usize),
    Compact(i64),
    Reopen(usize),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let changes = prop::collection::vec((0..KEYS.len(), prop::option::weighted(0.7, 0..120usize)), 1..4);
    prop_oneof![
        6 => changes.prop_map(Op::Commit),
        6 => (1..4usize).prop_map(Op::Notify),
        6 => Just(Op::Round),
        4 => Just(Op::Read),
        4 => (0..STREAMS, 0..8usize, -1..30i64, 0..32u8)
            .prop_map(|(stream, range, start_revision, flags)| Op::Create { stream, range, start_revision, flags }),
        1 => (0..STREAMS, any::<prop::sample::Index>()).prop_map(|(stream, which)| Op::Cancel { stream, which }),
        4 => (0..STREAMS, 1..5usize).prop_map(|(stream, count)| Op::Poll { stream, count }),
        1 => (0..STREAMS).prop_map(Op::Progress),
        1 => (0..6i64).prop_map(Op::Compact),
        1 => (0..STREAMS).prop_map(Op::Reopen),
        1 => (0..150u64).prop_map(Op::Advance),
    ]
}

/// A watch as the client sees it.
struct Seen {
    spec: WatchSpec,
    from: i64,
    got: Vec<Arc<Event>>,
    canceled: Option<i64>,
    cancel_asked: bool,
}

struct Client {
    stream: WatchStream,
    /// Watches in order of creation, by id; ids are never used twice here.
    watches: BTreeMap<i64, Seen>,
    specs: VecDeque<(i64, WatchSpec)>,
    header: i64,
    asked: usize,
    answered: usize,
}

impl Client {
    fn new(stream: WatchStream) -> Client {
        Client { stream, watches: BTreeMap::new(), specs: VecDeque::new(), header: 0, asked: 0, answered: 0 }
    }
}

fn range(which: usize) -> KeyRange {
    match which {
        at @ 0..5 => single(KEYS[at]),
        5 => bounded("b", "d"),
        6 => KeyRange::From("c".into()),
        _ => everything(),
    }
}

fn covers(range: &KeyRange, key: &[u8]) -> bool {
    match range {
        KeyRange::Single(one) => one == key,
        KeyRange::Bounded { start, end } => start <= key && end > key,
        KeyRange::From(start) => start <= key,
    }
}

/// (revision, sub) of every change a watch is to get.
fn expected(sets: &[ChangeSet], seen: &Seen) -> Vec<(i64, i64)> {
    sets.iter()
        .filter(|set| set.revision >= seen.from)
        .flat_map(|set| set.changes.iter())
        .filter(|record| covers(&seen.spec.range, &record.kv.key))
        .filter(|record| if record.tombstone { !seen.spec.no_delete } else { !seen.spec.no_put })
        .map(|record| (record.revision.main, record.revision.sub))
        .collect()
}

fn places(events: &[Arc<Event>]) -> Vec<(i64, i64)> {
    events.iter().map(|event| (event.record.revision.main, event.record.revision.sub)).collect()
}

/// Takes one delivery and checks it against all that must hold at this point of the stream.
fn take(world: &World, client: &mut Client) -> Result<bool, TestCaseError> {
    let Some(delivery) = next(&client.stream) else { return Ok(false) };
    let sets = world.sets();
    let header = match &delivery {
        Delivery::Created { revision, .. }
        | Delivery::Events { revision, .. }
        | Delivery::Progress { revision, .. }
        | Delivery::Canceled { revision, .. } => *revision,
    };
    prop_assert!(header >= client.header && header <= world.revision(), "headers never go back");
    client.header = header;
    match delivery {
        Delivery::Created { watch_id, revision } => {
            let (id, spec) = client.specs.pop_front().unwrap();
            prop_assert_eq!(id, watch_id);
            let from = if spec.start_revision == 0 { revision + 1 } else { spec.start_revision };
            client.watches.insert(id, Seen { spec, from, got: Vec::new(), canceled: None, cancel_asked: false });
        }
        Delivery::Events { watch_id, revision, events, fragment, .. } => {
            let seen = client.watches.get_mut(&watch_id).unwrap();
            prop_assert_eq!(seen.canceled, None, "nothing comes after Canceled");
            prop_assert_eq!(fragment, seen.spec.fragment);
            let first = events.first().unwrap().record.revision.main;
            prop_assert!(seen.got.last().is_none_or(|last| last.record.revision.main < first), "no revision is torn");
            prop_assert!(events.last().unwrap().record.revision.main <= revision);
            for event in events.iter() {
                let (record, previous) = (&event.record, &event.previous);
                let before = world.get(&record.kv.key, record.revision.main - 1);
                let is_lost = record.revision.main - 1 < world.compacted.load(Ordering::SeqCst);
                let is_right = if seen.spec.prev_kv { *previous == before } else { false };
                prop_assert!(
                    is_right || (previous.is_none() && (!seen.spec.prev_kv || is_lost)),
                    "prev_kv of {:?}",
                    event
                );
            }
            seen.got.extend(events.iter().cloned());
            let so_far = expected(&sets, seen);
            prop_assert_eq!(
                places(&seen.got),
                &so_far[..seen.got.len().min(so_far.len())],
                "ordered, unique, complete"
            );
        }
        Delivery::Progress { watch_id, revision } => {
            client.answered += usize::from(watch_id == -1);
            for (id, seen) in &client.watches {
                if watch_id == -1 || watch_id == *id {
                    let due = expected(&sets, seen).iter().filter(|place| place.0 <= revision).count();
                    prop_assert!(
                        seen.canceled.is_some() || seen.cancel_asked || seen.got.len() == due,
                        "all up to {} is delivered to {} and nothing above",
                        revision,
                        id
                    );
                    prop_assert!(watch_id == -1 || seen.spec.progress_notify);
                }
            }
        }
        Delivery::Canceled { watch_id, compact_revision, reason, .. } => {
            prop_assert_eq!(reason, "");
            let seen = client.watches.get_mut(&watch_id).unwrap();
            prop_assert_eq!(seen.canceled, None);
            seen.canceled = Some(compact_revision);
            if compact_revision == 0 {
                prop_assert!(seen.cancel_asked);
            } else {
                prop_assert!(compact_revision <= world.compacted.load(Ordering::SeqCst));
                prop_assert!(seen.got.last().is_none_or(|last| last.record.revision.main < compact_revision));
            }
        }
    }
    Ok(true)
}

fn run(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let limits = HubOptions {
        stream_bytes_max: 1_000,
        progress_interval: Duration::from_millis(100),
        catch_up_revisions_max: 3,
        catch_up_bytes_max: 400,
    };
    let mut rig = Rig::with(limits, 1_500);
    let mut unsent: VecDeque<ChangeSet> = VecDeque::new();
    let mut clients: Vec<Client> = (0..STREAMS).map(|_| Client::new(rig.open())).collect();
    for op in ops {
        match op {
            Op::Commit(changes) => {
                let values: Vec<Option<String>> =
                    changes.iter().map(|(_, len)| len.map(|len| "v".repeat(len))).collect();
                let mut txn: Vec<Change<'_>> = Vec::new();
                for ((key, _), value) in changes.iter().zip(&values) {
                    // A key changes once in a transaction.
                    if txn.iter().all(|(other, _)| *other != KEYS[*key]) {
                        txn.push((KEYS[*key], value.as_deref()));
                    }
                }
                unsent.extend(rig.world.commit(&txn));
            }
            Op::Notify(count) => {
                for set in unsent.drain(..count.min(unsent.len())) {
                    rig.shared.inbox.push_changes(set);
                }
            }
            Op::Round => {
                rig.engine.round();
            }
            Op::Read => {
                rig.reader.step();
            }
            Op::Create { stream, range: which, start_revision, flags } => {
                let flag = |bit: u8| flags & (1 << bit) != 0;
                let spec = WatchSpec {
                    no_put: flag(0) && flag(1),
                    no_delete: flag(1) && flag(2),
                    prev_kv: flag(2),
                    fragment: flag(3),
                    progress_notify: flag(4),
                    ..spec(range(which), start_revision.max(0))
                };
                let id = clients[stream].stream.create(spec.clone()).unwrap();
                clients[stream].specs.push_back((id, spec));
            }
            Op::Cancel { stream, which } => {
                let client = &mut clients[stream];
                if !client.watches.is_empty() {
                    let at = which.index(client.watches.len());
                    let (id, seen) = client.watches.iter_mut().nth(at).unwrap();
                    seen.cancel_asked |= client.stream.cancel(*id);
                }
            }
            Op::Poll { stream, count } => {
                for _ in 0..count {
                    take(&rig.world, &mut clients[stream])?;
                }
            }
            Op::Progress(stream) => {
                clients[stream].stream.request_progress();
                clients[stream].asked += 1;
            }
            Op::Compact(back) => {
                // etcd compacts up to what is applied, whatever the watchers have.
                let revision = (rig.world.revision() - back).max(rig.world.compacted.load(Ordering::SeqCst));
                rig.world.compacted.store(revision, Ordering::SeqCst);
            }
            Op::Reopen(stream) => clients[stream] = Client::new(rig.open()),
            Op::Advance(millis) => rig.clock.advance(Duration::from_millis(millis)),
        }
    }
    unsent.into_iter().for_each(|set| rig.shared.inbox.push_changes(set));
    finish(&mut rig, clients)
}

/// All is handed over and all clients read: in the end each watch has everything, or was told why not.
fn finish(rig: &mut Rig, mut clients: Vec<Client>) -> Result<(), TestCaseError> {
    loop {
        rig.settle();
        let mut any = false;
        for client in &mut clients {
            any |= take(&rig.world, client)?;
        }
        if !any {
            break;
        }
    }
    let sets = rig.world.sets();
    let mut live = 0;
    for client in &clients {
        prop_assert_eq!(client.answered, client.asked);
        prop_assert!(client.specs.is_empty());
        for seen in client.watches.values() {
            prop_assert_eq!(seen.canceled == Some(0), seen.cancel_asked);
            if seen.canceled.is_none() {
                live += 1;
                prop_assert_eq!(places(&seen.got), expected(&sets, seen));
            }
        }
    }
    prop_assert_eq!(rig.metrics.watcher_total.get(), live);
    prop_assert_eq!((rig.metrics.slow_watcher_total.get(), rig.metrics.pending_events_total.get()), (0, 0));
    drop(clients);
    rig.settle();
    prop_assert!(rig.engine.streams.is_empty() && rig.engine.watchers.iter().all(Option::is_none));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_watch_gets_what_history_says(ops in prop::collection::vec(op(), 1..120)) {
        run(ops)?;
    }
}
