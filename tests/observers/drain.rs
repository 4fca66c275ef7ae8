//! Drains: which pods are removed, when, and the conditions of the power command (I15 to I19, I21, I22, I45).

use std::collections::BTreeMap;

use cketerm_model::{
    attempt::Attempt, cketerm_records::Verb, names::NodeName, reboot::RebootStatus, repair::StepStatus,
};
use jiff::Timestamp;

use super::{
    power_log,
    record::{Breach, KeyChange},
    view::{Means, Node, Pod, PodState, PodWrite, Timeline, View, member, named, shift, status},
};

/// Seconds after the end of its grace period within which a pod is named as stuck, with the delay of clocks and passes.
const STUCK_AFTER: f64 = 75.0;

/// Earliest time of the state from which an engine decided this request.
pub(super) fn seen_from(view: &View<'_>, w: &PodWrite<'_>) -> Timestamp {
    view.back(&w.request.by, w.request.at, view.lag() + view.max_kube_delay())
}

/// Reports whether a running pod of a Job is protected in every definition of this time.
fn job_protected(view: &View<'_>, state: &PodState, from: Timestamp, to: Timestamp) -> bool {
    view.clusters.throughout(from, to, |c| {
        c.is_none_or(|c| c.reboot.protected_job_pods.as_ref().is_none_or(|s| s.matches(&state.labels)))
    })
}

/// Reports whether pods of this namespace may be deleted at some moment of this time.
pub(super) fn unprotected(view: &View<'_>, namespace: &str, from: Timestamp, to: Timestamp) -> bool {
    view.clusters.sometime(from, to, |c| {
        c.is_some_and(|c| match (&c.reboot.protected_namespaces, view.namespaces.get(namespace)) {
            (Some(selector), Some(line)) => {
                line.sometime(from, to, |labels| labels.is_some_and(|l| !selector.matches(l)))
            }
            _ => false,
        })
    })
}

fn pod<'v>(view: &'v View<'_>, w: &PodWrite<'_>) -> Option<&'v Pod> {
    view.pods.get(w.uid.as_ref()?)
}

fn is_daemon_set_pod(pod: &Pod) -> bool {
    pod.states.steps().iter().filter_map(|s| s.value.as_ref()).any(|s| s.of_kind("DaemonSet"))
}

fn breach(code: &'static str, w: &PodWrite<'_>, what: &str) -> Breach {
    let how = if w.eviction { "eviction" } else { "deletion" };
    let what = format!("{how} of {} on {}: {what}", w.pod, w.node.as_deref().unwrap_or("?"));
    Breach { code, at: w.request.at, what }
}

/// Start of the drain that was in progress on this Node, of an entry of either queue.
pub(super) fn drain_began(view: &View<'_>, node: &str, at: Timestamp) -> Option<Timestamp> {
    let begins =
        view.entry_changes().into_iter().filter(|m| m.at <= at && status(m.after) == Some(RebootStatus::Draining));
    let here = begins.filter(|m| {
        let Some(entry) = view.entry(m.index, m.revision) else { return false };
        let cluster = view.clusters.get(m.revision);
        cluster.and_then(|c| member(c, &entry.node)).is_some_and(|n| n.node_name() == node)
    });
    let of_reboots = here.map(|m| m.at).next_back();
    let changes = view.repairs.values().flat_map(Timeline::steps).filter(|step| step.at <= at);
    let drains = changes.filter(|step| {
        let entry = step.value.as_ref().and_then(|value| value.as_ref().ok());
        entry.is_some_and(|entry| entry.nodename == node && entry.step_status == StepStatus::Draining)
    });
    of_reboots.max(drains.map(|step| step.at).max())
}

