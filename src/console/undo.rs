//! The way back of what this console did last: offered where there is one, for a minute, and only while what was done
//! stands as it was done. It opens the confirmation of the inverse action, nothing else.

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

/// For how long it is offered.
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

/// What takes an action back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// A switch on that was turned off.
    Enable(SwitchName),
    /// Entries let go that were held.
    LetGo(Vec<EntryId>),
    /// Applying goes on.
    Apply,
    /// The end of the freeze until then, for that reason.
    Unfreeze(Timestamp, String),
    /// A constraint's old value.
    Constraint {
        /// Which.
        name: String,
        /// What it was.
        old: i64,
        /// What it was set to.
        new: i64,
    },
    /// Entries cancelled that were queued, as far as nothing was done for them.
    Unqueue(Vec<EntryId>),
    /// A host released that was held off.
    Release(HostId),
    /// Reboots queued again that had only waited.
    Queue {
        /// Those.
        waited: Vec<Waited>,
        /// So many others were cancelled too, for which something was done already.
        others: usize,
        /// Their reason, where they had the same.
        reason: Option<String>,
    },
}

/// A way back that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which.
    pub way: Way,
    /// Boot time at which the action ended.
    since: Duration,
    /// The revision at which it was written, where it was one thing.
    wrote: Option<i64>,
    /// What stands since the action, once that was seen.
    stands: Option<String>,
    /// It was something else meanwhile.
    changed: bool,
}

impl Way {
    /// What takes this action back, as things are before it is done; none where nothing truly does.
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
            // in place of another freeze: its end would not bring that one back
            Action::Freeze { until, reason } if calendar::freeze(app).is_none() => {
                Self::Unfreeze(*until, reason.clone())
            }
            Action::Cancel { entries, .. } => queue(app, entries)?,
            // which ones, is known when they are queued
            Action::AddReboots { .. } | Action::AddRepairs { .. } => Self::Unqueue(Vec::new()),
            Action::Hosts { hosts, action: Some(HostAction::Hold(_)), .. } => {
                let [(name, _)] = hosts.as_slice() else { return None };
                let id = app.seen.snapshot.kube.hosts.iter().find(|(_, host)| host.full_name() == *name)?.0;
                Self::Release(id.clone()).was(app)?
            }
            _ => return None,
        })
    }

    /// The same after it was done, by what was written and what that replaced; none where it takes nothing back by now.
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
            // in place of somebody's that was not seen yet: the end of ours would not bring that one back
            (Self::Enable(_), Some(Replaced::Off)) | (Self::Unfreeze(..), Some(Replaced::Freeze)) => None,
            (Self::Constraint { name, new, .. }, Some(Replaced::Constraint(old))) => {
                let old = old.filter(|old| *old != new)?;
                Some(Self::Constraint { name, old, new })
            }
            (way, _) => Some(way),
        }
    }

    /// The revision of the one thing that it is about; none where it is about several.
    fn revision(&self, app: &App) -> Option<i64> {
        match self {
            Self::Enable(name) => Some(dialog::bound::found(&app.seen, *name).mod_revision),
            Self::Constraint { .. } => Some(constraint_revisions(&app.seen).0),
            _ => None,
        }
    }

    /// Where it was otherwise before.
    fn was(self, app: &App) -> Option<Self> {
        self.stands(app).is_none().then_some(self)
    }

    /// What stands of the action, for comparing; none while it is not seen.
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
                // another entry of the same machine that came after
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

    /// What it does, after the key's name.
    pub fn word(&self) -> String {
        match self {
            Self::Enable(_) => "enables it again".to_owned(),
            Self::LetGo(ids) => format!("lets {} go again", if ids.len() == 1 { "it" } else { "them" }),
            Self::Apply => "lets applying go on".to_owned(),
            Self::Unfreeze(..) => "ends the freeze again".to_owned(),
            Self::Constraint { old, .. } => format!("sets it back to {old}"),
            Self::Unqueue(ids) if ids.len() == 1 => "cancels it, unless it has begun".to_owned(),
            Self::Unqueue(_) => "cancels those that have not begun".to_owned(),
            Self::Release(_) => "releases it again".to_owned(),
            Self::Queue { waited, others: 0, .. } => format!("queues {} again", count(waited.len(), "reboot")),
            Self::Queue { waited, .. } => {
                format!("queues those {} again that had only waited", waited.len())
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
                again.notes.push("at the end of the queue, as asked for by you".to_owned());
                if *others > 0 {
                    let more = count(*others, "other entry");
                    again.notes.push(format!("! not the {more}: something was done for them already"));
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
    /// Offers it from now on.
    pub fn new(app: &App, way: Way, wrote: Option<i64>) -> Self {
        let mut offer = Self { way, since: app.now.boot, wrote, stands: None, changed: false };
        offer.look(app);
        offer
    }

    /// Looks at what stands now: only what was written is taken for ours, never what somebody wrote over it.
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

    /// Why it cannot be taken any more.
    pub fn refusal(&self, app: &App) -> Option<&'static str> {
        if app.now.boot.saturating_sub(self.since) > OFFERED {
            return Some("the way back was offered for a minute, which is over: do it as anything else is done");
        }
        if let Way::Unqueue(ids) = &self.way
            && (self.changed || self.stands.is_none())
            && self.way.stands(app).is_none()
            && ids.iter().all(|id| arrived(app, *id))
        {
            return Some(
                "what was queued last has begun or ended: nothing is left to take back; cancel it as any other",
            );
        }
        if self.changed {
            return Some("what was done last has changed since: nothing is taken back, look again");
        }
        self.stands.is_none().then_some("what was done last is not seen yet: once more in a moment")
    }

    /// Opens the confirmation of the inverse action.
    pub fn open(&self, app: &App) -> Result<Dialog, String> {
        let mut opened = self.way.open(app)?;
        let ago = app.now.boot.saturating_sub(self.since).as_secs_f64();
        opened.notes.insert(0, format!("takes back what was done here {} ago", when::seconds(ago)));
        Ok(opened)
    }
}

/// Looks at what was done after news: a way back is bound to it.
pub fn look(app: &mut App) {
    if let Some(Way::Queue { waited, others, .. }) = &mut app.leaving {
        // one that began to move before it was cancelled is no more what it was
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

/// This console has seen an entry, or that its index was given out.
fn arrived(app: &App, id: EntryId) -> bool {
    let store = &app.seen.snapshot.store;
    let next = match id.queue {
        QueueKind::Reboot => &store.reboots.write_index,
        QueueKind::Repair => &store.repairs.write_index,
    };
    queries::lies(&app.seen, id).is_some() || next.as_ref().is_ok_and(|next| *next > id.index)
}

/// The value of a constraint; none where it is not set.
fn constraint(app: &App, name: &str) -> Option<i64> {
    let all = serde_json::to_value(&*app.seen.snapshot.store.constraints()).ok()?;
    all.get(name)?.as_i64()
}

/// Those of cancelled entries that had only waited: queued, never drained.
fn queue(app: &App, entries: &[EntryId]) -> Option<Way> {
    let store = &app.seen.snapshot.store;
    let waited = entries.iter().filter_map(|id| {
        let entry = queries::entry(&app.seen, *id)?;
        // a hold or another order dies with its entry: queued anew without it, it would start
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
