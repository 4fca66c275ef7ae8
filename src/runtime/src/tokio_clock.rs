//! Time of a simulation: tokio's clock, which tests pause and advance.

use cketerm_model::{
    boot_time::BootTime,
    clock::{Clock, TimeSource},
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Returns a clock on tokio's time that shows this wall time now, and boot time zero.
pub fn starting_at(wall: Timestamp) -> Clock {
    Clock::new(TokioClock { start: Instant::now(), wall })
}

/// tokio's time since a start.
#[derive(Clone, Copy, Debug)]
struct TokioClock {
    start: Instant,
    /// Wall time at the start.
    wall: Timestamp,
}

impl TimeSource for TokioClock {
    fn boot(&self) -> BootTime {
        self.start.elapsed().into()
    }

    fn wall(&self) -> Timestamp {
        SignedDuration::try_from(self.start.elapsed())
            .ok()
            .and_then(|elapsed| self.wall.checked_add(elapsed).ok())
            .unwrap_or(self.wall)
    }
}
