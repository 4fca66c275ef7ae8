//! State of a machine on the map: the one word that matters most.

use cketerm_model::{entry::EntryId, entry_ref::EntryRef};
use cketerm_rules::trouble;

use crate::state::{App, queries};

/// State of a machine, as far as a sign can show it. The first that applies wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// An operator should look: its drain is stuck, its repair has failed, or its cordon is orphaned.
    Stuck,
    /// Its node is being drained.
    Draining,
    /// It is rebooting.
    Rebooting,
    /// It is being repaired.
    Repairing,
    /// It is not Ready, and nothing is being done about it.
    NotReady,
    /// Its entry is on hold.
    Held,
    /// Its entry is in backoff.
    Backoff,
    /// Its entry is waiting.
    Queued,
    /// It is cordoned.
    Cordoned,
    /// It is in the definition but not in Kubernetes.
    NoNode,
    /// The list of Nodes is not known yet.
    Unknown,
    /// It is healthy.
    Ready,
}

impl State {
    /// All states, in the order of the legend.
    pub const ALL: [Self; 12] = [
        Self::Ready,
        Self::Queued,
        Self::Backoff,
        Self::Held,
        Self::Draining,
        Self::Rebooting,
        Self::Repairing,
        Self::Cordoned,
        Self::NotReady,
        Self::Stuck,
        Self::NoNode,
        Self::Unknown,
    ];

    /// Returns its sign, which no other state has: a block for the common ones, a letter for the others.
    pub fn sign(self) -> char {
        match self {
            Self::Ready => '\u{2588}',
            Self::Queued => '\u{2591}',
            Self::Draining => '\u{2584}',
            Self::Rebooting => '\u{2580}',
            Self::Backoff => '\u{2592}',
            Self::Held => 'h',
            Self::Repairing => 'p',
            Self::Cordoned => 'c',
            Self::NotReady => 'x',
            Self::Stuck => '!',
            Self::NoNode => '-',
            Self::Unknown => '?',
        }
    }

    /// Returns true if its sign is a block that may be drawn on several lines.
    pub fn is_block(self) -> bool {
        matches!(self, Self::Ready | Self::Queued | Self::Backoff)
    }

    /// Returns its name for the legend.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Queued => "queued",
            Self::Backoff => "backoff",
            Self::Held => "on hold",
            Self::Draining => "draining",
            Self::Rebooting => "rebooting",
            Self::Repairing => "in repair",
            Self::Cordoned => "cordoned",
            Self::NotReady => "not ready",
            Self::Stuck => "STUCK",
            Self::NoNode => "no Node",
            Self::Unknown => "unknown",
        }
    }

    /// Returns true if the machine is being worked on.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Draining | Self::Rebooting | Self::Repairing)
    }

    /// Returns the state of a machine.
    pub fn of(app: &App, name: &str) -> Self {
        let seen = &app.seen;
        let entries = || app.knowledge.totals.entries_of(name);
        if seen.orphans.contains_key(name) || entries().any(|id| trouble::is_stuck(seen, id)) {
            return Self::Stuck;
        }
        let work = entries().filter_map(|id| of_entry(app, id)).min();
        if let Some(work) = work.filter(|work| work.is_active()) {
            return work;
        }
        let node = match queries::node(seen, name) {
            None if seen.snapshot.kube.sources.get("nodes").is_some_and(|s| s.synced) => Self::NoNode,
            None => Self::Unknown,
            Some(row) if !row.ready => Self::NotReady,
            Some(row) if row.unschedulable => Self::Cordoned,
            Some(_) => Self::Ready,
        };
        work.map_or(node, |work| work.min(node))
    }
}

fn of_entry(app: &App, id: EntryId) -> Option<State> {
    let (seen, now) = (&app.seen, app.known());
    let held = queries::held(seen, id);
    let waits = |backoff: bool| match (held, backoff) {
        (true, _) => State::Held,
        (false, true) => State::Backoff,
        (false, false) => State::Queued,
    };
    let entry = seen.snapshot.store.entry(id).filter(|e| e.unfinished())?;
    if !entry.in_work() {
        return Some(waits(entry.backoff_expire().is_some_and(|t| t > now)));
    }
    Some(match (entry.is_after_command(), entry) {
        (false, _) => State::Draining,
        (true, EntryRef::Reboot(_)) => State::Rebooting,
        (true, EntryRef::Repair(_) | EntryRef::Maintenance(_)) => State::Repairing,
    })
}
