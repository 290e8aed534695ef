//! Integration tests: the house's plan, and the real binary from outside.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod api;
mod architecture;
mod compaction;
mod config;
mod doctor;
mod files;
mod full_disk;
mod kill;
mod locks;
mod logs;
mod space;
mod startup;
mod support;
mod tls;
mod watches;
