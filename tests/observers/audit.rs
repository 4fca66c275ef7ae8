//! Audit records of actions, and reported reasons of refusals (I20, I38 in Kubernetes).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::reboot::RebootStatus;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    budgets::Budgets,
    early_backoff::named_pod,
    record::{ApiRequest, Breach},
    view::{Means, PodWrite, View, is_engine, named, shift, status},
};

/// Seconds after a refusal between which the leader must have named it: one pass and its publication.
const REPORT_DELAY: (f64, f64) = (2.0, 8.0);

/// Seconds for which the answer about another pod of the entry may stand for the last one.
const EARLIER_ANSWERS: f64 = 120.0;

/// Refusals of one entry's pods within a few seconds: time of the first one, their meanings, pod of the last one.
type Refused = (Timestamp, BTreeSet<Means>, String);

/// Reasons that take precedence over those of refused evictions because they are worse. Working and waiting for its
/// turn are not among them.
const OVERRIDING_REASONS: [&str; 17] = [
    "TerminatingStuck",
    "UncordonedByOther",
    "NodeMismatch",
    "Stale",
    "EffectFailed",
    "OnHold",
    "BatchPaused",
    "BatchUnreadable",
    "ControlPlaneUnclear",
    "DrainedByOther",
    "BlockedByJob",
    "OutcomeUnknown",
    "InvalidEntry",
    "NotMember",
    "QueueDisabled",
    "NoCommand",
    "ProgramMissing",
];

/// Reports whether the leader may give this reason for an entry while one of its pods has such an answer. The reason
/// must tell the answers apart. An answer that was lost on its way has decided nothing.
fn reason_fits(means: Means, reason: &str) -> bool {
    let own: &[&str] = match means {
        // a lagging budget requires waiting, and the reason then names the pods that are leaving
        Means::Budget => &["BlockedByPDB", "EvictionRefused", "PodsLeaving"],
        Means::ManyBudgets => &["BlockedByManyPDBs"],
        Means::Deferred => &["DeferredToWebhook"],
        Means::Denied => &["DeniedByWebhook"],
        Means::Undecided => &[],
        Means::Accepted | Means::Gone | Means::NamespaceTerminating | Means::Other => {
            &["EvictionRefused", "PodsLeaving"]
        }
    };
    own.contains(&reason) || reason == "EvictionFailing" || OVERRIDING_REASONS.contains(&reason)
}

/// I20, at each real eviction of a leader that was refused with 429, 403 or 5xx. While the entry goes on draining and
/// the pod exists, the leader reports a reason for that entry from 2 to 8 s later. At some moment that reason is of the
/// answer's kind, or of the kind of an answer that another of its pods got in the two minutes before, or it names a
/// budget that allows no eviction then. It is never only that the entry works or waits for its turn.
///
/// No entry of another Node backs off because of it: where the audit record of a backoff names a pod, it is a pod of
/// its own Node.
///
/// Not covered: 404 and 409, after which there is nothing to name; previews, whose refusal is a backoff.
pub fn i20(view: &View<'_>) -> Vec<Breach> {
    let (budgets, mut found) = (Budgets::of(view), Vec::new());
    let mut refused: BTreeMap<(u64, String), Refused> = BTreeMap::new();
    for write in view.pod_writes.iter().filter(|w| w.eviction && !w.dry_run) {
        if !matches!(write.request.code, 429 | 403 | 500..) {
            continue;
        }
        if let Some(index) = entry_of(view, write) {
            let key = (index, write.request.by.clone());
            let known =
                refused.entry(key.clone()).or_insert_with(|| (write.request.at, BTreeSet::new(), String::new()));
            if shift(known.0, REPORT_DELAY.1) < write.request.at {
                found.extend(unreported_refusal(view, &budgets, &key, known));
                *known = (write.request.at, BTreeSet::new(), String::new());
            }
            known.1.insert(write.means);
            known.2.clone_from(&write.pod);
        }
    }
    for (key, known) in &refused {
        found.extend(unreported_refusal(view, &budgets, key, known));
    }
    for step in view.entry_changes().iter().filter(|m| m.engine && status(m.before) == Some(RebootStatus::Draining)) {
        let Some(audit) = view.audit_at(step.revision).filter(|a| a["what"] == "back off") else { continue };
        let Some(Ok(entry)) = step.before else { continue };
        let Some(node) = view.clusters.get(step.revision).and_then(|c| super::view::member(c, &entry.node)) else {
            continue;
        };
        let Some(pod) = audit["reason"].as_str().and_then(named_pod) else { continue };
        let has_name = |p: &&super::view::Pod| format!("{}/{}", p.namespace, p.name) == pod;
        let mut of_that_name = view.pods.values().filter(has_name).peekable();
        let own = |p: &super::view::Pod| {
            p.states.steps().iter().filter_map(|s| s.value.as_ref()).any(|s| s.node == *node.node_name())
        };
        if of_that_name.peek().is_some() && !of_that_name.any(own) {
            let what = format!("reboots/{} is backed off for {pod}, which is not on {}", step.index, node.node_name());
            found.push(Breach { code: "I20", at: step.at, what });
        }
    }
    found
}

