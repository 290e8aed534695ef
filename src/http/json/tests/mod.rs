//! Facts about the mapping, and the fast pair held against the generic one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod agreement;
mod rules;
mod spellings;
mod splitting;
mod strategies;
