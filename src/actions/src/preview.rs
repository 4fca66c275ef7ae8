//! Preview of one node's drain. It judges what it reads and sends no dry run to the Eviction API, so that it writes
//! nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use cketerm_clients::kubernetes::{Kube, KubeError};
use cketerm_model::{
    cluster::Eviction,
    fault,
    kube::{KubeView, NodeRow, PodRow},
    reason::{Blocker, PodHold},
    text::visible,
};
use cketerm_rules::decide::{PodVerdict, classify_pod};
use serde::Serialize;

/// Preview of one node's drain.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Preview {
    /// Pods that would be evicted, `namespace/name`.
    pub evict: Vec<String>,
    /// Pods that would be deleted: pods of unprotected Jobs.
    pub delete: Vec<String>,
    /// Pods that stay: mirror pods, pods of DaemonSets, finished pods, pending pods of Jobs.
    pub ignored: Vec<String>,
    /// Current blockers of the drain.
    pub blockers: Vec<Blocker>,
    /// Number of Ready pods to evict for each budget (`namespace/name`), in protected namespaces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub budgets: BTreeMap<String, i32>,
    /// Budgets in the namespaces of these pods that select no pod, so that they protect nothing.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub idle_budgets: BTreeSet<String>,
    /// Volumes that have to be detached.
    pub volumes: Vec<String>,
}

impl Preview {
    /// Reads one node's pods and judges them.
    pub async fn of(kube: &Kube, node: &NodeRow, rules: Eviction<'_>, facts: &KubeView) -> Result<Self, KubeError> {
        let pods = kube.pods_on(&node.name).await?;
        fault!(ReadsWrite => if let Some(pod) = pods.first() {
            let person = cketerm_model::fence::Person::asks(&cketerm_model::cketerm_records::Who::default());
            kube.evict_manually(&person, pod, &[], false).await;
        });
        Ok(Self::judged(node, pods, rules, facts))
    }

    fn judged(node: &NodeRow, pods: Vec<PodRow>, rules: Eviction<'_>, facts: &KubeView) -> Self {
        let mut preview = Self { volumes: node.volumes_in_use.clone(), ..Self::default() };
        for pod in pods.into_iter().map(Arc::new) {
            let name = pod.full_name();
            let hold = match classify_pod(&pod, rules, facts) {
                PodVerdict::Ignore => {
                    preview.ignored.push(name);
                    continue;
                }
                PodVerdict::Protected { job } => Some(PodHold::Job { job }),
                PodVerdict::Terminating => Some(PodHold::Terminating {
                    since: pod.terminating_since.unwrap_or_default(),
                    node_ready: node.ready,
                }),
                PodVerdict::Delete => {
                    preview.delete.push(name);
                    continue;
                }
                PodVerdict::Evict { protected } => {
                    preview.evict.push(name.clone());
                    for budget in facts.budgets_of(&pod).filter(|budget| protected && budget.judges(&pod)) {
                        *preview.budgets.entry(budget.full_name()).or_default() += 1;
                    }
                    preview.idle_budgets.extend(idle_budgets(&pod.namespace, facts));
                    protected.then(|| budget_hold(&pod, facts)).flatten()
                }
            };
            preview.blockers.extend(hold.map(|why| Blocker { pod: name, why }));
        }
        for list in [&mut preview.evict, &mut preview.delete, &mut preview.ignored] {
            list.sort();
        }
        preview.blockers.sort_by(|a, b| a.pod.cmp(&b.pod));
        preview
    }

    /// Returns the holds by budgets.
    pub(crate) fn budget_holds(&mut self) -> impl Iterator<Item = &mut PodHold> {
        let holds = self.blockers.iter_mut().map(|blocker| &mut blocker.why);
        holds.filter(|hold| matches!(hold, PodHold::Budget { .. }))
    }

    /// Returns a short summary: `7 to evict, 1 to delete, 3 stay`.
    pub fn summary(&self) -> String {
        let mut text =
            format!("{} to evict, {} to delete, {} stay", self.evict.len(), self.delete.len(), self.ignored.len());
        if !self.volumes.is_empty() {
            let _ = write!(text, ", {} volumes in use", self.volumes.len());
        }
        text
    }

    /// Returns the lines under the summary: the current blockers.
    pub fn lines(&self) -> Vec<String> {
        self.blockers.iter().map(|b| visible(&format!("! {}: {}", b.pod, b.why), false)).collect()
    }
}

/// Returns the lines about budgets that select no pod, each budget once: many nodes have pods of its namespace.
pub fn idle_budget_lines<'p>(previews: impl Iterator<Item = &'p Preview>) -> Vec<String> {
    let budgets: BTreeSet<&String> = previews.flat_map(|preview| &preview.idle_budgets).collect();
    let line = |budget: &String| format!("~ pdb {budget} selects no pod: it protects nothing");
    budgets.into_iter().map(|budget| visible(&line(budget), false)).collect()
}

/// Returns the budgets of a namespace that select no pod.
fn idle_budgets<'a>(namespace: &'a str, facts: &'a KubeView) -> impl Iterator<Item = String> + 'a {
    let all = facts.budgets.values().filter(move |budget| budget.namespace == namespace);
    all.filter(|budget| budget.pods == 0 && budget.healthy == 0 && budget.sync_failure.is_none())
        .map(|budget| budget.full_name())
}

