//! Watchers over WebSockets: a fleet of them on one thread, numbered puts whose events they know, and measurements that
//! are no rows of the report.

pub(crate) mod fleet;
mod frames;
pub(crate) mod idle;
pub(crate) mod puts;
pub(crate) mod replays;
pub(crate) mod stalled;

use std::time::Duration;

/// The value below which this share of sorted figures lies, in milliseconds.
pub(crate) fn quantile(sorted_micros: &[u32], share: f64) -> f64 {
    let last = sorted_micros.len().saturating_sub(1);
    sorted_micros.get((last as f64 * share) as usize).map_or(0.0, |micros| f64::from(*micros) / 1e3)
}

/// Microseconds, as figures keep them.
fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}
