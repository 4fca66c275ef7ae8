//! Proof that a host is off, for a client that holds it with its key. Fencing depends on it (MET-22 to MET-26).

use std::time::Duration;

use super::HostRow;

/// Minimum number of answers "off" in a row.
const MIN_ANSWERS: u32 = 4;

/// Evidence of the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofSource {
    /// `status.poweredOn` went from true to false after the client's key was present.
    Change,
    /// Its BMC answered "off" for long enough, and `status.poweredOn` did not contradict.
    Bmc,
}

/// Conclusion from a host's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerObservation {
    /// Not proven off yet.
    Waiting,
    /// Proven off by this evidence, and the client's key is present.
    Off(ProofSource),
    /// The client's key is gone: an older baremetal-operator or somebody else removed it. The host may power on at any
    /// moment.
    KeyGone,
}

/// Answers of the BMC since the client's key was present. A single "off" proves nothing: a power-on request sent just
/// before the key may still be under way. So the host must be off for longer than such a request can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffStreak {
    /// Times of the first and the last "off" without a break, by a monotonic clock.
    off: Option<(Duration, Duration)>,
    answers: u32,
}

impl OffStreak {
    /// Records one answer, or a missing one, at `now`. Anything other than "off" starts the count anew.
    pub fn observe(&mut self, off: bool, now: Duration) {
        if !off {
            *self = Self::default();
            return;
        }
        let (since, _) = self.off.unwrap_or((now, now));
        self.off = Some((since, now));
        self.answers = self.answers.saturating_add(1);
    }

    /// Returns true if there were enough answers "off", and `min_duration` passed from the first to the last. Silence
    /// afterwards does not count.
    pub fn proves(&self, min_duration: Duration) -> bool {
        self.answers >= MIN_ANSWERS && self.off.is_some_and(|(since, last)| last.saturating_sub(since) >= min_duration)
    }
}

/// Observations of a client since its key is present. `poweredOn: false` alone proves nothing: it stays when the key is
/// added just after a power-on request, while the host starts (MET-22).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerWatch {
    seen_on: bool,
}

impl PowerWatch {
    /// Judges a host that was read after the key was written; calls follow the order of its versions. `bmc`: its BMC
    /// has proven it off since then.
    pub fn look(&mut self, host: &HostRow, key: &str, bmc: bool) -> PowerObservation {
        if !host.asked.keys.contains_key(key) {
            return PowerObservation::KeyGone;
        }
        match host.powered_on {
            Some(true) => {
                self.seen_on = true;
                PowerObservation::Waiting
            }
            Some(false) if self.seen_on => PowerObservation::Off(ProofSource::Change),
            // The host was off before, so no change will follow. Controller and BMC agree; a BMC of another machine
            // would not agree for long.
            Some(false) if bmc => PowerObservation::Off(ProofSource::Bmc),
            _ => PowerObservation::Waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::host::RebootAnnotations;

    fn host(on: Option<bool>, key: &str) -> HostRow {
        let keys = BTreeMap::from([(key.to_owned(), String::new())]);
        HostRow { powered_on: on, asked: RebootAnnotations { base: None, keys }, ..HostRow::default() }
    }

    #[test]
    fn i44_power_off_counts_only_after_our_hold_key_was_set() {
        // An earlier `false` is no proof: a power-on request may be in progress.
        let mut watching = PowerWatch::default();
        for on in [Some(false), None, Some(true)] {
            assert_eq!(watching.look(&host(on, "mine"), "mine", false), PowerObservation::Waiting);
        }
        assert_eq!(
            watching.look(&host(Some(false), "mine"), "mine", false),
            PowerObservation::Off(ProofSource::Change)
        );
        // An older baremetal-operator removes keys early: the host may power on at any moment.
        for on in [Some(true), Some(false)] {
            assert_eq!(watching.look(&host(on, "other"), "mine", true), PowerObservation::KeyGone);
        }
    }

    #[test]
    fn i44_the_bmc_proves_power_off_only_if_the_controller_agrees() {
        let mut watching = PowerWatch::default();
        assert_eq!(watching.look(&host(Some(false), "mine"), "mine", true), PowerObservation::Off(ProofSource::Bmc));
        for on in [None, Some(true)] {
            assert_eq!(watching.look(&host(on, "mine"), "mine", true), PowerObservation::Waiting, "{on:?}");
        }
    }

    #[test]
    fn i44_the_bmc_must_report_off_continuously_for_a_minute() {
        let (min_duration, at) = (Duration::from_mins(1), Duration::from_secs);
        let mut stretch = OffStreak::default();
        for second in [100, 110, 150, 159] {
            stretch.observe(true, at(second));
        }
        // The time after the last answer does not count.
        assert!(!stretch.proves(min_duration), "59 s");
        stretch.observe(true, at(160));
        assert!(stretch.proves(min_duration));
        // A power-on was in progress: the host was on for a moment, or its BMC did not answer.
        stretch.observe(false, at(170));
        for second in [171, 240, 241] {
            stretch.observe(true, at(second));
        }
        assert!(!stretch.proves(min_duration), "three answers are too few");
        stretch.observe(true, at(242));
        assert!(stretch.proves(min_duration));
    }
}
