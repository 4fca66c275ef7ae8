//! Budgets of pods (`PodDisruptionBudget`) as they were at each time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::view::View;

/// Budgets that select by labels alone, by `namespace/name`, and the times of their changes.
pub(super) struct Budgets<'a>(BTreeMap<String, Vec<(Timestamp, &'a Value)>>);

impl<'a> Budgets<'a> {
    pub(super) fn of(view: &View<'a>) -> Self {
        let mut states = BTreeMap::new();
        for change in view.record.objects.iter().filter(|change| change.resource == "poddisruptionbudgets") {
            let now = change.after.as_ref().unwrap_or(&Value::Null);
            let name = format!("{}/{}", change.namespace, change.name);
            states.entry(name).or_insert_with(Vec::new).push((change.at, now));
        }
        Self(states)
    }

    /// Returns the budget of the pod, if exactly one selects it.
    pub(super) fn of_pod(&self, namespace: &str, labels: &Value, at: Timestamp) -> Option<&str> {
        let selects = |selector: &Value| {
            let wanted = selector["matchLabels"].as_object();
            wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
        };
        let mut all = self.0.iter().filter(|(name, states)| {
            let now = states.iter().rfind(|(from, _)| *from <= at);
            let is_near = name.split_once('/').is_some_and(|(of, _)| of == namespace);
            is_near && now.is_some_and(|(_, now)| selects(&now["spec"]["selector"]))
        });
        all.next().filter(|_| all.next().is_none()).map(|(name, _)| name.as_str())
    }

    /// Reports whether the budget changed in this time.
    pub(super) fn changed(&self, name: &str, from: Timestamp, to: Timestamp) -> bool {
        self.0.get(name).is_some_and(|all| all.iter().any(|(at, _)| (from..=to).contains(at)))
    }

    /// Returns by how many the evictions fell that the budget allows, if they never rose in this time.
    pub(super) fn fall(&self, name: &str, from: Timestamp, to: Timestamp) -> Option<i64> {
        let states = self.0.get(name)?;
        let before = states.iter().rfind(|(at, _)| *at < from);
        let during = states.iter().filter(|(at, _)| (from..=to).contains(at));
        let allowed: Option<Vec<i64>> = before
            .into_iter()
            .chain(during)
            .map(|(_, budget)| budget["status"]["disruptionsAllowed"].as_i64())
            .collect();
        let allowed = allowed.filter(|allowed| before.is_some() && allowed.is_sorted_by(|one, next| one >= next))?;
        Some(allowed.first()? - allowed.last()?)
    }

    /// Reports whether the budget existed and allowed no eviction in all this time.
    pub(super) fn is_full_throughout(&self, name: &str, from: Timestamp, to: Timestamp) -> bool {
        let Some(states) = self.0.get(name) else { return false };
        let before = states.iter().rfind(|(at, _)| *at <= from);
        let during = states.iter().filter(|(at, _)| *at > from && *at <= to);
        before.is_some_and(|_| before.into_iter().chain(during).all(|(_, b)| b["status"]["disruptionsAllowed"] == 0))
    }
}
