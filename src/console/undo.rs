//! Undo of this console's last action. It is offered for a minute, and only while the result of the action is
//! unchanged. It only opens the confirmation of the inverse action. Not every action can be undone.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{
    app::{App, HostId},
    calendar,
    dialog::{self, Dialog, registry::constraint_revisions},
    event::{Action, ActionOutcome, Registering, Replaced, count},
    queries, when,
};
use crate::{
    actions::HostAction,
    model::{
        cketerm_records::Verb,
        entry::{EntryId, QueueKind, Stored},
        reboot::RebootStatus,
    },
    store::keys::SwitchName,
};

/// Time for which an undo is offered.
const OFFERED: Duration = Duration::from_mins(1);

/// A reboot that was cancelled before anything was done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The entry.
    pub entry: EntryId,
    /// Its node's name, or address.
    pub node: String,
    /// Its machine's address.
    pub address: String,
}

/// Inverse of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Enable a switch that was disabled.
    Enable(SwitchName),
    /// Release entries that were put on hold.
    LetGo(Vec<EntryId>),
    /// Resume applying.
    Apply,
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
    Unqueue(Vec<EntryId>),
    /// Release a host that was held off.
    Release(HostId),
    /// Queue again the cancelled reboots that had only waited.
    Queue {
        /// These reboots.
        waited: Vec<Waited>,
        /// Number of other cancelled reboots, for which something was done already.
        others: usize,
        /// Their reason, if it was the same for all.
        reason: Option<String>,
    },
}

/// An undo on offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The inverse action.
    pub way: Way,
    /// Boot time at which the action ended.
    since: Duration,
    /// The revision of the write, if the action wrote a single thing.
    wrote: Option<i64>,
    /// Fingerprint of the action's result, once the live copy showed it.
    stands: Option<String>,
    /// Whether the result has changed meanwhile.
    changed: bool,
}

impl Way {
    /// Returns the inverse of an action, from the state before it. `None` if nothing truly reverts it.
    pub fn of(app: &App, action: &Action) -> Option<Self> {
        let store = &app.seen.snapshot.store;
        Some(match action {
            Action::Switch { queue, enabled: false, .. } => Self::Enable((*queue).into()).was(app)?,
            Action::Registry { what: Registering::Enable(false), .. } => Self::Enable(SwitchName::Sabakan).was(app)?,
            Action::Registry { what: Registering::AutoRepair(false), .. } => {
                Self::Enable(SwitchName::AutoRepair).was(app)?
            }
            Action::Registry { what: Registering::Hold(true, _), .. } if store.registry.hold.is_none() => Self::Apply,
            Action::Registry { what: Registering::Constraint { name, value }, .. } => {
                let (old, new) = (constraint(app, name)?, value.parse().ok()?);
                (old != new).then(|| Self::Constraint { name: name.clone(), old, new })?
            }
            Action::Hold { entries, hold: true, .. } => Self::LetGo(entries.iter().map(|(id, _)| *id).collect()),
            // If a freeze was in force already, the end of the new one would not bring it back.
            Action::Freeze { until, reason } if calendar::freeze(app).is_none() => {
                Self::Unfreeze(*until, reason.clone())
            }
            Action::Cancel { entries, .. } => queue(app, entries)?,
            // The entries are known once they are queued.
            Action::AddReboots { .. } | Action::AddRepairs { .. } => Self::Unqueue(Vec::new()),
            Action::Hosts { hosts, action: Some(HostAction::Hold(_)), .. } => {
                let [(name, _)] = hosts.as_slice() else { return None };
                let id = app.seen.snapshot.kube.hosts.iter().find(|(_, host)| host.full_name() == *name)?.0;
                Self::Release(id.clone()).was(app)?
            }
            _ => return None,
        })
    }

    /// Adapts the inverse to the outcome: what was written, and what that replaced. `None` if there is nothing left to
    /// revert.
    pub fn after(mut self, came: &ActionOutcome) -> Option<Self> {
        if let Some(done) = &came.done {
            match &mut self {
                Self::Queue { waited, .. } => waited.retain(|w| done.contains(&w.entry)),
                Self::LetGo(ids) => ids.retain(|id| done.contains(id)),
                _ => {}
            }
        }
        match (self, came.replaced) {
            (Self::Unqueue(_), _) => (!came.queued.is_empty()).then(|| Self::Unqueue(came.queued.clone())),
            (Self::Queue { waited, .. }, _) if waited.is_empty() => None,
            (Self::LetGo(ids), _) if ids.is_empty() => None,
            // The action replaced somebody's value that this console had not seen. The undo would not bring it back.
            (Self::Enable(_), Some(Replaced::Off)) | (Self::Unfreeze(..), Some(Replaced::Freeze)) => None,
            (Self::Constraint { name, new, .. }, Some(Replaced::Constraint(old))) => {
                let old = old.filter(|old| *old != new)?;
                Some(Self::Constraint { name, old, new })
            }
            (way, _) => Some(way),
        }
    }

