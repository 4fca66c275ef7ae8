//! Undo of this console's last action. It is offered for a minute, and only while the result of the action is
//! unchanged. `dialogs::undo` opens the confirmation of the inverse action. Not every action can be undone.

use std::{collections::BTreeSet, time::Duration};

use cketerm_actions::HostAction;
use cketerm_model::{
    batch::BatchId,
    boot_time::BootTime,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind, Stored},
    names::Address,
    reboot::RebootStatus,
    stored::keys::SwitchName,
};
use jiff::Timestamp;

use super::{
    App, HostId, calendar,
    dialog::preconditions::{constraint_revisions, found},
    event::{Action, ActionOutcome, BatchAction, RegistryAction, Replaced, count, named_batches},
    host_choice::CKETERM_KEY,
    queries,
};

/// Time for which an undo is offered.
const OFFER_LIFETIME: Duration = Duration::from_mins(1);

/// A reboot that was cancelled before anything was done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelledReboot {
    /// The entry.
    pub entry: EntryId,
    /// Its node's name, or address.
    pub node: String,
    /// Its machine's address.
    pub address: Address,
}

/// Inverse of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoAction {
    /// Enable a switch that was disabled.
    Enable(SwitchName),
    /// Release entries that were put on hold.
    Unhold(Vec<EntryId>),
    /// Resume applying.
    ResumeApplying,
    /// End the freeze with this end and reason.
    Unfreeze(Timestamp, String),
    /// Restore a constraint's old value.
    Constraint {
        /// The constraint's name.
        name: String,
        /// The old value.
        old: i64,
        /// The new value.
        new: i64,
    },
    /// Cancel the queued entries for which nothing was done yet.
    CancelQueued(Vec<EntryId>),
    /// Release a host that was held off.
    Release(HostId),
    /// Resume batches that were paused.
    ResumeBatches(QueueKind, Vec<BatchId>),
    /// Queue again the cancelled reboots that had only waited.
    Requeue {
        /// These reboots.
        cancelled: Vec<CancelledReboot>,
        /// Number of other cancelled reboots, for which something was done already.
        others: usize,
        /// Their reason, if it was the same for all.
        reason: Option<String>,
    },
}

/// An undo on offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoOffer {
    /// The inverse action.
    pub undo_action: UndoAction,
    /// Boot time at which the action ended.
    pub since: BootTime,
    /// The revision of the write, if the action wrote a single thing.
    written_revision: Option<i64>,
    /// Fingerprint of the action's result, once the live copy showed it.
    undoable_state: Option<String>,
    /// Whether the result has changed meanwhile.
    changed: bool,
}

impl UndoAction {
    /// Returns the inverse of an action, from the state before it. `None` if nothing truly reverts it.
    pub fn of(app: &App, action: &Action) -> Option<Self> {
        let store = &app.seen.snapshot.store;
        Some(match action {
            Action::Switch { queue, enabled: false, .. } => Self::Enable((*queue).into()).unless_undone(app)?,
            Action::Registry { what: RegistryAction::Enable(false), .. } => {
                Self::Enable(SwitchName::Sabakan).unless_undone(app)?
            }
            Action::Registry { what: RegistryAction::AutoRepair(false), .. } => {
                Self::Enable(SwitchName::AutoRepair).unless_undone(app)?
            }
            Action::Registry { what: RegistryAction::Hold(true, _), .. } if store.registry.hold.is_none() => {
                Self::ResumeApplying
            }
            Action::Registry { what: RegistryAction::Constraint { name, value }, .. } => {
                let (old, new) = (constraint(app, name)?, value.parse().ok()?);
                (old != new).then(|| Self::Constraint { name: name.clone(), old, new })?
            }
            Action::Hold { entries, hold: true, .. } => Self::Unhold(entries.iter().map(|(id, _)| *id).collect()),
            // If a freeze was in force already, the end of the new one would not bring it back.
            Action::Freeze { until, reason } if calendar::freeze(app).is_none() => {
                Self::Unfreeze(*until, reason.clone())
            }
            Action::Cancel { entries, .. } => queue(app, entries)?,
            Action::Batches { queue, batches, what: BatchAction::Pause, .. } => {
                Self::ResumeBatches(*queue, batches.iter().map(|(id, _)| *id).collect())
            }
            Action::Batches { batches, what: BatchAction::Cancel, .. } => {
                let entries = batches.iter().flat_map(|(id, _)| store.entries_of_batch(*id));
                self::queue(app, &entries.collect::<Vec<_>>())?
            }
            // The entries are known once they are queued.
            Action::AddReboots { .. } | Action::AddRepairs { .. } => Self::CancelQueued(Vec::new()),
            Action::Hosts { hosts, action: Some(HostAction::Hold(_)), .. } => {
                let [(name, _)] = hosts.as_slice() else { return None };
                let id = app.seen.snapshot.kube.hosts.iter().find(|(_, host)| host.full_name() == *name)?.0;
                Self::Release(id.clone()).unless_undone(app)?
            }
            _ => return None,
        })
    }