/// Returns the budget that allows no eviction of this pod now, or the several budgets that make it impossible.
fn budget_hold(pod: &PodRow, facts: &KubeView) -> Option<PodHold> {
    // it evicts pending pods whatever their budget says
    if pod.phase == "Pending" {
        return None;
    }
    let budgets: Vec<_> = facts.budgets_of(pod).collect();
    match budgets.as_slice() {
        [] => None,
        [one] if one.allows_unhealthy(pod) => None,
        [one] => (one.allowed <= 0).then(|| PodHold::Budget {
            budget: one.full_name(),
            healthy: one.healthy,
            needed: one.needed,
            cause: None,
        }),
        several => Some(PodHold::ManyBudgets { budgets: several.iter().map(|b| b.full_name()).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::{
        cluster::Reboot,
        kube::{BudgetRow, Controller, NamespaceRow},
        selector::Selector,
    };

    fn pod(name: &str, kind: &str, app: &str) -> PodRow {
        let controller = Controller { kind: kind.into(), name: "o".into(), uid: "u".into() };
        PodRow {
            namespace: "shop".into(),
            name: name.into(),
            uid: name.into(),
            phase: "Running".into(),
            ready: true,
            labels: [("app".to_owned(), app.to_owned())].into(),
            controller: Some(controller),
            ..PodRow::default()
        }
    }

    #[test]
    fn a_preview_classifies_pods_and_names_current_blockers() {
        let mut facts = KubeView::default();
        let selector: Selector = serde_json::from_value(serde_json::json!({"matchLabels": {"app": "db"}})).unwrap();
        let budget = BudgetRow {
            namespace: "shop".into(),
            name: "db".into(),
            selector: Some(selector),
            healthy: 2,
            needed: 2,
            ..BudgetRow::default()
        };
        facts.budgets.insert(("shop".into(), "db".into()), Arc::new(budget));
        let pods = vec![
            pod("db-0", "StatefulSet", "db"),
            pod("web-1", "ReplicaSet", "web"),
            pod("agent", "DaemonSet", "agent"),
            pod("report", "Job", "report"),
        ];
        let reboot = Reboot::default();
        let seen = Preview::judged(&NodeRow::default(), pods, reboot.eviction(), &facts);
        assert_eq!(seen.summary(), "2 to evict, 0 to delete, 1 stay");
        assert_eq!(
            seen.lines(),
            ["! shop/db-0: pdb shop/db (healthy 2, needs 2)", "! shop/report: protected job shop/o"]
        );
    }

    #[test]
    fn only_pods_that_their_budget_counts_and_protects_are_counted_for_it() {
        let mut facts = KubeView::default();
        let selector: Selector = serde_json::from_value(serde_json::json!({"matchLabels": {"app": "db"}})).unwrap();
        let budget =
            BudgetRow { namespace: "shop".into(), name: "db".into(), selector: Some(selector), ..BudgetRow::default() };
        facts.budgets.insert(("shop".into(), "db".into()), Arc::new(budget));
        let pods = || {
            let pending = PodRow { phase: "Pending".into(), ready: false, ..pod("db-1", "StatefulSet", "db") };
            vec![pod("db-0", "StatefulSet", "db"), pending]
        };
        let count = |rules: &Reboot, facts: &KubeView| {
            Preview::judged(&NodeRow::default(), pods(), rules.eviction(), facts).budgets.get("shop/db").copied()
        };
        let all = Reboot::default();
        assert_eq!(count(&all, &facts), Some(1), "the eviction of a pending pod does not count");
        let selector = serde_json::from_value(serde_json::json!({"matchLabels": {"protected": "true"}})).unwrap();
        let some = Reboot { protected_namespaces: Some(selector), ..Reboot::default() };
        let shop =
            NamespaceRow { labels: [("protected".to_owned(), "false".to_owned())].into(), ..NamespaceRow::default() };
        facts.namespaces.insert("shop".into(), Arc::new(shop));
        assert_eq!(count(&some, &facts), None, "budgets do not hold pods of an unprotected namespace");
    }

    /// A budget that selects no pod was named for each node with a pod of its namespace.
    #[test]
    fn a_budget_without_pods_is_named_once_for_all_nodes() {
        let mut facts = KubeView::default();
        let budget = BudgetRow { namespace: "shop".into(), name: "old".into(), ..BudgetRow::default() };
        facts.budgets.insert(("shop".into(), "old".into()), Arc::new(budget));
        let reboot = Reboot::default();
        let preview = |name| {
            let pods = vec![pod(name, "ReplicaSet", "web")];
            Preview::judged(&NodeRow::default(), pods, reboot.eviction(), &facts)
        };
        let nodes = [preview("web-1"), preview("web-2")];
        assert_eq!(idle_budget_lines(nodes.iter()), ["~ pdb shop/old selects no pod: it protects nothing"]);
        assert!(nodes.iter().all(|node| node.lines().is_empty()), "{nodes:?}");
    }
}