/// I15, in each drain under one leader. A dry run that was refused, or decided nothing, blocks its Node. No pod of that
/// Node is evicted or deleted while the refused pod is still there unchanged and no later dry run of it passed. A
/// change of the definition, of a budget's spec or of a namespace ends the block.
///
/// These answers also let a dry run pass:
///
/// - a webhook's 429;
/// - a terminating namespace;
/// - a budget's refusal of a pod whose namespace was unprotected at some moment that the engine can have seen.
///
/// And no pod is evicted or deleted while a protected running Job's pod has been on the Node for longer than copies and
/// requests lag. [`i19`] judges `OnDelete` pods of DaemonSets, which are deleted last.
pub fn i15(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut refused: BTreeMap<(String, String), BTreeMap<String, Timestamp>> = BTreeMap::new();
    for w in &view.pod_writes {
        let (Some(node), Some(pod), Some(uid)) = (&w.node, pod(view, w), &w.uid) else { continue };
        let session = view.session(&w.request.by, w.request.at).unwrap_or_default();
        let held = refused.entry((node.clone(), session)).or_default();
        if w.dry_run {
            let free = || unprotected(view, &pod.namespace, seen_from(view, w), w.request.at);
            match w.means {
                Means::Accepted | Means::Gone | Means::Deferred | Means::NamespaceTerminating => held.remove(uid),
                Means::Budget | Means::ManyBudgets if free() => held.remove(uid),
                // another pod has replaced it
                Means::Other if w.request.code == 409 => None,
                Means::Budget | Means::ManyBudgets | Means::Denied | Means::Undecided | Means::Other => {
                    held.insert(uid.clone(), w.request.at)
                }
            };
            continue;
        }
        if is_daemon_set_pod(pod) {
            continue;
        }
        let (at, began) = (w.request.at, drain_began(view, node, w.request.at));
        let blocker = held.iter().find(|(uid, since)| {
            let there = view.pods.get(*uid).is_some_and(|p| {
                p.states.throughout(**since, at, |s| s.is_some_and(|s| s.blocks() && s.terminating.is_none()))
            });
            there && began.is_some_and(|b| b <= **since) && !rules_changed(view, **since, at)
        });
        if let Some((uid, _)) = blocker {
            let name = view.pods.get(uid).map_or("?", |p| p.name.as_str());
            found.push(breach("I15", w, &format!("the preview of {name} was refused")));
        }
        let from = seen_from(view, w);
        let job = |s: &PodState| s.of_kind("Job") && s.phase == "Running" && s.terminating.is_none();
        let jobs = view.pods_on(node, from, at, |s| job(s) && job_protected(view, s, from, at));
        if let Some(job) = jobs.first() {
            found.push(breach("I15", w, &format!("{} of a protected Job still runs on the node", job.name)));
        }
    }
    found
}

/// Reports whether the definition, a budget's spec or a namespace changed.
fn rules_changed(view: &View<'_>, from: Timestamp, to: Timestamp) -> bool {
    let within = |at: Timestamp| at >= from && at <= to;
    let spec = |o: &Option<serde_json::Value>| o.as_ref().map(|o| (o["spec"].clone(), o["metadata"]["labels"].clone()));
    view.clusters.steps().iter().any(|s| within(s.at))
        || view.record.objects.iter().any(|o| {
            matches!(o.resource.as_str(), "poddisruptionbudgets" | "namespaces")
                && within(o.at)
                && spec(&o.before) != spec(&o.after)
        })
}

/// One power command with the attempt that was written for it.
struct PowerCommand<'v> {
    index: u64,
    begin: Timestamp,
    attempt: &'v Attempt,
    node: NodeName,
    /// Earliest time of a list that was made before the attempt, and time of the attempt's write.
    from: Timestamp,
    at: Timestamp,
    revision: i64,
}

fn power_commands<'v>(view: &'v View<'_>) -> Vec<PowerCommand<'v>> {
    let each = power_log::begins(view).filter_map(|(index, power)| {
        let first = view.attempt(index, &power.attempt)?.1.steps().first()?;
        let attempt = first.value.as_ref()?;
        let node = member(view.clusters.get(first.revision)?, &attempt.address)?.node_name();
        let by = view.txn(first.revision).map_or("", |t| t.by.as_str());
        let from = view.back(by, first.at, view.late());
        Some(PowerCommand { index, begin: power.at, attempt, node, from, at: first.at, revision: first.revision })
    });
    each.collect()
}

