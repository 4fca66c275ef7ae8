//! Preview of the drains of some nodes. Read only.

use std::sync::Arc;

use cketerm_clients::kubernetes::{Kube, KubeError};
use cketerm_model::{
    cluster::Eviction,
    kube::{KubeView, NodeRow},
    names::NodeName,
    reason::Blocker,
};
use futures::{StreamExt, stream};

use super::preview::Preview;

/// Number of nodes whose pods are read at once, and the most nodes of one preview: it has to cost less than the work.
const CONCURRENT_READS: usize = 8;
const MAX_NODES: usize = 200;

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
    /// Nodes whose pods could not be read, and the reason.
    pub unread: Vec<(NodeName, String)>,
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

/// Sums up the [`previews`] of these nodes.
pub async fn drains(kube: &Kube, nodes: &[Arc<NodeRow>], rules: Eviction<'_>, facts: &KubeView) -> Drains {
    let mut sum = Drains { more: nodes.len().saturating_sub(MAX_NODES), ..Drains::default() };
    for (name, preview) in previews(kube, nodes, rules, facts).await {
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
