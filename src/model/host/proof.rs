//! When a host is proven to be off for a client that holds it under its key: what fencing rests on (spec/metal3.md, How
//! baremetal-operator really behaves).

use std::time::Duration;

use super::HostRow;

/// So many answers of the BMC, all of them "off", are the least.
const ANSWERS: u32 = 4;

/// What proved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `status.poweredOn` went from true to false after our key was there.
    Change,
    /// Its BMC, each time that it was asked for a while, and `status.poweredOn` did not speak against it.
    Bmc,
}

/// What it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Not yet known to be off.
    Waiting,
    /// It is off by this proof, and our key is there.
    Off(By),
    /// Our key has gone: an older operator, or somebody, removed it. It may be on at any moment.
    KeyGone,
}

/// What the BMC said since our key was there. Off once is no proof either: a power-on that was sent just before our key
/// came may still be under way, so it has to be off for as long as such a one could take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Since when it says off without a break, and when it said so last, by a clock that only goes on.
    off: Option<(Duration, Duration)>,
    answers: u32,
}

impl Stretch {
    /// One answer, or none in time, at `now`: whatever is not "off" begins anew.
    pub fn hear(&mut self, off: bool, now: Duration) {
        if !off {
            *self = Self::default();
            return;
        }
        let (since, _) = self.off.unwrap_or((now, now));
        self.off = Some((since, now));
        self.answers = self.answers.saturating_add(1);
    }

    /// It said off, often enough and for `long` from its first such word to its last: the silence after that says nothing.
    pub fn proves(&self, long: Duration) -> bool {
        self.answers >= ANSWERS && self.off.is_some_and(|(since, last)| last.saturating_sub(since) >= long)
    }
}

/// What a client that holds a host off has seen since its key was there. Fencing needs a proof: `poweredOn: false`
/// alone is none, because a key that is added just after the operator sent power-on leaves it standing while the host
/// runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    seen_on: bool,
}

impl Watching {
    /// Looks at a host that was read after our key was written, in the order of its versions; `bmc` = its BMC has proven
    /// it off since then.
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
            // Held off by others, or by us before: nothing will change. And the controller and the BMC say the same: a
            // BMC that is another machine's would not for long.
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
        // `false` that stood there already is no proof: the operator may just have sent power-on.
        let mut watching = Watching::default();
        for on in [Some(false), None, Some(true)] {
            assert_eq!(watching.look(&host(on, "mine"), "mine", false), Seen::Waiting);
        }
        assert_eq!(watching.look(&host(Some(false), "mine"), "mine", false), Seen::Off(By::Change));
        // An older operator that clears keys early: it may be on at any moment.
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
        // however long it is silent from here on
        assert!(!stretch.proves(long), "59 s");
        stretch.hear(true, at(160));
        assert!(stretch.proves(long));
        // `On` was under way: it came on for a moment, or did not answer.
        stretch.hear(false, at(170));
        for second in [171, 240, 241] {
            stretch.hear(true, at(second));
        }
        assert!(!stretch.proves(long), "three answers are too few");
        stretch.hear(true, at(242));
        assert!(stretch.proves(long));
    }
}