    /// Adapts the inverse to the outcome: what was written, and what that replaced. `None` if there is nothing left to
    /// revert.
    pub fn after(mut self, outcome: &ActionOutcome) -> Option<Self> {
        if let Some(done) = &outcome.done {
            match &mut self {
                Self::Requeue { cancelled, .. } => cancelled.retain(|w| done.contains(&w.entry)),
                Self::Unhold(ids) => ids.retain(|id| done.contains(id)),
                _ => {}
            }
        }
        match (self, outcome.replaced) {
            (Self::CancelQueued(_), _) => {
                (!outcome.queued.is_empty()).then(|| Self::CancelQueued(outcome.queued.clone()))
            }
            (Self::Requeue { cancelled, .. }, _) if cancelled.is_empty() => None,
            (Self::Unhold(ids), _) if ids.is_empty() => None,
            // The action replaced somebody's value that this console had not seen. The undo would not bring it back.
            (Self::Enable(_), Some(Replaced::Off)) | (Self::Unfreeze(..), Some(Replaced::Freeze)) => None,
            (Self::Constraint { name, new, .. }, Some(Replaced::Constraint(old))) => {
                let old = old.filter(|old| *old != new)?;
                Some(Self::Constraint { name, old, new })
            }
            (undo_action, _) => Some(undo_action),
        }
    }

    /// Returns the revision of the thing that it reverts. `None` if there are several.
    fn revision(&self, app: &App) -> Option<i64> {
        match self {
            Self::Enable(name) => Some(found(&app.seen, *name).mod_revision),
            Self::Constraint { .. } => Some(constraint_revisions(&app.seen).0),
            _ => None,
        }
    }

    /// Returns the inverse if the state differed before the action.
    fn unless_undone(self, app: &App) -> Option<Self> {
        self.undoable_state(app).is_none().then_some(self)
    }