    /// Returns the revision of the thing that it reverts. `None` if there are several.
    fn revision(&self, app: &App) -> Option<i64> {
        match self {
            Self::Enable(name) => Some(dialog::bound::found(&app.seen, *name).mod_revision),
            Self::Constraint { .. } => Some(constraint_revisions(&app.seen).0),
            _ => None,
        }
    }

    /// Returns the inverse if the state differed before the action.
    fn was(self, app: &App) -> Option<Self> {
        self.stands(app).is_none().then_some(self)
    }

    /// Returns a fingerprint of the action's result, for comparison. `None` while the result is not visible.
    fn stands(&self, app: &App) -> Option<String> {
        let (seen, store) = (&app.seen, &app.seen.snapshot.store);
        match self {
            Self::Enable(name) => {
                let switch = dialog::bound::found(seen, *name);
                (!switch.enabled()).then(|| switch.mod_revision.to_string())
            }
            Self::LetGo(ids) => {
                let held = |id: &EntryId| {
                    let order = store.orders.get(id).filter(|_| queries::order(seen, *id) == Some(Verb::Hold));
                    let order = order.filter(|o| o.get().is_some_and(|o| app.me.as_ref() == Some(&o.who)));
                    order.map(|order| format!("{id} {}", order.mod_revision))
                };
                let held: Vec<String> = ids.iter().filter_map(held).collect();
                (held.len() == ids.len()).then(|| held.join(" "))
            }
            Self::Apply => {
                let hold = store.registry.hold.as_ref();
                let mine = hold.filter(|hold| hold.get().is_some_and(|hold| app.me.as_ref() == Some(&hold.who)));
                mine.map(|hold| hold.mod_revision.to_string())
            }
            Self::Unfreeze(until, reason) => {
                let mine = calendar::freeze(app).filter(|f| f.until == *until && f.reason == *reason);
                mine.map(|freeze| freeze.who.to_string())
            }
            Self::Constraint { name, new, .. } => {
                (constraint(app, name) == Some(*new)).then(|| format!("{:?}", constraint_revisions(seen)))
            }
            Self::Unqueue(ids) => {
                ids.iter().any(|id| dialog::cancel::unbegun(app, *id)).then(|| "not begun".to_owned())
            }
            Self::Release(id) => {
                let host = queries::host(seen, id)?;
                let ours = host.asked.keys.get(dialog::host::OURS)?;
                Some(format!("{} {ours}", host.uid))
            }
            Self::Queue { waited, .. } => {
                let gone = |id: EntryId| {
                    queries::lies(seen, id).is_none()
                        || queries::entry(seen, id).is_some_and(|e| e.status == RebootStatus::Cancelled)
                };
                // A later entry of the same machine.
                let mine: BTreeSet<u64> = waited.iter().map(|w| w.entry.index).collect();
                let first = mine.first().copied().unwrap_or_default();
                let later = store.reboots.entries.range(first..).filter(|(index, _)| !mine.contains(index));
                let later: BTreeSet<&str> =
                    later.filter_map(|(_, stored)| stored.get()).map(|e| e.node.as_str()).collect();
                let free = waited.iter().all(|w| gone(w.entry) && !later.contains(w.address.as_str()));
                free.then(|| "gone".to_owned())
            }
        }
    }

    /// Returns what it does, as the text after the key's name.
    pub fn word(&self) -> String {
        match self {
            Self::Enable(_) => "enables it again".to_owned(),
            Self::LetGo(ids) => format!("releases {}", if ids.len() == 1 { "it" } else { "them" }),
            Self::Apply => "resumes applying".to_owned(),
            Self::Unfreeze(..) => "ends the freeze".to_owned(),
            Self::Constraint { old, .. } => format!("sets it back to {old}"),
            Self::Unqueue(ids) if ids.len() == 1 => "cancels it, unless it has begun".to_owned(),
            Self::Unqueue(_) => "cancels those that have not begun".to_owned(),
            Self::Release(_) => "releases it".to_owned(),
            Self::Queue { waited, others: 0, .. } => format!("queues {} again", count(waited.len(), "reboot")),
            Self::Queue { waited, .. } => {
                format!("requeues the {} that had not begun", waited.len())
            }
        }
    }

    /// Opens the confirmation of the inverse action.
    fn open(&self, app: &App) -> Result<Dialog, String> {
        match self {
            Self::Enable(SwitchName::Reboots) => Ok(dialog::switch::of(app, QueueKind::Reboot)),
            Self::Enable(SwitchName::Repairs) => Ok(dialog::switch::of(app, QueueKind::Repair)),
            Self::Enable(SwitchName::Sabakan) => Ok(dialog::registry::switch(app)),
            Self::Enable(SwitchName::AutoRepair) => Ok(dialog::registry::auto_repair(app)),
            Self::LetGo(ids) => dialog::hold::of(app, ids.clone(), false),
            Self::Apply => dialog::registry::hold(app, false),
            Self::Unfreeze(..) => dialog::freeze::unfreeze(app, ""),
            Self::Constraint { name, old, .. } => dialog::registry::constraint_to(app, name, &old.to_string()),
            Self::Unqueue(ids) => dialog::cancel::queued(app, ids.clone()),
            Self::Release(id) => dialog::host::release_of(app, id),
            Self::Queue { waited, others, reason } => {
                let mut again = dialog::add::of(app, waited.iter().map(|w| w.node.clone()).collect())?;
                again.notes.push("at the end of the queue, requested by you".to_owned());
                if *others > 0 {
                    let more = count(*others, "other entry");
                    again.notes.push(format!("! without the {more} for which work had begun"));
                }
                if let Some(reason) = reason {
                    again.because(reason.clone());
                }
                Ok(again)
            }
        }
    }
}

