//! Instants and spans of the boot-time clock.
//!
//! The clock is `CLOCK_BOOTTIME` ([`Clock::boot`](crate::clock::Clock::boot)): it counts the suspension of the host and
//! never steps. It means something only on the host that read it, until its next boot.

use std::{
    cmp::Ordering,
    fmt,
    ops::{Add, Div, Mul, Neg, Sub},
    time::Duration,
};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// Instant on the boot-time clock of this host, in seconds since its boot. JSON holds the number alone.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(f64);

/// Span of time in seconds with a fraction; negative if it leads back. JSON holds the number alone.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(f64);

impl BootTime {
    /// The boot of the host. In records: never.
    pub const ZERO: Self = Self(0.0);

    /// Creates the instant this many seconds after the boot.
    pub const fn new(seconds: f64) -> Self {
        Self(seconds)
    }

    /// Returns the time since `earlier`, to the nanosecond; zero if `earlier` is later.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        (self - earlier).into()
    }

    /// Returns the whole milliseconds since the boot.
    pub fn millis(self) -> u64 {
        u64::try_from(Duration::from(self).as_millis()).unwrap_or(u64::MAX)
    }
}

impl Seconds {
    /// No time at all.
    pub const ZERO: Self = Self(0.0);

    /// Creates a span of this many seconds.
    pub const fn new(seconds: f64) -> Self {
        Self(seconds)
    }

    /// Returns the number of seconds.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Returns the whole seconds, without the fraction.
    #[allow(clippy::cast_possible_truncation)] // saturates, and spans are those of a process's life
    pub const fn whole(self) -> i64 {
        self.0 as i64
    }

    /// Rounds up to whole seconds.
    #[must_use]
    pub fn ceil(self) -> Self {
        Self(self.0.ceil())
    }

    /// Returns the length of the span, whatever its direction.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self(self.0.abs())
    }

    /// Returns the span for calendar times; zero if it is too long for them.
    pub fn signed_duration(self) -> SignedDuration {
        SignedDuration::try_from_secs_f64(self.0).unwrap_or_default()
    }
}

/// Orders as [`f64::total_cmp`], except that zeros are equal whatever their sign.
fn compare(one: f64, other: f64) -> Ordering {
    (one + 0.0).total_cmp(&(other + 0.0))
}

impl Ord for BootTime {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.0, other.0)
    }
}

impl PartialOrd for BootTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for BootTime {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for BootTime {}

impl Ord for Seconds {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.0, other.0)
    }
}

impl PartialOrd for Seconds {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Seconds {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Seconds {}

impl Sub for BootTime {
    type Output = Seconds;

    fn sub(self, earlier: Self) -> Seconds {
        Seconds(self.0 - earlier.0)
    }
}

impl Add<Seconds> for BootTime {
    type Output = Self;

    fn add(self, span: Seconds) -> Self {
        Self(self.0 + span.0)
    }
}

impl Sub<Seconds> for BootTime {
    type Output = Self;

    fn sub(self, span: Seconds) -> Self {
        Self(self.0 - span.0)
    }
}

/// Exact to the nanosecond, like the readings of the clock: the deadline is reached by the very reading that is this
/// much later.
impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Duration::from(self).saturating_add(span).into()
    }
}

