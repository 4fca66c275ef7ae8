//! Budgets, computed as kube-controller-manager does: from the selected pods, the replica counts of their owners, and
//! the evictions recorded in the status.

use std::collections::BTreeSet;

use cketerm_model::boot_time::Seconds;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    Manager, Work, expected,
    index::{Name, Pod, name_of},
    object_fields::{self, text},
    owners::count,
};
use crate::{
    durations::duration_from_secs,
    kubernetes::{
        Change, Verb,
        objects::Key,
        resource::{BUDGETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS},
    },
};

/// Numbers of a budget.
struct BudgetCounts {
    expected: i64,
    healthy: i64,
    desired: i64,
    /// Evicted pods that still exist.
    disrupted: Map<String, Value>,
    /// Time at which the first of those no longer counts as gone.
    recheck_at: Option<Timestamp>,
}

impl Manager {
    /// Handles a budget that was added, changed or deleted.
    pub(super) fn budget_changed(&mut self, change: &Change) {
        let key = (*name_of(&change.object)).clone();
        if change.verb == Verb::Deleted {
            self.index.budgets.remove(&key);
            return;
        }
        self.index.put_budget(&key, object_fields::selector(&change.object["spec"]["selector"]));
        self.enqueue_after(duration_from_secs(self.durations.budget_lag), Work::Budget(key));
    }

    /// Handles a pod that was added, changed or deleted. `selected` are the budgets that selected it before.
    pub(super) fn budgets_on_pod(&mut self, name: &Name, before: Option<&Pod>, selected: Vec<Key>) {
        let now = self.index.pods.get(name);
        let relabelled = |a: &Pod, b: &Pod| a.object["metadata"]["labels"] != b.object["metadata"]["labels"];
        if let (Some(before), Some(now)) = (before, now)
            && before.same_for_owners(now)
            && !relabelled(before, now)
        {
            return;
        }
        let all: BTreeSet<Key> = self.index.budgets_of(name).into_iter().chain(selected).collect();
        for key in all {
            self.enqueue_after(duration_from_secs(self.durations.budget_lag), Work::Budget(key));
        }
    }

    /// Writes a budget's current status.
    pub(super) fn budget(&mut self, key: &Key) {
        let (now, stamp) = (self.objects.clock().wall(), self.objects.stamp());
        let Some(known) = self.index.budgets.get(key) else { return };
        let pods: Vec<&Pod> = known.pods.iter().filter_map(|name| self.index.pods.get(name)).collect();
        // Computed before the update of the budget, because all objects share one lock.
        let scale = self.expected_scale(&pods);
        let mut recheck_at = None;
        expected(self.objects.update(&BUDGETS, &key.0, &key.1, |budget| {
            let generation = budget["metadata"]["generation"].clone();
            match self.sums(&pods, scale, budget, now) {
                Some(sums) => {
                    recheck_at = sums.recheck_at;
                    write_budget_status(budget, &stamp, sums, generation);
                }
                None => fail_safe(budget, &stamp, generation),
            }
            Ok(())
        }));
        if let Some(at) = recheck_at {
            let wait = duration_from_secs(Seconds::from(at.duration_since(now)) + Seconds::new(1.0));
            self.work_queue.add_at(Work::Budget(key.clone()), Instant::now() + wait);
        }
    }

