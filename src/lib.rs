//! revgate.
pub mod bolt;
pub mod clock;
pub mod disk;
pub mod error;
pub mod proto;
pub mod wal;
