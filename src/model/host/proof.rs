//! Proof that a host is off, for a client that holds it with its key. Fencing depends on it (MET-22 to MET-26).

use std::time::Duration;

use super::HostRow;

/// Minimum number of answers "off" in a row.
const ANSWERS: u32 = 4;

/// Evidence of the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `status.poweredOn` went from true to false after the client's key was present.
    Change,
    /// Its BMC answered "off" for long enough, and `status.poweredOn` did not contradict.
    Bmc,
}

/// Conclusion from a host's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Not proven off yet.
    Waiting,
    /// Proven off by this evidence, and the client's key is present.
    Off(By),
    /// The client's key is gone: an older baremetal-operator or somebody else removed it. The host may power on at any
    /// moment.
    KeyGone,
}

/// Answers of the BMC since the client's key was present. A single "off" proves nothing: a power-on request sent just
/// before the key may still be under way. So the host must be off for longer than such a request can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Times of the first and the last "off" without a break, by a monotonic clock.
    off: Option<(Duration, Duration)>,
    answers: u32,
}

impl Stretch {
    /// Records one answer, or a missing one, at `now`. Anything other than "off" starts the count anew.
    pub fn hear(&mut self, off: bool, now: Duration) {
        if !off {
            *self = Self::default();
            return;
        }
        let (since, _) = self.off.unwrap_or((now, now));
        self.off = Some((since, now));
        self.answers = self.answers.saturating_add(1);
    }

    /// Returns true if there were enough answers "off", and `long` passed from the first to the last. Silence
    /// afterwards does not count.
    pub fn proves(&self, long: Duration) -> bool {
        self.answers >= ANSWERS && self.off.is_some_and(|(since, last)| last.saturating_sub(since) >= long)
    }
}

/// Observations of a client since its key is present. `poweredOn: false` alone proves nothing: it stays when the key is
/// added just after a power-on request, while the host starts (MET-22).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    seen_on: bool,
}

impl Watching {
    /// Judges a host that was read after the key was written; calls follow the order of its versions. `bmc`: its BMC
    /// has proven it off since then.
    pub fn look(&mut self, host: &HostRow, key: &str, bmc: bool) -> Seen {
        if !host.asked.keys.contains_key(key) {
            return Seen::KeyGone;
        }
        match host.powered_on {
            Some(true) => {
                self.seen_on = true;
                Seen::Waiting
            }
            Some(false) if self.seen_on => Seen::Off(By::Change),
            // The host was off before, so no change will follow. Controller and BMC agree; a BMC of another machine
            // would not agree for long.
            Some(false) if bmc => Seen::Off(By::Bmc),
            _ => Seen::Waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::host::Asked;

    fn host(on: Option<bool>, key: &str) -> HostRow {
        let keys = BTreeMap::from([(key.to_owned(), String::new())]);
        HostRow { powered_on: on, asked: Asked { base: None, keys }, ..HostRow::default() }
    }

    #[test]
    fn i44_off_is_only_what_went_off_after_our_key_was_there() {
        // A `false` from before is no proof: a power-on request may be under way.
        let mut watching = Watching::default();
        for on in [Some(false), None, Some(true)] {
            assert_eq!(watching.look(&host(on, "mine"), "mine", false), Seen::Waiting);
        }
        assert_eq!(watching.look(&host(Some(false), "mine"), "mine", false), Seen::Off(By::Change));
        // An older baremetal-operator removes keys early: the host may power on at any moment.
        for on in [Some(true), Some(false)] {
            assert_eq!(watching.look(&host(on, "other"), "mine", true), Seen::KeyGone);
        }
    }

    #[test]
    fn i44_the_bmcs_word_counts_where_the_controller_says_the_same() {
        let mut watching = Watching::default();
        assert_eq!(watching.look(&host(Some(false), "mine"), "mine", true), Seen::Off(By::Bmc));
        for on in [None, Some(true)] {
            assert_eq!(watching.look(&host(on, "mine"), "mine", true), Seen::Waiting, "{on:?}");
        }
    }

    #[test]
    fn i44_a_bmc_is_believed_after_a_while_and_begins_anew_with_every_other_answer() {
        let (long, at) = (Duration::from_mins(1), Duration::from_secs);
        let mut stretch = Stretch::default();
        for second in [100, 110, 150, 159] {
            stretch.hear(true, at(second));
        }
        // Silence from here on does not count.
        assert!(!stretch.proves(long), "59 s");
        stretch.hear(true, at(160));
        assert!(stretch.proves(long));
        // A power-on was under way: the host was on for a moment, or its BMC did not answer.
        stretch.hear(false, at(170));
        for second in [171, 240, 241] {
            stretch.hear(true, at(second));
        }
        assert!(!stretch.proves(long), "three answers are too few");
        stretch.hear(true, at(242));
        assert!(stretch.proves(long));
    }
}
