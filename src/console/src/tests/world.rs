//! Small cluster as an engine would see it, and a console on it.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    attempt::{Attempt, Ended, Outcome},
    boot_time::BootTime,
    cketerm_records::{EngineRegistration, Progress, Request, Who},
    clock::Now,
    cluster::{Cluster, Members, Node},
    entry::{EntryId, Stored},
    kube::{KubeView, NodeRow, Owner, SourceState},
    names::{Address, NodeName},
    policy::Policy,
    reason::{Awaited, Blocker, PodHold, Reason},
    reboot::{RebootEntry, RebootStatus},
    stored::view::{Candidate, Definition, StoreView},
    time::after,
};
use cketerm_rules::{
    reboot_needed::signals::ShownSignals,
    seen::Seen,
    snapshot::{Engine, Leading, Snapshot},
};
use crossterm::event::KeyEvent;
use jiff::Timestamp;

use crate::{
    input::update,
    keys,
    state::{
        App, AppConfig, View,
        event::{Effect, Event},
    },
};

pub(super) const BOOT: BootTime = BootTime::new(5000.0);

pub(super) fn wall() -> Timestamp {
    "2026-11-21T10:00:00Z".parse().unwrap()
}

pub(super) fn at(boot: BootTime) -> Now {
    Now { boot, wall: after(wall(), (boot - BOOT).whole()) }
}

pub(super) fn stored<T>(key: &str, revision: i64, value: T) -> Stored<T> {
    Stored { key: key.to_owned(), mod_revision: revision, value: Ok(Arc::new(value)) }
}

/// Three API servers and five workers; five entries, one of them a blocked drain; this engine leads.
pub(super) struct World {
    pub(super) store: StoreView,
    pub(super) kube: KubeView,
    pub(super) engine: Engine,
    pub(super) reasons: BTreeMap<EntryId, Reason>,
    pub(super) orphans: BTreeMap<NodeName, Reason>,
    pub(super) boot: BootTime,
}

impl World {
    /// Returns a world before any source was read.
    pub(super) fn without_data() -> Self {
        Self {
            store: StoreView::default(),
            kube: KubeView::default(),
            engine: Engine { host: "admin1".into(), ttl: 60, ..Engine::default() },
            reasons: BTreeMap::new(),
            orphans: BTreeMap::new(),
            boot: BOOT,
        }
    }

    pub(super) fn usual() -> Self {
        let mut world = Self::without_data();
        world.sources();
        let mut nodes = Vec::new();
        for (i, name) in
            ["cp-1", "cp-2", "cp-3", "worker-1", "worker-2", "worker-3", "worker-4", "worker-5"].iter().enumerate()
        {
            let address = format!("10.0.0.{}", i + 11);
            nodes.push(Node {
                address: Address::new(address.clone()),
                hostname: NodeName::new(*name),
                control_plane: i < 3,
                ..Node::default()
            });
            world.kube.put_node(NodeRow {
                name: NodeName::new(*name),
                uid: format!("uid-{name}"),
                addresses: vec![Address::new(address), Address::new(*name)],
                ready: *name != "worker-5",
                ready_since: Some(after(wall(), -86_400 * 3)),
                boot_id: "5f3a0c9e-1d2b".into(),
                kubelet: "v1.35.0".into(),
                shown_labels: vec![("topology.kubernetes.io/rack".into(), format!("{}", i % 3))],
                ..NodeRow::default()
            });
        }
        world.cordon("worker-1", 3);
        world.cordon("worker-2", 4);
        let cluster = Cluster { name: "tokyo0".into(), nodes, ..Cluster::default() };
        let members = Members::of(&cluster);
        world.store.cluster = Some(stored("/cke/cluster", 5, Definition { cluster, members }));
        // the blocked drain has lasted for longer than this
        let policy = Policy { stuck_seconds: 120, ..Policy::default() };
        world.store.policy = Some(stored("/cke/cketerm/policy", 6, policy));
        world.entries();
        world.lead();
        world
    }

