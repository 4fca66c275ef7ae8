//! Look-ups in the published state.

use std::sync::Arc;

use cketerm_model::{
    attempt::{Attempt, CheckAnswer},
    cketerm_records::{Progress, Verb},
    cluster::{Member, Node, Operation},
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    host::HostRow,
    kube::NodeRow,
    maintenance::{MaintenanceEntry, MaintenanceStatus},
    names::Address,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::view::Candidate,
    time::after,
};
pub use cketerm_rules::trouble::since;
use cketerm_rules::{beside_cke, seen::Seen};
use jiff::Timestamp;

pub use super::lost::{Lost, STALE_AFTER, etcd_lost, kube_lost};

/// Returns a host.
pub fn host<'a>(seen: &'a Seen, id: &(String, String)) -> Option<&'a Arc<HostRow>> {
    seen.snapshot.kube.hosts.get(id)
}

/// Returns the Node of a host.
pub fn host_node<'a>(seen: &'a Seen, id: &(String, String)) -> Option<&'a Arc<NodeRow>> {
    seen.snapshot.kube.node_of_host(host(seen, id)?).map(|(node, _)| node)
}

/// Returns the end of an entry's backoff, regardless of other reasons that hold it.
pub fn backoff_until(seen: &Seen, id: EntryId) -> Option<Timestamp> {
    let waiting = seen.snapshot.store.entry(id).filter(|e| e.is_waiting())?;
    waiting.backoff_expire().filter(|until| *until > seen.now.wall)
}

/// Returns the parse error of an entry of either queue.
pub fn broken(seen: &Seen, id: EntryId) -> Option<&str> {
    seen.snapshot.store.stored_entry(id)?.value.err()
}

/// Returns a readable entry of the reboot queue.
pub fn entry(seen: &Seen, id: EntryId) -> Option<&RebootEntry> {
    seen.snapshot.store.entry(id)?.as_reboot()
}

/// Returns a readable entry of the repair queue.
pub fn repair(seen: &Seen, id: EntryId) -> Option<&RepairEntry> {
    seen.snapshot.store.entry(id)?.as_repair()
}

/// Returns a readable maintenance.
pub fn maintenance(seen: &Seen, id: EntryId) -> Option<&MaintenanceEntry> {
    seen.snapshot.store.entry(id)?.as_maintenance()
}

/// Returns the key of an entry of either queue and the revision that a confirmation is bound to. `None` if it is gone.
pub fn stored_at(seen: &Seen, id: EntryId) -> Option<(&str, i64)> {
    seen.snapshot.store.stored_entry(id).map(|stored| (stored.key, stored.mod_revision))
}

/// Returns the address of an entry's machine. `None` if the entry cannot be read.
pub fn address_of(seen: &Seen, id: EntryId) -> Option<&Address> {
    seen.snapshot.store.entry(id).map(EntryRef::address)
}

/// Returns the name of an entry's machine: the Node's name, else the address.
pub fn machine(seen: &Seen, id: EntryId) -> Option<String> {
    address_of(seen, id).map(|address| seen.snapshot.machine(address))
}

/// Returns the operation that a repair names, if the definition has it.
pub fn operation<'a>(seen: &'a Seen, entry: &RepairEntry) -> Option<&'a Operation> {
    let definition = seen.snapshot.store.definition()?;
    definition.cluster.repair.operation(&entry.machine_type, &entry.operation).ok()
}

/// Returns the latest answer of a repair's health check: this engine's own, else the one that the leader published.
pub fn health(seen: &Seen, id: EntryId) -> Option<&CheckAnswer> {
    let local = seen.snapshot.work.get(&id).and_then(|w| w.check.as_ref()).map(|(_, answer)| answer);
    local.or_else(|| progress(seen, id)?.check.as_ref().map(|(_, answer)| answer))
}

/// Returns the deadline of a repair's current phase: the watch of its step, its drain, or its backoff.
pub fn deadline(seen: &Seen, id: EntryId) -> Option<Timestamp> {
    let entry = repair(seen, id).filter(|e| e.unfinished())?;
    let moved = entry.last_transition_time;
    match (entry.status, entry.step_status) {
        (RepairStatus::Processing, StepStatus::Watching) => {
            if let Some(Reason::WaitingForHealth { until: Some(until), .. }) = seen.reasons.get(&id) {
                return Some(*until);
            }
            let step = operation(seen, entry)?.step(entry.step)?;
            Some(after(moved?, step.watch_seconds.unwrap_or(0)))
        }
        (RepairStatus::Processing, StepStatus::Draining) => {
            let repair = &seen.snapshot.store.definition()?.cluster.repair;
            Some(after(moved?, repair.eviction_timeout_seconds.unwrap_or(600)))
        }
        _ => entry.drain_backoff_expire.filter(|t| *t > seen.now.wall),
    }
}

