//! Cause behind a budget that refuses an eviction, or that holds a drain: one list of the budget's pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cketerm_model::{
    drain::{Answer, Verdict},
    kube::BudgetRow,
    placement::PlacementView,
    reason::{PodHold, budget_cause::BudgetCause},
};
use cketerm_rules::{
    budget_cause::{budget_cause, needs_placement},
    decide::Budgeted,
};

use super::Actor;

/// Most budgets of one round whose causes are looked up.
const MAX_BUDGETS: usize = 5;
/// Longest time for which the answers of a round wait for their causes.
const LONGEST: Duration = Duration::from_secs(5);

impl Actor {
    /// Looks up the causes behind these budgets, by `namespace/name`. If the pods cannot be read, the budget alone tells.
    pub(super) async fn explain(&self, budgets: &[Arc<BudgetRow>]) -> BTreeMap<String, BudgetCause> {
        let read = budgets.iter().take(MAX_BUDGETS).map(|budget| async move {
            let pods = self.kube.pods_of_budget(budget).await.unwrap_or_else(|why| {
                tracing::debug!(%why, "no cause behind pdb {}", budget.full_name());
                Vec::new()
            });
            (budget, pods)
        });
        let read = futures::future::join_all(read).await;
        let needs_placement = read.iter().any(|(_, pods)| needs_placement(pods, &self.kube_live.borrow()));
        let placement = if needs_placement { self.shared_placement().await } else { None };
        let view = self.kube_live.borrow();
        let explained = read.iter().map(|(budget, pods)| {
            // the live copy may know a newer version by now
            let newest = view.budgets.get(&(budget.namespace.clone(), budget.name.clone())).unwrap_or(budget);
            (budget.full_name(), budget_cause(newest, pods, &view, placement.as_deref()))
        });
        explained.collect()
    }

    /// Reads all pods, unless a drain has just done so: many budgets change at the same time.
    async fn shared_placement(&self) -> Option<Arc<PlacementView>> {
        let read = Box::pin(async { self.kube.read_placement().await.map(Arc::new) });
        let placement = self.placement.get(|| self.steady.now().boot, read).await;
        placement.inspect_err(|why| tracing::debug!(%why, "the nodes that pods wait for are not known")).ok()
    }

    /// Adds the cause to each answer by which a budget holds a pod. Pods that are deleted next need none.
    pub(super) async fn attach_causes(
        &self,
        pods: &[Budgeted],
        unprotected: &BTreeSet<String>,
        answers: &mut BTreeMap<String, Answer>,
    ) {
        let mut refusing: BTreeMap<String, Arc<BudgetRow>> = BTreeMap::new();
        for (pod, budgets) in pods.iter().filter(|(pod, _)| !unprotected.contains(&pod.uid)) {
            let held = answers.get(&pod.uid).map(|answer| &answer.verdict);
            if let Some(Verdict::Held { hold: PodHold::Budget { budget: name, .. }, .. }) = held {
                let row = budgets.iter().find(|row| row.full_name() == *name);
                refusing.extend(row.map(|row| (name.clone(), Arc::clone(row))));
            }
        }
        if refusing.is_empty() {
            return;
        }
        let budgets = refusing.into_values().collect::<Vec<_>>();
        let causes = tokio::time::timeout(LONGEST, self.explain(&budgets)).await.unwrap_or_default();
        for answer in answers.values_mut() {
            if let Verdict::Held { hold: PodHold::Budget { budget, cause, .. }, .. } = &mut answer.verdict {
                *cause = causes.get(budget).cloned().map(Box::new);
            }
        }
    }
}
