#![allow(clippy::unwrap_used, reason = "tests")]

mod auth;
mod commands;
mod script;
mod txns;
