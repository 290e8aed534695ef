//! revgate: a durable, watchable key-value store that speaks etcd v3's JSON gateway over HTTP and WebSocket.
//!
//! # The map
//!
//! The house has floors. A room uses only rooms on floors below its own; neighbours on one floor do not know each
//! other. A test reads the sources and fails on any import that breaks this.
//!
//! | floor | rooms | what lives there |
//! | --- | --- | --- |
//! | 9 | `main`, [`cli`], [`server`] | the commands; `server` builds the floors in order and takes them down in reverse, or works on their files offline |
//! | 8 | [`http`] | bytes on the wire: accept loop, TLS, routes, JSON, the three call shapes (unary, stream, socket), probes, metrics, debug |
//! | 7 | [`service`] | etcd's semantics, one file a service, no HTTP in it |
//! | 6 | [`consensus`] | the Raft library behind a facade: propose, read barrier, status |
//! | 5 | [`apply`] | the replicated state machine: committed commands through auth → quota → mvcc |
//! | 4 | [`lease`], [`auth`], [`watch`], [`members`] | replicated or local state beside the keys |
//! | 3 | [`mvcc`] | revisions of keys: key index, history, reads at a revision, write transactions, compaction |
//! | 2 | [`wal`], [`bolt`] | the log; the single-file copy-on-write B+tree in bbolt's format |
//! | 1 | [`disk`] | every file operation of the engine behind one seam |
//! | 0 | [`proto`], [`config`], [`error`], [`clock`], [`background`], [`metrics`] | types of the interface, settings, the one table of errors, time, threads whose work can wait, every metric |
//!
//! Floors 0 to 5 are plain functions over plain data, with threads of their own where they wait for a disk; nothing
//! below floor 6 is `async`.
//!
//! # The way of a write
//!
//! `http` parses the body into a typed request → `service` checks what needs no state, and that there is room →
//! `consensus` packs everything that is waiting into one log entry → `wal` makes it durable with one `fdatasync` for the
//! whole batch → committed → `apply`: auth, quota, mvcc give it the next revision, append it to the ring (changes newer
//! than the file, in memory), update the key index, hand the change set to `watch`, and answer the waiting request. A
//! backend thread takes the ring's tail into the tree every 100 ms or 10,000 operations, with the consistent index in the
//! same commit. A request waits for exactly one sync. A member alone writes a small entry on the thread that applies, when
//! there is nothing left to apply; otherwise the apply loop waits for no disk. [`metrics`] times eight stages on this way,
//! and `service` tells from them where a write is stuck.
//!
//! # The way of a read
//!
//! `service` asks `consensus` for a read barrier when the read is linearizable (one for all that are waiting), then opens
//! a read at a revision: index → revision → ring or mapped page (of many keys at once, by the commit's list of pages) → JSON,
//! by the chunk, as fast as the socket takes it. No lock is held while bytes go out; the revision is pinned, and a compaction
//! waits for it, for a bounded time.
//!
//! # The way of an event
//!
//! `apply` hands over a change set and goes on → `watch` finds the watchers (exact keys by map, ranges by interval index),
//! makes each event once, and queues it within each stream's budget → socket. Who cannot keep up becomes a cursor and reads
//! history, from the ring or from the file, until it has caught up. History is read, encoded and written by threads of
//! lower priority: who follows live does not wait behind who replays.

pub mod apply;
pub mod auth;
pub mod background;
pub mod bolt;
pub mod cli;
pub mod clock;
pub mod config;
pub mod consensus;
pub mod disk;
pub mod error;
pub mod http;
pub mod lease;
pub mod members;
pub mod metrics;
pub mod mvcc;
pub mod proto;
pub mod server;
pub mod service;
pub mod wal;
pub mod watch;
