//! Objects to which a dialog is bound. If one of them changes, the dialog expires.

use cketerm_actions::repair_state;
use cketerm_model::{
    batch::{BatchId, Paused},
    entry::{EntryId, Stored},
    host::HostRow,
    stored::{keys::SwitchName, view::Switch},
};
use cketerm_rules::{decide::ApplyState, seen::Seen};

use crate::state::{HostId, queries, registry};

/// Object that must not have changed since it was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// An entry at its `ModRevision`: its content is what the question is about.
    Entry(EntryId, i64),
    /// An entry in the phase that was shown. Other changes of it leave the question true.
    Phase(EntryId, Phase),
    /// The hold of an entry at its `ModRevision`. Without a hold nothing is left to end.
    Hold(EntryId, i64),
    /// A Node with its UID (empty = no such Node).
    Node(String, String),
    /// One of the four switches at its `ModRevision`. `None`: the switch only has to be on still, because a stop has to
    /// succeed whatever was written meanwhile.
    Switch(SwitchName, Option<i64>),
    /// The constraints, and cketerm's own ones beside them, at their `ModRevision`s.
    Constraints(i64, i64),
    /// The policy at its `ModRevision`.
    Policy(i64),
    /// A batch with the pause that was shown.
    Pause(BatchId, Paused),
    /// The change that waits for approval.
    Digest(String),
    /// The hold on applying at its `ModRevision` (0 = none), and the plan that was shown.
    ApplyState(i64, Option<String>),
    /// A host, and the fields of it that were shown.
    Host(HostId, String),
}

/// Phase of an entry, as far as an order depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    is_unfinished: bool,
    is_after_command: bool,
    /// Step of a repair.
    step: Option<i64>,
    /// Commands that were started for it.
    attempts: usize,
}

impl Phase {
    /// Returns the present phase of a readable entry.
    pub fn of(seen: &Seen, id: EntryId) -> Option<Self> {
        let store = &seen.snapshot.store;
        let entry = store.entry(id)?;
        Some(Self {
            is_unfinished: entry.unfinished(),
            is_after_command: entry.is_after_command(),
            step: entry.as_repair().map(|repair| repair.step),
            attempts: store.attempts_of(id).count(),
        })
    }
}

impl Precondition {
    /// Returns the binding of an action on a switch: to the revision that was shown, unless the action stops something.
    pub fn switch(seen: &Seen, name: SwitchName) -> Self {
        let switch = found(seen, name);
        Self::Switch(name, (!switch.enabled()).then_some(switch.mod_revision))
    }

    /// Returns the change as text, if there was one.
    pub(super) fn violation(&self, seen: &Seen) -> Option<String> {
        match self {
            Self::Entry(id, revision) => match queries::stored_at(seen, *id) {
                None => Some(format!("{id} no longer exists: nothing was done")),
                Some((_, found)) if found != *revision => Some(changed(seen, *id)),
                Some(_) => None,
            },
            Self::Phase(id, phase) => match Phase::of(seen, *id) {
                None => Some(format!("{id} no longer exists: nothing was done")),
                Some(found) => (found != *phase).then(|| changed(seen, *id)),
            },
            Self::Hold(id, revision) => {
                let found = seen.snapshot.store.orders.get(id).map(|stored| stored.mod_revision);
                let is_another = found.is_some_and(|found| found != *revision);
                is_another.then(|| format!("somebody held {id} again meanwhile: nothing was done, look again"))
            }
            Self::Node(name, uid) => {
                let found = queries::node(seen, name).map_or("", |n| n.uid.as_str());
                (found != uid).then(|| format!("node {name} was replaced meanwhile: nothing was done, look again"))
            }
            Self::Switch(name, None) => {
                (!found(seen, *name).enabled()).then(|| format!("{} was disabled meanwhile", name.title()))
            }
            Self::Switch(name, Some(revision)) => (found(seen, *name).mod_revision != *revision)
                .then(|| format!("somebody switched {} meanwhile: nothing was done", name.title())),
            Self::Constraints(cke_constraints, cketerm_constraints) => (constraint_revisions(seen)
                != (*cke_constraints, *cketerm_constraints))
                .then(|| "somebody set a constraint meanwhile: nothing was done, look again".to_owned()),
            Self::Policy(revision) => {
                let found = seen.snapshot.store.policy.as_ref().map_or(0, |stored| stored.mod_revision);
                (found != *revision)
                    .then(|| "somebody set the policy meanwhile: nothing was done, look again".to_owned())
            }
            Self::Pause(id, shown) => {
                let found = seen.snapshot.store.batches.get(id).and_then(Stored::get);
                (found.and_then(|batch| batch.paused.as_ref()) != Some(shown))
                    .then(|| format!("somebody resumed or paused batch {id} meanwhile: nothing was done, look again"))
            }
            Self::Host(id, shown) => {
                let found = queries::host(seen, id).map(|h| fingerprint(h));
                (found.as_ref() != Some(shown))
                    .then(|| format!("host {}/{} changed meanwhile: nothing was done, look again", id.0, id.1))
            }
            Self::ApplyState(hold, plan) => {
                if hold_revision(seen) != *hold {
                    return Some("somebody held or resumed applying meanwhile: nothing was done".to_owned());
                }
                let another = plan.as_ref().is_some_and(|plan| plan_digest(seen) != *plan);
                another.then(|| "the plan changed meanwhile: nothing was done, look again".to_owned())
            }
            Self::Digest(digest) => {
                let waits = matches!(&*seen.applying, ApplyState::Approval(d, _) if d == digest);
                (!waits).then(|| format!("{digest} is no longer pending: nothing was done, look again"))
            }
        }
    }
}

/// Returns that an entry has changed, and its state now.
fn changed(seen: &Seen, id: EntryId) -> String {
    let reboot = queries::entry(seen, id).map(|e| e.status.to_string());
    let repair = queries::repair(seen, id).map(repair_state);
    let now = reboot.or(repair).map(|s| format!(" (now {s})")).unwrap_or_default();
    format!("{id} changed meanwhile{now}: nothing was done, look again")
}

/// Returns a switch by its name.
pub fn found(seen: &Seen, name: SwitchName) -> &Switch {
    seen.snapshot.store.switch(name)
}

/// Returns the shown fields of a host. A change of them makes a dialog expire; other fields change all the time.
pub fn fingerprint(host: &HostRow) -> String {
    let hindrance = host.hindrance().map(|why| why.to_string());
    format!("{} {:?} {} {:?} {hindrance:?}", host.uid, host.powered_on, host.online, host.asked)
}

/// Returns the `ModRevision` of the hold on applying; 0 = none.
pub fn hold_revision(seen: &Seen) -> i64 {
    seen.snapshot.store.registry.hold.as_ref().map_or(0, |hold| hold.mod_revision)
}

/// Returns the plan's digest, which an approval would name; empty = there is no plan.
pub fn plan_digest(seen: &Seen) -> String {
    registry::proposed(seen).map(|proposed| proposed.digest.clone()).unwrap_or_default()
}

/// Returns the `ModRevision`s of the constraints and of cketerm's own ones beside them; 0 = no such key.
pub fn constraint_revisions(seen: &Seen) -> (i64, i64) {
    let store = &seen.snapshot.store;
    let (cke_constraints, cketerm_constraints) = (store.constraints.as_ref(), store.our_constraints.as_ref());
    (cke_constraints.map_or(0, |s| s.mod_revision), cketerm_constraints.map_or(0, |s| s.mod_revision))
}
