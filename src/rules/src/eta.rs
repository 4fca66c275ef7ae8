//! Estimated end of a queue or of a part of it: an interval that says how sure it is.
//!
//! Many possible futures of the queue are played by the rules' order of starts, each with durations drawn from the
//! entries that ended in this cluster. Four of five futures end within the interval. A few machines get stuck until
//! somebody helps, which makes the interval of all futures too wide to plan with. So the futures in which nothing gets
//! stuck have an interval of their own. The same question always has the same answer.
//!
//! | module | contents |
//! | --- | --- |
//! | `input` | the queue, from the live copy of etcd and the history |
//! | `model` | the queue as the estimate sees it |
//! | `durations` | distribution of one duration |
//! | `run` | one possible future |
//! | `forecast` | many of them, and the interval |
//! | `random` | random numbers from a fixed seed |
//! | `text` | an estimate as screens and commands show it |
//!
//! It does not know: drains that will be blocked by something new, machines that change their speed, entries that
//! somebody will add, holds that somebody will release. Somebody is assumed to help entries that get stuck as fast as
//! in the past.

mod durations;
mod forecast;
mod input;
mod model;
mod random;
mod run;
#[cfg(test)]
mod tests;
pub mod text;

use jiff::Timestamp;

pub use self::{
    durations::Durations,
    forecast::Forecast,
    input::{Part, Question, part_of},
    model::{Backoff, Job, Kind, Openings, Queue, State},
};
use crate::start::Bar;

/// Estimated end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Time at which it was made.
    pub at: Timestamp,
    /// One of ten times it is done before.
    pub low: Timestamp,
    /// As often before as after.
    pub likely: Timestamp,
    /// Nine of ten times it is done by then.
    pub high: Timestamp,
    /// The end if no machine gets stuck from now on. None if it is rare that none does.
    pub steady: Option<Interval>,
    /// Number of ended entries behind it.
    pub samples: usize,
}

/// Interval that four of five ends lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// One of ten times it is done before.
    pub low: Timestamp,
    /// As often before as after.
    pub likely: Timestamp,
    /// Nine of ten times it is done by then.
    pub high: Timestamp,
}

/// Reason why there is no estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEstimate {
    /// Nothing is left that ends by itself.
    NothingLeft,
    /// Too few entries have ended.
    FewSamples {
        /// Number of ended entries.
        known: usize,
        /// Number that is needed.
        needed: usize,
    },
    /// Nothing starts, for an unknown time.
    Barred(Bar),
    /// The windows do not open for long enough.
    NotInSight,
}

/// Estimate, or the reason why there is none.
pub type Answer = Result<Estimate, NoEstimate>;
