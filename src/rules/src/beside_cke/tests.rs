//! One test for each sentence of CKE's documents, and for what this process remembers.

use std::sync::Arc;

use cketerm_model::{
    boot_time::BootTime,
    cketerm_records::{Order, Verb, Who},
    clock::Now,
    cluster::{Cluster, Members, Node},
    constraints::Constraints,
    entry::{EntryId, Stored},
    kube::{BudgetRow, Controller, KubeView, NodePods, NodeRow, PodRow, SourceState},
    names::Address,
    policy::{ApiServerOrder, Policy, UnreachableRule},
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::view::{Candidate, Definition, StoreView, Switch},
    time::after,
};
use jiff::Timestamp;

use super::{Reading, applies, decision, observe, readings, with_progress};
use crate::snapshot::Snapshot;

mod holds;
mod observed;

use RebootStatus::{Cancelled, Draining, Queued, Rebooting};

fn wall() -> Timestamp {
    "2026-08-01T12:00:00Z".parse().unwrap()
}

fn now() -> Now {
    Now { boot: BootTime::new(1000.0), wall: wall() }
}

fn stored<T>(value: T) -> Stored<T> {
    Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) }
}

fn address(last: u8) -> Address {
    Address::new(format!("10.0.0.{last}"))
}

/// API servers 1 to 3, workers 11 to 15, two reboots at once; CKE leads.
struct Scene {
    store: StoreView,
    kube: KubeView,
    cluster: Cluster,
    policy: Policy,
    constraints: Constraints,
    observed: Snapshot,
}