    /// Computes the numbers of a budget. Returns `None` if the expected number of pods cannot be determined.
    fn sums(&self, pods: &[&Pod], scale: Option<i64>, budget: &Value, now: Timestamp) -> Option<BudgetCounts> {
        let spec = &budget["spec"];
        let (expected, desired) = if spec["maxUnavailable"].is_null() {
            match &spec["minAvailable"] {
                Value::Null => (pods.len().try_into().ok()?, 0),
                Value::Number(least) => (pods.len().try_into().ok()?, least.as_i64()?),
                share => {
                    let expected = scale?;
                    (expected, object_fields::scaled(share, expected))
                }
            }
        } else {
            let expected = scale?;
            (expected, (expected - object_fields::scaled(&spec["maxUnavailable"], expected)).max(0))
        };
        let (mut disrupted, mut recheck_at) = (Map::new(), None);
        for pod in pods.iter().filter(|pod| pod.terminating.is_none()) {
            let name = text(&pod.object["metadata"]["name"]);
            let since = &budget["status"]["disruptedPods"][name];
            let Ok(at) = text(since).parse::<Timestamp>() else { continue };
            let until = at
                .checked_add(SignedDuration::try_from(duration_from_secs(self.durations.disruption_timeout)).ok()?)
                .ok()?;
            if until > now {
                disrupted.insert(name.to_owned(), since.clone());
                recheck_at = Some(recheck_at.map_or(until, |first: Timestamp| first.min(until)));
            }
        }
        let counts = |pod: &&&Pod| {
            pod.terminating.is_none() && pod.ready && !disrupted.contains_key(text(&pod.object["metadata"]["name"]))
        };
        let healthy = pods.iter().filter(counts).count().try_into().ok()?;
        Some(BudgetCounts { expected, healthy, desired, disrupted, recheck_at })
    }

    /// Returns the total number of pods that the owners of these pods want. Pods without an owner do not count. Returns
    /// `None` if an owner has no replica count (DaemonSets, Jobs, deleted owners).
    fn expected_scale(&self, pods: &[&Pod]) -> Option<i64> {
        let uids: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.owner.as_deref()).collect();
        let mut scales = std::collections::BTreeMap::new();
        for uid in uids {
            let owner = self.index.owners.get(uid)?;
            let object = self.objects.get(owner.resource, &owner.name.0, &owner.name.1)?;
            let of_deployment = object_fields::controller(&object).filter(|o| o["kind"] == DEPLOYMENTS.kind);
            if let Some(deployment) = of_deployment {
                let name = text(&deployment["name"]);
                let found = self.objects.get(&DEPLOYMENTS, &owner.name.0, name)?;
                scales.insert(text(&found["metadata"]["uid"]).to_owned(), count(&found["spec"]["replicas"]));
            } else if [REPLICA_SETS.kind, STATEFUL_SETS.kind].contains(&owner.resource.kind) {
                scales.insert(uid.to_owned(), count(&object["spec"]["replicas"]));
            } else {
                return None;
            }
        }
        scales.values().sum::<usize>().try_into().ok()
    }
}

fn write_budget_status(budget: &mut Value, stamp: &str, sums: BudgetCounts, generation: Value) {
    let surplus = sums.healthy - sums.desired;
    let allowed = if sums.expected <= 0 { 0 } else { surplus.max(0) };
    if !budget["status"].is_object() {
        budget["status"] = json!({});
    }
    let status = &mut budget["status"];
    status["disruptionsAllowed"] = json!(allowed);
    status["currentHealthy"] = json!(sums.healthy);
    status["desiredHealthy"] = json!(sums.desired);
    status["expectedPods"] = json!(sums.expected);
    status["observedGeneration"] = generation;
    if sums.disrupted.is_empty() {
        status.as_object_mut().and_then(|status| status.shift_remove("disruptedPods"));
    } else {
        status["disruptedPods"] = Value::Object(sums.disrupted);
    }
    let (condition_status, why) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_disruption_allowed(budget, stamp, condition_status, why, "");
}

fn fail_safe(budget: &mut Value, stamp: &str, generation: Value) {
    if !budget["status"].is_object() {
        budget["status"] = json!({"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
    }
    budget["status"]["disruptionsAllowed"] = json!(0);
    budget["status"]["observedGeneration"] = generation;
    set_disruption_allowed(budget, stamp, "False", "SyncFailed", "found no controllers for some of the pods");
}

fn set_disruption_allowed(budget: &mut Value, stamp: &str, status: &str, reason: &str, message: &str) {
    object_fields::set_condition(budget, stamp, "DisruptionAllowed", status, reason, message);
    let generation = budget["metadata"]["generation"].clone();
    for condition in budget["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition["observedGeneration"] = generation.clone();
        if condition["message"].is_null() {
            condition["message"] = json!("");
        }
    }
}