impl Offer {
    /// Creates an offer that starts now.
    pub fn new(app: &App, way: Way, wrote: Option<i64>) -> Self {
        let mut offer = Self { way, since: app.now.boot, wrote, stands: None, changed: false };
        offer.look(app);
        offer
    }

    /// Compares the present result with the earlier one. Only what this console wrote counts as its own, never what
    /// somebody wrote over it.
    fn look(&mut self, app: &App) {
        let mut now = self.way.stands(app);
        if let (Some(wrote), Some(found)) = (self.wrote, self.way.revision(app)) {
            self.changed |= found > wrote;
            now = now.filter(|_| found == wrote);
        }
        match (&self.stands, now) {
            (None, now) => self.stands = now,
            (Some(stood), now) => self.changed |= now.as_ref() != Some(stood),
        }
    }

    /// Returns why the undo is not possible any more.
    pub fn refusal(&self, app: &App) -> Option<&'static str> {
        if app.now.boot.saturating_sub(self.since) > OFFERED {
            return Some("undo expired; reverse it manually");
        }
        if let Way::Unqueue(ids) = &self.way
            && (self.changed || self.stands.is_none())
            && self.way.stands(app).is_none()
            && ids.iter().all(|id| arrived(app, *id))
        {
            return Some("undo refused: the queued entries have begun or ended; cancel them instead");
        }
        if self.changed {
            return Some("undo refused: the target has changed since");
        }
        self.stands.is_none().then_some("waiting for etcd; try again in a moment")
    }

    /// Opens the confirmation of the inverse action.
    pub fn open(&self, app: &App) -> Result<Dialog, String> {
        let mut opened = self.way.open(app)?;
        let ago = app.now.boot.saturating_sub(self.since).as_secs_f64();
        opened.notes.insert(0, format!("undoes this console's action of {} ago", when::seconds(ago)));
        Ok(opened)
    }
}

/// Compares the results of the last action with a new state; an undo is bound to them.
pub fn look(app: &mut App) {
    if let Some(Way::Queue { waited, others, .. }) = &mut app.leaving {
        // An entry that started before it was cancelled is not restored by queueing it again.
        let before = waited.len();
        waited.retain(|w| queries::entry(&app.seen, w.entry).is_none_or(|e| waits(e.status)));
        *others += before - waited.len();
    }
    let Some(mut offer) = app.undo.take() else { return };
    offer.look(app);
    app.undo = Some(offer);
}

fn waits(status: RebootStatus) -> bool {
    matches!(status, RebootStatus::Queued | RebootStatus::Cancelled)
}

/// Returns true if this console has seen an entry, or has seen that its index was assigned.
fn arrived(app: &App, id: EntryId) -> bool {
    let store = &app.seen.snapshot.store;
    let next = match id.queue {
        QueueKind::Reboot => &store.reboots.write_index,
        QueueKind::Repair => &store.repairs.write_index,
    };
    queries::lies(&app.seen, id).is_some() || next.as_ref().is_ok_and(|next| *next > id.index)
}

/// Returns the value of a constraint. `None` if it is not set.
fn constraint(app: &App, name: &str) -> Option<i64> {
    let all = serde_json::to_value(&*app.seen.snapshot.store.constraints()).ok()?;
    all.get(name)?.as_i64()
}

/// Returns the inverse of a cancellation: it queues again the entries that had only waited and never drained.
fn queue(app: &App, entries: &[EntryId]) -> Option<Way> {
    let store = &app.seen.snapshot.store;
    let waited = entries.iter().filter_map(|id| {
        let entry = queries::entry(&app.seen, *id)?;
        // A hold or another order is deleted with its entry. Queued again without the hold, the entry would start.
        let ordered = store.orders.contains_key(id);
        let only = entry.status == RebootStatus::Queued && entry.drain_backoff_count == 0 && !ordered;
        let node = app.seen.snapshot.machine(&entry.node);
        only.then(|| Waited { entry: *id, node, address: entry.node.clone() })
    });
    let waited: Vec<Waited> = waited.collect();
    let reason = |id: &EntryId| store.requests.get(id).and_then(Stored::get).and_then(|r| r.reason.clone());
    let mut reasons = waited.iter().map(|w| reason(&w.entry));
    let first = reasons.next()?;
    let reason = if reasons.all(|other| other == first) { first } else { None };
    Some(Way::Queue { others: entries.len() - waited.len(), waited, reason })
}
