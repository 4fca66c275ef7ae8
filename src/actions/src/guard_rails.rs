//! Warnings before machines are added to a queue. They need Kubernetes, which may be silent, and must not keep an
//! operator waiting.

use std::{collections::BTreeMap, time::Duration};

use cketerm_clients::kubernetes::Kube;
use cketerm_model::{
    cluster::Cluster,
    entry::QueueKind,
    names::{Address, NodeName},
    stored::view::StoreView,
};
use cketerm_rules::add_warnings::{Added, KubeFacts, nodes_to_read, warnings};
use futures::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::{operator::Operator, repair::NewRepair};

/// Longest time that the reads of all warnings together take.
const LIMIT: Duration = Duration::from_secs(2);
/// Number of nodes whose pods are read at once.
const CONCURRENT_READS: usize = 8;
/// Most warnings that are printed.
const MAX_WARNINGS: usize = 20;

/// Warnings before an add, and what was read for them.
#[derive(Debug, Default)]
pub struct AddCheck {
    /// Warnings and notes, as lines.
    pub lines: Vec<String>,
    /// UIDs of all Nodes by name, if Kubernetes answered in time.
    pub uids: Option<BTreeMap<NodeName, String>>,
}

impl Operator {
    /// Returns the warnings about reboots of these machines. Nothing is refused, and a source that is silent is named.
    /// Takes at most 2 s.
    pub async fn reboot_warnings(&self, addresses: &[Address]) -> AddCheck {
        self.add_warnings(QueueKind::Reboot, addresses, |_| true).await
    }

    /// Returns the same about a repair.
    pub async fn repair_warnings(&self, wanted: &NewRepair) -> Vec<String> {
        let drains = |cluster: &Cluster| {
            let operation = cluster.repair.operation(&wanted.machine_type, &wanted.operation);
            operation.is_ok_and(|o| o.repair_steps.iter().flatten().any(|step| step.need_drain == Some(true)))
        };
        self.add_warnings(QueueKind::Repair, std::slice::from_ref(&wanted.address), drains).await.lines
    }

    async fn add_warnings(
        &self,
        queue: QueueKind,
        addresses: &[Address],
        drains: impl Fn(&Cluster) -> bool,
    ) -> AddCheck {
        let notes_only = |note| AddCheck { lines: vec![note], uids: None };
        let deadline = Instant::now() + LIMIT;
        let etcd = async {
            match timeout_at(deadline, self.store.read_view()).await {
                Ok(view) => view.map_err(|why| format!("note: checks before the add skipped: {why}")),
                Err(_) => Err(skipped("etcd")),
            }
        };
        // Kubernetes needs longest, and none of its lists depends on what etcd holds.
        let lists = async {
            Ok(match &self.kube {
                Some(kube) => read_lists(kube, deadline).await.map(Some),
                None => Ok(None),
            })
        };
        let (view, lists) = match tokio::try_join!(etcd, lists) {
            Ok(both) => both,
            Err(note) => return notes_only(note),
        };
        let Some(definition) = view.definition() else { return AddCheck::default() };
        let cluster = &definition.cluster;
        let added = Added { queue, addresses, drain: drains(cluster).then(|| cluster.eviction(queue)) };
        let mut notes = Vec::new();
        let mut facts = lists.unwrap_or_else(|note| {
            notes.push(note);
            None
        });
        if let (Some(kube), Some(facts)) = (&self.kube, &mut facts) {
            read_pods(kube, &view, facts, added, deadline, &mut notes).await;
        }
        let found = warnings(&view, facts.as_ref(), added);
        let more = found.len().saturating_sub(MAX_WARNINGS);
        let shown = found.iter().take(MAX_WARNINGS).map(|warning| format!("warning: {warning}"));
        let more = (more > 0).then(|| format!("warning: {more} more; see `cketerm {} plan`", queue.command()));
        let uids = facts.map(|facts| facts.nodes.into_iter().map(|(name, node)| (name, node.uid)).collect());
        AddCheck { lines: shown.chain(more).chain(notes).collect(), uids }
    }
}

fn skipped(source: &str) -> String {
    format!("note: checks before the add skipped: {source} did not answer within {} s", LIMIT.as_secs())
}

/// Reads all Nodes, namespaces and budgets. The error is a note for the operator.
async fn read_lists(kube: &Kube, deadline: Instant) -> Result<KubeFacts, String> {
    let read = async { tokio::join!(kube.read_drain_objects(), kube.node_readiness()) };
    match timeout_at(deadline, read).await {
        Ok((Ok(view), Ok(nodes))) => Ok(KubeFacts { nodes, view, pods: BTreeMap::new() }),
        Ok((Err(why), _) | (_, Err(why))) => Err(format!("note: checks of nodes and budgets skipped: {why}")),
        Err(_) => Err(skipped("Kubernetes")),
    }
}

/// Adds the pods of the nodes that the warnings depend on. `notes` says how many nodes were not read.
async fn read_pods(
    kube: &Kube,
    view: &StoreView,
    facts: &mut KubeFacts,
    added: Added<'_>,
    deadline: Instant,
    notes: &mut Vec<String>,
) {
    let names = nodes_to_read(view, facts, added);
    let (asked, mut read) = (names.len(), 0);
    let mut pods = stream::iter(names)
        .map(|name| async move {
            let pods = kube.pods_on(&name).await;
            (name, pods)
        })
        .buffer_unordered(CONCURRENT_READS);
    while let Ok(Some((name, pods))) = timeout_at(deadline, pods.next()).await {
        if let Ok(pods) = pods {
            facts.pods.insert(name, pods);
            read += 1;
        }
    }
    if read < asked {
        let left = asked - read;
        notes.push(format!(
            "note: the pods of {left} nodes were not read in {} s: budgets not checked",
            LIMIT.as_secs()
        ));
    }
}
