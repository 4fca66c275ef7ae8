//! What the drains of some nodes would meet now, before anything is done. Read, never written.

use std::sync::Arc;

use futures::{StreamExt, stream};

use super::preview::Preview;
use crate::{
    kubernetes::{Kube, KubeError},
    model::{
        cluster::Eviction,
        kube::{KubeView, NodeRow},
        reason::Blocker,
    },
};

/// Nodes whose pods are read at once, and most nodes that are looked at: a preview costs less than the work.
const AT_ONCE: usize = 8;
const MOST: usize = 200;

/// What the drains of some nodes would meet now, summed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drains {
    /// Nodes that were looked at.
    pub nodes: usize,
    /// Nodes that were not, since there are so many.
    pub more: usize,
    /// Pods to evict.
    pub evict: usize,
    /// Pods to delete.
    pub delete: usize,
    /// Pods that stay.
    pub stay: usize,
    /// What blocks now, by node.
    pub blocked: Vec<(String, Vec<Blocker>)>,
    /// Nodes whose pods were not read, and why.
    pub unread: Vec<(String, String)>,
}

/// Reads the pods of these nodes, of the first 200 at most, and judges them as a drain would; in the order of the nodes.
pub async fn previews(
    kube: &Kube,
    nodes: &[Arc<NodeRow>],
    rules: Eviction<'_>,
    facts: &KubeView,
) -> Vec<(String, Result<Preview, KubeError>)> {
    let looked: Vec<Arc<NodeRow>> = nodes.iter().take(MOST).cloned().collect();
    stream::iter(looked)
        .map(|node| async move { (node.name.clone(), Preview::of(kube, &node, rules, facts).await) })
        .buffered(AT_ONCE)
        .collect()
        .await
}

/// The same, summed.
pub async fn drains(kube: &Kube, nodes: &[Arc<NodeRow>], rules: Eviction<'_>, facts: &KubeView) -> Drains {
    let mut sum = Drains { more: nodes.len().saturating_sub(MOST), ..Drains::default() };
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