impl Scene {
    fn new() -> Self {
        let node = |last: u8| Node { address: address(last), control_plane: last < 10, ..Node::default() };
        let mut cluster = Cluster { nodes: (1..=3).chain(11..=15).map(node).collect(), ..Cluster::default() };
        cluster.reboot.reboot_command = Some(vec!["reboot".to_owned()]);
        cluster.reboot.boot_check_command = Some(vec!["check".to_owned()]);
        cluster.reboot.max_concurrent_reboots = Some(2);
        cluster.repair = serde_json::from_value(serde_json::json!({"repair_procedures": [{
            "machine_types": ["t"],
            "repair_operations": [{"operation": "o", "health_check_command": ["h"], "repair_steps": [
                {"repair_command": ["r"], "need_drain": true, "watch_seconds": 60},
            ]}],
        }]}))
        .unwrap();
        let mut kube = KubeView::default();
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
            kube.sources.insert(source.to_owned(), SourceState { synced: true, ..SourceState::default() });
        }
        for node in &cluster.nodes {
            kube.put_node(NodeRow {
                name: node.node_name(),
                addresses: vec![node.address.clone()],
                ready: true,
                boot_id: "before".to_owned(),
                ..NodeRow::default()
            });
            kube.pods.insert(node.node_name(), NodePods { synced: true, ..NodePods::default() });
        }
        let mut store = StoreView { synced: true, ..StoreView::default() };
        let leader = Candidate { key: "leader//7".into(), lease: 7, host: "boot-0".into(), create_revision: 1 };
        store.candidates.insert(1, leader);
        let (policy, constraints) = (Policy::default(), Constraints::default());
        Self { store, kube, cluster, policy, constraints, observed: Snapshot::default() }
    }

    fn entry(mut self, index: u64, last: u8, status: RebootStatus, age: i64) -> Self {
        let entry = RebootEntry::queued(index, &address(last)).moved_to(status, after(wall(), -age));
        self.store.reboots.entries.insert(index, stored(entry));
        self
    }

    fn queued(self, entries: &[(u64, u8)]) -> Self {
        entries.iter().fold(self, |scene, (index, last)| scene.entry(*index, *last, Queued, 0))
    }

    fn backed_off(mut self, index: u64, last: u8, left: i64) -> Self {
        let mut entry = RebootEntry::queued(index, &address(last));
        (entry.drain_backoff_count, entry.drain_backoff_expire) = (2, Some(after(wall(), left)));
        entry.last_transition_time = Some(after(wall(), -60));
        self.store.reboots.entries.insert(index, stored(entry));
        self
    }

    fn repair(mut self, index: u64, last: u8, status: RepairStatus, step_status: StepStatus) -> Self {
        let entry = RepairEntry::queued(index, &address(last), "t", "o", None);
        let entry = entry.moved_to(status, step_status, after(wall(), -10));
        self.store.repairs.entries.insert(index, stored(entry));
        self
    }

    fn node(mut self, last: u8, change: impl FnOnce(&mut NodeRow)) -> Self {
        let mut row = (**self.kube.nodes.get(address(last).as_str()).unwrap()).clone();
        change(&mut row);
        self.kube.put_node(row);
        self
    }

    fn pod(mut self, last: u8, name: &str, change: impl FnOnce(&mut PodRow)) -> Self {
        let mut pod = PodRow {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            phase: "Running".to_owned(),
            ready: true,
            labels: [("app".to_owned(), name.to_owned())].into(),
            ..PodRow::default()
        };
        change(&mut pod);
        self.kube.pods.get_mut(address(last).as_str()).unwrap().pods.insert(pod.uid.clone(), Arc::new(pod));
        self
    }

    fn job_pod(self, last: u8, name: &str) -> Self {
        let controller = Controller { kind: "Job".to_owned(), name: "report".to_owned(), uid: "j".to_owned() };
        self.pod(last, name, |pod| pod.controller = Some(controller))
    }

    /// Budget for the pods of this app: allowed disruptions, healthy, needed and expected pods.
    fn budget(mut self, name: &str, app: &str, [allowed, healthy, needed, pods]: [i32; 4]) -> Self {
        let selector = serde_json::from_value(serde_json::json!({"matchLabels": {"app": app}})).unwrap();
        let (namespace, selector) = ("shop".to_owned(), Some(selector));
        let name = name.to_owned();
        let key = (namespace.clone(), name.clone());
        let row = BudgetRow { namespace, name, selector, allowed, healthy, needed, pods, ..BudgetRow::default() };
        self.kube.budgets.insert(key, Arc::new(row));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn snapshot(&self) -> Snapshot {
        let mut store = self.store.clone();
        let members = Members::of(&self.cluster);
        store.cluster = Some(stored(Definition { cluster: self.cluster.clone(), members }));
        store.policy = Some(stored(self.policy.clone()));
        store.constraints = Some(stored(self.constraints.clone()));
        Snapshot { store: Arc::new(store), kube: Arc::new(self.kube.clone()), ..self.observed.clone() }
    }

    fn read(&self) -> Reading {
        readings(&self.snapshot(), now())
    }

    fn reason(&self, index: u64) -> Reason {
        self.read().reasons.remove(&EntryId::reboot(index)).unwrap()
    }

    fn text(&self, index: u64) -> String {
        self.reason(index).to_string()
    }

    /// Indexes of the reboots that start next.
    fn starts(&self) -> Vec<u64> {
        let ready = |(id, reason): (EntryId, Reason)| (reason == Reason::Ready).then_some(id.index);
        self.read().reasons.into_iter().filter_map(ready).collect()
    }

    /// Looks at the scene once, as a pass does.
    fn observe(mut self) -> Self {
        let mut snap = self.snapshot();
        observe(&mut snap, now());
        self.observed.observed = snap.observed;
        self
    }
}

#[test]
fn a_disabled_queue_is_not_processed() {
    let scene = Scene::new().queued(&[(0, 11)]).entry(1, 12, Draining, 5).entry(2, 13, Rebooting, 5);
    let scene = scene.with(|s| s.store.reboots.switch = Switch { raw: Some("true".to_owned()), mod_revision: 1 });
    assert_eq!((scene.reason(0), scene.reason(1)), (Reason::QueueDisabled, Reason::QueueDisabled));
    assert!(matches!(scene.reason(2), Reason::WaitingForBoot { .. }), "a machine that has booted is removed");
}

