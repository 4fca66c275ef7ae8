//! Windows and freezes. They stop only *new* work (REB-52 to REB-54; I6, I8; policy `windows`, `freeze`).
//!
//! | action | outside the window, or frozen |
//! | --- | --- |
//! | start of a drain, of either queue | no; nor within `margin_seconds` of the window's end |
//! | power command: reboot or repair command, a further try, an operator's `retry` | no, it waits |
//! | drain under way | unwinds: back into the queue with its count and place, the node uncordoned |
//! | command withheld at the last moment, with nothing done to the machine | its drain unwinds too |
//! | other `rebooting` or `watching` entries; boot and health checks, the end, the success command | go on |
//! | backoff, cancel, dequeue, delete, uncordon; Metal3's power cycles; actions for the registry | go on |

use std::borrow::Cow;

use cketerm_model::{
    batch::BatchId,
    fault,
    labels::Labels,
    policy::Policy,
    reason::Reason,
    time::after,
    window::{WindowState, Windows},
};
use jiff::Timestamp;

use super::{Guard, Pass, entry_context::EntryContext};
use crate::{
    assumptions::{Assumption, Assumptions},
    snapshot::Snapshot,
};

/// State of the windows and of the freeze at the moment of the pass.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Reason of the present freeze.
    frozen: Option<Reason>,
    /// End of the freeze.
    freeze_ends: Option<Timestamp>,
    /// State of each window, in the order of `Windows::all`.
    window_states: Vec<WindowState>,
    /// Reason if the policy cannot be read: it is then unknown what the policy allows.
    pub(super) unreadable: Option<Reason>,
}

impl Schedule {
    pub(super) fn of(snap: &Snapshot, assumptions: &Assumptions, policy: &Policy, now: Timestamp) -> Self {
        let stored = snap.store.policy.as_ref().filter(|_| !assumptions.assumes(Assumption::PolicyReadable));
        let unreadable = stored.and_then(|stored| stored.value.as_ref().err());
        let freeze = policy.freeze.as_ref().filter(|freeze| freeze.holds(now));
        Self {
            frozen: freeze.map(|f| Reason::Frozen { until: f.until, why: f.reason.clone() }),
            freeze_ends: freeze.map(|f| f.until),
            window_states: policy
                .windows
                .iter()
                .flat_map(Windows::all)
                .map(|(_, window)| window.state_at(now))
                .collect(),
            unreadable: unreadable
                .map(|why| Reason::EngineObserving { why: format!("cketerm/policy cannot be read: {why}") }),
        }
    }

    /// Returns true if neither a window nor a freeze applies.
    fn is_empty(&self) -> bool {
        self.frozen.is_none() && self.window_states.is_empty() && self.unreadable.is_none()
    }
}

impl<'a> Pass<'a> {
    /// Returns the reason why no power command may run on this machine now: a freeze, a closed window, or an unreadable
    /// policy. An unreadable policy stops commands and starts, but unwinds no drain.
    pub(super) fn command_window_blocker(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        self.schedule.unreadable.clone().or_else(|| self.window_blocker(ctx))
    }

    /// Returns the reason of a freeze or of the machine's closed window, for which a drain under way unwinds. An
    /// unreadable policy does not count here.
    pub(super) fn window_blocker(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        let frozen = &self.schedule.frozen;
        fault!(FreezeForgotten => frozen = &None);
        if let Some(frozen) = frozen {
            return Some(frozen.clone());
        }
        fault!(WindowForgotten => return None);
        let window_state = self.window_state(ctx).filter(|window_state| !window_state.open)?;
        Some(Reason::OutsideWindow { next_open: window_state.opens, closes: None })
    }

    /// Returns the reason why no drain may start on this machine now: no command may run, or its window ends too soon.
    pub(super) fn drain_window_blocker(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        if self.schedule.is_empty() {
            return None;
        }
        self.command_window_blocker(ctx).or_else(|| {
            let window_state = self.window_state(ctx)?;
            let closes = window_state.closes?;
            let margin = self.policy.windows.as_ref().map_or(0, |w| i64::from(w.margin_seconds()));
            (after(self.now.wall, margin) > closes)
                .then_some(Reason::OutsideWindow { next_open: window_state.opens, closes: Some(closes) })
        })
    }

    /// Returns the reason of the entry's wait if it lasts longer than its backoff.
    pub(super) fn closed_longer_than(&self, ctx: EntryContext<'_>, backoff: Timestamp) -> Option<Reason> {
        let window_blocker = if self.schedule.is_empty() { None } else { self.drain_window_blocker(ctx) }?;
        if !matches!(window_blocker, Reason::Frozen { .. } | Reason::OutsideWindow { .. }) {
            return None;
        }
        let until = window_blocker.until();
        (until.is_none_or(|until| until > backoff) && self.leadership_blocker().is_none()).then_some(window_blocker)
    }

    /// Returns the guard of an effect that starts work: revisions, and the end of the machine's window. For a queued
    /// entry they include its batch.
    pub(super) fn start_guard(&self, ctx: EntryContext<'_>) -> Guard {
        let until = self.window_state(ctx).and_then(|window_state| window_state.closes);
        let batch = self.snap.store.batch_of(ctx.id).filter(|_| ctx.is_queued());
        let revision = |id: BatchId| self.snap.store.batches.get(&id).map_or(0, |stored| stored.mod_revision);
        let batch = batch.map(|id| (id, revision(id)));
        Guard { batch, until, ..Guard::start_guard(ctx.id, ctx.mod_revision, &self.snap.store) }
    }

    /// Returns the state of this machine's window, or `None` if it has none.
    pub(super) fn window_state(&self, ctx: EntryContext<'_>) -> Option<WindowState> {
        let windows = self.policy.windows.as_ref().filter(|w| w.bind(ctx.queue()))?;
        let place = if windows.by_machine() { windows.index_for(&self.labels_of(ctx)) } else { 0 };
        self.schedule.window_states.get(place).copied()
    }

    /// Returns the labels of the machine, which decide its window and its group: the definition's, else its Node's
    /// zone, rack and role labels. The cache keeps no others.
    pub(super) fn labels_of(&self, ctx: EntryContext<'_>) -> Cow<'a, Labels> {
        let member = self.definition.and_then(|d| d.members.by_address(&d.cluster, ctx.address));
        if let Some(labels) = member.and_then(|m| m.node().labels.as_ref()).filter(|labels| !labels.is_empty()) {
            return Cow::Borrowed(labels);
        }
        let shown = self.node_of(ctx).map(|node| node.shown_labels.iter().cloned().collect());
        Cow::Owned(shown.unwrap_or_default())
    }

    /// Requests a pass at the next time at which a window or the freeze changes.
    pub(super) fn wake_for_windows(&mut self) {
        let margin = self.policy.windows.as_ref().map_or(0, |w| i64::from(w.margin_seconds()));
        let ends =
            self.schedule.window_states.iter().flat_map(|s| [s.closes, s.closes.map(|c| after(c, -margin)), s.opens]);
        let all: Vec<Timestamp> = ends.flatten().chain(self.schedule.freeze_ends).collect();
        for at in all {
            self.wake_at_wall(at);
        }
    }
}
