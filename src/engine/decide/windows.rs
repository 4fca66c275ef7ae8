//! Windows and freezes: they stop only *new* work (I6, I8; policy `windows`, `freeze`).
//!
//! | what | outside, or frozen |
//! | --- | --- |
//! | a drain starts, of either queue | no; nor within `margin_seconds` of the window's end |
//! | a power command is ordered: reboot or repair command, a further try, a person's `retry` | no, it waits |
//! | a drain that is under way | is unwound: back into the queue, its count and its turn kept, the node uncordoned |
//! | a command that we withheld at the last moment, so that nothing was done to its machine | its drain is unwound, too |
//! | `rebooting`, `watching` otherwise; boot and health checks, the end, the success command | go on |
//! | backoff, cancel, dequeue, delete, uncordon; Metal3's cycles; what the registry asks for | go on |

use std::borrow::Cow;

use jiff::Timestamp;

use super::{Guard, Pass, entry_context::EntryContext};
use crate::{
    engine::snapshot::Snapshot,
    model::{
        labels::Labels,
        policy::Policy,
        reason::Reason,
        time::after,
        window::{Stands, Windows},
    },
    mutation::{Mutation, on},
};

/// How windows and freeze stand at the moment of the pass.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The freeze that is on.
    frozen: Option<Reason>,
    /// Its end.
    thaws: Option<Timestamp>,
    /// In the order of `Windows::all`.
    stands: Vec<Stands>,
    /// The policy cannot be read: nobody knows what it allows.
    unreadable: Option<Reason>,
}

impl Times {
    pub(super) fn of(snap: &Snapshot, policy: &Policy, now: Timestamp) -> Self {
        let unreadable = snap.store.policy.as_ref().and_then(|stored| stored.value.as_ref().err());
        let freeze = policy.freeze.as_ref().filter(|freeze| freeze.holds(now));
        Self {
            frozen: freeze.map(|f| Reason::Frozen { until: f.until, why: f.reason.clone() }),
            thaws: freeze.map(|f| f.until),
            stands: policy.windows.iter().flat_map(Windows::all).map(|(_, window)| window.stands(now)).collect(),
            unreadable: unreadable
                .map(|why| Reason::EngineObserving { why: format!("cketerm/policy cannot be read: {why}") }),
        }
    }

    /// Nothing of it is in force.
    fn is_empty(&self) -> bool {
        self.frozen.is_none() && self.stands.is_empty() && self.unreadable.is_none()
    }
}

impl<'a> Pass<'a> {
    /// Why no power command may be ordered for this machine now: frozen, outside its window, or a policy that nobody
    /// can read.
    pub(super) fn barred(&self, case: EntryContext<'_>) -> Option<Reason> {
        if self.times.is_empty() {
            return None;
        }
        self.times.unreadable.clone().or_else(|| self.closed(case))
    }

    /// Frozen, or outside the machine's window: a drain that is under way is unwound.
    pub(super) fn closed(&self, case: EntryContext<'_>) -> Option<Reason> {
        if let Some(frozen) = self.times.frozen.as_ref().filter(|_| !on(Mutation::FreezeForgotten)) {
            return Some(frozen.clone());
        }
        let stands = self.stands(case).filter(|stands| !stands.open && !on(Mutation::WindowForgotten))?;
        Some(Reason::OutsideWindow { next_open: stands.opens, closes: None })
    }

    /// Why no drain may start on this machine now: barred, or so near its window's end that it would be unwound.
    pub(super) fn too_late(&self, case: EntryContext<'_>) -> Option<Reason> {
        if self.times.is_empty() {
            return None;
        }
        self.barred(case).or_else(|| {
            let stands = self.stands(case)?;
            let closes = stands.closes?;
            let margin = self.policy.windows.as_ref().map_or(0, |w| i64::from(w.margin_seconds()));
            (after(self.now.wall, margin) > closes)
                .then_some(Reason::OutsideWindow { next_open: stands.opens, closes: Some(closes) })
        })
    }

    /// Why the entry waits, if that lasts longer than its backoff.
    pub(super) fn outlasts(&self, case: EntryContext<'_>, backoff: Timestamp) -> Option<Reason> {
        let closed = if self.times.is_empty() { None } else { self.too_late(case) }?;
        let until = match &closed {
            Reason::Frozen { until, .. } => Some(*until),
            Reason::OutsideWindow { next_open, .. } => *next_open,
            _ => return None,
        };
        (until.is_none_or(|until| until > backoff) && self.not_ours().is_none()).then_some(closed)
    }

    /// What must still be so when work starts: revisions, and that the machine's window has not ended meanwhile.
    pub(super) fn starting(&self, case: EntryContext<'_>) -> Guard {
        let until = self.stands(case).and_then(|stands| stands.closes);
        Guard { until, ..Guard::starting(case.id, case.mod_revision, &self.snap.store) }
    }

    /// How the window of this machine stands; none = it has none.
    fn stands(&self, case: EntryContext<'_>) -> Option<Stands> {
        let windows = self.policy.windows.as_ref().filter(|w| w.bind(case.queue()))?;
        let place = if windows.by_machine() { windows.place_for(&self.labels_of(case)) } else { 0 };
        self.times.stands.get(place).copied()
    }

    /// Labels of the machine: the definition's; where it has none for it, those of its Node that screens show.
    pub(super) fn labels_of(&self, case: EntryContext<'_>) -> Cow<'a, Labels> {
        let member = self.definition.and_then(|d| d.members.by_address(&d.cluster, case.address));
        if let Some(labels) = member.and_then(|m| m.labels.as_ref()).filter(|labels| !labels.is_empty()) {
            return Cow::Borrowed(labels);
        }
        let shown = self.node_of(case).map(|node| node.shown_labels.iter().cloned().collect());
        Cow::Owned(shown.unwrap_or_default())
    }

    /// Wakes when something of it changes by the clock alone.
    pub(super) fn wake_for_windows(&mut self) {
        let margin = self.policy.windows.as_ref().map_or(0, |w| i64::from(w.margin_seconds()));
        let ends = self.times.stands.iter().flat_map(|s| [s.closes, s.closes.map(|c| after(c, -margin)), s.opens]);
        let all: Vec<Timestamp> = ends.flatten().chain(self.times.thaws).collect();
        for at in all {
            self.wake_at_wall(at);
        }
    }
}