fn entry_of(view: &View<'_>, write: &PodWrite<'_>) -> Option<u64> {
    let node = write.node.as_deref()?;
    let cluster = view.clusters.at(write.request.at)?;
    view.entries.iter().find_map(|(&index, line)| {
        let Some(Ok(entry)) = line.at(write.request.at) else { return None };
        let there = entry.status == RebootStatus::Draining
            && super::view::member(cluster, &entry.node).is_some_and(|m| m.node_name() == node);
        there.then_some(index)
    })
}

/// Refusals of an entry that its leader never named while they lasted.
fn unreported_refusal(
    view: &View<'_>,
    budgets: &Budgets<'_>,
    (index, by): &(u64, String),
    (at, answers, pod): &Refused,
) -> Option<Breach> {
    let (from, to) = (shift(*at, REPORT_DELAY.0), shift(*at, REPORT_DELAY.1));
    let line = view.entries.get(index)?;
    if !line.throughout(*at, to, |l| status(l) == Some(RebootStatus::Draining)) {
        return None;
    }
    let accepted = view.pod_writes.iter().any(|w| {
        w.pod == *pod
            && w.request.at > *at
            && w.request.at <= to
            && matches!(w.request.code, 200..=299 | 404)
            && !w.dry_run
    });
    let stays = view.pods.values().any(|p| {
        format!("{}/{}", p.namespace, p.name) == *pod
            && p.states.throughout(*at, to, |s| s.is_some_and(|s| s.terminating.is_none()))
    });
    if accepted || !stays {
        return None;
    }
    let reasons: Vec<(Timestamp, &Value)> = view
        .leading()
        // while one request is unanswered, the answers to the others are unknown
        .filter(|s| s.by == *by && s.at >= from && s.at <= to && !s.moving.contains(index))
        .filter_map(|s| Some((s.at, s.reasons.get(index)?)))
        .collect();
    // a pod of a full budget is held without a request
    let full = |at: Timestamp, r: &Value| {
        let budget = r["pdb"].as_str().filter(|_| r["reason"] == "BlockedByPDB");
        budget.is_some_and(|budget| budgets.is_full_throughout(budget, at, at))
    };
    let earlier = |r: &Value| {
        let lately = view.pod_writes.iter().filter(|w| w.eviction && !w.dry_run && w.request.by == *by);
        let mut of_it = lately.filter(|w| w.request.at <= to && w.request.at >= shift(*at, -EARLIER_ANSWERS));
        of_it.any(|w| r["pod"] == w.pod.as_str() && reason_fits(w.means, named(r)))
    };
    let fits = |r: &Value| answers.iter().any(|means| reason_fits(*means, named(r)));
    let was_named = reasons.iter().any(|&(at, r)| fits(r) || earlier(r) || full(at, r));
    let what = format!(
        "{pod} of reboots/{index} was answered {answers:?}, but {by} only reported {:?}",
        reasons.last().map(|last| last.1)
    );
    (reasons.len() >= 3 && !was_named).then_some(Breach { code: "I20", at: *at, what })
}

