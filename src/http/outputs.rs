//! The JSON of a stream's messages, framed as the gateway frames them. Events are encoded once for all their streams.

use bytes::Bytes;

use super::{
    json::{generic, write},
    reply::write_stream_error,
};
use crate::{
    error::ApiError,
    proto::etcdserverpb::{LeaseKeepAliveResponse, SnapshotResponse, WatchResponse},
    service::WatchOutput,
    watch::Event,
};

/// Room for what is around a part of a snapshot.
const SNAPSHOT_FRAME_BYTES: usize = 128;

/// Appends `{"result":…}` with a watch's response.
pub(super) fn watch(out: &mut Vec<u8>, output: &WatchOutput) {
    let mut object = write::Object::begin(out);
    let out = object.name("result");
    match output {
        WatchOutput::Control(response) => write::watch(out, response),
        WatchOutput::Events { header, watch_id, fragment, events } => {
            let response =
                WatchResponse { header: Some(*header), watch_id: *watch_id, fragment: *fragment, ..Default::default() };
            write::watch_events(out, &response, events.iter().map(|event| encoded(event).as_ref()));
        }
    }
    object.end();
}

/// Appends `{"result":…}` with a lease's renewal.
pub(super) fn keep_alive(out: &mut Vec<u8>, response: &LeaseKeepAliveResponse) {
    let mut object = write::Object::begin(out);
    write::keep_alive(object.name("result"), response);
    object.end();
}

/// `{"result":…}` with a part of a snapshot.
pub(super) fn snapshot(response: &SnapshotResponse) -> Result<Vec<u8>, ApiError> {
    // Four characters for three bytes, and what is around them.
    let mut out = Vec::with_capacity(response.blob.len() / 3 * 4 + SNAPSHOT_FRAME_BYTES);
    let mut object = write::Object::begin(&mut out);
    generic::write(response, object.name("result"))?;
    object.end();
    Ok(out)
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