#[test]
fn entries_start_from_the_front_one_drain_a_pass_up_to_the_limit() {
    let scene = Scene::new().queued(&[(4, 12), (5, 11), (6, 13)]);
    assert_eq!(scene.starts(), [4]);
    assert!(scene.text(5).contains("one drain a pass"), "{}", scene.text(5));
    assert_eq!(scene.reason(6), Reason::WaitingForSlot { holder: Some(EntryId::reboot(4)), limit: 2, ahead: true });
    assert_eq!(scene.text(6), "waits for a slot (2 in all): reboots/4 starts before it", "no slot is in use");
    let busy = Scene::new().entry(0, 14, Draining, 5).queued(&[(4, 12), (5, 11)]);
    assert_eq!(busy.starts(), [4]);
    assert_eq!(busy.reason(5), Reason::WaitingForSlot { holder: Some(EntryId::reboot(4)), limit: 2, ahead: true });
    let full = Scene::new().entry(0, 14, Draining, 5).entry(1, 13, Rebooting, 5).queued(&[(4, 12)]);
    assert_eq!(full.reason(4), Reason::WaitingForSlot { holder: Some(EntryId::reboot(0)), limit: 2, ahead: false });
}

/// An entry that cannot be read makes every pass of CKE fail: nothing starts next.
#[test]
fn nothing_starts_next_while_an_entry_of_either_queue_cannot_be_read() {
    let scene = || Scene::new().queued(&[(4, 12)]).repair(0, 11, RepairStatus::Queued, StepStatus::Waiting);
    let in_reboots = scene().with(|s| {
        s.store
            .reboots
            .entries
            .insert(9, Stored { key: "k".to_owned(), mod_revision: 1, value: Err("not JSON".to_owned()) });
    });
    let in_repairs = scene().with(|s| {
        s.store
            .repairs
            .entries
            .insert(7, Stored { key: "k".to_owned(), mod_revision: 1, value: Err("not JSON".to_owned()) });
    });
    for (scene, id) in [(in_reboots, "reboots/9"), (in_repairs, "repairs/7")] {
        let text = format!("{id} is unreadable: every pass of CKE fails");
        assert_eq!((scene.text(4), scene.starts()), (text.clone(), Vec::new()));
        assert_eq!(scene.read().reasons[&EntryId::repair(0)].to_string(), text);
    }
}

#[test]
fn only_the_first_entry_of_a_machine_counts() {
    let scene = Scene::new().queued(&[(0, 11), (3, 11)]).entry(4, 11, Draining, 5).queued(&[(5, 12)]);
    assert_eq!(scene.starts(), [0], "the later drain takes no slot in CKE");
    assert_eq!(
        (scene.reason(3), scene.reason(4)),
        (Reason::DuplicateOf { index: 0 }, Reason::DuplicateOf { index: 0 })
    );
}

#[test]
fn an_entry_waits_for_the_end_of_its_backoff() {
    let scene = Scene::new().backed_off(0, 11, 60).backed_off(1, 12, -60);
    assert_eq!(scene.starts(), [1]);
    assert_eq!(scene.reason(0), Reason::Backoff { count: 2, until: after(wall(), 60), cause: None, tried: None });
    let held = scene.job_pod(11, "report-x");
    assert!(
        held.text(0).ends_with("pod shop/report-x belongs to running protected job shop/report"),
        "{}",
        held.text(0)
    );
    assert!(held.read().watch_pods.contains("10.0.0.11"), "its pods show what refuses the next drain");
}

#[test]
fn machines_outside_the_definition_and_cancelled_entries_are_removed_first() {
    let scene = Scene::new().queued(&[(0, 99), (1, 11)]);
    assert_eq!(scene.reason(0), Reason::NotMember { address: address(99) });
    assert!(scene.text(1).contains("remove entries") && scene.starts().is_empty());
    let cancelled = Scene::new().entry(0, 12, Cancelled, 5).queued(&[(1, 11)]);
    assert!(cancelled.text(0).contains("cancelled") && cancelled.starts().is_empty());
}

