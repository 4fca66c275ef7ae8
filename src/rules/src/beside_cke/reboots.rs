//! Choice of the reboots that CKE starts. In each pass CKE first uncordons nodes that no entry claims, then processes
//! repairs, then removes reboots that have ended; only a pass with none of these starts a drain, and only one.

use std::collections::BTreeSet;

use cketerm_model::{
    entry::EntryId,
    names::{Address, NodeName},
    policy::{ApiServerOrder, UnreachableRule},
    reason::{MAX_NAMES, Reason},
    reboot::{RebootEntry, RebootStatus},
};

use super::{MAX_BACKED_OFF, Pass, Reading, in_work, in_work::InWork, observed, repairs};

/// Number of entries that start next and whose pods are watched already.
const WATCHED_AHEAD: usize = 2;

/// A reboot that CKE looks at: the first entry of its machine, which is a member.
#[derive(Clone, Copy)]
struct Considered<'a> {
    id: EntryId,
    entry: &'a RebootEntry,
    machine: &'a NodeName,
    control_plane: bool,
}

/// Everything that CKE looks at in one pass, in order of the index.
struct Queue<'a> {
    considered: Vec<Considered<'a>>,
    /// Whether entries are removed in this pass, as far as etcd shows it.
    removes: bool,
}

/// Adds the reasons and the progress of the reboot queue.
pub(super) fn read(pass: Pass<'_>, reading: &mut Reading) {
    let queue = consider(pass, reading);
    let enabled = pass.snap.store.reboots.switch.enabled();
    let missing = missing_command(pass);
    let mut candidates = Vec::new();
    let mut backed_off = Vec::new();
    for considered in queue.considered.iter().copied() {
        let Considered { id, entry, machine, .. } = considered;
        let reason = match entry.status {
            RebootStatus::Cancelled => Reason::Working { phase: "cancelled: CKE removes it next".to_owned() },
            RebootStatus::Rebooting => {
                let (reason, progress) = in_work::after_command(pass, in_work(considered), None);
                reading.progress.insert(id, progress);
                reason
            }
            RebootStatus::Draining => {
                watch(pass, reading, machine);
                let (reason, progress) = in_work::draining(pass, in_work(considered));
                reading.progress.insert(id, progress);
                if enabled { reason } else { Reason::QueueDisabled }
            }
            RebootStatus::Queued => match (&missing, backoff(pass, considered)) {
                _ if !enabled => Reason::QueueDisabled,
                (Some(missing), _) => missing.clone(),
                (None, Some((until, reason))) => {
                    backed_off.push((until, machine));
                    reason
                }
                (None, None) => {
                    candidates.push(considered);
                    continue;
                }
            },
        };
        reading.reasons.insert(id, reason);
    }
    backed_off.sort_unstable();
    for (_, machine) in backed_off.into_iter().take(MAX_BACKED_OFF) {
        watch(pass, reading, machine);
    }
    // A refused drain lasts for moments: the pods must be known before it starts.
    let (api_servers, workers): (Vec<Considered<'_>>, Vec<Considered<'_>>) =
        candidates.iter().copied().partition(|considered| considered.control_plane);
    for next in workers.into_iter().chain(api_servers).take(WATCHED_AHEAD) {
        watch(pass, reading, next.machine);
    }
    choose(pass, &queue, &candidates, reading);
}

