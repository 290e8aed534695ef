//! Types of the interface, compiled from our own .proto files, which carry etcd's names and numbers.
//!
//! They are the wire's messages, the backend file's values and the log's commands at once. This room knows no
//! transport and no JSON; how a message looks as JSON is `http`'s business.

#![allow(missing_docs, clippy::all, reason = "generated code")]

mod secrets;

/// The stored form of a key's revision, and a change to it.
pub mod mvccpb {
    include!(concat!(env!("OUT_DIR"), "/mvccpb.rs"));
}

/// Users, roles and permissions as stored.
pub mod authpb {
    include!(concat!(env!("OUT_DIR"), "/authpb.rs"));
}

/// A lease as stored.
pub mod leasepb {
    include!(concat!(env!("OUT_DIR"), "/leasepb.rs"));
}

/// The client-facing messages.
pub mod etcdserverpb {
    include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
}

/// Locks.
pub mod v3lockpb {
    include!(concat!(env!("OUT_DIR"), "/v3lockpb.rs"));
}

/// Elections.
pub mod v3electionpb {
    include!(concat!(env!("OUT_DIR"), "/v3electionpb.rs"));
}

/// The replicated log's own messages.
pub mod revgatepb {
    include!(concat!(env!("OUT_DIR"), "/revgatepb.rs"));
}

/// The compiled descriptor set of every .proto file, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
