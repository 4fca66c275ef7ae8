//! Cordons: their owner and their removal (I9 to I14).

use cketerm_model::{
    cketerm_records::{Ending, Verb},
    entry::{EntryId, QueueKind},
    kube::{CKE_ANNOTATION, KEEP_CORDONED_ANNOTATION, MAINTENANCE_ANNOTATION, OWNER_ANNOTATION, Owner},
    policy::WorkerCompletion,
    reboot::RebootStatus,
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    maintenance, power_log,
    record::Breach,
    repair,
    view::{Node, NodeWrite, View, in_progress, member, shift, status},
};

/// Taint that Kubernetes itself adds and removes with a cordon.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Patches of Nodes by engines.
fn patches<'v, 'r>(view: &'v View<'r>) -> impl Iterator<Item = &'v NodeWrite<'r>> {
    view.node_writes.iter().filter(|w| w.engine)
}

fn cordons(w: &NodeWrite<'_>) -> bool {
    !w.before.unschedulable && w.after.unschedulable
}

fn uncordons(w: &NodeWrite<'_>) -> bool {
    w.before.unschedulable && !w.after.unschedulable
}

fn breach(code: &'static str, w: &NodeWrite<'_>, what: &str) -> Breach {
    Breach { code, at: w.request.at, what: format!("node {}: {what} (by {})", w.name, w.request.by) }
}

/// I9, at each patch by an engine that makes a Node unschedulable: the same patch writes a readable owner annotation
/// with the Node's UID, and carries a resourceVersion.
pub fn i9(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for w in patches(view).filter(|w| cordons(w)) {
        let annotation = |name: &str| w.request.body["metadata"]["annotations"][name].as_str();
        let put = annotation(OWNER_ANNOTATION).or_else(|| annotation(MAINTENANCE_ANNOTATION));
        let owner = put.and_then(|text| serde_json::from_str::<Owner>(text).ok());
        if owner.as_ref().is_none_or(|o| o.uid != w.before.uid) {
            found.push(breach("I9", w, "cordoned without an owner record in the same patch"));
        }
        if !w.request.body["metadata"]["resourceVersion"].is_string() {
            found.push(breach("I9", w, "cordoned without a resourceVersion"));
        }
    }
    found
}

/// I10, in two ways. At each patch by an engine that removes the owner annotation from a cordon of cketerm (schedulable
/// before, not marked `keep-cordoned`): the patch removes the cordon too.
///
/// And at the end, if faults ended long enough before (two TTL and 75 s): no Node carried cketerm's record, or CKE's
/// mark without one, for all that time with no entry of it in progress. Excepted is an orphan: a machine that was
/// powered for the entry and has not been seen back.
pub fn i10(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for w in patches(view) {
        let Some(owner) = w.before.owner() else { continue };
        let forgotten = w.after.owner.is_none() && w.after.unschedulable && w.before.unschedulable;
        if forgotten && owner.schedulable_before && !w.before.keep {
            found.push(breach("I10", w, "the owner record is removed, but the cordon is left"));
        }
    }
    let end = view.record.end;
    let from = shift(end, -(2.0 * view.ttl() + 75.0));
    if view.record.calm_since.is_none_or(|calm| from < calm) || !view.led_until_end(shift(end, -30.0)) {
        return found;
    }
    for (name, line) in &view.nodes {
        let Some(node) = line.last() else { continue };
        let held = |n: Option<&Node>| n.is_some_and(|n| n.owner.is_some() || n.marked);
        if !line.throughout(from, end, held) || claimed_by_entry(view, name, node, from, end) {
            continue;
        }
        if node.owner().is_some_and(|o| is_orphan(view, o, name, node)) {
            continue;
        }
        let whose = node.owner().map_or_else(|| "nobody".to_owned(), |o| o.entry.to_string());
        let what = format!("node {name} is still cordoned for {whose}, which is not in progress: {node:?}");
        found.push(Breach { code: "I10", at: end, what });
    }
    found
}

