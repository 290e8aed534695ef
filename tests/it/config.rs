//! Settings from the command line, the environment and a file, by the real binary.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::support::{Server, is_foreign};

/// `revgate config print --json` with a file, variables and flags: its exit code, output and errors.
fn print(path: &str, variables: &[(&str, &str)], flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_revgate"));
    command.args(["config", "print", "--json", "--config-file", path]).args(flags).envs(variables.iter().copied());
    let done = command.output().expect("the binary");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn setting(printed: &Value, name: &str) -> Value {
    let settings = printed["settings"].as_array().expect("settings");
    settings.iter().find(|setting| setting["name"] == name).expect("a setting").clone()
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("revgate.yaml");
    let path = path.to_str().unwrap();
    fs::write(path, "name: file\nmax-txn-ops: 1\nmax-request-bytes: 2048\nsnapshot-count: 7\nenable-pprof: true\n")
        .unwrap();
    let variables = [("REVGATE_NAME", "variable"), ("REVGATE_MAX_TXN_OPS", "2"), ("REVGATE_MAX_TXN_OP", "3")];
    let (code, printed, complaints) = print(path, &variables, &["--name", "flag"]);
    assert_eq!((code, &complaints[..]), (Some(0), ""));
    let printed: Value = serde_json::from_str(&printed).unwrap();
    for (name, value, origin) in [
        ("name", "flag", json!({"kind": "flag"})),
        ("max-txn-ops", "2", json!({"kind": "environment", "variable": "REVGATE_MAX_TXN_OPS"})),
        ("snapshot-count", "7", json!({"kind": "file", "path": path, "line": 4})),
        ("max-connections", "50000", json!({"kind": "default"})),
    ] {
        assert_eq!(setting(&printed, name), json!({"name": name, "value": value, "origin": origin}));
    }
    let warnings = printed["warnings"].as_array().unwrap();
    let told = |text: &str| warnings.iter().any(|warning| warning.as_str().unwrap().contains(text));
    assert!(told("enable-pprof in") && told("line 5: has no effect here"), "{warnings:?}");
    assert!(told("REVGATE_MAX_TXN_OP is set and is no setting; did you mean REVGATE_MAX_TXN_OPS?"), "{warnings:?}");
}

#[test]
fn what_a_member_would_refuse_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("revgate.yaml");
    let path = path.to_str().unwrap();
    fs::write(path, "name: a\nmax-txn-ops: 0\n").unwrap();
    let told = |place: &str| format!("error: {place}: 0 is not between 1 and 1000000\n");
    let (code, _, complaint) = print(path, &[], &[]);
    assert_eq!((code, complaint), (Some(2), told(&format!("max-txn-ops in {path} line 2"))));
    let (code, _, complaint) = print(path, &[("REVGATE_MAX_TXN_OPS", "0")], &[]);
    assert_eq!((code, complaint), (Some(2), told("REVGATE_MAX_TXN_OPS")));
    fs::write(path, "nam: a\n").unwrap();
    let (code, printed, complaint) = print(path, &[], &[]);
    assert_eq!((code, &printed[..]), (Some(2), ""));
    assert_eq!(complaint, format!("error: {path} line 1: nam is no setting; did you mean name?\n"));
}

#[test]
fn a_member_is_run_by_its_file() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("revgate.yaml");
    fs::write(&path, "name: by-file\nlisten-metrics-urls: http://127.0.0.1:0\n").unwrap();
    let server = Server::start_with(&dir.path().join("data"), &["--config-file", path.to_str().unwrap()]);
    let members = server.client().call("/v3/cluster/member/list", &json!({}));
    assert_eq!(members["members"][0]["name"], "by-file");
    assert!(server.output().contains("probes and metrics are on http://127.0.0.1:"), "{}", server.output());
}

#[test]
fn an_argument_that_only_etcd_has_is_answered_in_words() {
    let (code, _, complaint) = crate::files::revgate(&["serve", "--enable-pprof", "--name", "a"]);
    assert_eq!(code, 2);
    let note =
        "note: etcd's --enable-pprof would have no effect here: there is no profiler in the process. Take it away.";
    assert!(complaint.contains(note), "{complaint}");
    let (code, _, complaint) = crate::files::revgate(&["serve", "--no-such-thing"]);
    assert!(code == 2 && !complaint.contains("note: etcd's"), "{complaint}");
}
