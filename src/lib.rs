//! revgate: a durable, watchable key-value store behind etcd v3's HTTP/JSON gateway.
//!
//! The house, from the roof down. A module imports only from floors below its own; `tests/it/architecture.rs` checks it.
//!
//! - 9: `main` and `cli`, the commands; `server`, which builds the floors in order and takes them down in reverse
//! - 8: `http`, bytes on the wire: accept loop, routes, JSON, streams and sockets, health and metrics pages
//! - 7: `service`, etcd's semantics, one file a service, no HTTP in it
//! - 6: `consensus`, the Raft library behind a facade: propose, read barrier, status
//! - 5: `apply`, the replicated state machine: one committed command after another
//! - 4: `lease`, `watch`, `members`, the state beside the keys
//! - 3: `mvcc`, revisions of keys: index, history, reads at a revision, compaction
//! - 2: `wal`, the log; `bolt`, the single-file copy-on-write B+tree in bbolt's format
//! - 1: `disk`, every file operation of the engine behind one seam
//! - 0: `proto`, `config`, `error`, `clock`, `metrics`: types of the interface, settings, the error table, time, figures
//!
//! A write goes `http` → `service` → `consensus` → `wal` (one sync for all that wait) → `apply` → `mvcc` → `watch`, and
//! is answered; `bolt` takes it over later. A read goes `http` → `service` → read barrier → `mvcc`, and streams out.

pub mod apply;
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