/// Reports whether an entry of this Node's machine was in progress, or could not be read, at some moment of this time.
/// Also true if that cannot be determined.
fn claimed_by_entry(view: &View<'_>, name: &str, node: &Node, from: Timestamp, to: Timestamp) -> bool {
    let Some(cluster) = view.clusters.at(to) else { return true };
    let address = cluster.nodes.iter().find(|m| m.node_name() == name).map(|m| m.address.as_str());
    let is_its = |a: &str| Some(a) == address || node.addresses.iter().any(|n| n == a);
    if repair::held(view, is_its, from, to) || maintenance::held(view, is_its, from, to) {
        return true;
    }
    view.entries.iter().any(|(index, line)| {
        line.sometime(from, to, |stored| match stored {
            Some(Ok(e)) => {
                matches!(e.status, RebootStatus::Draining | RebootStatus::Rebooting)
                    && (Some(e.node.as_str()) == address || node.addresses.iter().any(|n| e.node == n.as_str()))
            }
            // without an owner record, the mark may belong to any entry that cannot be read
            Some(Err(())) => node.owner.is_none() || node.owned_by(*index),
            None => false,
        })
    })
}

/// Reports whether its machine was powered for the entry and was not seen back, or can never be seen back.
fn is_orphan(view: &View<'_>, owner: &Owner, name: &str, node: &Node) -> bool {
    if owner.entry.queue == QueueKind::Maintenance {
        // it ran no command: the Node goes back once it is Ready
        return !node.ready;
    }
    if owner.entry.queue == QueueKind::Repair {
        let mut attempts = view.repair_attempts.range((owner.entry.index, 0)..=(owner.entry.index, u32::MAX));
        let boot_id = attempts.find_map(|(_, l)| l.steps().first()?.value.as_ref()?.boot_id.clone());
        let began = view.repair_attempts.keys().any(|(i, _)| *i == owner.entry.index);
        return began && (boot_id.is_none_or(|before| before == node.boot_id) || !node.ready);
    }
    let powered = power_log::begins(view).any(|(i, _)| i == owner.entry.index) || owner.taken_over_rebooting;
    let started = view.attempts_of(owner.entry.index).next().is_some();
    if !powered && !started {
        return false;
    }
    // its command never began, which no engine can know, and the Node's boot id was unreliable, so nothing can show
    // that the machine rebooted
    let mut attempts = view.attempts_of(owner.entry.index).filter_map(|(_, l)| l.steps().first()?.value.as_ref());
    if !powered && attempts.any(|a| a.not_ready) {
        return true;
    }
    // an operator's confirmation replaces the boot id
    let ending = view.endings.get(&owner.entry.index).and_then(|l| l.last());
    if ending.is_some_and(|e| e.outcome.starts_with("done")) {
        return !node.ready;
    }
    let boot_id = boot_id_before(view, owner, name);
    boot_id.is_none_or(|before| before == node.boot_id) || !node.ready
}

/// Boot id from before the first command: the one that the Node reported when that command began on the machine,
/// whatever was recorded of it. If no command of cketerm began (another program's did), the one of the owner record.
fn boot_id_before(view: &View<'_>, owner: &Owner, node: &str) -> Option<String> {
    let first = power_log::begins(view).find(|(i, _)| *i == owner.entry.index);
    let then = first.and_then(|(_, begin)| view.nodes.get(node)?.at(begin.at));
    let stamped = || (!owner.taken_over_rebooting).then(|| owner.boot_id.clone());
    then.map(|n| n.boot_id.clone()).or_else(stamped).filter(|id| !id.is_empty())
}

/// I11, at each patch of a Node by an engine:
///
/// - A patch that makes it schedulable: the owner record said that it was schedulable before, or the Node had CKE's
///   mark without an owner record.
/// - A patch that writes the owner record: its statement about the previous state is true. Without a record and a mark
///   that is the Node's state; with a record on a Node that is still unschedulable it is that record's statement.
/// - Any patch: labels, taints except the cordon's, and annotations except cketerm's and CKE's stay as they were.
pub fn i11(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for w in patches(view) {
        let allowed = match &w.before.owner {
            Some(Ok(owner)) => owner.schedulable_before,
            _ => w.before.marked,
        };
        if uncordons(w) && !allowed {
            found.push(breach("I11", w, "uncordoned, although it was cordoned before cketerm"));
        }
        if let Some(after) = w.after.owner().filter(|_| w.before.owner() != w.after.owner()) {
            let is_false = match (&w.before.owner, w.before.unschedulable, w.before.marked) {
                (Some(Ok(before)), true, _) => after.schedulable_before != before.schedulable_before,
                (None, true, false) => after.schedulable_before,
                (_, false, _) => w.after.unschedulable && !after.schedulable_before,
                _ => false,
            };
            if is_false {
                found.push(breach("I11", w, "the owner record does not say whether the Node was schedulable before"));
            }
        }
        if foreign_parts(w.raw.0) != foreign_parts(w.raw.1) {
            found.push(breach("I11", w, "labels, taints or annotations of other programs changed"));
        }
    }
    found
}

