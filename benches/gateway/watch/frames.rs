//! WebSocket as a client that wants little of it: a handshake, one request, then frames as they come.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// No mask: it hides nothing here, and is allowed to be zero.
const MASK: [u8; 4] = [0; 4];

/// Opens a socket on `/v3/watch`.
pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let request = format!(
        "GET /v3/watch HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    // Byte by byte at its end: what comes behind belongs to the frames, and nothing comes before we ask.
    while !head.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut head).await.unwrap() > 0, "{}", String::from_utf8_lossy(&head));
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Sends one text message of fewer than 65536 bytes.
pub(crate) async fn send_text(stream: &mut TcpStream, text: &str) {
    let mut frame = vec![0x80 | TEXT];
    match text.len() {
        length @ ..126 => frame.push(0x80 | length as u8),
        length => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(text.as_bytes());
    stream.write_all(&frame).await.unwrap();
}

/// Cuts what was read into messages.
#[derive(Default)]
pub(crate) struct Frames {
    /// The beginning of a frame whose end is still to come.
    pending: Vec<u8>,
}

impl Frames {
    /// Calls `message` for each text frame that is whole with what was read; how many pings there were. An error where the
    /// server closes.
    pub(crate) fn take(&mut self, read: &[u8], message: &mut impl FnMut(&[u8])) -> io::Result<usize> {
        let mut pings = 0;
        if self.pending.is_empty() {
            let used = take_frames(read, &mut pings, message)?;
            self.pending.extend_from_slice(&read[used..]);
        } else {
            self.pending.extend_from_slice(read);
            let used = take_frames(&self.pending, &mut pings, message)?;
            self.pending.drain(..used);
        }
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
        Ok(pings)
    }
}

/// Answers a ping.
pub(crate) async fn pong(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&[0x80 | PONG, 0x80, 0, 0, 0, 0]).await
}

/// Returns how much of `bytes` was whole frames.
fn take_frames(bytes: &[u8], pings: &mut usize, message: &mut impl FnMut(&[u8])) -> io::Result<usize> {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let (head, length) = match rest {
            [_, length @ ..126, ..] => (2, usize::from(*length)),
            [_, 126, a, b, ..] => (4, usize::from(u16::from_be_bytes([*a, *b]))),
            [_, 127, a, b, c, d, e, f, g, h, ..] => (10, u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) as usize),
            _ => return Ok(at),
        };
        let Some(payload) = rest.get(head..head + length) else { return Ok(at) };
        match rest[0] & 0x0f {
            PING => *pings += 1,
            CLOSE => return Err(io::Error::other(format!("closed: {}", String::from_utf8_lossy(payload)))),
            PONG => {}
            _ => message(payload),
        }
        at += head + length;
    }
}

/// Calls `found` with each event's revision and what follows the beginning of its value.
pub(crate) fn events(message: &[u8], mut found: impl FnMut(u64, &[u8])) {
    let mut rest = message;
    while let Some(after) = after_field(rest, b"\"mod_revision\":") {
        let length = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let revision = number(&after[..length]);
        let value = after_field(&after[length..], b"\"value\":").expect("every event here has a value");
        found(revision, value);
        rest = value;
    }
}

/// What follows a field's name and the quotation mark that its value begins with.
fn after_field<'m>(message: &'m [u8], field: &[u8]) -> Option<&'m [u8]> {
    let after = &message[find(message, field)? + field.len()..];
    // Some versions of the original put a space there.
    let spaces = after.iter().take_while(|byte| **byte == b' ').count();
    after.get(spaces + 1..)
}

pub(super) fn number(digits: &[u8]) -> u64 {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}

/// Where the needle is.
pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = needle[0];
    let mut at = 0;
    loop {
        at += haystack[at..].iter().position(|byte| *byte == first)?;
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        at += 1;
    }
}
