//! Pace of evictions: a drain asks about one pod of a full budget, not about all of them at once (I75).

use std::collections::BTreeMap;

use super::{
    budgets::Budgets,
    drain::{seen_from, unprotected},
    record::Breach,
    view::{Means, PodWrite, View},
};

/// Seconds within which requests belong to one round of evictions.
const ROUND: f64 = 1.0;

/// I75: in one round of a drain, no two pods of a protected namespace are refused by the same budget, unless it changed
/// after the state from which the engine decided.
pub fn i75(view: &View<'_>) -> Vec<Breach> {
    let budgets = Budgets::of(view);
    let mut found = Vec::new();
    let mut refused: BTreeMap<(String, String, String), &PodWrite<'_>> = BTreeMap::new();
    for w in view.pod_writes.iter().filter(|w| w.eviction && !w.dry_run && w.means == Means::Budget) {
        let (Some(node), Some(uid)) = (&w.node, &w.uid) else { continue };
        let (at, from) = (w.request.at, seen_from(view, w));
        let Some(pod) = view.pods.get(uid).filter(|pod| !unprotected(view, &pod.namespace, from, at)) else { continue };
        let Some(state) = pod.states.at(at) else { continue };
        let labels = serde_json::to_value(&state.labels).unwrap_or_default();
        let Some(budget) = budgets.of_pod(&pod.namespace, &labels, at) else { continue };
        let session = view.session(&w.request.by, at).unwrap_or_default();
        let before = refused.insert((session, node.clone(), budget.to_owned()), w);
        let Some(first) = before.filter(|first| first.uid != w.uid) else { continue };
        let is_one_round = at.duration_since(first.request.at).as_secs_f64() <= ROUND;
        if is_one_round && !budgets.changed(budget, seen_from(view, first), at) {
            let what = format!("eviction of {} on {node}: {budget} had just refused {}", w.pod, first.pod);
            found.push(Breach { code: "I75", at, what });
        }
    }
    found
}
