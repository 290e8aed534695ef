//! WebSocket frames, against a running member: whatever a client sends, it gets well-formed messages and an end.
//!
//! The first byte says which path is opened, and whether the rest is raw frames or messages (separated by `0xff`), which are
//! sent in frames as they should be.

#![no_main]

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::LazyLock,
    time::Duration,
};

use libfuzzer_sys::fuzz_target;
use revgate::server::Server;

/// Longest silence before the end of a socket whose client has hung up.
const SILENCE_MAX: Duration = Duration::from_secs(20);
const PATHS: [&str; 4] = ["/v3/watch", "/v3/watch", "/v3/lease/keepalive", "/v3/kv/range"];

struct Member {
    address: SocketAddr,
    _server: Server,
    _runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

static MEMBER: LazyLock<Member> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a directory");
    let data_dir = dir.path().join("data").to_string_lossy().into_owned();
    let config = revgate::cli::config_of(&["--data-dir", &data_dir, "--listen-client-urls", "http://127.0.0.1:0"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let server = runtime.block_on(Server::start(config)).expect("a member");
    Member { address: server.addresses()[0], _server: server, _runtime: runtime, _dir: dir }
});

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    let mut client = TcpStream::connect(MEMBER.address).expect("a connection");
    client.set_read_timeout(Some(SILENCE_MAX)).expect("a time limit");
    let path = PATHS[usize::from(how % 4)];
    let upgrade = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    client.write_all(upgrade.as_bytes()).expect("a request");
    // A client that hangs up before it is answered gets no answer, as in any HTTP.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("an answer");
        head.extend_from_slice(&byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "no upgrade: {}", String::from_utf8_lossy(&head));
    let mut sent = Vec::new();
    if how & 4 == 0 {
        for message in rest.split(|byte| *byte == 0xff) {
            frame(&mut sent, if how & 8 == 0 { 1 } else { 2 }, message);
        }
        frame(&mut sent, 8, &1000_u16.to_be_bytes());
    } else {
        sent.extend_from_slice(rest);
    }
    // The member may have closed before all is sent; what it said is looked at all the same.
    if client.write_all(&sent).is_ok() {
        let _ = client.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    match client.read_to_end(&mut answer) {
        Ok(_) => check(&answer),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the socket did not end: {error}"),
    }
});

/// Appends a whole frame, masked with zeros.
fn frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(0x80 | opcode);
    match payload.len() {
        short @ 0..126 => out.push(0x80 | short as u8),
        long => {
            out.push(0x80 | 126);
            out.extend_from_slice(&u16::try_from(long).expect("inputs are shorter").to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

/// The member's part: whole frames; texts are one JSON object each, and a close frame is the last.
fn check(answer: &[u8]) {
    let mut rest = answer;
    let mut closed = false;
    while let [first, second, after @ ..] = rest {
        assert!(!closed, "a frame after the close frame");
        let (length, after) = match second {
            126 => (usize::from(u16::from_be_bytes([after[0], after[1]])), &after[2..]),
            0..126 => (usize::from(*second), after),
            _ => panic!("a frame that is masked or far too long: {second}"),
        };
        let payload = &after[..length];
        match first {
            0x81 => {
                let text = std::str::from_utf8(payload).expect("UTF-8");
                assert!(text.starts_with('{') && text.ends_with('}') && !text.contains('\n'), "{text}");
            }
            0x88 => closed = true,
            0x89 | 0x8a => {}
            other => panic!("a frame of kind {other:#x}"),
        }
        rest = &after[length..];
    }
    assert!(rest.is_empty(), "half a frame");
}
