//! Tests of the room as a whole.
#![allow(clippy::unwrap_used, reason = "tests")]
