//! Manual drain: the queue's drain rules on one node, for an operator (SAF-36; I15–I22). The caller sends the requests
//! with the operator's rights.
//!
//! The rules get an assumed entry that drains this node ([`Assumptions::draining`]). They decide what to preview, evict
//! and delete, when to wait and when to give up. When they would prepare the reboot command, the node is empty. When
//! they would back off, the drain has failed. When they would cordon the node again, somebody has uncordoned it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    boot_time::BootTime,
    clock::Now,
    cluster::{Cluster, Reboot},
    drain::{Answer, EvictionAdmission},
    kube::{KubeView, NodeRow, PodRow},
    reason::{Blocker, Reason},
    stored::view::StoreView,
};

use crate::{
    assumptions::{Assumption, Assumptions, MANUAL_DRAIN},
    decide::{Budgeted, Effect, decide_assuming, preview_result},
    memory, publish,
    snapshot::{DrainWork, EffectOutcome, Snapshot, Work},
};

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

/// Decision about a drain.
#[derive(Debug)]
pub struct Step {
    /// Progress before this step.
    pub progress: Progress,
    /// Whether the progress is worth a report. There is none before the first read of the pods.
    pub is_shown: bool,
    /// The step.
    pub next: Next,
    /// Boot time at which the next decision is due even if nothing changes.
    pub wake: Option<BootTime>,
}

/// Next step of a drain.
#[derive(Debug)]
pub enum Next {
    /// Nothing can be done now.
    Wait,
    /// Requests are sent; [`ManualDrain::record`] takes their answers.
    Send(Requests),
    /// The node is empty.
    Drained,
    /// The drain has ended for this reason.
    Stop(Stopped),
}

/// Requests about pods, to be sent all at once.
#[derive(Debug)]
pub enum Requests {
    /// Dry runs of evictions.
    Preview {
        /// The pods, each with the budgets that select it.
        pods: Vec<Budgeted>,
        /// UIDs of those whose namespace is not protected.
        unprotected: BTreeSet<String>,
    },
    /// Evictions and deletions.
    Evict {
        /// Pods to evict, each with the budgets that select it.
        evict: Vec<Budgeted>,
        /// Pods to delete.
        delete: Vec<Arc<PodRow>>,
        /// UIDs of the pods to evict whose namespace is not protected.
        unprotected: BTreeSet<String>,
    },
}

/// A drain of one cordoned node, with its memory.
#[derive(Debug)]
pub struct ManualDrain {
    node: NodeRow,
    /// Section of the definition that holds the drain rules.
    settings: Reboot,
    assumed: Assumptions,
    /// Snapshot of the last step. Of etcd it holds only how fresh the copy is: queues, orders, policy and windows do
    /// not concern an operator's drain.
    snap: Snapshot,
}

impl ManualDrain {
    /// Begins the drain of a cordoned node, by the drain rules of this definition or by their defaults.
    pub fn new(definition: Option<&Cluster>, node: &NodeRow, now: Now) -> Self {
        let settings = definition.map(|definition| definition.reboot.clone()).unwrap_or_default();
        let leading = Assumptions::leading_since(now.boot);
        let assumed = leading.and(Assumption::RebootCommandsConfigured).draining(node, settings.clone(), now.wall);
        let store = StoreView { last_seen: now.boot, ..StoreView::default() };
        let mut snap = Snapshot { store: Arc::new(store), ..Snapshot::default() };
        snap.work.insert(MANUAL_DRAIN, Work::default());
        Self { node: node.clone(), settings, assumed, snap }
    }

    /// Decides the next step by the present copies of Kubernetes and etcd. Nothing is sent before the copy of etcd is
    /// complete or while it is older than 10 s, because an entry may have begun on the node in the meantime.
    pub fn step(&mut self, kube: &Arc<KubeView>, etcd: &StoreView, now: Now) -> Step {
        if !self.update(kube, etcd) {
            let progress = self.progress(None);
            return Step { progress, is_shown: false, next: Next::Stop(Stopped::Gone), wake: None };
        }
        let decision = decide_assuming(&self.snap, &self.assumed, now);
        let progress = self.progress(decision.reasons.get(&MANUAL_DRAIN));
        let pods_synced = kube.synced() && kube.pods.get(&self.node.name).is_some_and(|pods| pods.synced);
        let is_stale = etcd.synced && matches!(progress.reason, Some(Reason::Stale { .. }));
        let planned = decision.effects.into_iter().find(|planned| planned.entry == Some(MANUAL_DRAIN));
        let next = planned.map_or(Next::Wait, |planned| next(planned.effect, &progress));
        Step { progress, is_shown: pods_synced || is_stale, next, wake: decision.wake }
    }

