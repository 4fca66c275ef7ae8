//! Observations of CKE's work that CKE itself does not record: kept in memory while CKE leads, and lost with the process.

use cketerm_model::{
    boot_time::Seconds, clock::Now, entry::EntryId, entry_ref::EntryRef, names::Address, reason::Reason,
    time::seconds_between,
};

use super::{Pass, applies, in_work};
use crate::snapshot::{Observed, Snapshot};

/// Time after the start of a drain from which this process counts as late: pods may be gone that it never saw.
const LATE: Seconds = Seconds::new(5.0);

/// Updates the observations, before a pass. While CKE does not lead there are none.
pub fn observe(snap: &mut Snapshot, now: Now) {
    if snap.engine.leading.is_some() || !applies(&snap.store) {
        snap.observed.clear();
        return;
    }
    let mut observed = std::mem::take(&mut snap.observed);
    observed.retain(|id, _| snap.store.entry(*id).is_some_and(EntryRef::unfinished));
    let Some(definition) = snap.store.definition() else { return };
    let pass = Pass { snap, definition, now };
    let reboots = snap.store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
    let repairs = snap.store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    for id in reboots.chain(repairs) {
        let Some(entry) = snap.store.entry(id) else { continue };
        if entry.in_work() {
            let known = observed.entry(id).or_default();
            look(pass, known, id, entry.address(), entry.is_after_command());
        } else if let Some(known) = observed.get_mut(&id) {
            // The next drain counts afresh.
            *known = Observed { held: known.held.take(), ..Observed::default() };
        }
    }
    snap.observed = observed;
}

fn look(pass: Pass<'_>, known: &mut Observed, id: EntryId, address: &Address, after_command: bool) {
    let Some(node) = pass.snap.node_of(address) else { return };
    if known.boot_id.is_none() && !node.boot_id.is_empty() {
        (known.boot_id, known.boot_id_is_old) = (Some(node.boot_id.clone()), !after_command);
    }
    if after_command {
        known.held = None;
        return;
    }
    let rules = pass.definition.cluster.eviction(id.queue);
    let Some(left) = in_work::pods_left(pass, node, rules) else { return };
    let since = pass.snap.store.entry(id).and_then(EntryRef::last_transition_time);
    if known.pods_at_start.is_none() {
        // the cause of the drain before says nothing of this one
        known.held = None;
        known.joined_late = since.is_some_and(|since| seconds_between(since, pass.now.wall) > LATE);
    }
    known.pods_at_start = known.pods_at_start.max(Some(left.count));
    if left.held.is_some() || left.count == 0 {
        known.held = left.held;
    }
}

/// Returns the likely cause of an entry's backoff: what would refuse its drain now, else what held the last one. The
/// second value reports the latter.
pub(super) fn backoff_cause(pass: Pass<'_>, id: EntryId, address: &Address) -> (Option<Box<Reason>>, bool) {
    let rules = pass.definition.cluster.eviction(id.queue);
    let now = pass.snap.node_of(address).and_then(|node| in_work::pods_left(pass, node, rules));
    let before = || pass.snap.observed.get(&id).and_then(|observed| observed.held.clone());
    match now.and_then(|left| left.held) {
        Some(held) => (Some(Box::new(held)), false),
        None => before().map_or((None, false), |held| (Some(Box::new(held)), true)),
    }
}