    /// Returns a fingerprint of the action's result, for comparison. `None` while the result is not visible.
    fn undoable_state(&self, app: &App) -> Option<String> {
        let (seen, store) = (&app.seen, &app.seen.snapshot.store);
        match self {
            Self::Enable(name) => {
                let switch = found(seen, *name);
                (!switch.enabled()).then(|| switch.mod_revision.to_string())
            }
            Self::Unhold(ids) => {
                let held = |id: &EntryId| {
                    let order = store.orders.get(id).filter(|_| queries::order(seen, *id) == Some(Verb::Hold));
                    let order = order
                        .filter(|o| o.get().is_some_and(|o| app.session.operator_identity.as_ref() == Some(&o.who)));
                    order.map(|order| format!("{id} {}", order.mod_revision))
                };
                let held: Vec<String> = ids.iter().filter_map(held).collect();
                (held.len() == ids.len()).then(|| held.join(" "))
            }
            Self::ResumeBatches(_, ids) => {
                let own = |id: &BatchId| {
                    let paused = store.batches.get(id)?.get()?.paused.as_ref()?;
                    let is_own = app.session.operator_identity.as_ref() == Some(&paused.who);
                    is_own.then(|| format!("{id} {}", paused.at))
                };
                let paused: Vec<String> = ids.iter().filter_map(own).collect();
                (paused.len() == ids.len()).then(|| paused.join(" "))
            }
            Self::ResumeApplying => {
                let hold = store.registry.hold.as_ref();
                let own = hold.filter(|hold| {
                    hold.get().is_some_and(|hold| app.session.operator_identity.as_ref() == Some(&hold.who))
                });
                own.map(|hold| hold.mod_revision.to_string())
            }
            Self::Unfreeze(until, reason) => {
                let own = calendar::freeze(app).filter(|f| f.until == *until && f.reason == *reason);
                own.map(|freeze| freeze.who.to_string())
            }
            Self::Constraint { name, new, .. } => {
                (constraint(app, name) == Some(*new)).then(|| format!("{:?}", constraint_revisions(seen)))
            }
            Self::CancelQueued(ids) => {
                ids.iter().any(|id| queries::not_started(seen, *id)).then(|| "not begun".to_owned())
            }
            Self::Release(id) => {
                let host = queries::host(seen, id)?;
                let own_key = host.asked.keys.get(CKETERM_KEY)?;
                Some(format!("{} {own_key}", host.uid))
            }
            Self::Requeue { cancelled, .. } => {
                let is_ended = |id: EntryId| {
                    queries::stored_at(seen, id).is_none()
                        || queries::entry(seen, id).is_some_and(|e| e.status == RebootStatus::Cancelled)
                };
                // A later entry of the same machine.
                let own: BTreeSet<u64> = cancelled.iter().map(|w| w.entry.index).collect();
                let first = own.first().copied().unwrap_or_default();
                let later = store.reboots.entries.range(first..).filter(|(index, _)| !own.contains(index));
                let later: BTreeSet<&str> =
                    later.filter_map(|(_, stored)| stored.get()).map(|e| e.node.as_str()).collect();
                let can_requeue = cancelled.iter().all(|w| is_ended(w.entry) && !later.contains(w.address.as_str()));
                can_requeue.then(|| "gone".to_owned())
            }
        }
    }

    /// Returns what it does, as the text after the key's name.
    pub fn description(&self) -> String {
        match self {
            Self::Enable(_) => "enables it again".to_owned(),
            Self::Unhold(ids) => format!("ends the {}", if ids.len() == 1 { "hold" } else { "holds" }),
            Self::ResumeApplying => "resumes applying".to_owned(),
            Self::ResumeBatches(_, ids) => format!("resumes {}", named_batches(ids)),
            Self::Unfreeze(..) => "ends the freeze".to_owned(),
            Self::Constraint { old, .. } => format!("sets it back to {old}"),
            Self::CancelQueued(ids) if ids.len() == 1 => "cancels it, unless it has begun".to_owned(),
            Self::CancelQueued(_) => "cancels those that have not begun".to_owned(),
            Self::Release(_) => "releases it".to_owned(),
            Self::Requeue { cancelled, others: 0, .. } => format!("queues {} again", count(cancelled.len(), "reboot")),
            Self::Requeue { cancelled, .. } => {
                format!("requeues the {} that had not begun", cancelled.len())
            }
        }
    }
}

impl UndoOffer {
    /// Creates an offer that starts now.
    pub fn new(app: &App, undo_action: UndoAction, written_revision: Option<i64>) -> Self {
        let mut offer =
            Self { undo_action, since: app.now.boot, written_revision, undoable_state: None, changed: false };
        offer.check(app);
        offer
    }