    /// Records the answers to these requests, by pod UID.
    pub fn record(&mut self, requests: Requests, answers: BTreeMap<String, Answer>, now: Now) {
        let (effect, outcome) = match requests {
            Requests::Preview { pods, unprotected } => {
                let preview = preview_result(&pods, &unprotected, EvictionAdmission::EachPod, &answers);
                (Effect::Preview { pods, unprotected }, EffectOutcome::Previewed(preview))
            }
            Requests::Evict { evict, delete, unprotected } => {
                (Effect::Evict { evict, delete, unprotected }, EffectOutcome::Answers(answers))
            }
        };
        memory::remember(&mut self.snap.work, MANUAL_DRAIN, &effect, &outcome, now);
    }

    /// Takes over the present copies. Returns false if the Node is gone or was replaced.
    fn update(&mut self, kube: &Arc<KubeView>, etcd: &StoreView) -> bool {
        let row = kube.nodes.get(&self.node.name);
        if kube.synced() && row.is_none_or(|row| row.uid != self.node.uid) {
            return false;
        }
        self.snap.kube = Arc::clone(kube);
        let store = Arc::make_mut(&mut self.snap.store);
        (store.synced, store.error) = (etcd.synced, etcd.error.clone());
        if etcd.synced {
            store.last_seen = etcd.last_seen;
        }
        if let (Some(_), Some(work)) = (row, self.snap.work.get_mut(&MANUAL_DRAIN)) {
            memory::observe_pods(kube, &mut work.drain, &self.node.name, self.settings.eviction());
        }
        true
    }

    fn drain_work(&self) -> Option<&DrainWork> {
        self.snap.work.get(&MANUAL_DRAIN).map(|work| &work.drain)
    }

    fn progress(&self, reason: Option<&Reason>) -> Progress {
        let (kube, rules) = (&self.snap.kube, self.settings.eviction());
        let start = self.drain_work().and_then(|drain| drain.pods_at_start).unwrap_or(0);
        let node = kube.nodes.get(&self.node.name);
        let left = node.and_then(|node| memory::pods_left(kube, &node.name, rules)).unwrap_or(start);
        let blockers = node.map(|node| publish::blockers_on(kube, node, rules, self.drain_work()));
        Progress {
            pods_gone: start.saturating_sub(left),
            pods_at_start: start,
            reason: reason.cloned(),
            blockers: blockers.unwrap_or_default(),
        }
    }
}