#[test]
fn too_many_unreachable_nodes_outside_the_reboots_hold_back_every_start() {
    let scene = Scene::new().queued(&[(0, 11)]).entry(1, 12, Rebooting, 5).node(12, |n| n.ready = false);
    assert_eq!(scene.starts(), [0]);
    let down = scene.node(13, |n| n.ready = false);
    assert_eq!(down.text(0), "1 node unreachable, limit 0: 10.0.0.13");
    let allowed = down.with(|s| s.constraints.maximum_unreachable_nodes_for_reboot = 1);
    assert_eq!(allowed.starts(), [0]);
    let older = allowed.with(|s| s.policy.unreachable_rule = UnreachableRule::All);
    assert_eq!(older.text(0), "2 nodes unreachable, limit 1: 10.0.0.12, 10.0.0.13", "the older CKE counts every node");
}

#[test]
fn api_servers_go_last_and_alone() {
    let both = Scene::new().queued(&[(0, 1), (1, 2), (2, 11)]);
    assert_eq!(both.starts(), [2]);
    assert_eq!(both.reason(0), Reason::WaitingForWorkers { holder: EntryId::reboot(2) });
    let alone = Scene::new().queued(&[(0, 1), (1, 2)]);
    assert_eq!(alone.starts(), [0]);
    assert_eq!(alone.reason(1), Reason::WaitingForControlPlane { other: "10.0.0.1".to_owned() });
    let beside = Scene::new().queued(&[(0, 1)]).entry(1, 11, Rebooting, 5);
    assert_eq!(beside.reason(0), Reason::WaitingForWorkers { holder: EntryId::reboot(1) });
    let busy = Scene::new().queued(&[(0, 11), (1, 2)]).entry(2, 3, Draining, 5);
    assert_eq!(busy.reason(0), Reason::WaitingForControlPlane { other: "10.0.0.3".to_owned() });
    assert_eq!(busy.reason(1), busy.reason(0));
    let older = both.with(|s| s.policy.api_server_order = ApiServerOrder::First);
    assert_eq!(older.starts(), [0], "the older CKE processes API servers first");
}

#[test]
fn uncordoning_and_repairs_come_before_reboots() {
    let marked = Scene::new().queued(&[(0, 11)]).node(12, |n| n.cke_mark = true);
    assert_eq!(marked.text(0), "waits for CKE to uncordon 10.0.0.12");
    let claimed = marked.entry(1, 12, Rebooting, 5);
    assert_eq!(claimed.starts(), [0]);
    let repairs = claimed.repair(7, 14, RepairStatus::Queued, StepStatus::Waiting);
    assert_eq!(repairs.reason(0), Reason::WaitingForRepairs { entry: EntryId::repair(7) });
    let failed = Scene::new().queued(&[(0, 11)]).repair(7, 14, RepairStatus::Failed, StepStatus::Watching);
    assert_eq!(failed.starts(), [0], "a repair that has ended holds back nothing");
}

#[test]
fn without_kubernetes_the_reading_says_what_is_unknown() {
    let scene = Scene::new().queued(&[(0, 11)]).entry(1, 12, Draining, 5).with(|s| s.kube = KubeView::default());
    assert!(scene.text(0).contains("without Kubernetes") && scene.text(1).contains("without Kubernetes"));
    assert!(scene.read().watch_pods.is_empty());
}

#[test]
fn only_pods_of_nodes_that_cke_drains_or_starts_next_are_watched() {
    let scene = Scene::new().queued(&[(0, 11)]).entry(1, 12, Draining, 5).entry(2, 13, Rebooting, 5);
    let scene = scene.queued(&[(3, 15), (4, 16)]).repair(0, 14, RepairStatus::Processing, StepStatus::Draining);
    let watched: Vec<String> = scene.read().watch_pods.iter().map(ToString::to_string).collect();
    assert_eq!(watched, ["10.0.0.11", "10.0.0.12", "10.0.0.14", "10.0.0.15"], "two of those that wait");
    let (decision, reading) = decision(&scene.snapshot(), now());
    assert_eq!(decision.watch_pods, reading.unwrap().watch_pods);
    assert!(decision.effects.is_empty());
    let many = (0..5).zip(11..).fold(Scene::new(), |s, (index, last)| s.backed_off(index, last, 60));
    assert_eq!(many.read().watch_pods.len(), 5, "the backed-off ones too, at most ten");
}