/// Pods that had to leave and were there during the whole time in which the last list can have been made.
fn remaining_pods<'v>(view: &'v View<'_>, p: &PowerCommand<'_>, terminating: bool) -> Vec<&'v Pod> {
    view.pods_on(&p.node, p.from, p.at, |s| s.blocks() && s.terminating.is_some() == terminating)
}

/// I16, at each power command of a reboot: at some moment from shortly before its attempt was written, the Node was
/// unschedulable with the owner record for this entry.
///
/// Unless the attempt is forced: consider the time in which the last list can have been made, from a twelfth of the TTL
/// and 3 s before the attempt. No pod that has to leave was there throughout, and no volume was in use throughout. A
/// first attempt that is forced consumed a person's `force` and states so in its audit record.
pub fn i16(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for p in power_commands(view) {
        let mut report_breach = |what: String| {
            let what = format!("power command of reboots/{} on {}: {what}", p.index, p.node);
            found.push(Breach { code: "I16", at: p.begin, what });
        };
        let line = view.nodes.get(p.node.as_str());
        let cordoned = |n: Option<&Node>| n.is_some_and(|n| n.unschedulable && n.owned_by(p.index));
        if !line.is_some_and(|l| l.sometime(p.from, p.begin, cordoned)) {
            report_breach("the Node is not cordoned by cketerm".to_owned());
        }
        if p.attempt.forced {
            let order = view.orders.get(&p.index);
            let ordered = order.and_then(|o| o.before(p.revision)).is_some_and(|o| o.verb == Verb::Force);
            let before = view.attempts_of(p.index).any(|(n, _)| n < p.attempt.number);
            let audited =
                view.audit_at(p.revision).is_some_and(|a| a["reason"].as_str().is_some_and(|r| !r.is_empty()));
            if !before && !(ordered && audited) {
                report_breach("forced without a recorded order that names who and why".to_owned());
            }
            continue;
        }
        if let Some(pod) = remaining_pods(view, &p, false).first() {
            report_breach(format!("pod {}/{} is still on the node", pod.namespace, pod.name));
        }
        if line.is_some_and(|l| l.throughout(p.from, p.at, |n| n.is_some_and(|n| n.volumes))) {
            report_breach("volumes are in use".to_owned());
        }
    }
    found
}

/// I17: every eviction and deletion of a pod that an engine requests carries the pod's UID as a precondition.
pub fn i17(view: &View<'_>) -> Vec<Breach> {
    let without = view.pod_writes.iter().filter(|w| w.uid.is_none());
    without.map(|w| breach("I17", w, "without the UID as a precondition")).collect()
}

/// I18, at each deletion that an engine requests of a pod that is no DaemonSet's. One of these holds:
///
/// - It is a Job's pod that was unprotected or not running at some moment that the engine can have seen.
/// - In this drain, an eviction of the same UID was refused before because of a budget, or of two. A webhook's refusal,
///   or the answer of a server that decided nothing, does not count. And its namespace was unprotected at some such
///   moment.
///
/// And at each eviction (no dry run): the pod is no protected running Job's.
pub fn i18(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for w in view.pod_writes.iter().filter(|w| !w.dry_run) {
        let (Some(pod), from, at) = (pod(view, w), seen_from(view, w), w.request.at) else { continue };
        if is_daemon_set_pod(pod) {
            continue;
        }
        let states = || pod.states.steps().iter().filter_map(|s| s.value.as_ref());
        let job = states().any(|s| s.of_kind("Job"));
        let is_protected = job
            && pod
                .states
                .throughout(from, at, |s| s.is_some_and(|s| s.phase == "Running" && job_protected(view, s, from, at)));
        if is_protected {
            found.push(breach("I18", w, "it belongs to a protected running Job"));
        }
        if w.eviction || job {
            continue;
        }
        let began = w.node.as_ref().and_then(|n| drain_began(view, n, at)).unwrap_or(from);
        let refused = view.pod_writes.iter().any(|e| {
            e.eviction
                && !e.dry_run
                && e.uid == w.uid
                && matches!(e.means, Means::Budget | Means::ManyBudgets)
                && e.request.at <= at
                && e.request.at >= began.min(from)
        });
        if !refused {
            found.push(breach("I18", w, "no budget has refused its eviction"));
        }
        if !unprotected(view, &pod.namespace, from, at) {
            found.push(breach("I18", w, "its namespace is protected"));
        }
    }
    found
}