/// I38 in Kubernetes, at each write of an engine that was carried out. Patches of Nodes and endpoints, evictions and
/// deletions were recorded before, in a fenced audit record of the same engine. The record names the Node, the pod or
/// the endpoints, and is not older than a request may be late.
pub fn i38(view: &View<'_>) -> Vec<Breach> {
    // an engine writes one record for each try and completes it with the outcome; a try whose answer was lost does not
    // count
    let mut records: BTreeMap<(&str, u64, String), (Timestamp, i64, Value)> = BTreeMap::new();
    for change in view.record.keys.iter().filter(|c| c.key.starts_with("cketerm/audit/")) {
        let audit = change.value.as_deref().and_then(|v| serde_json::from_slice::<Value>(v).ok());
        let Some(audit) = audit else { continue };
        let tries = audit["count"].as_u64().unwrap_or(1);
        let last = audit["last"].as_str().unwrap_or_default().to_owned();
        records.entry((&change.key, tries, last)).or_insert((change.at, change.revision, audit));
    }
    let records: Vec<&(Timestamp, i64, Value)> = records.values().collect();
    let mut found = Vec::new();
    for request in view.record.api_requests.iter().filter(|a| is_engine(&a.by) && (200..300).contains(&a.code)) {
        let Some(effect) = effect(request) else { continue };
        let from = view.back(&request.by, request.at, view.max_kube_delay());
        let known = records.iter().any(|(at, revision, audit)| {
            let by = view.txn(*revision).is_none_or(|t| t.by == request.by);
            by && *at >= from && *at <= request.at && effect.recorded_in(audit)
        });
        if !known {
            let what = format!("{} sends {} {} without an audit record", request.by, request.method, request.path);
            found.push(Breach { code: "I38", at: request.at, what });
        }
    }
    found
}

/// Effect of a request, as its audit record must name it.
enum Effect {
    Node(String),
    Pod(String),
    Endpoints(String),
}

fn effect(request: &ApiRequest) -> Option<Effect> {
    let dry = request.body.to_string().contains("dryRun") || request.query.contains("dryRun");
    if dry || matches!(request.method.as_str(), "GET" | "HEAD") {
        return None;
    }
    if let Some(name) = request.path.strip_prefix("/api/v1/nodes/") {
        return Some(Effect::Node(name.strip_suffix("/status").unwrap_or(name).to_owned()));
    }
    let (_, rest) = request.path.split_once("/namespaces/")?;
    let mut parts = rest.split('/');
    let (namespace, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
    match kind {
        "pods" => Some(Effect::Pod(format!("{namespace}/{name}"))),
        "endpoints" | "endpointslices" => Some(Effect::Endpoints(format!("{namespace}/{name}"))),
        _ => None,
    }
}

impl Effect {
    fn recorded_in(&self, audit: &Value) -> bool {
        let (what, on) = (audit["what"].as_str().unwrap_or_default(), audit["on"].as_str().unwrap_or_default());
        match self {
            Self::Node(name) => {
                ["cordon", "stamp", "uncordon", "release", "conditions", "taint"].contains(&what)
                    && on == format!("node {name}")
            }
            Self::Pod(pod) => {
                let reason = audit["reason"].as_str().unwrap_or_default();
                let named = reason.split(", ").any(|n| n.split(' ').next() == Some(pod)) || reason.ends_with(" more");
                ["evict", "delete pods of OnDelete"].contains(&what) && named
            }
            Self::Endpoints(name) => what == "endpoints" && on.ends_with(&format!(" {name}")),
        }
    }
}
