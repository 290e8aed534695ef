#![allow(clippy::unwrap_used, reason = "tests")]

mod fixture;
mod log_suite;
mod member;
mod parts;
