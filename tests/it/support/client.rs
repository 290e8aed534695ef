//! HTTP/1.1 over one kept connection, as plain as can be: nothing is retried, nothing is hidden.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

use serde_json::Value;

use super::ANSWER_MAX;

/// A client with one connection, opened when it is needed and again after it was lost.
pub(crate) struct Client {
    address: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
    /// Goes with every request, if there is one.
    token: Option<String>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The first header of this (lower-case) name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("HTTP {} with a body that is not JSON ({error}): {}", self.status, self.text())
        })
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        Client { address, connection: None, token: None }
    }

    /// Sends a token with every request from now on, or none.
    pub(crate) fn set_token(&mut self, token: Option<String>) {
        self.token = token;
    }

    /// GET. An error means that the outcome is not known.
    pub(crate) fn get(&mut self, path: &str) -> io::Result<Response> {
        self.request("GET", path, b"")
    }

    /// POST. An error means that the outcome is not known.
    pub(crate) fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> io::Result<Response> {
        self.request("POST", path, body.as_ref())
    }

    /// Any method.
    pub(crate) fn request(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Response> {
        let mut answer = self.send(method, path, body)?;
        let mut whole = Vec::new();
        answer.read_to_end(&mut whole)?;
        let Body { reader, status, headers, framing } = answer;
        if !matches!(framing, Framing::UntilClose) {
            self.connection = Some(reader);
        }
        Ok(Response { status, headers, body: whole })
    }

    /// POST of a call that must succeed.
    pub(crate) fn call(&mut self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body.to_string()).unwrap_or_else(|error| panic!("{path} {body}: {error}"));
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.json()
    }

    /// POST whose answer is a stream of lines; takes the connection.
    pub(crate) fn open_lines(mut self, path: &str, body: &str) -> Lines {
        let answer = self.send("POST", path, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{path} {body}");
        Lines(BufReader::new(answer))
    }

    /// Sends a request and reads the head of its answer. The connection is kept only once the body is read.
    fn send(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Body> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BufReader::new(connect(self.address)?),
        };
        let authorization = self.token.as_ref().map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{authorization}\r\n",
            self.address,
            body.len()
        );
        let sent = connection.get_mut().write_all(&[head.as_bytes(), body].concat());
        // A server that refuses a long body may answer and close before it has read it: its answer counts.
        Body::read_head(connection).map_err(|error| sent.err().unwrap_or(error))
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// Lines of a streamed answer.
pub(crate) struct Lines(BufReader<Body>);

impl Lines {
    /// The next line; `None` where the stream ended cleanly. A stream that breaks off is an error.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim_end_matches('\n').to_owned()))
    }

    /// The next line, which must come, as JSON.
    pub(crate) fn next_json(&mut self) -> Value {
        let line = self.next_line().unwrap().expect("one more line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("a line that is not JSON ({error}): {line}"))
    }
}

/// An answer whose head is read, and whose body is read from it.
struct Body {
    reader: BufReader<TcpStream>,
    status: u16,
    headers: Vec<(String, String)>,
    framing: Framing,
}

enum Framing {
    /// So many bytes are left.
    Length(u64),
    /// So many bytes of this chunk are left; `None` before the next chunk's head.
    Chunked(Option<u64>),
    UntilClose,
    Ended,
}

impl Body {
    fn read_head(mut reader: BufReader<TcpStream>) -> io::Result<Body> {
        let status_line = head_line(&mut reader)?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| invalid(format!("not a status line: {status_line}")))?;
        let mut headers = Vec::new();
        loop {
            let line = head_line(&mut reader)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid(format!("not a header: {line}")))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let value_of = |name: &str| headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str());
        let framing = match (value_of("transfer-encoding"), value_of("content-length")) {
            (Some("chunked"), None) => Framing::Chunked(None),
            (None, Some(length)) => Framing::Length(length.parse().map_err(|_| invalid(format!("length {length}")))?),
            (None, None) if status == 204 => Framing::Length(0),
            (None, None) => Framing::UntilClose,
            both => return Err(invalid(format!("framing {both:?}"))),
        };
        Ok(Body { reader, status, headers, framing })
    }

    /// Reads at most `left` bytes; the connection's end before that is an error.
    fn read_some(&mut self, buffer: &mut [u8], left: u64) -> io::Result<usize> {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match self.reader.read(&mut buffer[..most])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.framing {
                Framing::Ended => return Ok(0),
                Framing::UntilClose => return self.reader.read(buffer),
                Framing::Length(0) => self.framing = Framing::Ended,
                Framing::Length(left) => {
                    let read = self.read_some(buffer, left)?;
                    self.framing = Framing::Length(left - read as u64);
                    return Ok(read);
                }
                Framing::Chunked(None) => {
                    let line = head_line(&mut self.reader)?;
                    let size = u64::from_str_radix(&line, 16).map_err(|_| invalid(format!("chunk size {line:?}")))?;
                    if size == 0 {
                        while !head_line(&mut self.reader)?.is_empty() {}
                        self.framing = Framing::Ended;
                    } else {
                        self.framing = Framing::Chunked(Some(size));
                    }
                }
                Framing::Chunked(Some(0)) => {
                    head_line(&mut self.reader)?;
                    self.framing = Framing::Chunked(None);
                }
                Framing::Chunked(Some(left)) => {
                    let read = self.read_some(buffer, left)?;
                    self.framing = Framing::Chunked(Some(left - read as u64));
                    return Ok(read);
                }
            }
        }
    }
}

fn head_line(reader: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
