//! What a bulk action would do, before it is done: the waves, and what the drains would meet now. Read, never written.

use std::sync::Arc;

use futures::{StreamExt, stream};

use super::preview::Preview;
use crate::{
    kubernetes::Kube,
    model::{
        cluster::{Cluster, Eviction, Members},
        kube::{KubeView, NodeRow},
        reason::Blocker,
    },
};

/// The nodes of one wave: their addresses, each with its entry where it is in the queue.
pub type Wave = Vec<(String, Option<u64>)>;

/// Nodes whose pods are read at once, and most nodes that are looked at: a preview costs less than the work.
const AT_ONCE: usize = 8;
const MOST: usize = 200;

/// Workers as many at a time as the definition allows, API servers one by one; which come first is the policy's.
pub fn waves(asked: Wave, cluster: &Cluster, members: &Members, api_first: bool) -> Vec<Wave> {
    let plane = |(address, _): &(String, _)| members.by_address(cluster, address).is_some_and(|m| m.control_plane);
    let (planes, workers): (Wave, Wave) = asked.into_iter().partition(plane);
    let most = usize::try_from(cluster.reboot.concurrency()).unwrap_or(1).max(1);
    let workers = workers.chunks(most).map(<[_]>::to_vec);
    let planes = planes.chunks(1).map(<[_]>::to_vec);
    if api_first { planes.chain(workers).collect() } else { workers.chain(planes).collect() }
}

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

/// Reads the pods of these nodes and judges them as a drain would.
pub async fn drains(kube: &Kube, nodes: &[Arc<NodeRow>], rules: Eviction<'_>, facts: &KubeView) -> Drains {
    let mut sum = Drains { more: nodes.len().saturating_sub(MOST), ..Drains::default() };
    let looked: Vec<Arc<NodeRow>> = nodes.iter().take(MOST).cloned().collect();
    let previews: Vec<_> = stream::iter(looked)
        .map(|node| async move { (node.name.clone(), Preview::of(kube, &node, rules, facts).await) })
        .buffered(AT_ONCE)
        .collect()
        .await;
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
    use crate::model::cluster::Node;

    #[test]
    fn workers_go_as_many_at_once_as_the_definition_allows_and_api_servers_alone() {
        let node = |n: u8, plane| Node { address: format!("10.0.0.{n}"), control_plane: plane, ..Node::default() };
        let mut cluster = Cluster { nodes: (1..=5).map(|n| node(n, n <= 2)).collect(), ..Cluster::default() };
        cluster.reboot.max_concurrent_reboots = Some(2);
        let members = Members::of(&cluster);
        let asked = || (1..=5).map(|n| (format!("10.0.0.{n}"), None)).collect::<Wave>();
        let sizes = |first| waves(asked(), &cluster, &members, first).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!((sizes(false), sizes(true)), (vec![2, 1, 1, 1], vec![1, 1, 2, 1]));
    }
}
