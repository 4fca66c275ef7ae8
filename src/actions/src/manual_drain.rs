//! Manual drain: the queue's drain rules on one node, with the operator's rights (SAF-36; I15–I22).
//!
//! The decision code gets an entry that drains this node. It decides what to preview, evict and delete, when to wait
//! and when to give up. When it would run the reboot command, the drain is done. When it would back off, the drain has
//! failed and the node stays cordoned.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cketerm_clients::{
    kubernetes::{Kube, Live as KubeLive},
    store::live::Live,
};
use cketerm_model::{
    clock::{Now, Steady},
    cluster::{Cluster, Members, Node},
    drain::{Answer, Verdict},
    entry::{EntryId, Stored},
    fence::Person,
    kube::{BudgetRow, KubeView, NodeRow, Owner, PodRow},
    policy::Policy,
    reason::{Blocker, Reason},
    reboot::{RebootEntry, RebootStatus},
    stored::view::{Definition, StoreView},
};
use cketerm_rules::{
    decide::{Effect, decide, preview_result},
    memory, publish,
    snapshot::{EffectOutcome, Engine, Leading, Snapshot, Work, secs},
};

/// Entry that the decision code gets. It is not stored anywhere.
const ENTRY: EntryId = EntryId { queue: cketerm_model::entry::QueueKind::Reboot, index: 0 };
/// Lease of the draining process, as the decision code sees it.
const LEASE: i64 = 1;
/// Longest interval between two decisions.
const TICK: Duration = Duration::from_secs(1);

/// Progress of a drain.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Progress {
    /// Number of pods that are gone.
    pub pods_gone: u32,
    /// Number of pods that had to leave at the start.
    pub pods_at_start: u32,
    /// Reason why the drain waits.
    pub reason: Option<Reason>,
    /// Remaining pods, each with what blocks it.
    pub blockers: Vec<Blocker>,
}

/// Reason why a drain ended before the node was empty. The node stays cordoned.
#[derive(Clone, Debug, PartialEq)]
pub enum Stopped {
    /// The rules gave up the drain.
    Blocked(Progress),
    /// An entry of a queue has begun to work on the node.
    Claimed(String),
    /// Somebody has uncordoned the node.
    Uncordoned,
    /// The Node is gone, or was replaced by another one.
    Gone,
}

/// Clients and live copies that a manual drain needs.
pub(super) struct DrainContext<'a> {
    /// Client of Kubernetes.
    pub kube: &'a Kube,
    /// Live copy of Kubernetes.
    pub live: &'a KubeLive,
    /// Live copy of etcd. The drain does nothing before it is complete or while it is older than 10 s, because an entry
    /// may have begun in the meantime.
    pub entries: &'a Live,
    /// Definition, for its drain rules.
    pub definition: Option<&'a Cluster>,
    /// Operator whose rights are used.
    pub person: Person,
}

/// Drains a cordoned node. `claimed` returns the entry that works on the node now. `on_progress` is called on every
/// change.
pub(super) async fn drain(
    context: &DrainContext<'_>,
    node: &NodeRow,
    claimed: impl Fn(&StoreView) -> Option<String>,
    mut on_progress: impl FnMut(&Progress),
) -> Result<Progress, Stopped> {
    let (kube, live) = (context.kube, context.live);
    live.watch_pods(BTreeSet::from([node.name.clone()]));
    let steady = Steady::new(kube.clock());
    let mut changed = live.subscribe();
    let mut input = DrainInput::new(context.definition, node, steady.now());
    let mut last = Progress::default();
    loop {
        live.require_fresh_proof();
        let etcd = context.entries.borrow();
        if let Some(entry) = claimed(&etcd) {
            return Err(Stopped::Claimed(entry));
        }
        let now = steady.now();
        input.update(&live.borrow(), &etcd, now)?;
        let decision = decide(&input.snap, now);
        let progress = input.progress(decision.reasons.get(&ENTRY));
        // there is no progress to report before the first read of the pods
        let pods_synced = input.snap.kube.synced() && input.snap.kube.pods.get(&node.name).is_some_and(|p| p.synced);
        if progress != last {
            if pods_synced || progress.reason.as_ref().is_some_and(|r| etcd.synced && matches!(r, Reason::Stale { .. }))
            {
                on_progress(&progress);
            }
            last = progress;
        }
        let planned = decision.effects.into_iter().find(|p| p.entry == Some(ENTRY));
        if let Some(effect) = planned.map(|p| p.effect) {
            let outcome = match &effect {
                Effect::Recheck { .. } | Effect::Power { .. } => return Ok(last),
                Effect::BackOff { cause, .. } => {
                    return Err(Stopped::Blocked(Progress { reason: Some(cause.clone()), ..last }));
                }
                Effect::Stamp { .. } => return Err(Stopped::Uncordoned),
                Effect::Preview { pods, unprotected } => EffectOutcome::Previewed(preview_result(
                    pods,
                    unprotected,
                    &evict_all(context, pods, true, now).await,
                )),
                Effect::Evict { evict, delete, .. } => {
                    let (mut answers, deleted) =
                        futures::join!(evict_all(context, evict, false, now), delete_all(context, delete, now));
                    answers.extend(deleted);
                    EffectOutcome::Answers(answers)
                }
                _ => EffectOutcome::Done,
            };
            memory::remember(&mut input.snap.work, ENTRY, &effect, &outcome, steady.now());
            // the result may be all that the next step needs
            if !matches!(outcome, EffectOutcome::Done) {
                continue;
            }
        }
        let wake = decision
            .wake
            .map_or(TICK, |at| Duration::try_from_secs_f64((at - secs(now.boot)).max(0.01)).unwrap_or(TICK));
        let _ = tokio::time::timeout(wake.min(TICK), changed.changed()).await;
    }
}

