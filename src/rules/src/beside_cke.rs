//! Reading of CKE's rules while CKE leads: why each entry of both queues waits, and how far those in work are.
//!
//! CKE publishes neither reasons nor progress. Everything here is computed from what can be seen: entries, Nodes, pods,
//! budgets and namespaces. It is a reading, not a record: a screen that shows it says so with [`LABEL`]. It uses neither
//! the windows, freezes, holds, groups nor batches of cketerm, because CKE does not know them. Two policies say which
//! CKE leads: `api_server_order` and `unreachable_rule`, whose values are the rules of its versions.
//!
//! | module | contents |
//! | --- | --- |
//! | `reboots` | choice of the reboots that start, and the coupling of both queues |
//! | `repairs` | choice of the repairs that start |
//! | `in_work` | drains and boots in progress |
//! | `observed` | observations of this process that CKE does not record |
//! | `recorded` | events that CKE's operation records tell |
//!
//! Known differences: CKE counts nodes that it cannot reach by SSH as unreachable, this reading counts Nodes that are
//! not Ready. CKE's records name the machines on which its commands failed. The commands' output, and the answers of its
//! boot and health checks, are not recorded anywhere.

mod in_work;
mod observed;
mod reboots;
pub mod recorded;
mod repairs;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    acceptance::LeaderKind,
    cketerm_records::Progress,
    clock::Now,
    entry::{EntryId, Stored},
    names::NodeName,
    reason::Reason,
    stored::view::{Definition, StoreView},
};

pub use self::observed::observe;
use super::{
    decide::{Decision, decide},
    snapshot::Snapshot,
};

/// Label of a screen or an answer that shows this reading.
pub const LABEL: &str = "as cketerm reads CKE's rules";

/// Largest number of backed-off entries whose nodes' pods are watched, to name what would refuse the next drain.
const MAX_BACKED_OFF: usize = 10;

/// Reading of CKE's rules at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Reason of each unfinished entry that can be read.
    pub reasons: BTreeMap<EntryId, Reason>,
    /// Progress of each entry in work, in the form that a leading cketerm publishes.
    pub progress: BTreeMap<EntryId, Progress>,
    /// Nodes whose pods are to be watched: those that CKE drains, and those of a few drains that it gave up.
    pub watch_pods: BTreeSet<NodeName>,
}

/// Inputs that the rules of both queues share.
#[derive(Clone, Copy)]
struct Pass<'a> {
    snap: &'a Snapshot,
    definition: &'a Definition,
    now: Now,
}

impl Pass<'_> {
    /// Returns the reason why nothing starts if an entry of either queue cannot be read: every pass of CKE fails then.
    fn failing(&self) -> Option<Reason> {
        let store = &self.snap.store;
        let reboots = store.reboots.entries.iter().find(|(_, stored)| stored.get().is_none());
        let repairs = || store.repairs.entries.iter().find(|(_, stored)| stored.get().is_none());
        let id = reboots.map(|(index, _)| EntryId::reboot(*index));
        let id = id.or_else(|| repairs().map(|(index, _)| EntryId::repair(*index)))?;
        Some(Reason::Working { phase: format!("{id} is unreadable: every pass of CKE fails") })
    }
}

/// Reports whether CKE leads, so that this reading applies. A leader of neither program has unknown rules.
pub fn applies(store: &StoreView) -> bool {
    store.leader().is_some() && store.leadership().lead == LeaderKind::Cke
}

/// Computes the reading. Without a readable definition it is empty: CKE does nothing then.
pub fn readings(snap: &Snapshot, now: Now) -> Reading {
    let mut reading = Reading::default();
    let Some(definition) = snap.store.definition() else { return reading };
    let pass = Pass { snap, definition, now };
    repairs::read(pass, &mut reading);
    reboots::read(pass, &mut reading);
    reading
}

/// Returns the decision to show and to aim watches by: that of [`decide`], with this reading while CKE leads. Orders and
/// pauses that CKE ignores stay the reason of their entries, because an operator must not rely on them.
pub fn decision(snap: &Snapshot, now: Now) -> (Decision, Option<Reading>) {
    let mut decision = decide(snap, now);
    if snap.engine.leading.is_some() || !applies(&snap.store) {
        return (decision, None);
    }
    let reading = readings(snap, now);
    for (id, reason) in &reading.reasons {
        let shown = decision.reasons.entry(*id).or_insert(Reason::Ready);
        if !matches!(shown, Reason::OrderIgnored { .. } | Reason::BatchPauseIgnored { .. }) {
            shown.clone_from(reason);
        }
    }
    decision.watch_pods.clone_from(&reading.watch_pods);
    (decision, Some(reading))
}

/// Returns the copy of etcd with the progress of this reading in place of published progress, which CKE does not have.
/// Only screens use it.
pub fn with_progress(store: &Arc<StoreView>, reading: &Reading) -> Arc<StoreView> {
    if reading.progress.is_empty() {
        return Arc::clone(store);
    }
    let mut shown = (**store).clone();
    for (id, progress) in &reading.progress {
        let revision = store.stored_entry(*id).map_or(0, |entry| entry.mod_revision);
        let stored = Stored { key: String::new(), mod_revision: revision, value: Ok(Arc::new(progress.clone())) };
        shown.progress.insert(*id, stored);
    }
    Arc::new(shown)
}
