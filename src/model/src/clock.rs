//! The injected clock: boot time and wall time (SAF-2).
//!
//! Leases and deadlines are measured in boot time, which counts the suspension of a laptop and never steps. Wall time
//! is only for stored values and for the arguments of commands.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    boot_time::{self, BootTime, Seconds},
    fault,
};

/// Source of time: the host's clocks, or the clock of a simulation.
pub trait TimeSource: fmt::Debug + Send + Sync {
    /// Returns the time since the machine booted, including suspension. It never steps.
    fn boot(&self) -> BootTime;

    /// Returns the wall time.
    fn wall(&self) -> Timestamp;
}

/// The clock that a component was given. Cheap to clone; all clones are one clock.
#[derive(Clone, Debug)]
pub struct Clock(Arc<dyn TimeSource>);

impl Clock {
    /// Creates a clock on this source.
    pub fn new(source: impl TimeSource + 'static) -> Self {
        Self(Arc::new(source))
    }

    /// Creates the clock of this host: `CLOCK_BOOTTIME` and the real-time clock.
    pub fn host() -> Self {
        Self::new(HostClock)
    }

    /// Returns the time since the machine booted, including suspension.
    pub fn boot(&self) -> BootTime {
        self.0.boot()
    }

    /// Returns the wall time.
    pub fn wall(&self) -> Timestamp {
        self.0.wall()
    }
}

/// The host's clocks.
#[derive(Clone, Copy, Debug)]
struct HostClock;

impl TimeSource for HostClock {
    fn boot(&self) -> BootTime {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0)).into()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Another clock whose wall time is wrong and can be set, as on a host without NTP. Its boot time never steps.
#[derive(Clone, Debug)]
pub struct SkewedClock {
    right: Clock,
    /// Milliseconds by which wall time is ahead.
    error: Arc<AtomicI64>,
}

impl SkewedClock {
    /// Creates a clock that is ahead of `right` by `error`.
    pub fn new(right: &Clock, error: SignedDuration) -> Self {
        let skewed = Self { right: right.clone(), error: Arc::default() };
        skewed.step(error);
        skewed
    }

    /// Sets wall time forward or back, for all clones.
    pub fn step(&self, by: SignedDuration) {
        self.error.fetch_add(i64::try_from(by.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }
}

impl TimeSource for SkewedClock {
    fn boot(&self) -> BootTime {
        self.right.boot()
    }

    fn wall(&self) -> Timestamp {
        let (wall, error) = (self.right.wall(), SignedDuration::from_millis(self.error.load(Ordering::Relaxed)));
        wall.checked_add(error).unwrap_or(wall)
    }
}

/// A clock that stands still until it is told to advance, for tests of pure code.
#[derive(Clone, Debug)]
pub struct ManualClock {
    start: Timestamp,
    /// Milliseconds since the start.
    elapsed: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock that shows this wall time and boot time zero.
    pub fn new(start: Timestamp) -> Self {
        Self { start, elapsed: Arc::default() }
    }

    /// Advances boot time and wall time, for all clones.
    pub fn advance(&self, by: Duration) {
        self.elapsed.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed.load(Ordering::Relaxed))
    }
}

impl TimeSource for ManualClock {
    fn boot(&self) -> BootTime {
        self.elapsed().into()
    }

    fn wall(&self) -> Timestamp {
        self.start.checked_add(self.elapsed()).unwrap_or(self.start)
    }
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// Boot time.
    #[serde(with = "boot_time::whole_and_nanos")]
    pub boot: BootTime,
    /// Wall time. It never steps within one leadership: see [`Steady`].
    pub wall: Timestamp,
}

impl Now {
    /// Returns by how much the wall clock is ahead of the boot-time clock. The value is constant as long as nobody sets
    /// the clock.
    pub fn offset(&self) -> Seconds {
        Seconds::from(self.wall.duration_since(Timestamp::UNIX_EPOCH)) - (self.boot - BootTime::ZERO)
    }
}

/// Wall time that never steps. It is read once and then advanced by boot time. So a clock that is set during a drain
/// neither ends the drain early nor delays its end (I37).
#[derive(Clone, Debug)]
pub struct Steady {
    clock: Clock,
    boot: BootTime,
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
        fault!(ClockTrusted => return Now { boot, wall: self.clock.wall() });
        let elapsed = SignedDuration::try_from(boot.saturating_duration_since(self.boot)).unwrap_or_default();
        Now { boot, wall: self.wall.checked_add(elapsed).unwrap_or(self.wall) }
    }
}
