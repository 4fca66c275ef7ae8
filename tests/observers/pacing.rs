//! Pace of evictions: a drain asks about one pod of a full budget, not about all of them at once (I75).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    drain::{seen_from, unprotected},
    record::Breach,
    view::{Means, PodWrite, View},
};

/// Seconds within which requests belong to one round of evictions.
const ROUND: f64 = 1.0;

/// Budgets that select by labels alone, by `namespace/name`: their selectors, and the times of their changes.
struct Budgets<'a> {
    selectors: BTreeMap<String, Vec<(Timestamp, &'a Value)>>,
    changes: BTreeMap<String, Vec<Timestamp>>,
}

impl<'a> Budgets<'a> {
    fn of(view: &View<'a>) -> Self {
        let (mut selectors, mut changes) = (BTreeMap::new(), BTreeMap::new());
        for change in view.record.objects.iter().filter(|change| change.resource == "poddisruptionbudgets") {
            let name = format!("{}/{}", change.namespace, change.name);
            changes.entry(name.clone()).or_insert_with(Vec::new).push(change.at);
            let selector = change.after.as_ref().map_or(&Value::Null, |budget| &budget["spec"]["selector"]);
            selectors.entry(name).or_insert_with(Vec::new).push((change.at, selector));
        }
        Self { selectors, changes }
    }

    /// Returns the budget of the pod, if exactly one selects it.
    fn of_pod(&self, namespace: &str, labels: &Value, at: Timestamp) -> Option<&str> {
        let selects = |selector: &Value| {
            let wanted = selector["matchLabels"].as_object();
            wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
        };
        let mut all = self.selectors.iter().filter(|(name, states)| {
            let now = states.iter().rfind(|(from, _)| *from <= at);
            name.split_once('/').is_some_and(|(of, _)| of == namespace) && now.is_some_and(|(_, now)| selects(now))
        });
        all.next().filter(|_| all.next().is_none()).map(|(name, _)| name.as_str())
    }

    fn changed(&self, name: &str, from: Timestamp, to: Timestamp) -> bool {
        self.changes.get(name).is_some_and(|all| all.iter().any(|at| (from..=to).contains(at)))
    }
}

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
