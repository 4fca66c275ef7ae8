//! Pods of one budget, with what keeps each of them from being healthy.

use cketerm_model::{
    kube::{BudgetPod, BudgetRow, PodRow},
    selector::{Operator, Requirement, Selector},
};
use serde::Deserialize;

use super::{
    call::percent_encode,
    connect::Kube,
    error::KubeError,
    wire::{Condition, Meta, Pod, PodSpec},
};

/// Number of characters kept of the kubelet's and the scheduler's messages.
const MAX_MESSAGE: usize = 160;

impl Kube {
    /// Reads the pods that a budget selects.
    pub async fn pods_of_budget(&self, budget: &BudgetRow) -> Result<Vec<BudgetPod>, KubeError> {
        let Some(selector) = &budget.selector else { return Ok(Vec::new()) };
        let path = format!("/api/v1/namespaces/{}/pods", percent_encode(&budget.namespace));
        let query = match selector_text(selector) {
            text if text.is_empty() => text,
            text => format!("labelSelector={}", percent_encode(&text)),
        };
        let rows = self.list::<Observed, BudgetPod>(&path, &query).await;
        Ok(rows.map_err(|fault| self.error(&format!("GET pods of pdb {}", budget.full_name()), fault))?.0)
    }
}

/// Returns the selector in the form of the query `labelSelector`.
fn selector_text(selector: &Selector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let other = selector.match_expressions.iter().flatten().map(requirement_text);
    equal.chain(other).collect::<Vec<_>>().join(",")
}

fn requirement_text(requirement: &Requirement) -> String {
    let key = &requirement.key;
    let values = || requirement.values.as_deref().unwrap_or_default().join(",");
    match requirement.operator {
        Operator::In => format!("{key} in ({})", values()),
        Operator::NotIn => format!("{key} notin ({})", values()),
        Operator::Exists => key.clone(),
        Operator::DoesNotExist => format!("!{key}"),
    }
}

#[derive(Clone, Deserialize)]
struct Observed {
    metadata: Meta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: ObservedStatus,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObservedStatus {
    phase: String,
    conditions: Vec<Condition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: ContainerState,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
    message: String,
}

impl From<Observed> for BudgetPod {
    fn from(Observed { metadata, spec, status }: Observed) -> Self {
        let ObservedStatus { phase, conditions, init_container_statuses, container_statuses } = status;
        let mut containers = init_container_statuses.into_iter().chain(container_statuses);
        let waiting = containers.find_map(|container| container.state.waiting.filter(|w| !w.reason.is_empty()));
        let unplaced = conditions.iter().find(|c| c.r#type == "PodScheduled" && c.status == "False");
        let unschedulable = unplaced.map(|c| shortened(&c.message));
        let row = PodRow::from(Pod::new(metadata, spec, phase, conditions));
        Self { row, waiting: waiting.map(|w| (w.reason, shortened(&w.message))), unschedulable }
    }
}

fn shortened(message: &str) -> String {
    message.chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_becomes_a_query() {
        let selector = |json| selector_text(&serde_json::from_value(json).unwrap());
        assert_eq!(selector(json!({})), "");
        assert_eq!(selector(json!({"matchLabels": {"app": "db", "tier": "x"}})), "app=db,tier=x");
        let expressions = json!({"matchLabels": {"app": "db"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["x", "y"]}, {"key": "b", "operator": "NotIn", "values": ["z"]},
            {"key": "c", "operator": "Exists"}, {"key": "d", "operator": "DoesNotExist"}]});
        assert_eq!(selector(expressions), "app=db,a in (x,y),b notin (z),c,!d");
    }

    #[test]
    fn a_pod_carries_what_keeps_it_from_being_healthy() {
        let pod = |status| {
            let json =
                json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "n1"}, "status": status});
            BudgetPod::from(serde_json::from_value::<Observed>(json).unwrap())
        };
        let crashing = pod(json!({"phase": "Running", "containerStatuses": [
            {"state": {"running": {}}}, {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}]}));
        assert_eq!(crashing.waiting, Some(("CrashLoopBackOff".into(), "back-off".into())));
        assert_eq!((crashing.row.name.as_str(), crashing.row.node.as_str()), ("p", "n1"));
        let unplaced = pod(json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}));
        assert_eq!(unplaced.unschedulable.as_deref(), Some("0/3 nodes"));
        let healthy = pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
        assert!(healthy.row.ready && healthy.waiting.is_none() && healthy.unschedulable.is_none());
    }
}
