//! A small cluster for the tests: 3 API servers `10.0.0.1`–`3`, workers from `10.0.0.11`, all Ready with good probes.

use std::sync::Arc;

use cketerm_model::{
    attempt::{Attempt, CheckAnswer, Ended, Outcome},
    boot_time::{BootTime, Seconds},
    cketerm_records::{Order, Verb, Who},
    clock::Now,
    cluster::{Cluster, Members, Node},
    constraints::Constraints,
    drain::{Answer, Verdict},
    entry::{EntryId, Stored},
    kube::{BudgetRow, Controller, KubeView, NodePods, NodeRow, Owner, PodRow, SourceState},
    names::{Address, NodeName},
    policy::{EtcdMembers, Policy},
    reason::{PodHold, Reason},
    reboot::{RebootEntry, RebootStatus},
    stored::view::{Candidate, Definition, StoreView, Switch},
    time::after,
};
use jiff::Timestamp;

use crate::{
    decide::{Decision, Effect, End, decide},
    snapshot::{Engine, FreshRead, Leading, Probe, Snapshot, Work},
};

pub(super) const LEASE: i64 = 7;
pub(super) const BOOT: BootTime = BootTime::new(100_000.0);

pub(super) fn now() -> Timestamp {
    "2026-08-01T12:00:00Z".parse().unwrap()
}

#[derive(Clone)]
pub(super) struct Scene {
    pub store: StoreView,
    pub kube: KubeView,
    pub snap: Snapshot,
    pub policy: Policy,
    pub cluster: Cluster,
    pub constraints: Constraints,
    pub boot: BootTime,
}

pub(super) fn stored<T>(key: &str, revision: i64, value: T) -> Stored<T> {
    Stored { key: key.to_owned(), mod_revision: revision, value: Ok(Arc::new(value)) }
}

