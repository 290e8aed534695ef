//! A client that reads answers of any size with constant memory, and believes none that is not whole.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
};

use crate::load;

/// Longest line of a head or a chunk, in bytes.
const LINE_BYTES_MAX: usize = 4096;
const ANSWER_BEGINS: &[u8] = br#"{"header":{"cluster_id":""#;
const BEGINNING_BYTES: usize = ANSWER_BEGINS.len();
/// How much of an answer's end is kept.
const END_BYTES: usize = 512;

/// A kept connection.
pub(crate) struct Connection {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

/// Why an answer is no whole answer, and after how many bytes of its body.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) after_bytes: u64,
    pub(crate) how: String,
}

impl Connection {
    /// `buffer_bytes`: the most that is taken from the socket at once.
    pub(crate) fn open(address: SocketAddr, buffer_bytes: usize) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { address, stream: BufReader::with_capacity(buffer_bytes, stream) }
    }

    /// The socket, to change what room the kernel has for what the client has not taken yet.
    pub(crate) fn socket(&self) -> TcpStream {
        self.stream.get_ref().try_clone().unwrap()
    }

    /// Sends a request, and hands the body of its answer to `take`, piece by piece, without framing.
    pub(crate) fn ask(&mut self, path: &str, body: &str, take: &mut dyn FnMut(&[u8])) -> Result<(), Broken> {
        let mut taken = 0;
        let result = self.exchange(path, body, &mut |piece| {
            taken += piece.len() as u64;
            take(piece);
        });
        result.map_err(|how| Broken { after_bytes: taken, how })
    }

    fn exchange(&mut self, path: &str, body: &str, take: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let request = load::post(self.address, path, body);
        self.stream.get_mut().write_all(&request).map_err(|error| error.to_string())?;
        let status = self.line()?;
        if !status.starts_with("HTTP/1.1 200 ") {
            return Err(status);
        }
        let (mut length, mut is_chunked) = (None, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse::<u64>().ok(),
                Some(("transfer-encoding", value)) => is_chunked = value.trim() == "chunked",
                Some(_) => {}
                None if line.is_empty() => break,
                None => return Err(format!("no header: {line}")),
            }
        }
        match length {
            Some(length) => self.pieces(length, take),
            None if is_chunked => self.chunks(take),
            None => Err("an answer without length and chunks".to_owned()),
        }
    }

    fn chunks(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        loop {
            let line = self.line()?;
            let length = u64::from_str_radix(&line, 16).map_err(|_| format!("no length of a chunk: {line:?}"))?;
            self.pieces(length, take)?;
            let end = self.line()?;
            if !end.is_empty() {
                return Err(format!("a chunk is longer than it says, or there are trailers: {end:?}"));
            }
            if length == 0 {
                return Ok(());
            }
        }
    }

    /// Takes so many bytes.
    fn pieces(&mut self, mut length: u64, take: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        while length > 0 {
            let read = self.stream.fill_buf().map_err(|error| error.to_string())?;
            if read.is_empty() {
                return Err("the connection was closed in the middle".to_owned());
            }
            let piece = &read[..read.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
            let taken = piece.len();
            take(piece);
            self.stream.consume(taken);
            length -= taken as u64;
        }
        Ok(())
    }

    /// A line without its end.
    fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        loop {
            let read = self.stream.fill_buf().map_err(|error| error.to_string())?;
            let end = read.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(read.len(), |end| end + 1);
            line.extend_from_slice(&read[..taken]);
            self.stream.consume(taken);
            if end.is_some() {
                break;
            }
            if taken == 0 || line.len() > LINE_BYTES_MAX {
                return Err(format!("closed, or no line: {:?}", String::from_utf8_lossy(&line)));
            }
        }
        let line = line.strip_suffix(b"\r\n").ok_or("a line without its end")?;
        String::from_utf8(line.to_vec()).map_err(|error| error.to_string())
    }
}

/// What is remembered of an answer that is too big to be kept.
#[derive(Default)]
pub(crate) struct Ends {
    pub(crate) bytes: u64,
    beginning: Vec<u8>,
    end: Vec<u8>,
}

impl Ends {
    pub(crate) fn take(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let missing = BEGINNING_BYTES - self.beginning.len();
        self.beginning.extend_from_slice(&piece[..missing.min(piece.len())]);
        let last = &piece[piece.len().saturating_sub(END_BYTES)..];
        let kept = self.end.len().min(END_BYTES - last.len());
        self.end.drain(..self.end.len() - kept);
        self.end.extend_from_slice(last);
    }

    /// Whether what was taken can be the list of so many keys, that many bytes each at least.
    pub(crate) fn check(&self, keys: usize, key_bytes_min: usize) -> Result<(), String> {
        let end = String::from_utf8_lossy(&self.end);
        if self.beginning != ANSWER_BEGINS {
            return Err(format!("it begins with {}", String::from_utf8_lossy(&self.beginning)));
        }
        if !end.ends_with(&format!(r#""}}],"count":"{keys}"}}"#)) {
            return Err(format!("it ends with {end}"));
        }
        if self.bytes < (keys * key_bytes_min) as u64 {
            return Err(format!("{} bytes are too few", self.bytes));
        }
        Ok(())
    }
}

/// The first text field of a name in a part of an answer.
pub(crate) fn first_field<'a>(part: &'a [u8], name: &str) -> Option<&'a str> {
    field(part, name, |part, name| part.windows(name.len()).position(|window| window == name))
}

/// The last text field of a name in a part of an answer.
pub(crate) fn last_field<'a>(part: &'a [u8], name: &str) -> Option<&'a str> {
    field(part, name, |part, name| part.windows(name.len()).rposition(|window| window == name))
}

fn field<'a>(part: &'a [u8], name: &str, find: fn(&[u8], &[u8]) -> Option<usize>) -> Option<&'a str> {
    let name = format!(r#""{name}":""#);
    let value = &part[find(part, name.as_bytes())? + name.len()..];
    std::str::from_utf8(&value[..value.iter().position(|byte| *byte == b'"')?]).ok()
}
