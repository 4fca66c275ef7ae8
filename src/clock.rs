//! The injected clock: boot time and wall time (SAF-2).
//!
//! Leases and deadlines are measured in boot time, which counts the suspension of a laptop and never steps. Wall time
//! is only for stored values and for the arguments of commands.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::mutation::{Mutation, on};

/// Source of time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The host's `CLOCK_BOOTTIME` and real-time clock.
    Host,
    /// tokio's clock, which tests pause, with an own offset for each engine.
    Tokio {
        /// tokio's time when the sandbox began.
        start: tokio::time::Instant,
        /// Wall time at that moment, including this engine's error.
        wall: Timestamp,
        /// Milliseconds by which wall time was set since.
        stepped: Arc<AtomicI64>,
    },
}

impl Clock {
    /// Creates a clock on tokio's time that shows this wall time now.
    pub fn tokio(wall: Timestamp) -> Self {
        Self::Tokio { start: tokio::time::Instant::now(), wall, stepped: Arc::default() }
    }

    /// Returns another clock of the same sandbox whose wall time is wrong by `error`.
    #[must_use]
    pub fn off_by(&self, error: SignedDuration) -> Self {
        match self {
            Self::Host => Self::Host,
            Self::Tokio { start, .. } => {
                let now = self.wall().checked_add(error).unwrap_or_else(|_| self.wall());
                let elapsed = SignedDuration::try_from(start.elapsed()).unwrap_or_default();
                let wall = now.checked_sub(elapsed).unwrap_or(now);
                Self::Tokio { start: *start, wall, stepped: Arc::default() }
            }
        }
    }

    /// Sets wall time forward or back, for all clones. Boot time never steps. The host's clock stays as it is.
    pub fn step(&self, by: SignedDuration) {
        if let Self::Tokio { stepped, .. } = self {
            let millis = i64::try_from(by.as_millis()).unwrap_or(0);
            stepped.fetch_add(millis, Ordering::Relaxed);
        }
    }

    /// Returns the time since the machine booted, including suspension.
    pub fn boot(&self) -> Duration {
        match self {
            Self::Host => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
            }
            Self::Tokio { start, .. } => start.elapsed(),
        }
    }

    /// Returns the wall time.
    pub fn wall(&self) -> Timestamp {
        match self {
            Self::Host => Timestamp::now(),
            Self::Tokio { start, wall, stepped } => SignedDuration::try_from(start.elapsed())
                .ok()
                .and_then(|elapsed| elapsed.checked_add(SignedDuration::from_millis(stepped.load(Ordering::Relaxed))))
                .and_then(|elapsed| wall.checked_add(elapsed).ok())
                .unwrap_or(*wall),
        }
    }
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// Boot time.
    pub boot: Duration,
    /// Wall time. It never steps within one leadership: see [`Steady`].
    pub wall: Timestamp,
}

impl Now {
    /// Returns by how many seconds the wall clock is ahead of the boot-time clock. The value is constant as long as
    /// nobody sets the clock.
    pub fn offset(&self) -> f64 {
        self.wall.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64() - self.boot.as_secs_f64()
    }
}

/// Wall time that never steps. It is read once and then advanced by boot time. So a clock that is set during a drain
/// neither ends the drain early nor delays its end (I37).
#[derive(Clone, Debug)]
pub struct Steady {
    clock: Clock,
    boot: Duration,
    wall: Timestamp,
}

impl Steady {
    /// Starts now.
    pub fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), boot: clock.boot(), wall: clock.wall() }
    }

    /// Returns the present moment.
    pub fn now(&self) -> Now {
        let boot = self.clock.boot();
        if on(Mutation::ClockTrusted) {
            return Now { boot, wall: self.clock.wall() };
        }
        let elapsed = SignedDuration::try_from(boot.saturating_sub(self.boot)).unwrap_or_default();
        Now { boot, wall: self.wall.checked_add(elapsed).unwrap_or(self.wall) }
    }
}
