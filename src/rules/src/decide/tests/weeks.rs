//! Seven weeks in seconds: 500 machines in 20 racks, windows in two nights a week, a freeze, a stuck rack, and both
//! changes of the clock that Morocco makes around Ramadan. The rules decide; a small model of etcd, Kubernetes and
//! machines carries out the effects. The test computes the allowed times from local wall time, independently of the
//! code under test.

mod site;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    any::QueueEntry,
    boot_time::{BootTime, Seconds},
    clock::Now,
    cluster::{Cluster, Members, Node},
    entry::EntryId,
    freeze::Groups,
    kube::{KubeView, NodePods, NodeRow, PodRow, SourceState},
    names::{Address, NodeName},
    policy::{EtcdMembers, Policy},
    reboot::RebootEntry,
    stored::view::{Definition, StoreView},
    time::{after, seconds_between},
    window::Windows,
};
use jiff::{Timestamp, Zoned, tz::TimeZone};

use super::scene::{LEASE, stored};
use crate::{
    decide::decide,
    memory::observe,
    snapshot::{Engine, Leading, Probe, Snapshot},
};

const MACHINES: usize = 500;
const RACKS: usize = 20;
const LIMIT: usize = 4;
const START: &str = "2026-02-09T12:00:00Z";
/// Two machines of rack 7 do not recover between these times.
const OUTAGE: [&str; 2] = ["2026-02-28T00:00:00Z", "2026-03-20T12:30:00Z"];
const FROZEN: [&str; 2] = ["2026-02-22T02:30:00Z", "2026-02-25T20:00:00Z"];

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns true in the allowed nights by local wall time: nights to Sunday and Wednesday, from 1 to 5 o'clock.
fn allowed(now: Timestamp) -> bool {
    let local: Zoned = now.to_zoned(TimeZone::get("Africa/Casablanca").unwrap());
    let night = ["Sun", "Wed"].contains(&local.strftime("%a").to_string().as_str()) && (1..5).contains(&local.hour());
    night && !(now >= at(FROZEN[0]) && now < at(FROZEN[1]))
}

/// Events that the site causes by itself.
#[derive(Clone, Debug)]
enum SimEvent {
    Left(String, String),
    CommandEnds(EntryId, u32),
    Boots(String),
    Checked(EntryId, String),
    Freeze,
    Recovered,
    Nothing,
}

struct Weeks {
    snap: Snapshot,
    wall: Timestamp,
    happens: BTreeMap<(Timestamp, u64), SimEvent>,
    numbers: u64,
    revision: i64,
    rng: fastrand::Rng,
    dead: BTreeSet<String>,
    totals: Totals,
}

/// Statistics of the run.
#[derive(Debug, Default)]
struct Totals {
    passes: u32,
    drains: u32,
    powers: BTreeMap<EntryId, u32>,
    unwound: u32,
    ended_outside: u32,
    /// Days, by local date, on which a drain started.
    nights: BTreeSet<String>,
    /// Starts while the rack was stuck.
    beside_the_stuck: u32,
}

fn address(i: usize) -> String {
    format!("10.{}.{}.{}", i / 62_500, i / 250 % 250, i % 250 + 1)
}

fn rack(i: usize) -> String {
    (i / (MACHINES / RACKS)).to_string()
}

