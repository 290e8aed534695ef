//! A disk that is really full: what grows is turned away, everything else goes on, and all comes back with the room.
//!
//! Most of it needs small file systems of its own and is left out unless asked for: `.ci/run full_disk`, or as root
//! `cargo test --test it -- --ignored full_disk`.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use base64_simd::STANDARD;
use serde_json::{Value, json};

use crate::support::{Client, Server, is_foreign, wait_until};

const VALUE_BYTES: usize = 10_000;
/// Segments of the log: small ones, for small disks.
const SEGMENT: &str = "--wal-segment-bytes=1048576";
/// Longest time until a member has noticed that there is room again.
const NOTICED_MAX: Duration = Duration::from_secs(30);

/// A member, and what it has acknowledged.
struct Member {
    server: Server,
    client: Client,
    acknowledged: Vec<usize>,
    next: usize,
}

fn key(number: usize) -> String {
    STANDARD.encode_to_string(format!("key{number:06}"))
}

fn value() -> String {
    STANDARD.encode_to_string(vec![b'v'; VALUE_BYTES])
}

impl Member {
    fn start(data_dir: &Path) -> Member {
        // Perhaps on a full disk: then it lives, and is not ready.
        let server = Server::start_unready(data_dir, &[SEGMENT]);
        let client = server.client();
        Member { server, client, acknowledged: Vec::new(), next: 0 }
    }

    /// Puts one more key; the refusal, if it is one.
    fn put(&mut self) -> Result<(), Value> {
        let number = self.next;
        self.next += 1;
        let body = json!({"key": key(number), "value": value()}).to_string();
        let answer = self.client.post("/v3/kv/put", body).unwrap();
        if answer.status == 200 {
            self.acknowledged.push(number);
            return Ok(());
        }
        assert_eq!(answer.status, 503, "{}", answer.text());
        Err(answer.json())
    }

    /// Puts until it is refused for want of room in a file of this name.
    fn put_until_refused(&mut self, file: &str) {
        let puts_max = self.next + 5_000;
        let refusal = loop {
            assert!(self.next < puts_max, "no put was refused");
            if let Err(refusal) = self.put() {
                break refusal;
            }
        };
        let text = refusal["message"].as_str().unwrap();
        assert!(text.starts_with("etcdserver: the disk is full: ") && text.contains(file), "{text}");
        assert!(text.ends_with("make room on the disk, or delete keys and compact"), "{text}");
        assert_eq!(refusal["code"], 14);
    }

    /// What a member on a full disk says of itself, and what it still does.
    fn expect_full(&mut self, file: &str) {
        let ready = self.client.get("/readyz").unwrap();
        assert_eq!(ready.status, 503);
        assert!(ready.text().contains("[-]disk_space failed: "), "{}", ready.text());
        for path in ["/livez", "/readyz?exclude=disk_space", "/health?exclude=NOSPACE", "/health?serializable=true"] {
            assert_eq!(self.client.get(path).unwrap().status, 200, "{path}");
        }
        assert!(self.client.get("/health").unwrap().text().contains("DISK FULL"));
        let metrics = self.client.get("/metrics").unwrap().text();
        let gauge = format!(r#"revgate_disk_full{{file="{file}"}} 1"#);
        assert!(metrics.contains(&gauge), "no {gauge}");
        self.expect_acknowledged();
    }

    fn expect_acknowledged(&mut self) {
        let everything = json!({"key": "AA==", "range_end": "AA=="});
        let range = self.client.call("/v3/kv/range", &everything);
        let mut found: Vec<&str> = Vec::new();
        for pair in range["kvs"].as_array().map(Vec::as_slice).unwrap_or_default() {
            assert_eq!(pair["value"], json!(value()), "{}", pair["key"]);
            found.push(pair["key"].as_str().unwrap());
        }
        let expected: Vec<String> = self.acknowledged.iter().map(|number| key(*number)).collect();
        assert_eq!(found, expected);
    }

    fn wait_ready(&mut self) {
        let client = &mut self.client;
        wait_until("a ready member", NOTICED_MAX, || (client.get("/readyz").unwrap().status == 200).then_some(()));
    }

    /// Deletes what there is, and the history.
    fn delete_and_compact(&mut self) {
        let deleted = self.client.call("/v3/kv/deleterange", &json!({"key": "AA==", "range_end": "AA=="}));
        let compaction = json!({"revision": deleted["header"]["revision"], "physical": true});
        self.client.call("/v3/kv/compaction", &compaction);
        self.acknowledged.clear();
    }

    /// As after a power cut; everything acknowledged is there.
    fn kill_and_restart(self, data_dir: &Path) -> Member {
        let Member { server, acknowledged, next, .. } = self;
        server.kill();
        let mut member = Member { acknowledged, next, ..Member::start(data_dir) };
        member.expect_acknowledged();
        member
    }
}

#[test]
fn a_file_that_may_not_grow_is_a_full_disk() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut member = Member::start(dir.path());
    member.put().unwrap();
    member.server.limit_file_bytes(Some(3 << 20));
    member.put_until_refused("member/snap/db");
    member.expect_full("db");
    member.server.limit_file_bytes(None);
    member.wait_ready();
    member.put().unwrap();
    let mut member = member.kill_and_restart(dir.path());

