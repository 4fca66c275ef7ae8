//! Drains that back off before their deadline, each with the pod that is the cause (I15, I20).

use cketerm_model::{names::NodeName, reboot::RebootStatus};

use super::{
    record::Breach,
    view::{Means, PodWrite, View, member, shift, status},
};

/// Seconds before its deadline from which on a drain may back off for any reason.
const NEAR_DEADLINE: f64 = 10.0;

/// A drain that backed off long before its deadline.
struct EarlyBackoff<'v> {
    index: u64,
    node: NodeName,
    /// Pod that is named as the cause, and the last answer about it.
    pod: &'v str,
    last: &'v PodWrite<'v>,
    at: jiff::Timestamp,
}

fn early_backoffs<'v>(view: &'v View<'_>) -> Vec<EarlyBackoff<'v>> {
    let entry_changes = view.entry_changes();
    let back = entry_changes.iter().filter(|m| m.engine && status(m.before) == Some(RebootStatus::Draining));
    let each = back.filter_map(|step| {
        let audit = view.audit_at(step.revision).filter(|a| a["what"] == "back off")?;
        let Some(Ok(entry)) = step.before else { return None };
        let node = view.clusters.get(step.revision).and_then(|c| member(c, &entry.node))?.node_name();
        let began = entry_changes.iter().filter(|m| m.index == step.index && m.at < step.at).filter(|m| {
            status(m.after) == Some(RebootStatus::Draining) && status(m.before) != Some(RebootStatus::Draining)
        });
        let began = began.map(|m| m.at).next_back()?;
        let age = step.at.duration_since(began).as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // seconds
        let far = |timeout: i64| age + NEAR_DEADLINE < timeout as f64;
        let far = view.clusters.throughout(began, step.at, |c| c.is_some_and(|c| far(c.reboot.eviction_timeout())));
        let named = audit["reason"].as_str().and_then(named_pod)?.to_owned();
        let by = view.txn(step.revision).map(|t| t.by.clone());
        let last = view.pod_writes.iter().rfind(|w| {
            w.pod == named
                && w.request.at <= step.at
                && w.request.at >= began
                && by.as_ref().is_none_or(|b| *b == w.request.by)
        })?;
        far.then_some(EarlyBackoff { index: step.index, node, pod: &last.pod, last, at: step.at })
    });
    each.collect()
}

/// `pod NAMESPACE/NAME …` or `eviction of NAMESPACE/NAME …`: the beginnings of reasons that name a pod.
pub fn named_pod(reason: &str) -> Option<&str> {
    reason.strip_prefix("pod ").or_else(|| reason.strip_prefix("eviction of "))?.split(' ').next()
}

/// I15: no drain backs off, 10 s or more before its deadline, because of a pod whose last dry run a webhook answered
/// with 429. Such a webhook waits for the eviction itself.
pub fn i15(view: &View<'_>) -> Vec<Breach> {
    let deferred = early_backoffs(view).into_iter().filter(|g| g.last.dry_run && g.last.means == Means::Deferred);
    let each = deferred.map(|g| {
        let what = format!(
            "reboots/{} on {} is backed off for {}, which a webhook only deferred in the preview",
            g.index, g.node, g.pod
        );
        Breach { code: "I15", at: g.at, what }
    });
    each.collect()
}

/// I20: no drain backs off because of a pod whose last answer decided nothing (5xx, overload).
pub fn i20(view: &View<'_>) -> Vec<Breach> {
    let undecided = early_backoffs(view).into_iter().filter(|g| g.last.means == Means::Undecided);
    let each = undecided.map(|g| {
        let (code, message) = (g.last.request.code, &g.last.request.message);
        let what = format!("reboots/{} on {} is backed off for {}, answered {code} {message}", g.index, g.node, g.pod);
        Breach { code: "I20", at: g.at, what }
    });
    each.collect()
}

/// Seconds after the end of its grace period from which on a pod may be called stuck, less the tolerance for clocks.
const STUCK_AFTER_GRACE: f64 = 50.0;

/// I22: no pod is called stuck before its grace period has been over for a minute (less 10 s of tolerance for clocks).
pub fn i22(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for report in view.leading() {
        for (index, reason) in report.reasons.iter().filter(|(_, r)| r["reason"] == "TerminatingStuck") {
            let Some(name) = reason["pod"].as_str() else { continue };
            let of_that_name = view.pods.values().filter(|p| format!("{}/{}", p.namespace, p.name) == name);
            let mut states = of_that_name.flat_map(|p| p.states.steps()).filter_map(|s| s.value.as_ref()).peekable();
            let over = |ends: jiff::Timestamp| shift(ends, STUCK_AFTER_GRACE) <= report.at;
            if states.peek().is_some() && !states.any(|s| s.grace_ends.is_some_and(over)) {
                let what = format!("reboots/{index}: {name} is reported stuck within its grace period");
                found.push(Breach { code: "I22", at: report.at, what });
                return found;
            }
        }
    }
    found
}