/// Time of the last audit record before `at` of a deletion that names this pod: the drain that it belongs to. A slow
/// request arrives later, perhaps in the next drain.
fn deletion_recorded_at(view: &View<'_>, node: &str, pod: &Pod, at: Timestamp) -> Timestamp {
    let (on, name) = (format!("node {node}"), format!("{}/{}", pod.namespace, pod.name));
    let names_it = |change: &&KeyChange| {
        let record = change.value.as_ref().filter(|_| change.key.starts_with("cketerm/audit/"));
        let record: Option<serde_json::Value> = record.and_then(|value| serde_json::from_slice(value).ok());
        record.is_some_and(|r| r["on"] == on.as_str() && r["reason"].as_str().is_some_and(|pods| pods.contains(&name)))
    };
    let records = view.record.keys.iter().filter(|change| change.at <= at).filter(names_it);
    records.map(|change| change.at).next_back().unwrap_or(at)
}

/// I19: no engine evicts or deletes a mirror pod, or a pod that had ended all the time that the engine can have seen.
/// No engine evicts a DaemonSet's pod. An engine deletes a DaemonSet's pod only under these conditions:
///
/// - The strategy was `OnDelete` at some such moment.
/// - It deletes one pod of each DaemonSet in one drain of a Node.
/// - Unless there was a `force`: no pod that has to leave was on the Node all that time.
pub fn i19(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut once: BTreeMap<(String, String, Option<Timestamp>), String> = BTreeMap::new();
    for w in view.pod_writes.iter().filter(|w| !w.dry_run) {
        let (Some(pod), Some(node), from, at) = (pod(view, w), &w.node, seen_from(view, w), w.request.at) else {
            continue;
        };
        let over = |s: Option<&PodState>| s.is_some_and(|s| s.mirror || (s.finished() && !s.of_kind("DaemonSet")));
        if pod.states.throughout(from, at, over) {
            found.push(breach("I19", w, "it is a mirror pod or has ended"));
        }
        if !is_daemon_set_pod(pod) {
            continue;
        }
        let Some((_, set)) = pod.states.steps().iter().find_map(|s| s.value.as_ref()?.controller.clone()) else {
            continue;
        };
        let on_delete = view.on_delete.get(&set).is_none_or(|l| l.sometime(from, at, |o| o == Some(&true)));
        if w.eviction || !on_delete {
            found.push(breach("I19", w, "it belongs to a DaemonSet that is not OnDelete"));
            continue;
        }
        if (200..300).contains(&w.request.code) {
            let began = drain_began(view, node, deletion_recorded_at(view, node, pod, at));
            let first = once.entry((node.clone(), set, began)).or_insert_with(|| pod.uid.clone());
            if *first != pod.uid {
                found.push(breach("I19", w, "this drain already deleted another pod of this DaemonSet"));
            }
        }
        let forced = view.orders.values().any(|o| o.sometime(from, at, |o| o.is_some_and(|o| o.verb == Verb::Force)));
        let blocking = view.pods_on(node, from, at, PodState::blocks);
        if let (Some(other), false) = (blocking.first(), forced) {
            found.push(breach("I19", w, &format!("{} is still on the node", other.name)));
        }
    }
    found
}

