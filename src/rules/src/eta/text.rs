//! Estimates as screens and commands show them.

use jiff::{SignedDuration, Timestamp};

use super::{Answer, Estimate, NoEstimate};

/// Longest minutes of one side of the interval, compared with the other one, that are still written as `±`.
const EVEN: i64 = 2;

impl Estimate {
    /// Returns the interval as text: `done 07:41Z ± 6m`, or `done between 07:35Z and 08:29Z` if its sides differ much.
    pub fn described(&self, clock: impl Fn(Timestamp) -> String) -> String {
        let (below, above) = (minutes(self.low, self.likely), minutes(self.likely, self.high));
        if above > below.max(1) * EVEN || below > above.max(1) * EVEN {
            let (low, high) = (clock(self.low), clock(self.high));
            return if low == high { format!("done {low}") } else { format!("done between {low} and {high}") };
        }
        if below.max(above) == 0 {
            return format!("done {}", clock(self.likely));
        }
        // Half of the interval, and its middle, so that the text covers the interval.
        let half = (self.high.duration_since(self.low).as_secs() + 1) / 2;
        format!("done {} ± {}", clock(self.low + SignedDuration::from_secs(half)), span(half))
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
pub fn described(answer: &Answer, clock: impl Fn(Timestamp) -> String) -> String {
    match answer {
        Ok(estimate) => estimate.described(clock),
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