/// Reports whether it is cketerm's taint of planned reboots.
fn is_planned(taint: &Value) -> bool {
    taint["key"] == "cketerm.io/reboot-planned" && taint["effect"] == "PreferNoSchedule"
}

/// Parts of a Node that do not belong to cketerm.
fn foreign_parts(node: &Value) -> (Vec<(&String, &Value)>, &Value, Vec<&Value>) {
    let own_annotations = [OWNER_ANNOTATION, MAINTENANCE_ANNOTATION, CKE_ANNOTATION, KEEP_CORDONED_ANNOTATION];
    let annotations = node["metadata"]["annotations"].as_object().into_iter().flatten();
    let mut annotations: Vec<_> = annotations.filter(|(k, _)| !own_annotations.contains(&k.as_str())).collect();
    annotations.sort_by_key(|(k, _)| *k);
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    (annotations, &node["metadata"]["labels"], taints.filter(|t| t["key"] != CORDON_TAINT && !is_planned(t)).collect())
}

/// I12: no engine makes a Node schedulable that carries `keep-cordoned`. None cordons again more than once for one
/// entry after somebody else has uncordoned it (the owner record counts that).
///
/// Not covered here: no power command runs while it is uncordoned (I16).
pub fn i12(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for w in patches(view) {
        if uncordons(w) && w.before.keep {
            found.push(breach("I12", w, "uncordoned although an administrator keeps it cordoned"));
        }
        if let (true, Some(before), Some(after)) = (cordons(w), w.before.owner(), w.after.owner())
            && before.entry == after.entry
            && before.recordoned > 0
        {
            found.push(breach("I12", w, "cordoned repeatedly although somebody else uncordons it"));
        }
    }
    found
}

/// I13, at each patch by an engine that makes a Node schedulable. For longer than a request may be late, it is not the
/// Node of a member's entry in `rebooting`, or in `draining` with the owner record for that entry. And while the queue
/// is disabled by the exact value, no engine's transaction starts a drain or writes an attempt.
pub fn i13(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for w in patches(view).filter(|w| uncordons(w)) {
        let (from, to) = (view.back(&w.request.by, w.request.at, view.max_kube_delay()), w.request.at);
        let named = |address: &str| {
            w.before.addresses.iter().any(|a| a == address)
                && view.clusters.throughout(from, to, |c| {
                    c.and_then(|c| member(c, address)).is_some_and(|m| m.node_name() == w.name.as_str())
                })
        };
        for (&index, line) in &view.entries {
            let works = line.throughout(from, to, |stored| {
                let named = |e: &cketerm_model::reboot::RebootEntry| named(&e.node);
                match status(stored) {
                    Some(RebootStatus::Rebooting) => stored.is_some_and(|l| l.as_ref().is_ok_and(named)),
                    Some(RebootStatus::Draining) => {
                        w.before.owned_by(index) && stored.is_some_and(|l| l.as_ref().is_ok_and(named))
                    }
                    _ => false,
                }
            });
            if works {
                found.push(breach("I13", w, &format!("uncordoned while reboots/{index} is in progress on it")));
            }
        }
        for (&index, line) in &view.repairs {
            let works = line.throughout(from, to, |stored| {
                stored.is_some_and(|l| l.as_ref().is_ok_and(|e| e.claims_machine() && !e.deleted && named(&e.address)))
            });
            if works && w.before.owner().is_some_and(|o| o.entry == EntryId::repair(index)) {
                found.push(breach("I13", w, &format!("uncordoned while repairs/{index} is in progress on it")));
            }
        }
    }
    for step in view.entry_changes().iter().filter(|m| m.starts() && !view.enabled(m.revision)) {
        let what = format!("reboots/{} starts while the queue is disabled", step.index);
        found.push(Breach { code: "I13", at: step.at, what });
    }
    for (&(index, n), line) in &view.attempts {
        let Some(first) = line.steps().first().filter(|s| s.value.is_some() && view.written_by_engine(s.revision))
        else {
            continue;
        };
        if !view.enabled(first.revision) {
            let what = format!("attempt {n} of reboots/{index} is created while the queue is disabled");
            found.push(Breach { code: "I13", at: first.at, what });
        }
    }
    found
}

