//! The OpenAPI document, as it is served.
//!
//! `openapi/revgate.json` is made from the schema, the route table and the texts beside it by the tests of this module, which
//! fail when the file is not what they would make: `REVGATE_UPDATE_OPENAPI=1 cargo test --lib openapi` writes it anew.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

#[cfg(test)]
pub(super) mod document;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod texts;

/// The document, OpenAPI 3.1.
pub(super) const DOCUMENT: &str = include_str!("../../../openapi/revgate.json");
