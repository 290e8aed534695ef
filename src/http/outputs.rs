//! The JSON of a stream's messages, framed as the gateway frames them. Events are encoded once for all their streams.

use bytes::Bytes;

use super::{json::write, reply::write_stream_error};
use crate::{
    error::ApiError,
    metrics::Metrics,
    proto::etcdserverpb::{LeaseKeepAliveResponse, WatchResponse},
    service::WatchOutput,
    watch::{EncodedBatch, Event},
};

/// What a response takes beside its events, about.
const RESPONSE_BYTES: usize = 192;

/// A watch's response as a line, `{"result":…}`. Where many streams say the same it is made once.
pub(super) fn watch_line(output: &WatchOutput) -> Bytes {
    match output {
        WatchOutput::Control(response) => line(|out| write::watch(out, response)),
        WatchOutput::Events { header, watch_id, fragment, events, .. } => {
            let response =
                WatchResponse { header: Some(*header), watch_id: *watch_id, fragment: *fragment, ..Default::default() };
            let bytes_expected = events.iter().map(|event| encoded(event).len() + 1).sum();
            let make = || {
                line_of(bytes_expected, |out| {
                    write::watch_events(out, &response, events.iter().map(|event| encoded(event).as_ref()));
                })
            };
            // Pieces are nobody else's.
            if *fragment {
                return make();
            }
            let first =
                events.encoded.get_or_init(|| EncodedBatch { header: *header, watch_id: *watch_id, bytes: make() });
            if first.header == *header && first.watch_id == *watch_id { first.bytes.clone() } else { make() }
        }
    }
}

/// The same without the line's end, as a message.
pub(super) fn watch_message(output: &WatchOutput) -> Bytes {
    let mut line = watch_line(output);
    line.truncate(line.len() - 1);
    line
}

/// Whether a response's events were read from history, and so can wait for others'.
pub(super) fn is_history(output: &WatchOutput) -> bool {
    matches!(output, WatchOutput::Events { applied_at: None, .. })
}

/// Keys and values in a response, in bytes, as they are stored. It is longer than that.
pub(super) fn content_bytes(output: &WatchOutput) -> usize {
    match output {
        WatchOutput::Control(_) => 0,
        WatchOutput::Events { events, .. } => {
            events.iter().map(|event| event.record.kv.key.len() + event.record.kv.value.len()).sum()
        }
    }
}

/// Notes how long it took until a response was handed to its connection.
pub(super) fn observe(metrics: &Metrics, output: &WatchOutput) {
    if let WatchOutput::Events { applied_at: Some(applied_at), .. } = output {
        metrics.watch_delivery_duration.observe(applied_at.elapsed().as_secs_f64());
    }
}

fn line(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    line_of(0, write)
}

fn line_of(bytes_expected: usize, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut line = Vec::with_capacity(bytes_expected + RESPONSE_BYTES);
    let mut object = write::Object::begin(&mut line);
    write(object.name("result"));
    object.end();
    line.push(b'\n');
    line.into()
}

/// Appends `{"result":…}` with a lease's renewal.
pub(super) fn keep_alive(out: &mut Vec<u8>, response: &LeaseKeepAliveResponse) {
    let mut object = write::Object::begin(out);
    write::keep_alive(object.name("result"), response);
    object.end();
}

/// A stream's last line: why it ends.
pub(super) fn error_line(error: &ApiError) -> Bytes {
    let mut line = Vec::new();
    write_stream_error(&mut line, error);
    line.push(b'\n');
    line.into()
}

fn encoded(event: &Event) -> &Bytes {
    event.encoded.get_or_init(|| {
        let mut out = Vec::new();
        write::event(&mut out, event.record.tombstone, Some(&event.record.kv), event.previous.as_ref());
        out.into()
    })
}
