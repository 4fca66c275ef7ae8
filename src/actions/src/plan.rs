//! Preview of the drains of some nodes. Read only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_clients::kubernetes::{Kube, KubeError};
use cketerm_model::{
    cluster::Eviction,
    kube::{KubeView, NodeRow},
    names::NodeName,
    placement::PlacementView,
    reason::{Blocker, PodHold, budget_cause::BudgetCause},
};
use cketerm_rules::budget_cause::budget_cause;
use futures::{StreamExt, stream};

use super::{
    landing::{self, Landings, MutualNodes, NodeLanding, TooManyTogether},
    preview::Preview,
};

/// Number of nodes whose pods are read at once, and the most nodes of one preview: it has to cost less than the work.
const CONCURRENT_READS: usize = 8;
const MAX_NODES: usize = 200;
/// Budgets of one preview whose causes are looked up, at most.
const MAX_CAUSES: usize = 10;
/// Nodes of a cluster whose pods are all read for a dialog, at most.
const MAX_READ_NODES: usize = 500;

/// Summed preview of the drains of some nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drains {
    /// Number of nodes that were previewed.
    pub nodes: usize,
    /// Number of nodes beyond the limit, which were not previewed.
    pub more: usize,
    /// Number of pods to evict.
    pub evict: usize,
    /// Number of pods to delete.
    pub delete: usize,
    /// Number of pods that stay.
    pub stay: usize,
    /// Current blockers, by node.
    pub blocked: Vec<(NodeName, Vec<Blocker>)>,
    /// Number of budgets whose causes were not looked up.
    pub unexplained: usize,
    /// Landing check of all the pods that leave.
    pub landing: LandingCheck,
    /// Nodes whose pods could not be read, and the reason.
    pub unread: Vec<(NodeName, String)>,
}

/// Landing check of the pods that leave some nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LandingCheck {
    /// It was not made.
    #[default]
    NotMade,
    /// The cluster has more Nodes than are read for a dialog.
    TooLarge {
        /// The limit.
        most: usize,
    },
    /// The pods could not be read.
    Failed(String),
    /// It was made.
    Made {
        /// Answers for all pods as one.
        all: NodeLanding,
        /// Nodes that wait for each other if they are drained at once.
        mutual: Vec<MutualNodes>,
        /// Waves whose pods lack capacity together.
        too_many: Vec<TooManyTogether>,
        /// Number of waves beyond the limit, which were not checked.
        unchecked: usize,
    },
}

impl LandingCheck {
    /// Judges the answers. `has_budgets` tells whether budgets select pods of a node.
    fn of(found: Result<Landings, Self>, has_budgets: impl Fn(&NodeName) -> bool) -> Self {
        match found {
            Ok(found) => Self::Made {
                mutual: found.mutual_nodes(has_budgets),
                too_many: found.too_many,
                unchecked: found.unchecked,
                all: NodeLanding::of_all(found.nodes.into_values()),
            },
            Err(not_made) => not_made,
        }
    }
}

/// Reads the pods of these nodes (at most the first 200) and judges them as a drain would. The result keeps the order
/// of the nodes.
pub async fn previews(
    kube: &Kube,
    nodes: &[Arc<NodeRow>],
    rules: Eviction<'_>,
    facts: &KubeView,
) -> Vec<(NodeName, Result<Preview, KubeError>)> {
    let previewed: Vec<Arc<NodeRow>> = nodes.iter().take(MAX_NODES).cloned().collect();
    stream::iter(previewed)
        .map(|node| async move { (node.name.clone(), Preview::of(kube, &node, rules, facts).await) })
        .buffered(CONCURRENT_READS)
        .collect()
        .await
}

