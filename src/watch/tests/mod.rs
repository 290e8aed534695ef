#![allow(clippy::unwrap_used)]

mod lifecycle;
mod matching;
mod model;
mod order;
mod progress;
mod reads;
mod real_store;
mod report;
mod rig;
mod slow;
mod threads;
