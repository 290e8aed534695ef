//! The store's file in the hands of somebody who does not serve it: is it sound, what does it hold, and how it is made
//! ready to begin another life. Nothing here starts a thread or keeps a file open.

mod audit;
mod biggest;
mod rebirth;
mod status;
#[cfg(test)]
mod tests;

pub use audit::KeyAudit;
pub use biggest::{Biggest, KeySize, PrefixSize};
pub use rebirth::{Bump, Reborn, rebirth};
pub use status::{FileStatus, file_status};