/// Returns the member of the definition with this Node name.
pub fn member<'a>(seen: &'a Seen, node: &str) -> Option<&'a Node> {
    let definition = seen.snapshot.store.definition()?;
    definition.members.by_name(&definition.cluster, node).map(Member::node)
}

/// Returns the Kubernetes Node with this name.
pub fn node<'a>(seen: &'a Seen, name: &str) -> Option<&'a Arc<NodeRow>> {
    seen.snapshot.kube.by_name.get(name)
}

/// Returns true if a Node runs an API server: by the definition, or by the Node's role if there is no definition.
pub fn is_api_server(seen: &Seen, name: &str) -> bool {
    runs_api_server(seen, node(seen, name), member(seen, name))
}

fn runs_api_server(seen: &Seen, node: Option<&Arc<NodeRow>>, member: Option<&Node>) -> bool {
    match (seen.snapshot.store.definition(), member) {
        (Some(_), member) => member.is_some_and(|m| m.control_plane),
        _ => node.is_some_and(|n| n.shown_labels.iter().any(|(k, _)| k.ends_with("/control-plane"))),
    }
}

/// Returns `api` for an API server, else the node's role label, else `worker`.
pub fn role<'a>(seen: &'a Seen, name: &str) -> &'a str {
    role_of(seen, node(seen, name), member(seen, name))
}

/// Same as [`role`], for objects that are looked up already.
pub fn role_of<'a>(seen: &Seen, node: Option<&'a Arc<NodeRow>>, member: Option<&Node>) -> &'a str {
    if runs_api_server(seen, node, member) {
        return "api";
    }
    let labels = || node.into_iter().flat_map(|n| &n.shown_labels);
    let by_value = labels().find(|(k, v)| k.ends_with("/role") && !v.is_empty()).map(|(_, v)| v.as_str());
    let by_key = || labels().find_map(|(k, _)| k.strip_prefix("node-role.kubernetes.io/"));
    by_value.or_else(by_key).unwrap_or("worker")
}

/// Returns the rack, or the zone if no rack is known. Empty without either.
pub fn rack<'a>(seen: &'a Seen, name: &str) -> &'a str {
    rack_of(node(seen, name), member(seen, name))
}

/// Same as [`rack`], for objects that are looked up already.
pub fn rack_of<'a>(node: Option<&'a Arc<NodeRow>>, member: Option<&'a Node>) -> &'a str {
    let own = || node.into_iter().flat_map(|n| &n.shown_labels).map(|(k, v)| (k.as_str(), v.as_str()));
    let defined = || member.and_then(|m| m.labels.as_ref()).into_iter().flatten();
    let defined = || defined().map(|(k, v)| (k.as_str(), v.as_str()));
    let of = |end: &str| own().chain(defined()).find(|(k, _)| k.ends_with(end)).map(|(_, v)| v);
    of("/rack").or_else(|| of("/zone")).unwrap_or_default()
}

/// Returns the address that names a Node in the queue: the definition's, else the Node's first IP address.
pub fn address(seen: &Seen, name: &str) -> Option<Address> {
    let named = member(seen, name).map(|m| &m.address);
    named.or_else(|| ip_of(node(seen, name)?)).cloned()
}

/// Returns a Node's first IP address.
pub fn ip_of(node: &NodeRow) -> Option<&Address> {
    node.addresses.iter().find(|a| a.parse::<std::net::IpAddr>().is_ok())
}

/// Returns the progress that the leader published for an entry.
pub fn progress(seen: &Seen, id: EntryId) -> Option<&Progress> {
    seen.snapshot.store.progress.get(&id).and_then(Stored::get)
}

/// Returns the attempt of an entry whose command runs: the attempt is open, and the engine that started it still holds
/// its lease.
pub fn running(seen: &Seen, id: EntryId) -> Option<&Attempt> {
    let store = &seen.snapshot.store;
    let last = store.attempts_of(id).next_back().and_then(Stored::get)?;
    (last.open() && store.candidates.values().any(|c| c.lease == last.lease)).then_some(last)
}

/// Returns the verb of an order that is not processed yet.
pub fn order(seen: &Seen, id: EntryId) -> Option<Verb> {
    seen.snapshot.store.orders.get(&id).and_then(Stored::get).map(|o| o.verb)
}

/// The current leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This process.
    Us,
    /// Another cketerm, on this host.
    Other(String),
    /// CKE, on this host.
    Cke(String),
    /// No leader.
    Nobody,
    /// Unknown: etcd does not answer, and this process does not lead.
    Unknown,
}

/// Returns the current leader.
pub fn leader(seen: &Seen) -> Leader {
    let store = &seen.snapshot.store;
    let local = |c: &Candidate| seen.snapshot.engine.leading.as_ref().is_some_and(|l| l.key == c.key);
    match store.leader() {
        None => Leader::Nobody,
        Some(c) if local(c) => Leader::Us,
        Some(c) if store.is_cke(c) => Leader::Cke(c.host.clone()),
        Some(c) => Leader::Other(c.host.clone()),
    }
}

