//! Pace of evictions: a drain asks about one pod of a full budget, not about all of them at once (I75).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    budgets::Budgets,
    drain::{seen_from, unprotected},
    record::Breach,
    view::{Means, PodWrite, View},
};

/// Seconds within which requests belong to one round of evictions.
const ROUND: f64 = 1.0;

/// I75: in one round of a drain, no two pods of a protected namespace are refused by the same budget, if the engine could
/// know what it allows. Since the state from which it decided, the budget has not changed, or only by the evictions of this
/// leader while the pods were Ready.
pub fn i75(view: &View<'_>) -> Vec<Breach> {
    let budgets = Budgets::of(view);
    let mut found = Vec::new();
    let mut refused: BTreeMap<(String, String, String), &PodWrite<'_>> = BTreeMap::new();
    let mut accepted: BTreeMap<(String, String), Vec<Timestamp>> = BTreeMap::new();
    let mut asked_again: BTreeSet<&String> = BTreeSet::new();
    for w in view.pod_writes.iter().filter(|w| w.eviction && !w.dry_run) {
        let (Some(node), Some(uid)) = (&w.node, &w.uid) else { continue };
        let (at, from) = (w.request.at, seen_from(view, w));
        let Some(pod) = view.pods.get(uid) else { continue };
        let Some(state) = pod.states.at(at) else { continue };
        let labels = serde_json::to_value(&state.labels).unwrap_or_default();
        let Some(budget) = budgets.of_pod(&pod.namespace, &labels, at) else { continue };
        let session = view.session(&w.request.by, at).unwrap_or_default();
        if w.means == Means::Accepted {
            accepted.entry((session, budget.to_owned())).or_default().push(at);
            continue;
        }
        if w.means != Means::Budget {
            asked_again.insert(uid);
        }
        // after a webhook, or without a decision, the pod is asked about again whatever its budget says
        if w.means != Means::Budget || asked_again.remove(uid) || unprotected(view, &pod.namespace, from, at) {
            continue;
        }
        let before = refused.insert((session.clone(), node.clone(), budget.to_owned()), w);
        let Some(first) = before.filter(|first| first.uid != w.uid) else { continue };
        let is_one_round = at.duration_since(first.request.at).as_secs_f64() <= ROUND;
        let known_from = seen_from(view, first);
        // budgets do not count some pods that are not Ready
        let were_ready = [Some(uid), first.uid.as_ref()].into_iter().flatten().all(|uid| {
            let pod = view.pods.get(uid);
            pod.is_some_and(|pod| pod.states.throughout(known_from, at, |state| state.is_some_and(|state| state.ready)))
        });
        let own = accepted.get(&(session, budget.to_owned())).map_or(0, |all| {
            i64::try_from(all.iter().filter(|accepted| (known_from..=at).contains(*accepted)).count())
                .unwrap_or(i64::MAX)
        });
        let is_known =
            !budgets.changed(budget, known_from, at) || were_ready && budgets.fall(budget, known_from, at) == Some(own);
        if is_one_round && is_known {
            let what = format!("eviction of {} on {node}: {budget} had just refused {}", w.pod, first.pod);
            found.push(Breach { code: "I75", at, what });
        }
    }
    found
}
