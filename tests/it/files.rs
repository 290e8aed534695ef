//! The commands that work on files, with the real binary: what they print, and with which code they end.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::support::{Server, is_foreign};

/// Runs a command; its exit code, and what it said on both streams.
pub(crate) fn revgate(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_revgate")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().expect("a code, not a signal"), text(stdout), text(stderr))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A member with ten keys, of which one has history; its URL.
fn member(dir: &Path) -> (Server, String) {
    let server = Server::start(&dir.join("data"));
    let mut client = server.client();
    for number in 0..10 {
        client.call("/v3/kv/put", &json!({ "key": format!("a2V{number}"), "value": "dmFsdWU=" }));
    }
    client.call("/v3/kv/put", &json!({ "key": "a2V0", "value": "c2Vjb25k" }));
    let url = format!("http://{}", server.address());
    (server, url)
}

#[test]
fn a_snapshot_is_saved_told_restored_and_served() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (server, url) = member(dir.path());
    let file = dir.path().join("snapshot");
    let (code, said, error) = revgate(&["snapshot", "save", text(&file), "--endpoint", &url]);
    assert_eq!((code, said.starts_with("saved "), &error[..]), (0, true, ""), "{said}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!dir.path().join("snapshot.part").exists());
    let (code, _, error) = revgate(&["snapshot", "save", text(&file), "--endpoint", &url]);
    assert!(code == 1 && error.contains("is there already"), "{error}");

    let (code, said, _) = revgate(&["snapshot", "status", "--json", text(&file)]);
    let status: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &status["revision"], &status["totalKey"]), (0, &json!(12), &json!(10)));
    let (code, said, _) = revgate(&["snapshot", "status", text(&file)]);
    assert!(code == 0 && said.contains("3.7.0") && said.contains(&format!("{:x}", status["hash"].as_u64().unwrap())));

    let data = dir.path().join("restored");
    let (code, said, error) = revgate(&["snapshot", "restore", text(&file), "--data-dir", text(&data)]);
    assert_eq!((code, &error[..]), (0, ""));
    assert!(said.contains("Its SHA-256 is right") && said.contains("revgate serve --data-dir"), "{said}");
    let (code, _, error) = revgate(&["snapshot", "restore", text(&file), "--data-dir", text(&data)]);
    assert!(code == 1 && error.contains("is not empty"), "{error}");

    let restored = Server::start(&data);
    let whole = json!({ "key": "AA==", "range_end": "AA==" });
    for revision in [2, 11, 12] {
        let mut query = whole.clone();
        query["revision"] = json!(revision.to_string());
        let pairs = |server: &Server| server.client().call("/v3/kv/range", &query)["kvs"].clone();
        assert_eq!(pairs(&restored), pairs(&server));
    }
    let put = restored.client().call("/v3/kv/put", &json!({ "key": "bmV3" }));
    assert_eq!(put["header"]["revision"], json!("13"));
}

#[test]
fn codes_tell_a_sound_file_from_a_damaged_one_and_from_none() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (server, url) = member(dir.path());
    let db = dir.path().join("data/member/snap/db");
    let (code, _, error) = revgate(&["check", text(&db)]);
    assert!(code == 2 && error.contains("in use by a running member"), "{error}");
    let file = dir.path().join("snapshot");
    assert_eq!(revgate(&["snapshot", "save", text(&file), "--endpoint", &url]).0, 0);
    server.kill();

    let (code, said, _) = revgate(&["check", text(&file)]);
    assert!(code == 0 && said.contains("is sound") && said.contains("SHA-256 is right"), "{said}");
    assert_eq!(revgate(&["check", text(&db)]).0, 0, "a member that was killed leaves a sound file");
    let (code, said, _) = revgate(&["inspect", text(&file)]);
    assert!(code == 0 && said.contains("biggest keys"), "{said}");
    let (code, said, _) = revgate(&["inspect", "--json", text(&file)]);
    let inspected: Value = serde_json::from_str(&said).unwrap();
    assert!(code == 0 && inspected["buckets"].as_array().unwrap().len() == 10, "{said}");

    let mut bytes = fs::read(&file).unwrap();
    bytes[4096 + 24] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let (code, said, _) = revgate(&["check", text(&file)]);
    assert!(code == 1 && said.contains("page 1: ") && said.contains("is damaged: 2 findings"), "{said}");
    fs::write(&file, vec![0; 8192]).unwrap();
    let (code, _, error) = revgate(&["check", text(&file)]);
    assert!(code == 1 && error.contains("both meta pages are damaged"), "{error}");
    assert_eq!(revgate(&["check", text(&dir.path().join("nothing"))]).0, 2);
    assert_eq!(revgate(&["check"]).0, 2);
}

#[test]
fn what_cannot_be_saved_leaves_no_file() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (server, url) = member(dir.path());
    let file = dir.path().join("snapshot");
    let save = |more: &[&str]| revgate(&[&["snapshot", "save", text(&file)][..], more].concat());
    for (more, expected) in [
        (&["--endpoint", &url, "--user", "nobody:wrong"][..], "the member answered"),
        (&["--endpoint", &url, "--user", "nobody"], "--user"),
        (&["--endpoint", "https://127.0.0.1:1"], "--cacert"),
        (&["--endpoint", "127.0.0.1"], "expected a URL"),
    ] {
        let (code, _, error) = save(more);
        assert!(code == 1 && error.contains(expected), "{error}");
    }
    server.kill();
    let (code, _, error) = save(&["--endpoint", &url]);
    assert!(code == 1 && error.contains("cannot be reached"), "{error}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["data"]);
}
