//! What the tests share: the real binary as a child process, and a small HTTP client that hides nothing.

mod client;
mod server;

pub(crate) use self::{
    client::{Client, Lines},
    server::{ANSWER_MAX, Server, is_foreign, refusal, wait_until},
};