/// Returns the step that an effect of the rules stands for in a manual drain.
fn next(effect: Effect, progress: &Progress) -> Next {
    match effect {
        Effect::Recheck { .. } | Effect::Power { .. } | Effect::BeginMaintenance { .. } => Next::Drained,
        Effect::BackOff { cause, .. } => {
            Next::Stop(Stopped::Blocked(Progress { reason: Some(cause), ..progress.clone() }))
        }
        Effect::Stamp { .. } => Next::Stop(Stopped::Uncordoned),
        Effect::Preview { pods, unprotected } => Next::Send(Requests::Preview { pods, unprotected }),
        Effect::Evict { evict, delete, unprotected } => Next::Send(Requests::Evict { evict, delete, unprotected }),
        // The rules of a drain plan none of these for an entry without orders, windows and control planes.
        Effect::Remove { .. }
        | Effect::StartDrain { .. }
        | Effect::Unwind { .. }
        | Effect::MoveEtcdLeader { .. }
        | Effect::Explain { .. }
        | Effect::RunAgain { .. }
        | Effect::RunHook { .. }
        | Effect::EndHooks { .. }
        | Effect::SetNodeSigns { .. }
        | Effect::BootCheck { .. }
        | Effect::HealthCheck { .. }
        | Effect::Finish { .. }
        | Effect::Release { .. }
        | Effect::ReturnToService { .. }
        | Effect::Settle { .. }
        | Effect::TakeResult { .. }
        | Effect::Registry(_)
        | Effect::RebootNeeded(_)
        | Effect::MaintenanceRequest(_)
        | Effect::SetEndpoints { .. } => Next::Wait,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use cketerm_model::names::{Address, NodeName};
    use cketerm_model::{
        drain::Verdict,
        entry::EntryId,
        kube::{Controller, NodePods, Owner, SourceState},
    };

    fn cluster() -> (NodeRow, KubeView) {
        let node = NodeRow {
            name: NodeName::new("w1"),
            uid: "uid".to_owned(),
            addresses: vec![Address::new("10.0.0.11")],
            ready: true,
            unschedulable: true,
            ..NodeRow::default()
        };
        let mut kube = KubeView { rights_known: true, ..KubeView::default() };
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets", "endpoints"] {
            kube.sources.insert(
                source.to_owned(),
                SourceState {
                    synced: true,
                    last_seen: now().boot,
                    fresh_as_of: now().boot,
                    error: None,
                    forbidden: false,
                },
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
            fresh_as_of: now().boot,
            pods: std::iter::once(("web".to_owned(), Arc::new(pod))).collect(),
        };
        kube.pods.insert(node.name.clone(), pods);
        (node, kube)
    }

    fn now() -> Now {
        Now { boot: BootTime::new(1000.0), wall: Timestamp::UNIX_EPOCH }
    }

    fn etcd(synced: bool, last_seen: f64) -> StoreView {
        StoreView { last_seen: BootTime::new(last_seen), synced, ..StoreView::default() }
    }

    fn first_step(node: &NodeRow, kube: KubeView) -> Step {
        ManualDrain::new(None, node, now()).step(&Arc::new(kube), &etcd(true, 999.0), now())
    }

    fn without_pods(mut kube: KubeView) -> KubeView {
        kube.pods
            .insert(NodeName::new("w1"), NodePods { synced: true, fresh_as_of: now().boot, ..NodePods::default() });
        kube
    }

    /// The drain must not go on evicting while etcd is unreachable, because an entry may have begun on that node.
    #[test]
    fn i20_a_manual_drain_pauses_until_etcd_is_read_and_while_etcd_is_stale() {
        let (node, kube) = cluster();
        let kube = Arc::new(kube);
        let next = |synced: bool, last_seen: f64| {
            ManualDrain::new(None, &node, now()).step(&kube, &etcd(synced, last_seen), now()).next
        };
        assert!(matches!(next(true, 999.0), Next::Send(Requests::Preview { .. })));
        assert!(matches!(next(false, 0.0), Next::Wait), "etcd has not been read yet");
        assert!(matches!(next(true, 985.0), Next::Wait), "etcd has been silent for 15 s");
    }

    #[test]
    fn the_pods_are_previewed_then_evicted_then_the_node_is_drained() {
        let (node, kube) = cluster();
        let empty = Arc::new(without_pods(kube.clone()));
        let (kube, etcd) = (Arc::new(kube), etcd(true, 999.0));
        let accepted = || {
            let answer = Answer { verdict: Verdict::Accepted, at: now().boot, budgets: BTreeMap::new(), undecided: 0 };
            BTreeMap::from([("web".to_owned(), answer)])
        };
        let mut drain = ManualDrain::new(None, &node, now());
        let Next::Send(preview @ Requests::Preview { .. }) = drain.step(&kube, &etcd, now()).next else {
            panic!("the pods are previewed first");
        };
        drain.record(preview, accepted(), now());
        let Next::Send(evictions @ Requests::Evict { .. }) = drain.step(&kube, &etcd, now()).next else {
            panic!("the pods are evicted after a clean preview");
        };
        drain.record(evictions, accepted(), now());
        assert!(matches!(drain.step(&kube, &etcd, now()).next, Next::Wait), "the pod is still there");
        let last = drain.step(&empty, &etcd, now());
        assert!(matches!(last.next, Next::Drained));
        assert_eq!((last.progress.pods_gone, last.progress.pods_at_start), (1, 1));
    }

    #[test]
    fn a_drain_stops_when_its_node_is_uncordoned_replaced_or_gone() {
        let stopped = |change: fn(&mut NodeRow)| {
            let (node, mut kube) = cluster();
            let mut row = node.clone();
            change(&mut row);
            kube.put_node(row);
            match first_step(&node, kube).next {
                Next::Stop(stopped) => Some(stopped),
                Next::Wait | Next::Send(_) | Next::Drained => None,
            }
        };
        assert_eq!(stopped(|_| {}), None);
        assert_eq!(stopped(|row| row.unschedulable = false), Some(Stopped::Uncordoned));
        assert_eq!(stopped(|row| row.uid = "another".to_owned()), Some(Stopped::Gone));
        let (node, mut kube) = cluster();
        kube.remove_node(&NodeName::new("w1"));
        assert!(matches!(first_step(&node, kube).next, Next::Stop(Stopped::Gone)));
    }

    /// The operator's cordon counts, whatever record of an earlier entry the Node still carries.
    #[test]
    fn the_record_of_an_entry_on_the_node_does_not_stop_the_drain() {
        let (node, mut kube) = cluster();
        let owner = Owner {
            lease: 7,
            entry: EntryId::reboot(0),
            schedulable_before: true,
            uid: node.uid.clone(),
            boot_id: String::new(),
            taken_over_rebooting: false,
            called_done: false,
            since: None,
            recordoned: 1,
        };
        kube.put_node(NodeRow { owner: Some(Ok(owner)), ..node.clone() });
        assert!(matches!(first_step(&node, without_pods(kube)).next, Next::Drained));
    }

    /// The deadline counts from the begin of the drain, and the blocked drain names no entry.
    #[test]
    fn a_drain_is_blocked_after_its_deadline() {
        let (node, kube) = cluster();
        let mut drain = ManualDrain::new(None, &node, now());
        let late = Now { wall: now().wall + jiff::SignedDuration::from_secs(601), ..now() };
        let Next::Stop(Stopped::Blocked(progress)) = drain.step(&Arc::new(kube), &etcd(true, 999.0), late).next else {
            panic!("the drain is over");
        };
        assert_eq!(progress.blockers.len(), 0, "nothing was asked about the pod yet");
        assert!(!progress.reason.unwrap().to_string().contains("reboots/"));
    }
}