/// I14, at each patch by an engine that makes a Node schedulable, or that transfers its owner record to another entry,
/// if a power command has begun for the record's entry. The rule depends on how the entry ended in the history:
///
/// - `booted`, for API servers and under policy `boot_id`: the Node was Ready with another boot id at some moment since
///   the command.
/// - `done`: the Node that the patch was made from is Ready, unless a person ordered the uncordon.
/// - registered anew: the Node has another UID.
/// - otherwise (cancelled, dequeued, deleted), unless a person ordered the uncordon: that Node is Ready with a new boot
///   id. It differs from the one before the first command and from the one before the last command, where one was
///   recorded.
///
/// Not covered: the boot check's answer. So under policy `boot_check` a worker's own end is trusted.
pub fn i14(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for w in patches(view) {
        let Some(owner) = w.before.owner().filter(|o| o.entry.queue == QueueKind::Reboot) else { continue };
        let taken = w.before.unschedulable && w.after.owner().is_some_and(|o| o.entry != owner.entry);
        if !uncordons(w) && !taken {
            continue;
        }
        let index = owner.entry.index;
        let last = power_log::begins(view).filter(|(i, p)| *i == index && p.at <= w.request.at).last();
        let Some((_, begin)) = last else { continue };
        if in_progress(view.entries.get(&index).and_then(|l| l.at(w.request.at))) {
            continue; // I13 covers it
        }
        if let Some(missing) = not_back(view, w, owner, begin.at) {
            found.push(breach("I14", w, &format!("uncordoned after the reboot of {}, but {missing}", owner.entry)));
        }
    }
    found
}

pub(super) fn not_back(view: &View<'_>, w: &NodeWrite<'_>, owner: &Owner, begun: Timestamp) -> Option<&'static str> {
    let (index, at) = (owner.entry.index, w.request.at);
    let line = view.nodes.get(&w.name)?;
    let before = boot_id_before(view, owner, &w.name);
    let new_boot = |n: &Node| before.as_ref().is_none_or(|id| *id != n.boot_id);
    let ending = view.endings.get(&index).and_then(|l| l.at(at));
    let outcome = ending.map_or("", |e: &Ending| e.outcome.as_str());
    let ordered =
        view.orders.get(&index).is_some_and(|o| o.sometime(begun, at, |o| o.is_some_and(|o| o.verb == Verb::Uncordon)));
    if outcome.starts_with("done") {
        return (!w.before.ready && !ordered).then_some("the Node is not Ready");
    }
    if outcome.contains("registered anew") {
        return (w.before.uid == owner.uid).then_some("it is the same Node");
    }
    if outcome.starts_with("booted") {
        let revision = view.endings.get(&index).and_then(|l| l.steps().first()).map_or(0, |s| s.revision);
        let attempt = view.attempts_of(index).next().and_then(|(_, l)| l.steps().first()?.value.as_ref());
        let strict = attempt.is_some_and(|a| a.control_plane)
            || view.policy(revision).worker_completion == WorkerCompletion::BootId;
        let seen = line.sometime(begun, at, |n| n.is_some_and(|n| n.ready && new_boot(n)));
        return (strict && !seen).then_some("it was never seen Ready with a new boot id");
    }
    if ordered {
        return None;
    }
    if !w.before.ready {
        return Some("the Node is not Ready");
    }
    // a first command that failed may have rebooted it, and the last one rebooted it again
    let last = line.at(begun).is_some_and(|n| n.boot_id == w.before.boot_id);
    let old = "its boot id is the one from before the last command";
    (!new_boot(&w.before)).then_some("its boot id is the one from before the reboot").or(last.then_some(old))
}
