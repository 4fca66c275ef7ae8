//! Ended entries, as History lists them.

use cketerm_model::{
    attempt::Attempt,
    boot_time::Seconds,
    cketerm_records::{EndKind, Ending, Request, Who},
    entry::EntryId,
    names::{Address, NodeName},
    timeline::TimelineEntry,
};
use cketerm_rules::usual::{EndedTimes, Phase};
use jiff::{SignedDuration, Timestamp};

use crate::state::when;

/// An ended entry, without the output of its attempts. The output is read when somebody opens the entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The entry.
    pub entry: EntryId,
    /// Its machine's address.
    pub address: Address,
    /// Its Node's name, if an attempt has it.
    pub node: Option<NodeName>,
    /// The outcome.
    pub outcome: String,
    /// The operator who cancelled or deleted it, if known.
    pub withdrawn_by: Option<Who>,
    /// Kind of its end.
    pub end: EndKind,
    /// Time of its end.
    pub at: Timestamp,
    /// The request: who, when and why.
    pub request: Option<Request>,
    /// Start of its first command.
    pub command_started: Option<Timestamp>,
    /// Number of attempts.
    pub attempts: usize,
    /// Durations of its phases.
    pub times: EndedTimes,
}

impl Ended {
    /// Returns how long the work on the machine took: from the start of its first drain, or of its first command, to its
    /// end. Time in the queue does not count. Every view shows this figure. `None` if no command began.
    pub fn took(&self) -> Option<SignedDuration> {
        let whole = self.times.seconds_of(Phase::Whole).map(|seconds| Seconds::new(seconds).signed_duration());
        // Records of version 0.1 have no start of the drain.
        whole.or_else(|| self.command_started.map(|began| self.at.duration_since(began)))
    }
}

impl Ended {
    /// Returns the outcome with the time that the work took: `booted in 14s`.
    pub fn outcome_and_time(&self) -> String {
        match self.took().filter(|_| self.end.good()) {
            Some(took) => format!("{} in {}", self.outcome, when::span(took)),
            None => self.described(),
        }
    }

    /// Returns the outcome with the operator who cancelled or deleted the entry: `cancelled by alice@admin1`.
    pub fn described(&self) -> String {
        self.end.described(&self.outcome, self.withdrawn_by.as_ref())
    }
}

impl From<&Ending> for Ended {
    fn from(ending: &Ending) -> Self {
        Self {
            entry: ending.entry,
            address: ending.address.clone(),
            node: ending.attempts.iter().find_map(|a| a.node.clone()),
            outcome: ending.outcome.clone(),
            withdrawn_by: ending.withdrawn_by.clone(),
            end: ending.end,
            at: ending.at,
            request: ending.request.clone(),
            command_started: ending.attempts.iter().filter(|a| a.began()).map(|a| a.start).min(),
            attempts: ending.attempts.iter().filter(|a: &&Attempt| a.began()).count(),
            times: EndedTimes::of(ending),
        }
    }
}

/// The full timeline of an ended entry.
#[derive(Clone, Debug)]
pub struct EntryTimeline {
    /// The record as stored in etcd.
    pub ending: Ending,
    /// The events, oldest first, including the audit records of that time.
    pub moments: Vec<TimelineEntry>,
    /// The reason why audit records are missing.
    pub gap: Option<String>,
}