impl Weeks {
    fn begin() -> Self {
        let mut cluster = Cluster { name: "weeks".to_owned(), ..Cluster::default() };
        cluster.reboot.reboot_command = Some(vec!["reboot".to_owned()]);
        cluster.reboot.boot_check_command = Some(vec!["check".to_owned()]);
        cluster.reboot.max_concurrent_reboots = Some(i64::try_from(LIMIT).unwrap());
        cluster.reboot.command_timeout_seconds = Some(60);
        // Every pod may be evicted.
        let nothing = serde_json::json!({"matchLabels": {"protected": "yes"}});
        cluster.reboot.protected_namespaces = serde_json::from_value(nothing).unwrap();
        let mut kube = KubeView { rights_known: true, ..KubeView::default() };
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets", "endpoints"] {
            kube.sources.insert(
                source.to_owned(),
                SourceState {
                    synced: true,
                    last_seen: BootTime::ZERO,
                    fresh_as_of: BootTime::ZERO,
                    error: None,
                    forbidden: false,
                },
            );
        }
        let mut snap = Snapshot::default();
        let mut store = StoreView { synced: true, revision: 1, ..StoreView::default() };
        for i in 0..MACHINES {
            let plane = i % 200 == 0;
            let (address, labels) = (address(i), [("cke.cybozu.com/rack".to_owned(), rack(i))].into());
            cluster.nodes.push(Node {
                address: Address::new(address.clone()),
                control_plane: plane,
                labels: Some(labels),
                ..Node::default()
            });
            kube.put_node(NodeRow {
                name: NodeName::new(address.clone()),
                uid: format!("uid-{address}"),
                addresses: vec![Address::new(address.clone())],
                ready: true,
                boot_id: "b0".to_owned(),
                ..NodeRow::default()
            });
            kube.pods.insert(
                NodeName::new(address.clone()),
                NodePods { synced: true, fresh_as_of: BootTime::new(1e12), ..NodePods::default() },
            );
            if plane {
                let probe = Probe {
                    last_good: None,
                    good_since: Some(BootTime::ZERO),
                    error: None,
                    not_known: None,
                    url: "u".to_owned(),
                };
                snap.probes.insert(Address::new(address.clone()), probe);
            }
            let index = u64::try_from(i).unwrap();
            // Not in the order of racks, so that the groups have to sort them.
            let other = Self::shuffled(i);
            let entry = RebootEntry::queued(index, &Address::new(self::address(other)));
            store.reboots.entries.insert(index, stored("entry", 1, entry));
        }
        let windows = "time_zone: Africa/Casablanca\nallow: ['* 1-4 * * sun,wed']";
        let policy = Policy {
            windows: Some(Windows::read(windows).unwrap()),
            groups: Some(Groups::read("by: rack").unwrap()),
            etcd_members: EtcdMembers::None,
            ..Policy::default()
        };
        store.policy = Some(stored("policy", 2, policy));
        store.cluster = Some(stored("cluster", 2, Definition { members: Members::of(&cluster), cluster }));
        let leading = Leading {
            key: "leader//7".to_owned(),
            create_revision: 2,
            since: BootTime::ZERO,
            acknowledged: BootTime::ZERO,
        };
        snap.engine = Engine { lease: LEASE, leading: Some(leading), ttl: 60, ..Engine::default() };
        (snap.store, snap.kube) = (Arc::new(store), Arc::new(kube));
        let mut weeks = Self {
            snap,
            wall: at(START),
            happens: BTreeMap::new(),
            numbers: 0,
            revision: 10,
            rng: fastrand::Rng::with_seed(1),
            dead: [7 * 25 + 3, 7 * 25 + 9].into_iter().map(self::address).collect(),
            totals: Totals::default(),
        };
        for i in 0..MACHINES {
            weeks.pod(&self::address(i));
        }
        weeks.schedule(seconds_between(weeks.wall, at(FROZEN[0])), SimEvent::Freeze);
        weeks.schedule(seconds_between(weeks.wall, at(OUTAGE[1])), SimEvent::Recovered);
        weeks
    }

    /// Returns a machine, rack by rack, except for pairs that are swapped over half of the site. The turn of the dead
    /// machines of rack 7 is early in March.
    fn shuffled(i: usize) -> usize {
        if i % 10 == 5 { (i + MACHINES / 2) % MACHINES } else { i }
    }

    #[allow(clippy::cast_possible_truncation)] // whole seconds
    fn schedule(&mut self, span: Seconds, what: SimEvent) {
        self.numbers += 1;
        self.happens.insert((after(self.wall, span.get().ceil() as i64), self.numbers), what);
    }

    fn store(&mut self) -> &mut StoreView {
        Arc::make_mut(&mut self.snap.store)
    }

    fn kube(&mut self) -> &mut KubeView {
        Arc::make_mut(&mut self.snap.kube)
    }

    fn boot(&self) -> BootTime {
        BootTime::new(1000.0) + seconds_between(at(START), self.wall)
    }

    fn node(&mut self, name: &str, how: impl FnOnce(&mut NodeRow)) {
        let mut row = NodeRow::clone(&self.snap.kube.nodes[name]);
        how(&mut row);
        self.kube().put_node(row);
    }

    fn pod(&mut self, node: &str) {
        self.numbers += 1;
        let pod = PodRow {
            namespace: "shop".to_owned(),
            name: format!("web-{}", self.numbers),
            uid: format!("pod-{}", self.numbers),
            node: NodeName::new(node),
            phase: "Running".to_owned(),
            ready: true,
            ..PodRow::default()
        };
        let pods = self.kube().pods.get_mut(node).unwrap();
        pods.pods.insert(pod.uid.clone(), Arc::new(pod));
    }

    /// Every source was heard just now.
    fn refresh(&mut self) {
        let boot = self.boot();
        let store = self.store();
        store.last_seen = boot;
        store.revision += 1;
        let sources = self.snap.kube.sources.clone();
        for name in sources.keys() {
            self.kube().sources.insert(
                name.clone(),
                SourceState { synced: true, last_seen: boot, fresh_as_of: boot, error: None, forbidden: false },
            );
        }
        self.snap.engine.leading.as_mut().unwrap().acknowledged = boot;
        for (address, probe) in &mut self.snap.probes {
            let ready = self.snap.kube.nodes[address.as_str()].ready;
            probe.last_good = Some(boot).filter(|_| ready).or(probe.last_good);
            probe.good_since = if ready { probe.good_since.or(Some(boot)) } else { None };
            probe.error = (!ready).then(|| "refused".to_owned());
        }
    }

    fn put(&mut self, entry: &QueueEntry) {
        let QueueEntry::Reboot(entry) = entry else { panic!("an unexpected repair entry") };
        self.revision += 1;
        let revision = self.revision;
        self.store().reboots.entries.insert(entry.index, stored("entry", revision, entry.clone()));
    }

    /// Runs passes and carries out their effects until nothing more can be done at this moment.
    fn pass(&mut self) -> Option<Seconds> {
        loop {
            self.refresh();
            let now = Now { boot: self.boot(), wall: self.wall };
            observe(&mut self.snap, now);
            let decision = decide(&self.snap, now);
            self.totals.passes += 1;
            for index in self.snap.store.reboots.entries.keys() {
                assert!(decision.reasons.contains_key(&EntryId::reboot(*index)), "I32: {index} at {}", self.wall);
            }
            if decision.effects.is_empty() {
                return decision.wake.map(|wake| wake - self.boot());
            }
            for planned in decision.effects {
                self.execute(planned, now);
            }
            self.judge();
        }
    }

    /// Runs to the end of the queue. Time jumps from one event to the next.
    fn run(&mut self) {
        loop {
            let wake = self.pass();
            if self.snap.store.reboots.entries.is_empty() {
                return;
            }
            if let Some(span) = wake {
                self.schedule(span.max(Seconds::new(1.0)), SimEvent::Nothing);
            }
            let Some(((when, _), what)) = self.happens.pop_first() else {
                panic!("I33: no further event, but {} entries wait", self.snap.store.reboots.entries.len())
            };
            self.wall = self.wall.max(when);
            self.handle_event(what);
            // All events of the same moment belong to one pass.
            while let Some(next) = self.happens.first_entry().filter(|next| next.key().0 <= after(self.wall, 2)) {
                let what = next.remove();
                self.handle_event(what);
            }
            assert!(
                self.wall < at("2026-04-15T00:00:00Z"),
                "I33: {} entries still wait",
                self.snap.store.reboots.entries.len()
            );
        }
    }
}

#[test]
fn i8_500_machines_reboot_over_seven_weeks_of_windows_freeze_and_dst_changes() {
    let mut weeks = Weeks::begin();
    weeks.run();
    let totals = &weeks.totals;
    println!(
        "{} passes, {} drains, {} unwound, ended {}; nights {:?}",
        totals.passes, totals.drains, totals.unwound, weeks.wall, totals.nights
    );
    assert_eq!(totals.powers.len(), MACHINES, "every machine was rebooted");
    assert!(totals.powers.values().all(|n| *n == 1), "I25: each machine is rebooted once");
    assert!(totals.unwound > 0, "some drains reached the end of their window or the freeze");
    assert!(totals.ended_outside > 0, "I6: reboots in progress ended outside their window, too");
    assert!(totals.beside_the_stuck > 50, "the next rack starts when one is stuck");
    // The nights in which the clock is set back for Ramadan and forward again.
    for night in ["2026-02-15", "2026-03-22"] {
        assert!(totals.nights.contains(night), "{:?}", totals.nights);
    }
    assert!(!totals.nights.contains("2026-02-25"), "frozen");
    assert!(weeks.snap.kube.nodes.values().all(|n| !n.unschedulable && n.owner().is_none()), "I10: no cordon is left");
}
