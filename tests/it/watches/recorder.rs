//! Records one watch's stream, over either transport.

use std::{io, net::TcpStream, thread};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use super::{
    checker::{Recording, Spec},
    writers::is_the_end,
};
use crate::support::{ANSWER_MAX, Lines, Server};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    Lines,
    Socket,
}

enum Feed {
    Lines(Box<Lines>),
    Socket(Box<WebSocket<TcpStream>>),
}

impl Feed {
    /// The next response; `None` where the stream ends, however it does.
    fn next(&mut self) -> Option<Value> {
        let text = match self {
            Feed::Lines(lines) => lines.next_line().ok()??,
            Feed::Socket(socket) => loop {
                match socket.read().ok()? {
                    Message::Text(text) => break text.as_str().to_owned(),
                    Message::Ping(_) | Message::Pong(_) => {}
                    _ => return None,
                }
            },
        };
        let message: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(message.get("error").is_none(), "{message}");
        Some(message["result"].clone())
    }
}

/// A watch that is being recorded.
pub(crate) struct Recorder {
    feed: Feed,
    recording: Recording,
}

impl Recorder {
    /// Opens a watch and waits until it exists.
    pub(crate) fn open(server: &Server, transport: Transport, spec: Spec) -> io::Result<Recorder> {
        let request = spec.request().to_string();
        let feed = match transport {
            Transport::Lines => Feed::Lines(Box::new(server.client().open_lines("/v3/watch", &request))),
            Transport::Socket => {
                let stream = TcpStream::connect(server.address())?;
                stream.set_read_timeout(Some(ANSWER_MAX))?;
                let url = format!("ws://{}/v3/watch", server.address());
                let (mut socket, _) = tungstenite::client(url, stream).map_err(io::Error::other)?;
                socket.send(Message::text(request)).map_err(io::Error::other)?;
                Feed::Socket(Box::new(socket))
            }
        };
        let mut recorder = Recorder { feed, recording: Recording { spec, responses: Vec::new(), compacted: 0 } };
        recorder.take(1);
        Ok(recorder)
    }

    /// Records up to so many responses; whether the end was told, or the stream ended.
    pub(crate) fn take(&mut self, responses: usize) -> bool {
        for number in 0..responses {
            let Some(response) = self.feed.next() else { return true };
            let events = response["events"].as_array().map_or(&[][..], Vec::as_slice);
            let ends = events.iter().any(is_the_end) || response["canceled"] == true;
            // Pieces of a response belong together.
            let ends = ends && response["fragment"] != true;
            self.recording.responses.push(response);
            if ends {
                return true;
            }
            // A bookmark now and then, where one can ask.
            if let Feed::Socket(socket) = &mut self.feed
                && number % 7 == 3
            {
                // A server that is gone is noticed by the next read.
                let _ = socket.send(Message::text(json!({"progress_request": {}}).to_string()));
            }
        }
        false
    }

    /// Goes away without a word.
    pub(crate) fn close(self) -> Recording {
        self.recording
    }

    /// Records to the end, on a thread.
    pub(crate) fn run_to_end(mut self) -> thread::JoinHandle<Recording> {
        thread::spawn(move || {
            while !self.take(1000) {}
            self.close()
        })
    }
}
