//! A drain by a person's hand: the rules of the queues on one node, with the person's rights (spec/safety.md, Effects; I15–I22).
//!
//! The rules are asked as if an entry were draining that node: they say what to preview, to evict, to delete, when to wait and
//! when to give up. Where they would run the reboot command, the drain is done; where they would back off, it is not, and
//! the node stays cordoned.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    act::drain::previewed,
    decide::{Effect, decide},
    memory, publish,
    snapshot::{Came, Engine, Leading, Snapshot, Work, secs},
};
use crate::{
    clock::{Now, Steady},
    kubernetes::{Kube, Live as KubeLive},
    model::{
        cluster::{Cluster, Members, Node},
        drain::{Answer, Verdict},
        entry::{EntryId, Stored},
        kube::{BudgetRow, KubeView, NodeRow, Owner, PodRow},
        policy::Policy,
        reason::{Blocker, Reason},
        reboot::{RebootEntry, RebootStatus},
    },
    store::view::{Definition, StoreView},
};

/// The entry that the rules are shown. It lies nowhere.
const ENTRY: EntryId = EntryId { queue: crate::model::entry::QueueKind::Reboot, index: 0 };
/// The lease of whoever drains, in the rules' eyes.
const LEASE: i64 = 1;
/// A look at least so often.
const TICK: Duration = Duration::from_secs(1);

/// How far a drain is.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Progress {
    /// Pods that are gone.
    pub pods_gone: u32,
    /// Pods that had to leave at the start.
    pub pods_at_start: u32,
    /// What is waited for.
    pub reason: Option<Reason>,
    /// The pods that are left, each with what holds it.
    pub blockers: Vec<Blocker>,
}

/// Why a drain ended before the node was empty. The node stays as it is, cordoned.
#[derive(Clone, Debug, PartialEq)]
pub enum Stopped {
    /// The rules gave it up.
    Blocked(Progress),
    /// An entry of a queue has begun to work on it.
    Claimed(String),
    /// Somebody has uncordoned it.
    Uncordoned,
    /// The Node is gone, or another one.
    Gone,
}

/// Drains a node that is cordoned. `claimed` says whether an entry works on it now; `tell` is told of every change.
pub async fn drain(
    kube: &Kube,
    live: &KubeLive,
    definition: Option<&Cluster>,
    node: &NodeRow,
    claimed: impl Fn() -> Option<String>,
    mut tell: impl FnMut(&Progress),
) -> Result<Progress, Stopped> {
    live.watch_pods(BTreeSet::from([node.name.clone()]));
    let steady = Steady::new(kube.clock());
    let mut changed = live.subscribe();
    let mut scene = Scene::new(definition, node, steady.now());
    let mut last = Progress::default();
    loop {
        if let Some(entry) = claimed() {
            return Err(Stopped::Claimed(entry));
        }
        let now = steady.now();
        scene.look(&live.borrow(), now)?;
        let decision = decide(&scene.snap, now);
        let progress = scene.progress(decision.reasons.get(&ENTRY));
        if progress != last {
            tell(&progress);
            last = progress;
        }
        let planned = decision.effects.into_iter().find(|p| p.entry == Some(ENTRY));
        if let Some(effect) = planned.map(|p| p.effect) {
            let came = match &effect {
                Effect::Power { .. } => return Ok(last),
                Effect::BackOff { cause, .. } => {
                    return Err(Stopped::Blocked(Progress { reason: Some(cause.clone()), ..last }));
                }
                Effect::Stamp { .. } => return Err(Stopped::Uncordoned),
                Effect::Preview { known: Some(reason), .. } => Came::Previewed(Some(reason.clone())),
                Effect::Preview { pods, .. } => previewed(pods, &ask(kube, pods, true, now).await),
                Effect::Evict { evict, delete, .. } => {
                    let (mut answers, deleted) =
                        futures::join!(ask(kube, evict, false, now), delete_all(kube, delete, now));
                    answers.extend(deleted);
                    Came::Answers(answers)
                }
                _ => Came::Done,
            };
            memory::remember(&mut scene.snap.work, ENTRY, &effect, &came, steady.now());
            // what came of it may be all that the next step needs
            if !matches!(came, Came::Done) {
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

/// All at once; each answer with the budgets as they were when it was asked.
async fn ask(kube: &Kube, pods: &[Budgeted], dry_run: bool, now: Now) -> BTreeMap<String, Answer> {
    let each = pods.iter().map(|(pod, budgets)| async move {
        let named: Vec<&BudgetRow> = budgets.iter().map(AsRef::as_ref).collect();
        let verdict = kube.evict_by_hand(pod, &named, dry_run).await;
        (pod.uid.clone(), answer(verdict, budgets, now))
    });
    futures::future::join_all(each).await.into_iter().collect()
}

async fn delete_all(kube: &Kube, pods: &[Arc<PodRow>], now: Now) -> Vec<(String, Answer)> {
    let each =
        pods.iter().map(|pod| async move { (pod.uid.clone(), answer(kube.delete_pod_by_hand(pod).await, &[], now)) });
    futures::future::join_all(each).await
}

fn answer(verdict: Verdict, budgets: &[Arc<BudgetRow>], now: Now) -> Answer {
    let budgets = budgets.iter().map(|b| (b.full_name(), b.resource_version.clone())).collect();
    Answer { verdict, at: secs(now.boot), budgets }
}

/// What the rules are shown: one node, one entry that drains it, and the cluster's real pods and budgets.
struct Scene {
    snap: Snapshot,
    node: NodeRow,
    address: String,
}

impl Scene {
    fn new(definition: Option<&Cluster>, node: &NodeRow, now: Now) -> Self {
        let address = node.addresses.first().cloned().unwrap_or_else(|| node.name.clone());
        let mut reboot = definition.map(|d| d.reboot.clone()).unwrap_or_default();
        // never run: that they would be run now is the sign that the node is empty
        (reboot.reboot_command, reboot.boot_check_command) =
            (Some(vec!["drained".into()]), Some(vec!["drained".into()]));
        let hostname = Some(node.name.clone()).filter(|name| *name != address).unwrap_or_default();
        let member = Node { address: address.clone(), hostname, ..Node::default() };
        let cluster = Cluster { name: "by hand".to_owned(), nodes: vec![member], reboot, ..Cluster::default() };
        let members = Members::of(&cluster);
        let entry = RebootEntry::queued(ENTRY.index, &address);
        let entry = RebootEntry { last_transition_time: Some(now.wall), status: RebootStatus::Draining, ..entry };
        let policy = Policy { control_plane_probe: "node".to_owned(), ..Policy::default() };
        let mut store = StoreView { synced: true, revision: 1, ..StoreView::default() };
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

    /// Takes Kubernetes as it is now: the node carries the entry's record, as one that an engine cordoned would.
    fn look(&mut self, kube: &Arc<KubeView>, now: Now) -> Result<(), Stopped> {
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
                since: None,
                recordoned: 0,
            }));
            view.put_node(row);
        }
        self.snap.kube = Arc::new(view);
        // etcd is not asked for anything here
        Arc::make_mut(&mut self.snap.store).heard = secs(now.boot);
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