impl Add for Seconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Seconds {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Neg for Seconds {
    type Output = Self;

    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl Mul<f64> for Seconds {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl Div<f64> for Seconds {
    type Output = Self;

    fn div(self, divisor: f64) -> Self {
        Self(self.0 / divisor)
    }
}

impl From<Duration> for BootTime {
    fn from(since_boot: Duration) -> Self {
        Self(since_boot.as_secs_f64())
    }
}

impl From<BootTime> for Duration {
    fn from(at: BootTime) -> Self {
        saturating(at.0)
    }
}

impl From<Duration> for Seconds {
    fn from(span: Duration) -> Self {
        Self(span.as_secs_f64())
    }
}

impl From<SignedDuration> for Seconds {
    fn from(span: SignedDuration) -> Self {
        Self(span.as_secs_f64())
    }
}

#[allow(clippy::cast_precision_loss)] // settings: far fewer than 2^52 seconds
impl From<u64> for Seconds {
    fn from(seconds: u64) -> Self {
        Self(seconds as f64)
    }
}

#[allow(clippy::cast_precision_loss)] // settings: far fewer than 2^52 seconds
impl From<i64> for Seconds {
    fn from(seconds: i64) -> Self {
        Self(seconds as f64)
    }
}

impl From<u32> for Seconds {
    fn from(seconds: u32) -> Self {
        Self(seconds.into())
    }
}

/// A negative span becomes zero, one that is too long the longest.
impl From<Seconds> for Duration {
    fn from(span: Seconds) -> Self {
        saturating(span.0)
    }
}

fn saturating(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(if seconds > 0.0 { Duration::MAX } else { Duration::ZERO })
}

impl fmt::Display for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)?;
        f.write_str(" s after boot")
    }
}

impl fmt::Debug for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootTime({:?} s)", self.0)
    }
}

/// Writes the unit too. A precision is that of the number: `{span:.0}`.
impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)?;
        f.write_str(" s")
    }
}

impl fmt::Debug for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} s", self.0)
    }
}

/// For `#[serde(with = "whole_and_nanos")]`: a boot time as `{"secs": 1, "nanos": 500000000}`, the form of exported
/// states.
pub(crate) mod whole_and_nanos {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::BootTime;

    #[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
    pub(crate) fn serialize<S: Serializer>(at: &BootTime, out: S) -> Result<S::Ok, S::Error> {
        Duration::from(*at).serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BootTime, D::Error> {
        Duration::deserialize(from).map(BootTime::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_holds_the_number_alone() {
        let both = (BootTime::new(12.5), Seconds::new(-3.0));
        let text = serde_json::to_string(&both).unwrap();
        assert_eq!(text, "[12.5,-3.0]");
        assert_eq!(serde_json::from_str::<(BootTime, Seconds)>(&text).unwrap(), both);
    }

    #[test]
    fn instants_and_spans_are_ordered_and_shown_with_their_unit() {
        let (early, late) = (BootTime::new(1.0), BootTime::new(2.5));
        assert!(early < late && late.max(early) == late && late - early == Seconds::new(1.5));
        assert_eq!(Seconds::new(-0.0), Seconds::ZERO);
        assert_eq!(format!("{late} {late:?}"), "2.5 s after boot BootTime(2.5 s)");
        assert_eq!(format!("{} {:.0}", Seconds::new(5.0), Seconds::new(7.6)), "5 s 8 s");
    }

    /// A clock that counts milliseconds reaches each deadline in whole milliseconds exactly.
    #[test]
    fn a_deadline_is_reached_by_the_reading_that_is_just_as_late() {
        for start in [0_u64, 1, 833, 100_001, 86_400_007, 4_000_000_003] {
            for span in [1_u64, 5, 100, 2500, 59_999] {
                let [start, span] = [start, span].map(Duration::from_millis);
                let (begin, end) = (BootTime::from(start), BootTime::from(start + span));
                assert_eq!(begin + span, end);
                assert_eq!(end.saturating_duration_since(begin), span);
                assert_eq!(begin.saturating_duration_since(end), Duration::ZERO);
                assert_eq!(u128::from(end.millis()), (start + span).as_millis());
            }
        }
    }

    #[test]
    fn spans_that_no_duration_holds_saturate() {
        assert_eq!(Duration::from(Seconds::new(-1.0)), Duration::ZERO);
        assert_eq!(Duration::from(Seconds::new(1e30)), Duration::MAX);
        assert_eq!((Seconds::new(-1.5).whole(), Seconds::new(1e30).whole()), (-1, i64::MAX));
    }
}