fn in_work(considered: Considered<'_>) -> InWork<'_> {
    let Considered { id, entry, .. } = considered;
    InWork { id, address: &entry.node, since: entry.last_transition_time, step: None }
}

fn watch(pass: Pass<'_>, reading: &mut Reading, machine: &NodeName) {
    if pass.snap.kube.by_name.contains_key(machine) {
        reading.watch_pods.insert(machine.clone());
    }
}

/// Sorts out the entries that CKE does not look at: later entries of the same machine, and machines that have left the
/// definition.
fn consider<'a>(pass: Pass<'a>, reading: &mut Reading) -> Queue<'a> {
    let (cluster, members) = (&pass.definition.cluster, &pass.definition.members);
    let entries = &pass.snap.store.reboots.entries;
    let mut first: std::collections::HashMap<&Address, u64> = std::collections::HashMap::new();
    let mut queue = Queue { considered: Vec::new(), removes: false };
    for (&index, stored) in entries {
        let Some(entry) = stored.get() else { continue };
        let id = EntryId::reboot(index);
        if let Some(before) = first.get(&entry.node) {
            reading.reasons.insert(id, Reason::DuplicateOf { index: *before });
            continue;
        }
        first.insert(&entry.node, index);
        queue.removes |= entry.status == RebootStatus::Cancelled;
        let Some(member) = members.by_address(cluster, &entry.node) else {
            queue.removes = true;
            reading.reasons.insert(id, Reason::NotMember { address: entry.node.clone() });
            continue;
        };
        let (machine, control_plane) = (member.node_name(), member.control_plane);
        queue.considered.push(Considered { id, entry, machine, control_plane });
    }
    queue
}

/// Returns the reason if the definition lacks a command. CKE then processes no reboot.
fn missing_command(pass: Pass<'_>) -> Option<Reason> {
    let reboot = &pass.definition.cluster.reboot;
    let commands =
        [("reboot.reboot_command", &reboot.reboot_command), ("reboot.boot_check_command", &reboot.boot_check_command)];
    let missing = commands.into_iter().find(|(_, argv)| argv.as_ref().is_none_or(Vec::is_empty));
    missing.map(|(field, _)| Reason::NoCommand { field: field.to_owned() })
}

fn backoff(pass: Pass<'_>, considered: Considered<'_>) -> Option<(jiff::Timestamp, Reason)> {
    let Considered { id, entry, .. } = considered;
    let until = entry.drain_backoff_expire.filter(|until| *until > pass.now.wall)?;
    let (cause, is_past) = observed::backoff_cause(pass, id, &entry.node);
    let tried = entry.last_transition_time.filter(|_| is_past);
    Some((until, Reason::Backoff { count: entry.drain_backoff_count, until, cause, tried }))
}