    // And back by deletes and a compaction alone.
    member.server.limit_file_bytes(Some(6 << 20));
    member.put_until_refused("member/snap/db");
    member.delete_and_compact();
    member.wait_ready();
    for _ in 0..50 {
        member.put().unwrap();
    }
    member.kill_and_restart(dir.path());
}

/// A small file system in memory. It goes with this.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(dir: &Path, bytes: u64) -> SmallDisk {
        fs::create_dir_all(dir).unwrap();
        let size = format!("size={bytes}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(dir).status().unwrap();
        assert!(status.success(), "a file system could not be mounted: run this as root, or by .ci/run full_disk");
        SmallDisk(dir.to_owned())
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.ballast()).unwrap();
        for bytes in [1 << 16, 1 << 12] {
            loop {
                match file.write_all(&vec![1; bytes]) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a member that is still being killed has files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
#[ignore = "mounts a file system: .ci/run full_disk"]
fn a_full_disk_turns_growth_away_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("disk");
    let disk = SmallDisk::mount(&data_dir, 48 << 20);
    let mut member = Member::start(&data_dir);
    for _ in 0..3 {
        for _ in 0..20 {
            member.put().unwrap();
        }
        disk.fill();
        member.put_until_refused("");
        assert_eq!(member.client.get("/readyz").unwrap().status, 503);
        member.expect_acknowledged();
        // The way back: what is reserved of the log and of the file pays for it.
        member.delete_and_compact();
        disk.make_room();
        member.wait_ready();
    }
    disk.fill();
    member.put_until_refused("");
    // A start on a full disk.
    let mut member = member.kill_and_restart(&data_dir);
    member.put_until_refused("");
    disk.make_room();
    member.wait_ready();
    member.put().unwrap();
    member.kill_and_restart(&data_dir);
}

#[test]
#[ignore = "mounts a file system: .ci/run full_disk"]
fn a_full_disk_under_the_file_alone_is_overcome_by_deletes_and_compactions() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(&dir.path().join("member/snap"), 8 << 20);
    let mut member = Member::start(dir.path());
    for _ in 0..3 {
        member.put_until_refused("member/snap/db");
        member.expect_full("db");
        member.delete_and_compact();
        member.wait_ready();
    }
    member.put_until_refused("member/snap/db");
    member.kill_and_restart(dir.path());
    drop(disk);
}

#[test]
#[ignore = "mounts a file system: .ci/run full_disk"]
fn a_full_disk_under_the_log_alone_lets_through_what_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(&dir.path().join("member/wal"), 12 << 20);
    let mut member = Member::start(dir.path());
    member.put().unwrap();
    disk.fill();
    member.put_until_refused("member/wal");
    member.expect_full("wal");
    member.delete_and_compact();
    // Down to the last of it: refused, not hung.
    let client = &mut member.client;
    let refused = (0..100_000).find_map(|number| {
        let body = json!({"key": key(number), "prev_kv": true}).to_string();
        let answer = client.post("/v3/kv/deleterange", body).unwrap();
        (answer.status != 200).then_some(answer)
    });
    let refused = refused.expect("a refusal");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("the disk is full"), "{}", refused.text());
    assert_eq!(member.client.get("/livez").unwrap().status, 200);
    disk.make_room();
    member.wait_ready();
    for _ in 0..300 {
        member.put().unwrap();
    }
    member.kill_and_restart(dir.path());
}
