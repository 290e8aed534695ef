//! Facts about the mapping, and the fast pair held against the generic one.

mod agreement;
mod rules;
mod splitting;
mod strategies;
