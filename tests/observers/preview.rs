//! Previews of drains: a budget that refuses a pod all the time keeps the drain from its first eviction (I15).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    budgets::Budgets,
    drain::{drain_began, unprotected},
    record::Breach,
    view::{Means, Pod, PodState, View},
};

/// I15, at the first eviction of a drain that is accepted, or that a webhook answers with 429. No budget has refused
/// another pod of the Node all the time: from the beginning of the drain, and before it as long as copies lag, until now.
/// A pod whose dry run passed since then does not count: admission webhooks come before budgets.
pub fn i15(view: &View<'_>) -> Vec<Breach> {
    let budgets = Budgets::of(view);
    let mut passed: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let mut drains = BTreeSet::new();
    let mut found = Vec::new();
    for w in &view.pod_writes {
        let (Some(node), Some(uid), at, by) = (&w.node, &w.uid, w.request.at, &w.request.by) else { continue };
        if w.dry_run && passes(w.means) {
            passed.insert(uid, at);
        }
        let Some(began) = drain_began(view, node, at).filter(|_| w.eviction && !w.dry_run) else { continue };
        if !matches!(w.means, Means::Accepted | Means::Deferred) || !drains.insert((node.clone(), began)) {
            continue;
        }
        // a drain of another leader was previewed by that one
        if view.session(by, began).is_none() || view.session(by, began) != view.session(by, at) {
            continue;
        }
        let from = view.back(by, began, view.lag() + view.max_kube_delay());
        let refusing = |pod: &Pod| {
            let labels = pod.states.at(at).map(|state| serde_json::to_value(&state.labels).unwrap_or_default())?;
            let budget = budgets.of_pod(&pod.namespace, &labels, at)?;
            budgets.is_full_throughout(budget, from, at).then(|| budget.to_owned())
        };
        let counted = |s: &PodState| s.ready && s.blocks() && s.terminating.is_none() && !s.of_kind("Job");
        for pod in view.pods_on(node, from, at, counted) {
            let known = passed.get(pod.uid.as_str()).is_some_and(|passed| *passed >= began);
            if pod.uid == *uid || known || unprotected(view, &pod.namespace, from, at) {
                continue;
            }
            if let Some(budget) = refusing(pod) {
                let what = format!("eviction of {} on {node}: {budget} has refused {} all the time", w.pod, pod.name);
                found.push(Breach { code: "I15", at, what });
            }
        }
    }
    found
}

/// Whether a dry run with this answer blocks no drain, whatever the budget says.
fn passes(means: Means) -> bool {
    match means {
        Means::Accepted | Means::Gone | Means::Deferred | Means::NamespaceTerminating => true,
        Means::Budget | Means::ManyBudgets | Means::Denied | Means::Undecided | Means::Other => false,
    }
}
