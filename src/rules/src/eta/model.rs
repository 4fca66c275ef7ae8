//! The queue as the estimate sees it: what is left, how long it takes, and what limits the starts. Times are seconds
//! from now on.

use super::durations::Durations;

/// Number of entries or sets; a group or window is named by its place.
pub type Place = usize;

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// It waits for its turn.
    Waiting,
    /// It has been draining for so many seconds.
    Draining(f64),
    /// Its command was started so many seconds ago.
    Commanded(f64),
}

/// An entry that is left in the queue, or several ones in a row that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Kind of its machine: place in [`Queue::kinds`].
    pub kind: Place,
    /// Group of its machine, for the limit of groups.
    pub group: Place,
    /// Window of its machine: place in [`Queue::windows`].
    pub window: Place,
    /// Set whose end is estimated; a number beyond all sets if only the end of all counts. None if the entry only takes
    /// a slot.
    pub set: Option<Place>,
    /// State.
    pub state: State,
    /// End of its backoff.
    pub ready: f64,
    /// Number of entries that it stands for.
    pub count: usize,
}

/// Durations of one kind of machine.
#[derive(Clone, Debug)]
pub struct Kind {
    /// From the start of the drain to the command.
    pub drain: Durations,
    /// From the command to the end.
    pub after: Durations,
}

/// Times at which drains may start and commands may run.
#[derive(Clone, Debug, PartialEq)]
pub struct Openings(pub Vec<(f64, f64)>);

impl Openings {
    /// Returns openings without an end.
    pub fn always() -> Self {
        Self(vec![(0.0, f64::INFINITY)])
    }

    /// Returns the first time from `at` on at which a drain may start. Infinite if there is none.
    pub(super) fn next_start(&self, at: f64, margin: f64) -> f64 {
        // An entry that did not fit comes back at the end of the opening: it must not start again at that time.
        let may_start = |(opens, closes): &&(f64, f64)| at.max(*opens) < *closes && closes - margin >= at.max(*opens);
        let next = self.0.iter().find(may_start);
        next.map_or(f64::INFINITY, |(opens, _)| opens.max(at))
    }

    /// Returns the end of the opening at this time; the time itself while it is closed.
    pub(super) fn close(&self, at: f64) -> f64 {
        self.0.iter().find(|(opens, closes)| *opens <= at && at < *closes).map_or(at, |(_, closes)| *closes)
    }
}

/// Drains that give up and are tried again later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Share of the drains.
    pub share: f64,
    /// Seconds until a drain gives up.
    pub timeout: f64,
    /// Shortest and longest wait before the next drain.
    pub wait: (f64, f64),
}

/// A queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Entries in work at once.
    pub slots: usize,
    /// Entries that share the slots, in the order of their start.
    pub shared: Vec<Job>,
    /// Entries that are in work alone: API servers.
    pub alone: Vec<Job>,
    /// Whether API servers go first.
    pub alone_first: bool,
    /// Most groups in work at once.
    pub groups: Option<usize>,
    /// Seconds after the command after which an entry no longer holds its group.
    pub group_hold: f64,
    /// Openings of each window.
    pub windows: Vec<Openings>,
    /// Seconds before the end of an opening in which no drain starts.
    pub margin: f64,
    /// Backoffs.
    pub backoff: Backoff,
    /// Kinds of machines.
    pub kinds: Vec<Kind>,
}