impl Scene {
    pub(super) fn new(workers: u8) -> Self {
        let mut cluster = Cluster { name: "test".to_owned(), ..Cluster::default() };
        for i in (1..=3).chain(11..11 + workers) {
            cluster.nodes.push(Node {
                address: Address::new(format!("10.0.0.{i}")),
                control_plane: i < 10,
                ..Node::default()
            });
        }
        cluster.reboot.reboot_command = Some(vec!["reboot".to_owned()]);
        cluster.reboot.boot_check_command = Some(vec!["check".to_owned()]);
        let mut kube = KubeView { rights_known: true, ..KubeView::default() };
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets", "endpoints", "baremetalhosts"] {
            kube.sources.insert(
                source.to_owned(),
                SourceState { synced: true, last_seen: BOOT, fresh_as_of: BOOT, error: None, forbidden: false },
            );
        }
        let mut snap = Snapshot {
            engine: Engine {
                host: "here".to_owned(),
                lease: LEASE,
                leading: Some(Leading {
                    key: "leader//7".to_owned(),
                    create_revision: 2,
                    since: BOOT - Seconds::new(1000.0),
                    acknowledged: BOOT,
                }),
                ttl: 60,
                ..Engine::default()
            },
            ..Snapshot::default()
        };
        for node in &cluster.nodes {
            kube.put_node(NodeRow {
                name: node.node_name(),
                uid: format!("uid-{}", node.address),
                resource_version: "1".to_owned(),
                addresses: vec![node.address.clone()],
                ready: true,
                boot_id: "before".to_owned(),
                ..NodeRow::default()
            });
            kube.pods.insert(node.node_name(), NodePods { synced: true, fresh_as_of: BOOT, ..NodePods::default() });
            if node.control_plane {
                let probe = Probe {
                    last_good: Some(BOOT),
                    good_since: Some(BootTime::ZERO),
                    error: None,
                    not_known: None,
                    url: "https://x".to_owned(),
                };
                snap.probes.insert(node.address.clone(), probe);
            }
        }
        let store = StoreView { synced: true, last_seen: BOOT, revision: 50, ..StoreView::default() };
        // These control planes host no etcd members.
        let policy = Policy { etcd_members: EtcdMembers::None, ..Policy::default() };
        Self { store, kube, snap, policy, cluster, constraints: Constraints::default(), boot: BOOT }
    }

    pub(super) fn address(last: u8) -> String {
        format!("10.0.0.{last}")
    }

    /// Adds an entry in this status since `age` seconds ago.
    pub(super) fn entry(mut self, index: u64, last: u8, status: RebootStatus, age: i64) -> Self {
        let mut entry =
            RebootEntry::queued(index, &Address::new(Self::address(last))).moved_to(status, after(now(), -age));
        if status == RebootStatus::Queued {
            entry.last_transition_time = None;
        }
        let key = format!("/cke/reboots/data/{index:016x}");
        self.store.reboots.entries.insert(index, stored(&key, 10, entry));
        self
    }

    pub(super) fn queued(self, entries: &[(u64, u8)]) -> Self {
        entries.iter().fold(self, |scene, (index, last)| scene.entry(*index, *last, RebootStatus::Queued, 0))
    }

    pub(super) fn change(mut self, index: u64, change_fn: impl FnOnce(&mut RebootEntry)) -> Self {
        let slot = self.store.reboots.entries.get_mut(&index).unwrap();
        let mut entry = slot.get().unwrap().clone();
        change_fn(&mut entry);
        slot.value = Ok(Arc::new(entry));
        self
    }

    /// A drain in progress: cordoned with cketerm's record, pods known.
    pub(super) fn draining(self, index: u64, last: u8, age: i64) -> Self {
        let id = EntryId::reboot(index);
        let mut scene = self.entry(index, last, RebootStatus::Draining, age);
        scene.snap.work.entry(id).or_default();
        scene.cordoned(last, index)
    }

    /// A reboot in progress: cordoned, with an attempt from `age` seconds ago and this end (`None` = still open).
    pub(super) fn rebooting(self, index: u64, last: u8, age: i64, end: Option<Ended>) -> Self {
        let scene = self.entry(index, last, RebootStatus::Rebooting, age).cordoned(last, index);
        scene.attempt(index, last, 1, LEASE, age, end)
    }

    pub(super) fn attempt(
        mut self,
        index: u64,
        last: u8,
        number: u32,
        lease: i64,
        age: i64,
        end: Option<Ended>,
    ) -> Self {
        let id = EntryId::reboot(index);
        let attempt = Attempt {
            id: format!("reboots-{index}-{number}"),
            entry: id,
            number,
            step: None,
            success: false,
            machine_type: None,
            operation: None,
            address: Address::new(Self::address(last)),
            node: Some(NodeName::new(Self::address(last))),
            control_plane: last < 10,
            lease,
            host: "here".to_owned(),
            argv: vec!["reboot".to_owned(), Self::address(last)],
            bound_seconds: 30,
            boot_id: Some("before".to_owned()),
            not_ready: false,
            node_uid: Some(format!("uid-{}", Self::address(last))),
            start: after(now(), -age),
            drain_start: Some(after(now(), -age - 60)),
            forced: false,
            ordered_by: None,
            done_by: None,
            folded: 0,
            outcome: end.map(|end| Outcome {
                end,
                at: after(now(), 1 - age),
                stdout: String::new(),
                stderr: "oops".to_owned(),
            }),
        };
        self.store.attempts.insert((id, number), stored("attempt", 11, attempt));
        self
    }

    pub(super) fn node(mut self, last: u8, change_fn: impl FnOnce(&mut NodeRow)) -> Self {
        let mut row = (**self.kube.nodes.get(Self::address(last).as_str()).unwrap()).clone();
        change_fn(&mut row);
        self.kube.put_node(row);
        self
    }

    pub(super) fn cordoned(self, last: u8, index: u64) -> Self {
        self.node(last, |n| {
            n.unschedulable = true;
            n.cke_mark = true;
            n.owner = Some(Ok(Owner {
                lease: LEASE,
                entry: EntryId::reboot(index),
                schedulable_before: true,
                uid: n.uid.clone(),
                boot_id: "before".to_owned(),
                taken_over_rebooting: false,
                called_done: false,
                since: None,
                recordoned: 0,
            }));
        })
    }

    pub(super) fn owner(self, last: u8, change_fn: impl FnOnce(&mut Owner)) -> Self {
        self.node(last, |n| {
            let mut owner = n.owner().unwrap().clone();
            change_fn(&mut owner);
            n.owner = Some(Ok(owner));
        })
    }

    /// The machine has recovered: a new boot id, Ready.
    pub(super) fn booted(self, last: u8) -> Self {
        self.node(last, |n| n.boot_id = "after".to_owned())
    }

    pub(super) fn checked(mut self, index: u64, answer: CheckAnswer, recovered_for: Option<f64>) -> Self {
        let work: &mut Work = self.snap.work.entry(EntryId::reboot(index)).or_default();
        work.check = Some((self.boot - Seconds::new(0.2), answer));
        work.recovered_since = recovered_for.map(|s| self.boot - Seconds::new(s));
        self
    }

    pub(super) fn pod(mut self, last: u8, name: &str, change_fn: impl FnOnce(&mut PodRow)) -> Self {
        let mut pod = PodRow {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            node: NodeName::new(Self::address(last)),
            phase: "Running".to_owned(),
            ready: true,
            labels: [("app".to_owned(), name.to_owned())].into(),
            ..PodRow::default()
        };
        change_fn(&mut pod);
        let pods = self.kube.pods.get_mut(Self::address(last).as_str()).unwrap();
        pods.pods.insert(pod.uid.clone(), Arc::new(pod));
        self
    }

    pub(super) fn budget(mut self, name: &str, app: &str) -> Self {
        let selector = serde_json::from_value(serde_json::json!({"matchLabels": {"app": app}})).unwrap();
        let budget = BudgetRow {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            resource_version: "5".to_owned(),
            selector: Some(selector),
            allowed: 0,
            healthy: 1,
            needed: 1,
            pods: 2,
            ..BudgetRow::default()
        };
        self.kube.budgets.insert(("shop".to_owned(), name.to_owned()), Arc::new(budget));
        self
    }

    pub(super) fn work(mut self, index: u64, change_fn: impl FnOnce(&mut Work)) -> Self {
        change_fn(self.snap.work.entry(EntryId::reboot(index)).or_default());
        self
    }

    pub(super) fn answered(self, index: u64, pod: &str, verdict: Verdict) -> Self {
        let at = self.boot - Seconds::new(0.5);
        let budgets = [("shop/web".to_owned(), "5".to_owned())].into();
        self.work(index, |w| {
            w.drain.previewed = true;
            w.drain.answers.insert(format!("uid-{pod}"), Answer { verdict, at, budgets, undecided: 0 });
        })
    }

    pub(super) fn order(mut self, index: u64, verb: Verb, revision: i64) -> Self {
        let order = Order {
            verb,
            who: Who { user: "ann".to_owned(), host: "h".to_owned(), ssh_client: None },
            at: now(),
            reason: Some("T-1".to_owned()),
            entry_revision: revision,
        };
        self.store.orders.insert(EntryId::reboot(index), stored("order", 12, order));
        self
    }

    /// The record of another lease on this Node was first seen at this time.
    pub(super) fn foreign(mut self, last: u8, lease: i64, seen: BootTime) -> Self {
        self.snap.foreign.insert(NodeName::new(Self::address(last)), (lease, seen));
        self
    }

    /// The last acknowledged keep-alive was sent at this time.
    pub(super) fn acknowledged(mut self, at: BootTime) -> Self {
        if let Some(leading) = &mut self.snap.engine.leading {
            leading.acknowledged = at;
        }
        self
    }

    /// This engine observes, and the cketerm engine with lease 9 leads.
    pub(super) fn led_by_another_engine(self) -> Self {
        let text = serde_json::json!({"host": "there", "pid": 1, "version": "0.2.0", "mode": "daemon"});
        let mut scene = self.led_by_cke();
        scene.store.engines.insert(9, stored("engine", 5, serde_json::from_value(text).unwrap()));
        scene
    }

    /// This engine observes, and CKE leads.
    pub(super) fn led_by_cke(mut self) -> Self {
        self.snap.engine.leading = None;
        let (key, host) = ("leader//9".to_owned(), "there".to_owned());
        self.store.candidates.insert(3, Candidate { key, lease: 9, host, create_revision: 3 });
        self
    }

    pub(super) fn disabled(mut self) -> Self {
        self.store.reboots.switch = Switch { raw: Some("true".to_owned()), mod_revision: 3 };
        self
    }

    /// An operator ended the entry with `done`, and the entry is gone.
    pub(super) fn called_done(mut self, index: u64, number: u32) -> Self {
        let stored = self.store.attempts.get_mut(&(EntryId::reboot(index), number)).unwrap();
        Arc::make_mut(stored.value.as_mut().unwrap()).done_by = Some("alice@here".to_owned());
        self
    }

    pub(super) fn with(mut self, change_fn: impl FnOnce(&mut Self)) -> Self {
        change_fn(&mut self);
        self
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut store = self.store.clone();
        let definition = Definition { members: Members::of(&self.cluster), cluster: self.cluster.clone() };
        store.cluster = Some(stored("/cke/cluster", 4, definition));
        store.policy = Some(stored("/cke/cketerm/policy", 4, self.policy.clone()));
        store.constraints = Some(stored("/cke/constraints", 4, self.constraints.clone()));
        Snapshot { store: Arc::new(store), kube: Arc::new(self.kube.clone()), ..self.snap.clone() }
    }

    /// Decides with fresh answers of the API server that match the cache.
    pub(super) fn decide(&self) -> Decision {
        let mut answered = self.clone();
        loop {
            let decision = answered.first_decision();
            let asked = decision.effects.iter().filter_map(|p| match (&p.effect, p.entry) {
                (Effect::Recheck { node, pods, .. }, Some(id)) => Some((id, self.fresh(node, *pods))),
                _ => None,
            });
            let asked: Vec<_> =
                asked.filter(|(id, _)| answered.snap.work.get(id).is_none_or(|w| w.fresh.is_none())).collect();
            if asked.is_empty() {
                return decision;
            }
            for (id, fresh) in asked {
                answered.snap.work.entry(id).or_default().fresh = Some(fresh);
            }
        }
    }

    /// Decides without fresh answers.
    pub(super) fn first_decision(&self) -> Decision {
        decide(&self.snapshot(), Now { boot: self.boot, wall: now() })
    }

    /// Returns fresh answers that match the cache.
    pub(super) fn fresh(&self, node: &str, pods: bool) -> FreshRead {
        let all = || self.kube.pods.get(node).map(|p| p.pods.values().cloned().collect()).unwrap_or_default();
        FreshRead { at: self.boot, node: self.kube.by_name.get(node).cloned(), pods: pods.then(all) }
    }

    pub(super) fn reason(&self, index: u64) -> Reason {
        self.decide()
            .reasons
            .get(&EntryId::reboot(index))
            .cloned()
            .unwrap_or_else(|| panic!("entry {index} has no reason (I32)"))
    }

    /// Returns the indexes of the entries whose drain starts.
    pub(super) fn starts(&self) -> Vec<u64> {
        self.decide().effects.iter().filter(|p| p.effect.starts()).filter_map(|p| p.entry).map(|e| e.index).collect()
    }

    /// Returns the name of the effect for one entry.
    pub(super) fn does(&self, index: u64) -> Option<&'static str> {
        let id = EntryId::reboot(index);
        self.decide().effects.iter().find(|p| p.entry == Some(id)).map(|p| p.effect.as_str())
    }

    pub(super) fn effect(&self, index: u64) -> Option<Effect> {
        let id = EntryId::reboot(index);
        self.decide().effects.into_iter().find(|p| p.entry == Some(id)).map(|p| p.effect)
    }

    pub(super) fn ends(&self, index: u64) -> Option<End> {
        match self.effect(index) {
            Some(Effect::Remove { end, .. }) => Some(end),
            _ => None,
        }
    }
}

#[allow(clippy::unnecessary_wraps)] // as the field has it
pub(super) fn controlled(kind: &str, name: &str) -> Option<Controller> {
    Some(Controller { kind: kind.to_owned(), name: name.to_owned(), uid: format!("uid-{kind}-{name}") })
}

pub(super) fn refused_by_budget() -> Verdict {
    let hold = PodHold::Budget { budget: "shop/web".to_owned(), healthy: 1, needed: 1, cause: None };
    Verdict::Held { hold, retry_after: None }
}