type Budgeted = (Arc<PodRow>, Vec<Arc<BudgetRow>>);

/// Sends all requests at once. Each answer is judged with the budgets as they were when it was requested.
async fn evict_all(context: &DrainContext<'_>, pods: &[Budgeted], dry_run: bool, now: Now) -> BTreeMap<String, Answer> {
    let requests = pods.iter().map(|(pod, budgets)| async move {
        let named: Vec<&BudgetRow> = budgets.iter().map(AsRef::as_ref).collect();
        let verdict = context.kube.evict_manually(&context.person, pod, &named, dry_run).await;
        (pod.uid.clone(), answer(verdict, budgets, now))
    });
    futures::future::join_all(requests).await.into_iter().collect()
}

async fn delete_all(context: &DrainContext<'_>, pods: &[Arc<PodRow>], now: Now) -> Vec<(String, Answer)> {
    let requests = pods.iter().map(|pod| async move {
        (pod.uid.clone(), answer(context.kube.delete_pod_manually(&context.person, pod).await, &[], now))
    });
    futures::future::join_all(requests).await
}

fn answer(verdict: Verdict, budgets: &[Arc<BudgetRow>], now: Now) -> Answer {
    let budgets = budgets.iter().map(|b| (b.full_name(), b.resource_version.clone())).collect();
    Answer { verdict, at: secs(now.boot), budgets, undecided: 0 }
}

/// Input of the decision code: one node, one entry that drains it, and the cluster's real pods and budgets.
struct DrainInput {
    snap: Snapshot,
    node: NodeRow,
    address: String,
}

impl DrainInput {
    fn new(definition: Option<&Cluster>, node: &NodeRow, now: Now) -> Self {
        let address = node.addresses.first().cloned().unwrap_or_else(|| node.name.clone());
        let mut reboot = definition.map(|d| d.reboot.clone()).unwrap_or_default();
        // these commands never run: the decision to run them is the sign that the node is empty
        (reboot.reboot_command, reboot.boot_check_command) =
            (Some(vec!["drained".into()]), Some(vec!["drained".into()]));
        let hostname = Some(node.name.clone()).filter(|name| *name != address).unwrap_or_default();
        let member = Node { address: address.clone(), hostname, ..Node::default() };
        let cluster = Cluster { name: "by hand".to_owned(), nodes: vec![member], reboot, ..Cluster::default() };
        let members = Members::of(&cluster);
        let entry = RebootEntry::queued(ENTRY.index, &address);
        let entry = RebootEntry { last_transition_time: Some(now.wall), status: RebootStatus::Draining, ..entry };
        let policy = Policy { control_plane_probe: "node".to_owned(), ..Policy::default() };
        let mut store = StoreView { revision: 1, last_seen: secs(now.boot), ..StoreView::default() };
        store.cluster = Some(stored(Definition { cluster, members }));
        store.policy = Some(stored(policy));
        store.reboots.entries.insert(ENTRY.index, stored(entry));
        let since = secs(now.boot);
        let leading = Leading { key: String::new(), create_revision: 1, since, acknowledged: since };
        let engine = Engine { lease: LEASE, leading: Some(leading), ttl: 60, ..Engine::default() };
        let mut snap = Snapshot { store: Arc::new(store), engine, ..Snapshot::default() };
        snap.work.insert(ENTRY, Work { stamped: true, ..Work::default() });
        Self { snap, node: node.clone(), address }
    }

