//! Splitting of responses with many events, for watchers that allow it.

use std::sync::Arc;

use prost::{Message, length_delimiter_len};

use crate::watch::Event;

/// Splits events into pieces of at most `bytes_max` encoded bytes each; a piece holds at least one event.
pub(super) fn split(events: &[Arc<Event>], bytes_max: usize) -> Vec<Vec<Arc<Event>>> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let mut piece_bytes = 0;
    for event in events {
        let event_bytes = encoded_bytes(event);
        if !piece.is_empty() && piece_bytes + event_bytes > bytes_max {
            pieces.push(std::mem::take(&mut piece));
            piece_bytes = 0;
        }
        piece.push(event.clone());
        piece_bytes += event_bytes;
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Bytes an event takes in a response's protobuf encoding, its own frame included.
pub(super) fn encoded_bytes(event: &Event) -> usize {
    let type_bytes = if event.record.tombstone { 2 } else { 0 };
    let kv_bytes = framed(event.record.kv.encoded_len());
    let previous_bytes = event.previous.as_ref().map_or(0, |kv| framed(kv.encoded_len()));
    framed(type_bytes + kv_bytes + previous_bytes)
}

/// With a one-byte tag and the length in front.
fn framed(len: usize) -> usize {
    1 + length_delimiter_len(len) + len
}
