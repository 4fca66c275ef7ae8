//! Boot time as snapshots hold it: seconds with a fraction.

use std::time::Duration;

/// Converts boot time to the seconds that snapshots hold.
pub fn secs(boot: Duration) -> f64 {
    boot.as_secs_f64()
}

/// Returns the whole seconds of a span in boot time.
#[allow(clippy::cast_possible_truncation)] // spans of a process's life
pub(crate) fn to_seconds(span: f64) -> i64 {
    span as i64
}