/// Looks up the causes behind the budgets that block these drains, each budget once, up to a limit. Pods that cannot be
/// read leave the budget's own numbers. Returns the number of budgets beyond the limit.
pub async fn explain<'p>(
    kube: &Kube,
    previews: impl Iterator<Item = &'p mut Preview>,
    facts: &KubeView,
    placement: Option<&PlacementView>,
) -> usize {
    let mut holds: Vec<&mut PodHold> = previews.flat_map(Preview::budget_holds).collect();
    let (names, left_out) = explained_budgets(holds.iter().map(|hold| &**hold));
    let mut causes: BTreeMap<String, Option<Box<BudgetCause>>> = BTreeMap::new();
    for name in names {
        let key = name.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        let Some(row) = key.and_then(|key| facts.budgets.get(&key)) else { continue };
        let pods = kube.pods_of_budget(row).await.unwrap_or_default();
        causes.insert(name, Some(Box::new(budget_cause(row, &pods, facts, placement))));
    }
    for hold in &mut holds {
        if let PodHold::Budget { budget, cause, .. } = hold {
            *cause = causes.get(budget).cloned().flatten();
        }
    }
    left_out
}

/// Returns the budgets whose causes are looked up, in the order of the holds, and the number of those beyond the limit.
fn explained_budgets<'h>(holds: impl Iterator<Item = &'h PodHold>) -> (Vec<String>, usize) {
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    for hold in holds {
        if let PodHold::Budget { budget, .. } = hold
            && seen.insert(budget)
            && names.len() < MAX_CAUSES
        {
            names.push(budget.clone());
        }
    }
    let left_out = seen.len() - names.len();
    (names, left_out)
}

/// Checks where the pods of these nodes can land, as many nodes at once as the queue drains. The error says why the check
/// was not made.
async fn landings(
    kube: &Kube,
    nodes: &[Arc<NodeRow>],
    facts: &KubeView,
    at_once: usize,
) -> Result<Landings, LandingCheck> {
    if facts.nodes.len() > MAX_READ_NODES {
        return Err(LandingCheck::TooLarge { most: MAX_READ_NODES });
    }
    let view = kube.read_placement().await.map_err(|why| LandingCheck::Failed(why.to_string()))?;
    let sets = nodes.chunks(at_once.max(1)).map(|set| set.iter().map(|node| node.name.clone()).collect());
    Ok(landing::check(&view, &sets.collect::<Vec<_>>()))
}

/// Reports whether budgets select pods that leave the previewed node.
pub fn has_budgets(preview: &Result<Preview, KubeError>) -> bool {
    preview.as_ref().is_ok_and(|preview| !preview.budgets.is_empty())
}

/// Sums up the [`previews`] of these nodes. The queue drains `at_once` nodes at once.
pub async fn drains(
    kube: &Kube,
    nodes: &[Arc<NodeRow>],
    rules: Eviction<'_>,
    facts: &KubeView,
    at_once: usize,
) -> Drains {
    let (mut previews, found) =
        futures::join!(previews(kube, nodes, rules, facts), landings(kube, nodes, facts, at_once));
    let budgeted: BTreeSet<NodeName> =
        previews.iter().filter(|(_, p)| has_budgets(p)).map(|(n, _)| n.clone()).collect();
    let landing = LandingCheck::of(found, |node| budgeted.contains(node));
    let mut sum = Drains { more: nodes.len().saturating_sub(MAX_NODES), landing, ..Drains::default() };
    let blocked = previews.iter_mut().filter_map(|(_, preview)| preview.as_mut().ok());
    sum.unexplained = explain(kube, blocked, facts, None).await;
    for (name, preview) in previews {
        match preview {
            Ok(preview) => {
                sum.nodes += 1;
                sum.evict += preview.evict.len();
                sum.delete += preview.delete.len();
                sum.stay += preview.ignored.len();
                if !preview.blockers.is_empty() {
                    sum.blocked.push((name, preview.blockers));
                }
            }
            Err(why) => sum.unread.push((name, why.to_string())),
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blockers beyond the limit showed no cause, and nothing said why.
    #[test]
    fn budgets_beyond_the_limit_are_counted_once_each() {
        let hold = |n: usize| PodHold::Budget { budget: format!("shop/{n}"), healthy: 1, needed: 1, cause: None };
        let holds: Vec<PodHold> = (0..MAX_CAUSES + 3).chain(0..MAX_CAUSES + 3).map(hold).collect();
        let (names, left_out) = explained_budgets(holds.iter());
        assert_eq!((names.len(), left_out), (MAX_CAUSES, 3));
        assert_eq!(names[0], "shop/0");
        assert_eq!(explained_budgets(holds.iter().take(MAX_CAUSES)).1, 0);
    }
}