/// Reports whether entries of a queue are tried again at the end of their backoff: somebody leads, and the queue is
/// enabled.
pub fn retries(seen: &Seen, queue: QueueKind) -> bool {
    leader(seen) != Leader::Nobody && seen.snapshot.store.switch(queue).enabled()
}

/// Returns the lease of a leading CKE in hexadecimal. It tells two candidates of one host apart.
pub fn cke_lease(seen: &Seen) -> Option<String> {
    let store = &seen.snapshot.store;
    store.leader().filter(|leader| store.is_cke(leader)).map(|leader| format!("{:x}", leader.lease))
}

/// Returns the last digits of a lease, which are enough to tell a few candidates apart.
pub fn lease_end(lease: &str) -> String {
    format!("\u{2026}{}", lease.get(lease.len().saturating_sub(4)..).unwrap_or(lease))
}

/// Reports whether another candidate runs on the leader's host.
pub fn leader_shares_its_host(seen: &Seen) -> bool {
    let candidates = &seen.snapshot.store.candidates;
    let leader = candidates.values().next();
    leader.is_some_and(|leader| candidates.values().skip(1).any(|other| other.host == leader.host))
}

/// Returns the label of reasons that cketerm computes by CKE's rules, in parentheses; empty unless CKE leads.
pub fn reading_label(seen: &Seen) -> String {
    if beside_cke::applies(&seen.snapshot.store) { format!(" ({})", beside_cke::LABEL) } else { String::new() }
}

/// Reports whether this process saw a drain of CKE only some time after its start: pods may have left before.
pub fn joined_late(seen: &Seen, id: EntryId) -> bool {
    seen.snapshot.observed.get(&id).is_some_and(|observed| observed.joined_late)
}

/// Returns true if an entry's command was run: the entry only waits for its machine.
pub fn finishes_anyway(seen: &Seen, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => entry(seen, id).is_some_and(|e| e.status == RebootStatus::Rebooting),
        QueueKind::Repair => repair(seen, id)
            .is_some_and(|e| e.status == RepairStatus::Processing && e.step_status == StepStatus::Watching),
        QueueKind::Maintenance => maintenance(seen, id).is_some_and(|e| e.status == MaintenanceStatus::InMaintenance),
    }
}

/// Returns true if an entry drains its node.
pub fn draining(seen: &Seen, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => entry(seen, id).is_some_and(|e| e.status == RebootStatus::Draining),
        QueueKind::Repair => repair(seen, id).is_some_and(|e| {
            e.status == RepairStatus::Processing && !e.deleted && e.step_status == StepStatus::Draining
        }),
        QueueKind::Maintenance => maintenance(seen, id).is_some_and(|e| e.status == MaintenanceStatus::Draining),
    }
}

/// Returns true if an entry is in progress, so that it holds a slot.
pub fn in_work(seen: &Seen, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => {
            let status = entry(seen, id).map(|e| e.status);
            matches!(status, Some(RebootStatus::Draining | RebootStatus::Rebooting))
        }
        QueueKind::Repair => repair(seen, id).is_some_and(|e| e.status == RepairStatus::Processing && !e.deleted),
        QueueKind::Maintenance => maintenance(seen, id).is_some_and(MaintenanceEntry::claims_machine),
    }
}

/// Returns true if an entry is on hold: it does not end before an operator releases it. CKE does not support holds.
pub fn held(seen: &Seen, id: EntryId) -> bool {
    if matches!(leader(seen), Leader::Cke(_)) {
        return false;
    }
    let waits = || entry(seen, id).is_none_or(|e| e.status != RebootStatus::Rebooting);
    matches!(seen.reasons.get(&id), Some(Reason::OnHold { .. } | Reason::BatchPaused { .. }))
        || (order(seen, id) == Some(Verb::Hold) && waits())
}

/// Returns true if Kubernetes or the definition has a node of that name.
pub fn known(seen: &Seen, name: &str) -> bool {
    node(seen, name).is_some() || member(seen, name).is_some()
}

/// Reports whether nothing was done for an entry so far: it was queued and waits.
pub fn not_started(seen: &Seen, id: EntryId) -> bool {
    let tried = seen.snapshot.store.attempts_of(id).next().is_some();
    let waits = match id.queue {
        QueueKind::Reboot => {
            entry(seen, id).is_some_and(|e| e.status == RebootStatus::Queued && e.drain_backoff_count == 0)
        }
        QueueKind::Repair => repair(seen, id)
            .is_some_and(|e| e.status == RepairStatus::Queued && !e.deleted && e.drain_backoff_count == 0),
        QueueKind::Maintenance => {
            maintenance(seen, id).is_some_and(|e| e.status == MaintenanceStatus::Queued && e.drain_backoff_count == 0)
        }
    };
    waits && !tried
}
