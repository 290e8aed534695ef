//! Reading requests within limits: how big a body may be, how long it may take, and the client's own deadline.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::{HeaderMap, body::Incoming};
use prost::Message;

use crate::error::ApiError;

/// What a message may take over the largest proposal; etcd's figure.
const MESSAGE_OVERHEAD_BYTES: usize = 512 * 1024;
/// What a JSON text may take over the base64 of the largest message.
const TEXT_OVERHEAD_BYTES: usize = 64 * 1024;
/// How much of a body that is too big is still read, so that its sender gets to see the answer.
const REFUSED_BODY_READ_BYTES_MAX: usize = 64 * 1024 * 1024;
const REFUSED_BODY_READ_MAX: Duration = Duration::from_secs(10);
/// Longest silence in the middle of a body that was announced.
pub(super) const BODY_SILENCE_MAX: Duration = Duration::from_secs(60);

/// Limits on requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest encoded message, in bytes.
    pub(super) message_bytes_max: usize,
    /// Largest JSON text, in bytes.
    pub(super) text_bytes_max: usize,
}

impl Limits {
    /// The limits that go with a largest proposal of `request_bytes_max`.
    pub(super) fn new(request_bytes_max: usize) -> Limits {
        let message_bytes_max = request_bytes_max.saturating_add(MESSAGE_OVERHEAD_BYTES);
        let text_bytes_max = (message_bytes_max / 3).saturating_mul(4).saturating_add(TEXT_OVERHEAD_BYTES);
        Limits { message_bytes_max, text_bytes_max }
    }

    /// Refuses a message whose encoding is too big. No message is bigger than its text, so small texts need no look.
    pub(super) fn check_message(&self, text: &[u8], message: &impl Message) -> Result<(), ApiError> {
        if text.len() <= self.message_bytes_max {
            return Ok(());
        }
        let received = message.encoded_len();
        if received <= self.message_bytes_max { Ok(()) } else { Err(self.too_large(received as u64)) }
    }

    fn too_large(&self, received: u64) -> ApiError {
        ApiError::MessageTooLarge { received, max: self.message_bytes_max as u64 }
    }

    /// Reads a whole body. One that came in one piece is not copied. `asks_first`: the client waits for a sign before it
    /// sends the body, so that one that is too big need not be sent at all.
    pub(super) async fn read_body(&self, mut body: Incoming, asks_first: bool) -> Result<Bytes, ApiError> {
        let text_bytes_max = self.text_bytes_max as u64;
        let announced = body.size_hint().lower();
        if announced > text_bytes_max {
            if !asks_first {
                drain(&mut body).await;
            }
            return Err(self.too_large(announced));
        }
        let mut first = Bytes::new();
        let mut joined = Vec::new();
        while let Some(data) = next_piece(&mut body).await? {
            let received = (first.len() + joined.len() + data.len()) as u64;
            if received > text_bytes_max {
                drain(&mut body).await;
                return Err(self.too_large(received));
            }
            if first.is_empty() && joined.is_empty() {
                first = data;
            } else {
                if joined.is_empty() {
                    joined.reserve((announced as usize).max(first.len() + data.len()));
                    joined.extend_from_slice(&first);
                    first = Bytes::new();
                }
                joined.extend_from_slice(&data);
            }
        }
        Ok(if joined.is_empty() { first } else { joined.into() })
    }
}

async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame = match tokio::time::timeout(BODY_SILENCE_MAX, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(ApiError::Malformed(format!("malformed request: {error}"))),
            Ok(None) => return Ok(None),
            Err(_) => return Err(ApiError::DeadlineExceeded),
        };
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// Reads on for a while and forgets: a client that is still sending would not read an answer.
async fn drain(body: &mut Incoming) {
    let reading = async {
        let mut read = 0;
        while read < REFUSED_BODY_READ_BYTES_MAX
            && let Ok(Some(data)) = next_piece(body).await
        {
            read += data.len();
        }
    };
    // Whether the client has sent all by then or not, it is answered now.
    let _ = tokio::time::timeout(REFUSED_BODY_READ_MAX, reading).await;
}

/// The client's deadline: header `Grpc-Timeout`, digits and a unit. As with the original, nothing and 0 are no deadline, and one
/// below 0 has passed.
pub(super) fn client_timeout(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let text = value.to_str().unwrap_or("not text");
    if text.is_empty() {
        return Ok(None);
    }
    parse_timeout(text).ok_or_else(|| ApiError::Malformed(format!("invalid grpc-timeout: {text}")))
}

/// The outer `None`: no timeout can be read from the text. The inner one: it sets no deadline.
fn parse_timeout(text: &str) -> Option<Option<Duration>> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let amount: i64 = digits.parse().ok()?;
    let of: fn(u64) -> Duration = match unit {
        "H" => |hours| Duration::from_secs(hours.saturating_mul(3600)),
        "M" => |minutes| Duration::from_secs(minutes.saturating_mul(60)),
        "S" => Duration::from_secs,
        "m" => Duration::from_millis,
        "u" => Duration::from_micros,
        "n" => Duration::from_nanos,
        _ => return None,
    };
    Some(if amount == 0 { None } else { Some(of(u64::try_from(amount).unwrap_or(0))) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn timeouts_are_digits_and_a_unit() {
        for (text, timeout) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("+4S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("7n", Duration::from_nanos(7)),
            ("-1S", Duration::ZERO),
        ] {
            assert_eq!(parse_timeout(text), Some(Some(timeout)), "{text}");
        }
        assert_eq!(parse_timeout("0S"), Some(None));
        for text in ["", "S", "1", "1s", "1.5S", "1 S", "99999999999999999999S", "1é"] {
            assert_eq!(parse_timeout(text), None, "{text}");
        }
    }

    #[test]
    fn the_text_limit_leaves_room_for_the_largest_message_in_base64() {
        let limits = Limits::new(1_572_864);
        assert_eq!(limits.message_bytes_max, 2_097_152);
        assert!(limits.text_bytes_max > 2_097_152 / 3 * 4);
    }
}
