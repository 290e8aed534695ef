//! The plan of the house as data: which room is on which floor, which library belongs to which room, and the limits
//! every source file keeps.

/// One room and its floor.
pub(super) struct Room {
    /// Name of the module directly below the crate's root.
    pub(super) name: &'static str,
    /// A module imports only from floors below its own.
    pub(super) floor: u32,
}

const fn room(name: &'static str, floor: u32) -> Room {
    Room { name, floor }
}

/// Every room of the house, from the roof down.
pub(super) const ROOMS: [Room; 21] = [
    room("main", 9),
    room("cli", 9),
    room("server", 9),
    room("http", 8),
    room("service", 7),
    room("consensus", 6),
    room("apply", 5),
    room("lease", 4),
    room("auth", 4),
    room("watch", 4),
    room("members", 4),
    room("mvcc", 3),
    room("wal", 2),
    room("bolt", 2),
    room("disk", 1),
    room("proto", 0),
    room("config", 0),
    room("error", 0),
    room("clock", 0),
    room("background", 0),
    room("metrics", 0),
];

/// The stairs of the top floor, the only one whose rooms know each other: who may import whom there.
pub(super) const TOP_FLOOR_STAIRS: [(&str, &str); 3] = [("main", "cli"), ("main", "server"), ("cli", "server")];

/// Below this floor everything is plain functions: nothing is async.
pub(super) const ASYNC_FLOOR_MIN: u32 = 6;

/// A library and the places, relative to `src`, where its name may stand. A place ending in `/` is a whole room.
pub(super) const LIBRARIES: [(&str, &[&str]); 12] = [
    ("openraft", &["consensus/"]),
    ("tokio_tungstenite", &["http/"]),
    ("memmap2", &["bolt/map.rs"]),
    ("prost", &["proto/"]),
    ("prost_reflect", &["proto/", "http/"]),
    ("tokio_rustls", &["http/tls.rs", "http/client_tls.rs"]),
    ("x509_parser", &["http/tls.rs"]),
    ("saphyr_parser", &["cli/sources/file.rs"]),
    ("opentelemetry", &["http/trace.rs", "http/trace/"]),
    ("opentelemetry_sdk", &["http/trace.rs", "http/trace/"]),
    ("opentelemetry_otlp", &["http/trace.rs", "http/trace/"]),
    ("opentelemetry_http", &["http/trace.rs", "http/trace/"]),
];

/// What of `prost` may be named everywhere: the trait that encodes and decodes our types, the error its decoding has, and
/// the size of the length that stands before a message inside another.
pub(super) const PROST_NAMES_FOR_ALL: [&str; 3] = ["Message", "DecodeError", "length_delimiter_len"];

/// The one file in which `unsafe` may stand.
pub(super) const UNSAFE_FILE: &str = "bolt/map.rs";

/// Longest source file, in lines.
pub(super) const FILE_LINES_MAX: usize = 600;

/// The floor of a room; `None` if there is no such room.
pub(super) fn floor_of(name: &str) -> Option<u32> {
    ROOMS.iter().find(|room| room.name == name).map(|room| room.floor)
}

/// Whether one room may import from another.
pub(super) fn may_import(from: &Room, to: &str) -> bool {
    let Some(to_floor) = floor_of(to) else { return false };
    from.name == to || to_floor < from.floor || TOP_FLOOR_STAIRS.contains(&(from.name, to))
}
