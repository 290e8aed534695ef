#![allow(clippy::unwrap_used, reason = "tests")]

mod commands;
mod script;
mod txns;
