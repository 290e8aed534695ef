//! The wire as clients meet it: a whole member below, raw sockets above.

#![allow(clippy::unwrap_used, reason = "tests")]

mod auth;
mod harness;
mod limits;
mod long;
mod measures;
mod metrics_port;
mod patience;
mod pipeline;
mod ranges;
mod routing;
mod sockets;
mod streams;
mod tls;
mod traces;
mod transport;