#[test]
fn repairs_start_in_ckes_order_and_the_watch_shows_its_end() {
    let scene = Scene::new().repair(0, 11, RepairStatus::Queued, StepStatus::Waiting).repair(
        1,
        1,
        RepairStatus::Queued,
        StepStatus::Waiting,
    );
    let reasons = scene.read().reasons;
    assert_eq!(reasons[&EntryId::repair(1)], Reason::Ready, "API servers first");
    assert!(matches!(reasons[&EntryId::repair(0)], Reason::WaitingForSlot { limit: 1, .. }));
    let busy = scene.entry(0, 2, Rebooting, 5).read().reasons;
    assert_eq!(busy[&EntryId::repair(1)], Reason::WaitingForControlPlane { other: "10.0.0.2".to_owned() });
    let watching = Scene::new().repair(0, 11, RepairStatus::Processing, StepStatus::Watching).read();
    let Reason::WaitingForHealth { step: 0, until, .. } = &watching.reasons[&EntryId::repair(0)] else { panic!() };
    assert_eq!(*until, Some(after(wall(), 50)));
}

#[test]
fn i52_an_ignored_order_stays_the_reason_and_cketerms_policy_does_not_count() {
    let order = Order {
        verb: Verb::Hold,
        who: Who { user: "ann".to_owned(), host: "h".to_owned(), ssh_client: None },
        at: wall(),
        reason: None,
        entry_revision: 1,
    };
    let scene = Scene::new().queued(&[(0, 11), (1, 12)]).with(|s| {
        s.store.orders.insert(EntryId::reboot(0), stored(order));
        let freeze = serde_json::json!({"until": "2026-08-02T00:00:00Z", "reason": "x"});
        s.policy.freeze = serde_json::from_value(freeze).ok();
    });
    assert!(scene.policy.freeze.is_some());
    let (decision, _) = decision(&scene.snapshot(), now());
    assert!(matches!(decision.reasons[&EntryId::reboot(0)], Reason::OrderIgnored { .. }));
    assert_eq!(scene.starts(), [0], "CKE starts what is on hold");
}

#[test]
fn the_reading_applies_only_while_cke_leads() {
    let scene = Scene::new().entry(0, 11, Draining, 5);
    let snap = scene.snapshot();
    assert!(applies(&snap.store));
    let shown = with_progress(&snap.store, &scene.read());
    assert!(shown.progress.contains_key(&EntryId::reboot(0)) && snap.store.progress.is_empty());
    let nobody = scene.with(|s| s.store.candidates.clear());
    assert!(!applies(&nobody.snapshot().store));
    assert!(decision(&nobody.snapshot(), now()).1.is_none());
    let mut snap = nobody.snapshot();
    snap.observed.insert(EntryId::reboot(0), crate::snapshot::Observed::default());
    observe(&mut snap, now());
    assert!(snap.observed.is_empty());
}

#[test]
fn a_definition_without_both_commands_is_not_processed() {
    let reason =
        |change: &dyn Fn(&mut Cluster)| Scene::new().queued(&[(0, 11)]).with(|s| change(&mut s.cluster)).reason(0);
    let missing = |field: &str| Reason::NoCommand { field: field.to_owned() };
    assert_eq!(reason(&|cluster| cluster.reboot.reboot_command = None), missing("reboot.reboot_command"));
    assert_eq!(
        reason(&|cluster| cluster.reboot.boot_check_command = Some(Vec::new())),
        missing("reboot.boot_check_command")
    );
}

#[test]
fn a_repair_outside_the_definition_is_none_of_an_api_server() {
    let scene = Scene::new().repair(0, 99, RepairStatus::Queued, StepStatus::Waiting);
    let reasons = scene.repair(1, 1, RepairStatus::Queued, StepStatus::Waiting).read().reasons;
    assert_eq!(reasons[&EntryId::repair(1)], Reason::Ready, "API servers first");
}