    /// Compares the present result with the earlier one. Only what this console wrote counts as its own, never what
    /// somebody wrote over it.
    fn check(&mut self, app: &App) {
        let mut now = self.undo_action.undoable_state(app);
        if let (Some(written_revision), Some(found)) = (self.written_revision, self.undo_action.revision(app)) {
            self.changed |= found > written_revision;
            now = now.filter(|_| found == written_revision);
        }
        match (&self.undoable_state, now) {
            (None, now) => self.undoable_state = now,
            (Some(previous), now) => self.changed |= now.as_ref() != Some(previous),
        }
    }

    /// Returns why the undo is not possible any more.
    pub fn refusal(&self, app: &App) -> Option<&'static str> {
        if app.now.boot.saturating_duration_since(self.since) > OFFER_LIFETIME {
            return Some("undo expired; reverse it manually");
        }
        if let UndoAction::CancelQueued(ids) = &self.undo_action
            && (self.changed || self.undoable_state.is_none())
            && self.undo_action.undoable_state(app).is_none()
            && ids.iter().all(|id| has_appeared(app, *id))
        {
            return Some("undo refused: the queued entries have begun or ended; cancel them instead");
        }
        if self.changed {
            return Some("undo refused: the target has changed since");
        }
        self.undoable_state.is_none().then_some("waiting for etcd; try again in a moment")
    }
}

/// Compares the results of the last action with a new state; an undo is bound to them.
pub fn check(app: &mut App) {
    if let Some(UndoAction::Requeue { cancelled, others, .. }) = &mut app.session.pending_undo {
        // An entry that started before it was cancelled is not restored by queueing it again.
        let before = cancelled.len();
        cancelled.retain(|w| queries::entry(&app.seen, w.entry).is_none_or(|e| waits(e.status)));
        *others += before - cancelled.len();
    }
    let Some(mut offer) = app.session.undo.take() else { return };
    offer.check(app);
    app.session.undo = Some(offer);
}

fn waits(status: RebootStatus) -> bool {
    matches!(status, RebootStatus::Queued | RebootStatus::Cancelled)
}

/// Returns true if this console has seen an entry, or has seen that its index was assigned.
fn has_appeared(app: &App, id: EntryId) -> bool {
    let next = app.seen.snapshot.store.write_index(id.queue);
    queries::stored_at(&app.seen, id).is_some() || next.as_ref().is_ok_and(|next| *next > id.index)
}

/// Returns the value of a constraint. `None` if it is not set.
fn constraint(app: &App, name: &str) -> Option<i64> {
    let all = serde_json::to_value(&*app.seen.snapshot.store.constraints()).ok()?;
    all.get(name)?.as_i64()
}

/// Returns the inverse of a cancellation: it queues again the entries that had only waited and never drained.
fn queue(app: &App, entries: &[EntryId]) -> Option<UndoAction> {
    let store = &app.seen.snapshot.store;
    let cancelled = entries.iter().filter_map(|id| {
        let entry = queries::entry(&app.seen, *id)?;
        // A hold or another order is deleted with its entry. Queued again without the hold, the entry would start.
        let ordered = store.orders.contains_key(id);
        let only = entry.status == RebootStatus::Queued && entry.drain_backoff_count == 0 && !ordered;
        let node = app.seen.snapshot.machine(&entry.node);
        only.then(|| CancelledReboot { entry: *id, node, address: entry.node.clone() })
    });
    let cancelled: Vec<CancelledReboot> = cancelled.collect();
    let reason = |id: &EntryId| store.requests.get(id).and_then(Stored::get).and_then(|r| r.reason.clone());
    let mut reasons = cancelled.iter().map(|w| reason(&w.entry));
    let first = reasons.next()?;
    let reason = if reasons.all(|other| other == first) { first } else { None };
    Some(UndoAction::Requeue { others: entries.len() - cancelled.len(), cancelled, reason })
}
