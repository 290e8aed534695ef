//! How stores are filled: txns on some connections, and data directories that are filled once and copied for each round.

use std::{
    cell::Cell,
    fmt::Write,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::{
    load,
    options::Options,
    server::{Running, Target, remove},
};

/// Both servers' limit of operations in a txn.
const OPS_PER_TXN: usize = 128;
const CONNECTIONS: usize = 8;

/// A request of a txn that puts; key and value in base64.
pub(crate) fn put_op(key: &str, value: &str) -> String {
    format!(r#"{{"request_put":{{"key":"{key}","value":"{value}"}}}}"#)
}

/// Operations by number, as many to a txn as go.
pub(crate) fn txns(address: SocketAddr, operations: usize, operation: impl Fn(usize) -> String + 'static) {
    let done = Cell::new(0);
    load::run(address, CONNECTIONS, move |_| {
        let numbers = done.get()..(done.get() + OPS_PER_TXN).min(operations);
        done.set(numbers.end);
        if numbers.is_empty() {
            return None;
        }
        let mut body = String::from(r#"{"success":["#);
        for number in numbers.clone() {
            let comma = if number == numbers.start { "" } else { "," };
            write!(body, "{comma}{}", operation(number)).unwrap();
        }
        body.push_str("]}");
        Some(load::post(address, "/v3/kv/txn", &body))
    });
}

/// A field of an answer whose value is in quotes.
pub(crate) fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let found = answer.split_once(&format!(r#""{name}":""#)).and_then(|(_, rest)| rest.split_once('"'));
    found.unwrap_or_else(|| panic!("no {name} in {answer}")).0
}

/// A data directory that was filled, and is copied for each round.
pub(crate) struct Template {
    dir: PathBuf,
}

impl Template {
    /// Starts the server on a fresh directory, fills it, and stops it.
    pub(crate) fn fill(options: &Options, target: &Target, what: &str, fill: impl FnOnce(&Running)) -> Template {
        let (mut server, dir) = target.start_fresh(options, &format!("{what}-filled"));
        fill(&server);
        server.settle();
        server.stop();
        Template { dir }
    }

    /// Starts the server on a copy, which is on the disk before that.
    pub(crate) fn start(&self, options: &Options, target: &Target, what: &str) -> (Running, PathBuf) {
        let copy = target.data_dir(options, what);
        remove(&copy);
        copy_dir(&self.dir, &copy);
        // What the copy left to be written would be written during the measurement.
        rustix::fs::sync();
        let (server, _) = target.start(&copy);
        server.settle();
        (server, copy)
    }

    pub(crate) fn remove(self) {
        remove(&self.dir);
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    // A server looks at who may read its directory.
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&source, &target);
        } else {
            fs::copy(&source, &target).unwrap();
        }
    }
}