    fn sources(&mut self) {
        (self.store.synced, self.store.last_seen, self.store.revision) = (true, BOOT, 42);
        for name in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
            self.kube.sources.insert(
                name.into(),
                SourceState { synced: true, last_seen: BOOT, fresh_as_of: BOOT, error: None, forbidden: false },
            );
        }
    }

    /// Changes the state of each watch of Kubernetes.
    pub(super) fn each_source(&mut self, change: impl Fn(&mut SourceState)) {
        let names: Vec<String> = self.kube.sources.keys().cloned().collect();
        for name in names {
            change(&mut self.kube.sources[&name]);
        }
    }

    pub(super) fn cordon(&mut self, name: &str, index: u64) {
        let mut row = NodeRow::clone(&self.kube.nodes[name]);
        row.unschedulable = true;
        row.owner = Some(Ok(Owner {
            lease: 77,
            entry: EntryId::reboot(index),
            schedulable_before: true,
            uid: row.uid.clone(),
            boot_id: row.boot_id.clone(),
            taken_over_rebooting: false,
            called_done: false,
            since: None,
            recordoned: 0,
        }));
        self.kube.put_node(row);
    }

    pub(super) fn entry(&mut self, index: u64, address: &str, status: RebootStatus, ago: i64, revision: i64) {
        let entry = RebootEntry::queued(index, &Address::new(address)).moved_to(status, after(wall(), -ago));
        let key = format!("/cke/reboots/data/{index:016x}");
        self.store.reboots.entries.insert(index, stored(&key, revision, entry));
        let who = Who { user: "alice".into(), host: "admin1".into(), ssh_client: None };
        let request =
            Request { who, at: after(wall(), -900), reason: Some("kernel 6.12".into()), node_uid: None, batch: None };
        self.store.requests.insert(EntryId::reboot(index), stored("/cke/cketerm/requests", 9, request));
    }

    fn entries(&mut self) {
        self.entry(3, "10.0.0.14", RebootStatus::Draining, 200, 30);
        self.entry(4, "10.0.0.15", RebootStatus::Rebooting, 42, 31);
        self.entry(5, "10.0.0.16", RebootStatus::Queued, 900, 32);
        self.entry(6, "10.0.0.17", RebootStatus::Queued, 300, 33);
        self.entry(7, "10.0.0.11", RebootStatus::Queued, 900, 34);
        let mut backed = RebootEntry::queued(6, &Address::new("10.0.0.17"));
        (backed.drain_backoff_count, backed.drain_backoff_expire) = (2, Some(after(wall(), 400)));
        backed.last_transition_time = Some(after(wall(), -300));
        self.store.reboots.entries.insert(6, stored("/cke/reboots/data/0000000000000006", 33, backed));
        self.store.reboots.entries.insert(
            8,
            Stored {
                key: "/cke/reboots/data/0000000000000008".into(),
                mod_revision: 35,
                value: Err("not JSON: expected value at line 1 column 1".into()),
            },
        );
        let pdb = PodHold::Budget { budget: "shop/web".into(), healthy: 2, needed: 2, cause: None };
        let blockers = vec![
            Blocker { pod: "shop/web-7d9f8b6c5-x2x4z".into(), why: pdb },
            Blocker { pod: "batch/report-1".into(), why: PodHold::Leaving },
        ];
        let held = Reason::BlockedByPdb {
            pod: "shop/web-7d9f8b6c5-x2x4z".into(),
            pdb: "shop/web".into(),
            healthy: 2,
            needed: 2,
            cause: None,
        };
        let progress = |phase: &str, ago: i64, gone: u32, reason: Option<Reason>, blockers: Vec<Blocker>| Progress {
            phase: phase.into(),
            since: after(wall(), -ago),
            pods_at_start: 40,
            pods_gone: gone,
            reason,
            blockers,
            next: None,
            step: None,
            check: None,
        };
        let draining = progress("waiting for pods", 180, 38, Some(held.clone()), blockers);
        let rebooting = progress("rebooting", 42, 40, None, Vec::new());
        self.store.progress.insert(EntryId::reboot(3), stored("p3", 40, draining));
        self.store.progress.insert(EntryId::reboot(4), stored("p4", 41, rebooting));
        self.attempts();
        let pod = "db/pg-0".to_owned();
        let cause =
            Some(Box::new(Reason::BlockedByPdb { pod, pdb: "db/pg".into(), healthy: 2, needed: 2, cause: None }));
        self.reasons = BTreeMap::from([
            (EntryId::reboot(3), held),
            (
                EntryId::reboot(4),
                Reason::WaitingForBoot {
                    since: after(wall(), -39),
                    last: "false".into(),
                    stuck: false,
                    awaited: Awaited::Check,
                },
            ),
            (EntryId::reboot(5), Reason::WaitingForSlot { holder: Some(EntryId::reboot(3)), limit: 2, ahead: false }),
            (
                EntryId::reboot(6),
                Reason::Backoff { count: 2, until: after(wall(), 400), cause, tried: Some(after(wall(), -300)) },
            ),
            (EntryId::reboot(7), Reason::WaitingForWorkers { holder: EntryId::reboot(3) }),
            (
                EntryId::reboot(8),
                Reason::InvalidEntry { why: "cannot be read: not JSON: expected value at line 1 column 1".into() },
            ),
        ]);
    }

    fn attempts(&mut self) {
        let attempt = Attempt {
            id: "a1".into(),
            entry: EntryId::reboot(4),
            number: 1,
            step: None,
            success: false,
            machine_type: None,
            operation: None,
            address: Address::new("10.0.0.15"),
            node: Some(NodeName::new("worker-2")),
            control_plane: false,
            lease: 77,
            host: "admin1".into(),
            argv: vec!["/usr/local/bin/reboot-node".into(), "--soft".into(), "10.0.0.15".into()],
            bound_seconds: 60,
            boot_id: None,
            not_ready: false,
            node_uid: None,
            start: after(wall(), -42),
            drain_start: None,
            forced: false,
            ordered_by: None,
            done_by: None,
            folded: 0,
            outcome: Some(Outcome {
                end: Ended::Exit(0),
                at: after(wall(), -39),
                stdout: "power cycle requested\n\u{241b}[31mred\n".into(),
                stderr: String::new(),
            }),
        };
        self.store.attempts.insert((EntryId::reboot(4), 1), stored("a", 43, attempt));
    }

    fn lead(&mut self) {
        let key = "/cke/leader//4d".to_owned();
        let candidate = Candidate { key: key.clone(), lease: 77, host: "admin1".into(), create_revision: 20 };
        self.store.candidates.insert(20, candidate);
        let registration = EngineRegistration {
            host: "admin1".into(),
            pid: 1,
            version: "0.2.0".into(),
            mode: cketerm_model::cketerm_records::EngineMode::Console,
            node: None,
            http: None,
            missing_programs: vec![],
            missing_settings: Vec::new(),
            unable: None,
            standing_back: None,
            migrating: None,
            probes_seen: true,
            etcd_members_seen: true,
        };
        self.store.engines.insert(77, stored("e", 20, registration));
        self.engine.lease = 77;
        self.engine.leading = Some(Leading {
            key,
            create_revision: 20,
            since: BootTime::new(4000.0),
            acknowledged: BootTime::new(4000.0),
        });
    }

    pub(super) fn seen(&self) -> Arc<Seen> {
        Arc::new(Seen {
            snapshot: Snapshot {
                store: Arc::new(self.store.clone()),
                kube: Arc::new(self.kube.clone()),
                engine: self.engine.clone(),
                reboot_signals: Arc::new(ShownSignals::of(&self.store.policy(), &self.kube)),
                ..Snapshot::default()
            },
            now: at(self.boot),
            reasons: Arc::new(self.reasons.clone()),
            orphans: Arc::new(self.orphans.clone()),
            applying: Arc::default(),
            auto_repair: Arc::default(),
            notices: Arc::default(),
        })
    }

    /// Returns a console of that size that has this snapshot.
    pub(super) fn console(&self, columns: u16, rows: u16) -> App {
        self.console_in(View::Reboots, columns, rows)
    }

    /// Returns the same console in another view.
    pub(super) fn console_in(&self, view: View, columns: u16, rows: u16) -> App {
        let config = AppConfig { endpoints: vec!["http://127.0.0.1:2379".into()], ..AppConfig::default() };
        let mut app = App::new(config, view, at(self.boot));
        update(&mut app, Event::Resize(columns, rows));
        update(&mut app, Event::Seen(self.seen()));
        app
    }
}

/// Presses keys, by the names that the key table uses; `"text"` in quotes is typed.
pub(super) fn press(app: &mut App, keys: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut key = |app: &mut App, name: &str| {
        let (code, modifiers) = keys::parse(name).unwrap_or_else(|| panic!("{name:?} is not a key"));
        effects.extend(update(app, Event::Key(KeyEvent::new(code, modifiers))));
    };
    for (i, part) in keys.split('"').enumerate() {
        if i % 2 == 0 {
            part.split_whitespace().for_each(|name| key(app, name));
        } else {
            part.chars().for_each(|c| key(app, &if c == ' ' { "space".to_owned() } else { c.to_string() }));
        }
    }
    effects
}

/// Returns the text of the message line.
pub(super) fn message(app: &App) -> &str {
    app.session.message.as_ref().map_or("", |m| &m.text)
}
