//! Estimates as screens and commands show them: the time to plan with, and beside it the time by which nine of ten
//! batches end although machines get stuck.

use jiff::{SignedDuration, Timestamp};

use super::{Answer, Estimate, Interval, NoEstimate};

/// Longest minutes of one side of the interval, compared with the other one, that are still written as `±`.
const EVEN: i64 = 2;
/// Longest minutes of the longer side that are written as `±` however the sides differ: `10:26Z ± 3m` is what people plan
/// with.
const MAX_UNEVEN: i64 = 10;
/// Fewest seconds by which the late end is later than the planned one, to be worth a word.
const MIN_LATE: i64 = 60;

/// Amount of text about an end, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The planned end: `done 07:41Z ± 2m`.
    Short,
    /// Its assumption, too: `done 07:41Z ± 2m if none sticks`. A late end without it would contradict the planned one.
    Assumed,
    /// Also the late end: `done 07:41Z ± 2m if none sticks, 90 % by 08:29Z`.
    Full,
}

impl Estimate {
    /// Returns the interval to plan with: of the futures in which no machine gets stuck, else of all of them.
    pub fn planned(&self) -> Interval {
        let all = Interval { low: self.low, likely: self.likely, high: self.high };
        self.late().and(self.steady).unwrap_or(all)
    }

    /// Returns the time by which nine of ten batches end, if machines that may get stuck make it later than the planned
    /// end.
    pub fn late(&self) -> Option<Timestamp> {
        let steady = self.steady?;
        let half = steady.high.duration_since(steady.low).as_secs() / 2;
        let later = self.high.duration_since(steady.high).as_secs();
        (later >= half.max(MIN_LATE)).then_some(self.high)
    }

    /// Returns the end with this amount of text: `done 07:41Z ± 6m`, or `done between 07:35Z and 08:29Z` if the sides of
    /// the interval differ much.
    pub fn described(&self, detail: Detail, clock: impl Fn(Timestamp) -> String) -> String {
        format!("done {}", self.interval(detail, clock))
    }

    /// Returns the same for the column of a table: `07:41Z ± 6m`, `between 07:35Z and 08:29Z`.
    pub fn interval(&self, detail: Detail, clock: impl Fn(Timestamp) -> String) -> String {
        let planned = self.planned().described(&clock);
        let Some(late) = self.late().filter(|_| detail > Detail::Short) else { return planned };
        let late = if detail == Detail::Full { format!(", 90 % by {}", clock(late)) } else { String::new() };
        format!("{planned} if none sticks{late}")
    }
}

impl Interval {
    fn described(&self, clock: impl Fn(Timestamp) -> String) -> String {
        let (below, above) = (minutes(self.low, self.likely), minutes(self.likely, self.high));
        let is_even = above <= below.max(1) * EVEN && below <= above.max(1) * EVEN;
        if !is_even && above.max(below) > MAX_UNEVEN {
            let (low, high) = (clock(self.low), clock(self.high));
            return if low == high { low } else { format!("between {low} and {high}") };
        }
        if below.max(above) == 0 {
            return clock(self.likely);
        }
        // Half of the interval, and its middle, so that the text covers the interval.
        let half = (self.high.duration_since(self.low).as_secs() + 1) / 2;
        format!("{} ± {}", clock(self.low + SignedDuration::from_secs(half)), span(half))
    }
}

impl NoEstimate {
    /// Returns the reason as text; none if nothing is left.
    pub fn described(&self, clock: impl Fn(Timestamp) -> String) -> Option<String> {
        match self {
            Self::NothingLeft => None,
            Self::FewSamples { known: 0, needed } => Some(format!("no estimate yet (needs {needed} completed)")),
            Self::FewSamples { known, needed } => {
                Some(format!("no estimate yet (needs {needed} completed, {known} so far)"))
            }
            Self::Barred(bar) => Some(format!("no estimate {}", bar.described(clock))),
            Self::NotInSight => Some("no end in sight: the window does not open for long enough".to_owned()),
        }
    }
}

/// Returns an estimate, or the reason why there is none, as text. Empty if nothing is left.
pub fn described(answer: &Answer, detail: Detail, clock: impl Fn(Timestamp) -> String) -> String {
    match answer {
        Ok(estimate) => estimate.described(detail, clock),
        Err(why) => why.described(clock).unwrap_or_default(),
    }
}

/// Returns the minutes between two times, rounded up.
fn minutes(from: Timestamp, to: Timestamp) -> i64 {
    (to.duration_since(from).as_secs().max(0) + 59) / 60
}

/// Formats half of an interval in whole minutes or hours.
fn span(seconds: i64) -> String {
    let minutes = ((seconds + 59) / 60).max(1);
    match minutes {
        0..120 => format!("{minutes}m"),
        120..2880 => format!("{}h", (minutes + 59) / 60),
        _ => format!("{}d", (minutes + 1439) / 1440),
    }
}
