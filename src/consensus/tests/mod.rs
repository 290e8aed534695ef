#![allow(clippy::unwrap_used, reason = "tests")]

mod crash;
mod fixture;
mod log_suite;
mod member;
mod parts;
mod stages;