/// Decides about the candidates: the one that starts next is `Ready`, each other gets the reason for its wait.
fn choose(pass: Pass<'_>, queue: &Queue<'_>, candidates: &[Considered<'_>], reading: &mut Reading) {
    let mut waits = |of: &[Considered<'_>], why: &Reason| {
        reading.reasons.extend(of.iter().map(|considered| (considered.id, why.clone())));
    };
    if candidates.is_empty() {
        return;
    }
    if let Some(failing) = pass.failing() {
        return waits(candidates, &failing);
    }
    if let Some(gate) = unreachable(pass, queue) {
        return waits(candidates, &gate);
    }
    if let Some(before) = earlier_work(pass, queue) {
        return waits(candidates, &before);
    }
    let (api_servers, workers): (Vec<Considered<'_>>, Vec<Considered<'_>>) =
        candidates.iter().copied().partition(|considered| considered.control_plane);
    let in_work = || queue.considered.iter().filter(|considered| considered.entry.claims_machine());
    if let Some(api) = in_work().find(|considered| considered.control_plane) {
        return waits(candidates, &Reason::WaitingForControlPlane { other: api.machine.to_string() });
    }
    let worker = in_work().next().map(|considered| considered.id);
    let api_first = pass.snap.store.policy().api_server_order == ApiServerOrder::First;
    if api_first && let Some(first) = api_servers.first() {
        let other = first.machine.to_string();
        waits(&workers, &Reason::WaitingForControlPlane { other });
        return one_api_server(&api_servers, worker, reading);
    }
    let Some(first) = workers.first() else { return one_api_server(&api_servers, worker, reading) };
    waits(&api_servers, &Reason::WaitingForWorkers { holder: worker.unwrap_or(first.id) });
    let limit = pass.definition.cluster.reboot.concurrency();
    let taken = i64::try_from(in_work().count()).unwrap_or(i64::MAX);
    for (position, considered) in (0_i64..).zip(&workers) {
        let reason = if taken + position >= limit {
            let ahead = taken < limit;
            let holder = if ahead { first.id } else { worker.unwrap_or(first.id) };
            Reason::WaitingForSlot { holder: Some(holder), limit, ahead }
        } else if position == 0 {
            Reason::Ready
        } else {
            Reason::Working { phase: "starts soon: CKE starts one drain a pass".to_owned() }
        };
        reading.reasons.insert(considered.id, reason);
    }
}

/// Starts one API server alone, once no worker is in progress.
fn one_api_server(api_servers: &[Considered<'_>], worker: Option<EntryId>, reading: &mut Reading) {
    let Some((first, others)) = api_servers.split_first() else { return };
    let reason = worker.map_or(Reason::Ready, |holder| Reason::WaitingForWorkers { holder });
    reading.reasons.insert(first.id, reason);
    let other = first.machine.to_string();
    let waits = others.iter().map(|api| (api.id, Reason::WaitingForControlPlane { other: other.clone() }));
    reading.reasons.extend(waits);
}

/// Returns the reason if CKE does other work first, in this and every following pass until it is done.
fn earlier_work(pass: Pass<'_>, queue: &Queue<'_>) -> Option<Reason> {
    let working = |phase: String| Reason::Working { phase };
    if let Some(node) = left_cordoned(pass, queue) {
        return Some(working(format!("waits for CKE to uncordon {node}")));
    }
    if let Some(entry) = repairs::first_in_the_way(pass) {
        return Some(Reason::WaitingForRepairs { entry });
    }
    queue.removes.then(|| working("waits for CKE to remove entries".to_owned()))
}

/// Returns a node with CKE's annotation that no entry in work claims.
fn left_cordoned<'a>(pass: Pass<'a>, queue: &Queue<'_>) -> Option<&'a NodeName> {
    let mut claimed: BTreeSet<&str> = repairs::claimed(pass);
    let reboots = queue.considered.iter().filter(|considered| considered.entry.claims_machine());
    claimed.extend(reboots.map(|considered| considered.machine.as_str()));
    let kube = &pass.snap.kube;
    let cordoned = |name: &&NodeName| kube.by_name.get(*name).is_some_and(|node| node.cke_mark);
    kube.marked.iter().filter(cordoned).find(|name| !claimed.contains(name.as_str()))
}

/// Returns the gate if more nodes are unreachable than `maximum-unreachable-nodes-for-reboot`. Not known without
/// Kubernetes.
fn unreachable(pass: Pass<'_>, queue: &Queue<'_>) -> Option<Reason> {
    let kube = &pass.snap.kube;
    if !kube.synced() {
        return Some(Reason::Working {
            phase: "may start next; unreachable nodes are unknown without Kubernetes".to_owned(),
        });
    }
    let limit = pass.snap.store.constraints().maximum_unreachable_nodes_for_reboot;
    let outside_only = pass.snap.store.policy().unreachable_rule == UnreachableRule::OutsideReboots;
    let under_reboot: BTreeSet<&NodeName> = if outside_only {
        let in_work = queue.considered.iter().filter(|considered| considered.entry.claims_machine());
        in_work.map(|considered| considered.machine).collect()
    } else {
        BTreeSet::new()
    };
    let (mut names, mut count): (Vec<NodeName>, i64) = (Vec::new(), 0);
    let (cluster, members) = (&pass.definition.cluster, &pass.definition.members);
    for member in members.sorted_by_name(cluster) {
        let name = member.node_name();
        if kube.by_name.get(name).is_some_and(|node| node.ready) || under_reboot.contains(name) {
            continue;
        }
        count += 1;
        if names.len() < MAX_NAMES {
            names.push(name.clone());
        }
    }
    (count > limit).then(|| Reason::UnreachableGate { count, limit, names: names.into() })
}