/// I21, at each power command whose attempt is not forced: no pod with a requested deletion was still there during the
/// whole time in which the last list can have been made.
pub fn i21(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for p in power_commands(view).iter().filter(|p| !p.attempt.forced) {
        if let Some(pod) = remaining_pods(view, p, true).first() {
            let what = format!(
                "power command of reboots/{} on {}: {}/{} is still terminating",
                p.index, p.node, pod.namespace, pod.name
            );
            found.push(Breach { code: "I21", at: p.begin, what });
        }
    }
    found
}

/// I22: no engine deletes a pod with a grace period of 0. And consider a pod that has to leave, on a Node that is not
/// Ready, whose grace period has been over for 75 s. Then the leader's reason for the entry in `draining` is not that
/// pods are just leaving. It is not a blocker of another pod either.
pub fn i22(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for w in view.pod_writes.iter().filter(|w| !w.dry_run) {
        let options = if w.eviction { &w.request.body["deleteOptions"] } else { &w.request.body };
        if options["gracePeriodSeconds"] == 0 || w.request.query.contains("gracePeriodSeconds=0") {
            found.push(breach("I22", w, "force-deleted without a grace period"));
        }
    }
    for report in view.leading() {
        for (index, reason) in report.reasons.iter() {
            let name = named(reason);
            if !matches!(
                name,
                "PodsLeaving"
                    | "BlockedByPDB"
                    | "BlockedByManyPDBs"
                    | "EvictionRefused"
                    | "DeferredToWebhook"
                    | "DeniedByWebhook"
                    | "EvictionFailing"
                    | "PodsCannotLand"
            ) {
                continue;
            }
            let from = shift(report.at, -view.lag());
            let drains = view.entries.get(index).is_some_and(|l| {
                l.throughout(from, report.at, |stored| status(stored) == Some(RebootStatus::Draining))
            });
            let Some(entry) = view.entry(*index, report.revision).filter(|_| drains) else { continue };
            let Some(node) = view.clusters.at(report.at).and_then(|c| member(c, &entry.node)) else { continue };
            let name = node.node_name();
            let down = view
                .nodes
                .get(name.as_str())
                .is_some_and(|l| l.throughout(from, report.at, |n| n.is_some_and(|n| !n.ready)));
            let stuck = view.pods_on(&name, from, report.at, |s| {
                s.blocks() && s.grace_ends.is_some_and(|ends| shift(ends, STUCK_AFTER) <= report.at)
            });
            if let (Some(pod), true) = (stuck.first(), down) {
                let what = format!(
                    "reboots/{index}: {}/{} is stuck terminating, but the leader reports {reason}",
                    pod.namespace, pod.name
                );
                found.push(Breach { code: "I22", at: report.at, what });
                return found;
            }
        }
    }
    found
}

/// I45: a read-only process (its name begins with `viewer`) writes nothing to either server. Reviews of its own rights
/// are no writes. And no engine hides from admission webhooks that a preview is a dry run: webhooks learn it from the
/// query and not from the body, and would act as on a real eviction.
///
/// Not covered: which writes of an engine or a console result from a read-only view.
pub fn i45(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for request in view.record.api_requests.iter().filter(|a| a.by.starts_with("viewer") && a.method != "GET") {
        let review = request.path.contains("selfsubject");
        if !review {
            let what = format!("{} requests {} {}", request.by, request.method, request.path);
            found.push(Breach { code: "I45", at: request.at, what });
        }
    }
    for w in view.pod_writes.iter().filter(|w| w.eviction && w.dry_run && !w.request.query.contains("dryRun=All")) {
        found.push(breach("I45", w, "a dry run that webhooks mistake for a real eviction"));
    }
    for txn in view.record.txns.iter().filter(|t| t.by.starts_with("viewer")) {
        if !(txn.puts.is_empty() && txn.deletes.is_empty()) {
            found.push(Breach { code: "I45", at: txn.at, what: format!("{} writes {:?}", txn.by, txn.puts) });
        }
    }
    found
}
