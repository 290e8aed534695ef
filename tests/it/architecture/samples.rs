//! Bad samples: the checker must find what is wrong with each, and nothing wrong with a good one.

use std::{fs, path::Path};

use super::check;

const MAP: &str = "//! The map: `wal`, `bolt`, `mvcc`, `apply`, `consensus`, `http`, `service`, `disk`, `error`, `clock`, `server`, `cli`.\n";

/// Writes the files below a fresh `src`, checks them, and returns each violation as one line.
fn violations_of(files: &[(&str, &str)]) -> Vec<String> {
    let root = tempfile::tempdir().expect("a temporary directory");
    for (file, text) in [("lib.rs", MAP)].iter().chain(files) {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).expect("a directory in the temporary one");
        fs::write(path, text).expect("a file in the temporary directory");
    }
    check(root.path()).expect("samples are readable").iter().map(ToString::to_string).collect()
}

/// The one violation of a sample of one file.
fn violation_of(file: &str, text: &str) -> String {
    let found = violations_of(&[(file, text)]);
    assert_eq!(found.len(), 1, "one violation in {file}, found {found:?}");
    found.into_iter().next().unwrap_or_default()
}

#[test]
fn good_sample_passes() {
    let mvcc = "//! Keys.\nuse std::io;\nuse crate::{bolt::{self, Db as File}, error::ApiError};\nuse prost::Message as _;\n\
        // crate::http is above\nconst TEXT: &str = \"crate::http\";\nconst RAW: &str = r#\"unsafe { \"tokio_tungstenite::x\" }\"#;\n\
        fn f<'a>(x: &'a str) -> char { '\"' }\n#[cfg(test)]\nuse crate::service::Services;\n\
        #[cfg(test)]\nmod tests {\n    use crate::http::Server;\n    async fn f() { g().await }\n}\n";
    let found = violations_of(&[
        ("mvcc/mod.rs", mvcc),
        (
            "mvcc/index.rs",
            "//! Index.\nuse super::Store;\nuse super::super::bolt::Db;\nfn f() { crate::clock::now() }\n",
        ),
        ("wal/mod.rs", "//! Log.\n#[cfg(test)]\nmod checks;\n"),
        ("wal/checks.rs", "use crate::mvcc::Store;\n"),
        ("wal/checks/more.rs", "//! Tests.\nuse crate::mvcc::Store;\n"),
        ("bolt/mod.rs", "//! Tree.\nmod map;\n"),
        ("bolt/map.rs", "//! Map.\nuse memmap2::Mmap;\nfn f() { unsafe { g() } }\n"),
        ("http/mod.rs", "//! Wire.\nuse tokio_tungstenite::WebSocketStream;\nasync fn f() { g().await }\n"),
    ]);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn import_from_above_is_found() {
    assert_eq!(
        violation_of("wal/mod.rs", "//! Log.\n\nuse crate::{\n    disk::Disk,\n    mvcc::Store,\n};\n"),
        "src/wal/mod.rs:5: imports `mvcc` (floor 3), which is above floor 2"
    );
}

#[test]
fn import_from_a_neighbour_is_found() {
    let expected = "src/wal/reader.rs:2: imports `bolt`, which is a neighbour on floor 2";
    assert_eq!(violation_of("wal/reader.rs", "//! Reads.\nfn f(db: &crate::bolt::Db) {}\n"), expected);
    assert_eq!(violation_of("wal/reader.rs", "//! Reads.\nuse super::super::bolt::Db;\n"), expected);
    assert_eq!(
        violation_of("error.rs", "//! Errors.\nuse crate::clock::Clock;\n"),
        "src/error.rs:2: imports `clock`, which is a neighbour on floor 0"
    );
}

#[test]
fn import_through_super_of_the_root_is_found() {
    assert_eq!(
        violation_of("wal/mod.rs", "//! Log.\nuse super::{http::HttpServer};\n"),
        "src/wal/mod.rs:2: imports `http` (floor 8), which is above floor 2"
    );
}

#[test]
fn top_floor_goes_one_way() {
    assert_eq!(
        violation_of("server.rs", "//! Server.\nuse crate::cli::Flags;\n"),
        "src/server.rs:2: imports `cli`, which is a neighbour on floor 9"
    );
}

#[test]
fn unknown_room_is_found() {
    assert_eq!(
        violation_of("helpers/mod.rs", "//! Things.\n"),
        "src/helpers/mod.rs:1: `helpers` is not a room of the house: give it a floor in the plan"
    );
    assert_eq!(
        violation_of("wal/mod.rs", "//! Log.\nuse crate::helpers::x;\n"),
        "src/wal/mod.rs:2: imports `helpers`, which is not a room of the house"
    );
}

#[test]
fn async_below_the_consensus_is_found() {
    assert_eq!(
        violation_of("apply/mod.rs", "//! Apply.\nasync fn f() {}\n"),
        "src/apply/mod.rs:2: `async` below floor 6"
    );
    assert_eq!(
        violation_of("apply/mod.rs", "//! Apply.\nfn f() { spawn(g().await) }\n"),
        "src/apply/mod.rs:2: `await` below floor 6"
    );
    assert_eq!(violations_of(&[("consensus/mod.rs", "//! Raft.\nasync fn f() {}\n")]), Vec::<String>::new());
}

#[test]
fn library_outside_its_room_is_found() {
    let cases = [
        ("service/mod.rs", "openraft::Raft", "consensus/"),
        ("service/mod.rs", "tokio_tungstenite::WebSocketStream", "http/"),
        ("bolt/mod.rs", "memmap2::Mmap", "bolt/map.rs"),
        ("service/mod.rs", "prost::Name", "proto/"),
        ("service/mod.rs", "prost_reflect::DynamicMessage", "proto/, http/"),
    ];
    for (file, path, place) in cases {
        let text = format!("//! Room.\nuse {path};\n");
        assert_eq!(violation_of(file, &text), format!("src/{file}:2: `{path}` outside {place}"));
    }
}

#[test]
fn unsafe_outside_the_map_is_found_even_in_tests() {
    let text = "//! Log.\n#[cfg(test)]\nmod tests {\n    fn f() { unsafe { g() } }\n}\n";
    assert_eq!(violation_of("wal/mod.rs", text), "src/wal/mod.rs:4: `unsafe` outside bolt/map.rs");
}

#[test]
fn long_file_is_found() {
    let text = format!("//! Log.\n{}", "// line\n".repeat(600));
    assert_eq!(violation_of("wal/mod.rs", &text), "src/wal/mod.rs:601: 601 lines, more than 600");
}

#[test]
fn file_without_a_header_is_found() {
    assert_eq!(
        violation_of("wal/mod.rs", "use std::io;\n"),
        "src/wal/mod.rs:1: does not begin with a //! comment that says what the module is for"
    );
}

#[test]
fn room_missing_from_the_map_is_found() {
    assert_eq!(
        violation_of("lease/mod.rs", "//! Leases.\n"),
        "src/lib.rs:1: the map in the //! comment does not name the room `lease`"
    );
}