    /// Takes over the current view of Kubernetes. The node gets the entry's owner record, as if an engine had cordoned
    /// it.
    fn update(&mut self, kube: &Arc<KubeView>, etcd: &StoreView, now: Now) -> Result<(), Stopped> {
        let mut view = KubeView::clone(kube);
        if view.synced() {
            let mut row = match view.nodes.get(&self.node.name) {
                Some(row) if row.uid == self.node.uid => NodeRow::clone(row),
                _ => return Err(Stopped::Gone),
            };
            row.owner = Some(Ok(Owner {
                lease: LEASE,
                entry: ENTRY,
                schedulable_before: true,
                uid: row.uid.clone(),
                boot_id: row.boot_id.clone(),
                taken_over_rebooting: false,
                called_done: false,
                since: None,
                recordoned: 0,
            }));
            view.put_node(row);
        }
        self.snap.kube = Arc::new(view);
        // an entry may have begun on the node since etcd last answered: the rules do nothing from a stale copy
        let store = Arc::make_mut(&mut self.snap.store);
        (store.synced, store.error) = (etcd.synced, etcd.error.clone());
        if etcd.synced {
            store.last_seen = etcd.last_seen;
        }
        if let Some(leading) = &mut self.snap.engine.leading {
            leading.acknowledged = secs(now.boot);
        }
        memory::observe(&mut self.snap, now);
        Ok(())
    }

    fn progress(&self, reason: Option<&Reason>) -> Progress {
        let (pods_gone, pods_at_start) = memory::pods_gone(&self.snap, ENTRY, &self.address);
        let blockers = publish::blockers(&self.snap, ENTRY, &self.address);
        Progress { pods_gone, pods_at_start, reason: reason.cloned(), blockers }
    }
}

fn stored<T>(value: T) -> Stored<T> {
    Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use cketerm_model::kube::{Controller, NodePods, SourceState};

    fn cluster() -> (NodeRow, Arc<KubeView>) {
        let node = NodeRow {
            name: "w1".to_owned(),
            uid: "uid".to_owned(),
            addresses: vec!["10.0.0.11".to_owned()],
            ready: true,
            unschedulable: true,
            ..NodeRow::default()
        };
        let mut kube = KubeView { rights_known: true, ..KubeView::default() };
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets", "endpoints"] {
            kube.sources.insert(
                source.to_owned(),
                SourceState { synced: true, last_seen: 1000.0, fresh_as_of: 1000.0, error: None, forbidden: false },
            );
        }
        kube.put_node(node.clone());
        let controller = Controller { kind: "ReplicaSet".to_owned(), name: "o".to_owned(), uid: "u".to_owned() };
        let pod = PodRow {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "web".to_owned(),
            phase: "Running".to_owned(),
            controller: Some(controller),
            ..PodRow::default()
        };
        let pods = NodePods {
            synced: true,
            fresh_as_of: 1000.0,
            pods: std::iter::once(("web".to_owned(), Arc::new(pod))).collect(),
        };
        kube.pods.insert(node.name.clone(), pods);
        (node, Arc::new(kube))
    }

    /// The drain must not go on evicting while etcd is unreachable, because an entry may have begun on that node.
    #[test]
    fn i20_a_manual_drain_pauses_until_etcd_is_read_and_while_etcd_is_stale() {
        let (node, kube) = cluster();
        let now = Now { boot: Duration::from_secs(1000), wall: Timestamp::UNIX_EPOCH };
        let planned_effects = |synced: bool, last_seen: f64| {
            let etcd = StoreView { last_seen, synced, ..StoreView::default() };
            let mut input = DrainInput::new(None, &node, now);
            input.update(&kube, &etcd, now).unwrap();
            decide(&input.snap, now).effects.into_iter().map(|p| p.effect.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(planned_effects(true, 999.0), ["previewing"]);
        assert!(planned_effects(false, 0.0).is_empty(), "etcd has not been read yet");
        assert!(planned_effects(true, 985.0).is_empty(), "etcd has been silent for 15 s");
    }
}
