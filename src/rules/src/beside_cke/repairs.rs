//! Choice of the repairs that CKE starts, and its repairs in progress.

use std::collections::BTreeSet;

use cketerm_model::{
    cluster::Operation,
    entry::{EntryId, Stored},
    names::Address,
    reason::Reason,
    repair::{RepairEntry, RepairStatus, StepStatus},
    time::after,
};

use super::{Pass, Reading, in_work, in_work::InWork, observed};

/// An unfinished repair whose operation the definition knows.
#[derive(Clone, Copy)]
struct Known<'a> {
    id: EntryId,
    entry: &'a RepairEntry,
    operation: &'a Operation,
    control_plane: bool,
}

fn known(pass: Pass<'_>) -> impl Iterator<Item = Known<'_>> {
    let (cluster, members) = (&pass.definition.cluster, &pass.definition.members);
    pass.snap.store.repairs.entries.iter().filter_map(move |(&index, stored)| {
        let entry = stored.get().filter(|entry| entry.unfinished())?;
        let operation = cluster.repair.operation(&entry.machine_type, &entry.operation).ok()?;
        let control_plane = members.by_address(cluster, &entry.address).is_some_and(|m| m.control_plane);
        Some(Known { id: EntryId::repair(index), entry, operation, control_plane })
    })
}

/// Returns the first repair because of which CKE processes no reboot: a deleted one, or an unfinished one. CKE couples
/// the queues, whatever the switch of the repair queue says. A repair of an API server that waits for another API
/// server's reboot does not count, because both would wait for ever.
pub(super) fn first_in_the_way(pass: Pass<'_>) -> Option<EntryId> {
    let deleted = pass.snap.store.repairs.entries.iter().filter(|(_, stored)| stored.get().is_some_and(|e| e.deleted));
    let deleted = deleted.map(|(index, _)| EntryId::repair(*index));
    let rebooting: Vec<&Address> = rebooting_api_servers(pass).collect();
    let waits =
        |known: &Known<'_>| known.control_plane && rebooting.iter().any(|address| **address != known.entry.address);
    deleted.chain(known(pass).filter(|known| !waits(known)).map(|known| known.id)).min()
}

/// Returns the names of nodes that repairs claim.
pub(super) fn claimed(pass: Pass<'_>) -> BTreeSet<&str> {
    let entries = pass.snap.store.repairs.entries.values().filter_map(|stored| stored.get());
    entries.filter(|entry| entry.claims_machine()).map(|entry| pass.snap.machine_ref(&entry.address)).collect()
}

/// Adds the reasons and the progress of the repair queue. Entries with an unknown operation keep the reason that the
/// rules of both programs share.
pub(super) fn read(pass: Pass<'_>, reading: &mut Reading) {
    let enabled = pass.snap.store.repairs.switch.enabled();
    let limit = usize::try_from(pass.definition.cluster.repair.concurrency()).unwrap_or(0);
    let rebooting: Vec<&Address> = rebooting_api_servers(pass).collect();
    let mut order: Vec<Known<'_>> = known(pass).collect();
    order.sort_by_key(|known| (known.entry.status == RepairStatus::Queued, !known.control_plane, known.id));
    let (mut taken, mut machines, mut api_server): (Vec<EntryId>, Vec<(&Address, u64)>, Option<&Address>) =
        (Vec::new(), Vec::new(), None);
    let (mut in_work, failing) = (0, pass.failing());
    for known in order {
        let Known { id, entry, control_plane, .. } = known;
        if let Some((reason, progress)) = read_in_work(pass, known, enabled) {
            if entry.step_status == StepStatus::Draining
                && let Some(node) = pass.snap.node_of(&entry.address)
            {
                reading.watch_pods.insert(node.name.clone());
            }
            taken.push(id);
            in_work += 1;
            machines.push((&entry.address, id.index));
            api_server = api_server.or(control_plane.then_some(&entry.address));
            reading.progress.insert(id, progress);
            reading.reasons.insert(id, reason);
            continue;
        }
        let other_api_server = || api_server.iter().chain(&rebooting).copied().find(|other| **other != entry.address);
        let reason = if !enabled {
            Reason::QueueDisabled
        } else if let Some(failing) = &failing {
            failing.clone()
        } else if let Some((_, index)) = machines.iter().find(|(address, _)| **address == entry.address) {
            Reason::DuplicateOf { index: *index }
        } else if let Some(backoff) = backoff(pass, known) {
            backoff
        } else if let Some(other) = other_api_server().filter(|_| control_plane) {
            Reason::WaitingForControlPlane { other: pass.snap.machine(other) }
        } else if taken.len() >= limit {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            // those in work come first
            let next = taken.get(in_work);
            Reason::WaitingForSlot { holder: next.or(taken.first()).copied(), limit, ahead: next.is_some() }
        } else {
            taken.push(id);
            machines.push((&entry.address, id.index));
            api_server = api_server.or(control_plane.then_some(&entry.address));
            Reason::Ready
        };
        reading.reasons.insert(id, reason);
    }
}

fn read_in_work(
    pass: Pass<'_>,
    known: Known<'_>,
    enabled: bool,
) -> Option<(Reason, cketerm_model::cketerm_records::Progress)> {
    let Known { id, entry, operation, .. } = known;
    if !entry.claims_machine() {
        return None;
    }
    let step = Some((entry.step, operation.steps().len()));
    let in_work = InWork { id, address: &entry.address, since: entry.last_transition_time, step };
    if entry.step_status == StepStatus::Draining {
        let (reason, progress) = in_work::draining(pass, in_work);
        // CKE abandons the drains of a disabled queue.
        return Some((if enabled { reason } else { Reason::QueueDisabled }, progress));
    }
    let watch = operation.step(entry.step).and_then(|step| step.watch_seconds).unwrap_or(0);
    let until = entry.last_transition_time.map(|since| after(since, watch));
    Some(in_work::after_command(pass, in_work, until))
}

fn backoff(pass: Pass<'_>, known: Known<'_>) -> Option<Reason> {
    let Known { id, entry, .. } = known;
    let until = entry.drain_backoff_expire.filter(|until| *until > pass.now.wall)?;
    let (cause, is_past) = observed::backoff_cause(pass, id, &entry.address);
    let tried = entry.last_transition_time.filter(|_| is_past);
    Some(Reason::Backoff { count: entry.drain_backoff_count, until, cause, tried })
}

/// Returns the API servers that are being rebooted, by address.
fn rebooting_api_servers(pass: Pass<'_>) -> impl Iterator<Item = &Address> {
    let (cluster, members) = (&pass.definition.cluster, &pass.definition.members);
    let in_work = pass.snap.store.reboots.entries.values().filter_map(Stored::get).filter(|e| e.claims_machine());
    in_work.map(|entry| &entry.node).filter(|node| members.by_address(cluster, node).is_some_and(|m| m.control_plane))
}
