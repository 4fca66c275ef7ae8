//! The large cluster for figures and budgets: Nodes with their live copy, queued entries, an engine that leads, and a
//! console whose output is counted.
#![allow(dead_code)] // each figure uses its part

use std::{
    cell::Cell,
    collections::BTreeMap,
    io::{self, Write},
    rc::Rc,
    sync::Arc,
};

use cketerm_console::{
    input::update,
    state::{App, AppConfig, View, event::Event},
    terminal::backend::BufferedBackend,
    views,
};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    clock::Now,
    cluster::{Cluster, Members, Node},
    drain::{Answer, Verdict},
    entry::{EntryId, Stored},
    host::HostRow,
    kube::{BudgetRow, KubeView, NodePods, NodeRow, Owner, PodRow, SourceState},
    names::{Address, NodeName},
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    stored::view::{Candidate, Definition, StoreView},
};
use cketerm_rules::{
    seen::Seen,
    snapshot::{Engine, Leading, Snapshot},
};
use cketerm_sabakan::{Machine, State, machine::Date};
use crossterm::event::{KeyCode, KeyEvent};
use ratatui::{Terminal, layout::Size};

/// Permitted concurrent reboots: this many drains start.
pub const SLOTS: u32 = 20;
/// Size of the console's screen.
pub const SIZE: Size = Size::new(200, 50);

/// One second after all watches delivered their state.
pub fn now() -> Now {
    Now { boot: BootTime::new(1001.0), wall: "2026-08-01T12:00:00Z".parse().unwrap() }
}

fn stored<T>(key: String, value: T) -> Stored<T> {
    Stored { key, mod_revision: 5, value: Ok(Arc::new(value)) }
}

/// Key of an entry.
pub fn key_of(index: u64) -> String {
    format!("/cke/reboots/data/{index:016x}")
}

/// Address of a node.
pub fn address(i: u64) -> String {
    format!("10.{}.{}.{}", i / 60_000, i / 250 % 240, i % 250 + 1)
}

/// Name of a node.
pub fn name(i: u64) -> String {
    format!("node-{i:05}")
}

/// A Node with this kubelet version.
pub fn node(i: u64, kubelet: &str) -> NodeRow {
    let uid = i.to_string();
    NodeRow {
        name: NodeName::new(name(i)),
        uid,
        addresses: vec![Address::new(address(i))],
        ready: true,
        kubelet: kubelet.to_owned(),
        ..NodeRow::default()
    }
}

/// Snapshot with this many nodes, of which the first five are control planes, and this many queued entries.
pub fn snapshot(nodes: u64, entries: u64) -> Snapshot {
    let mut cluster = Cluster { name: "large".to_owned(), ..Cluster::default() };
    cluster.reboot.reboot_command = Some(vec!["reboot".to_owned()]);
    cluster.reboot.boot_check_command = Some(vec!["check".to_owned()]);
    cluster.reboot.max_concurrent_reboots = Some(SLOTS.into());
    let mut kube = KubeView::default();
    for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
        kube.sources.insert(
            source.to_owned(),
            SourceState {
                synced: true,
                last_seen: BootTime::new(1000.0),
                fresh_as_of: BootTime::new(1000.0),
                error: None,
                forbidden: false,
            },
        );
    }
    for i in 0..nodes {
        cluster.nodes.push(Node {
            address: Address::new(address(i)),
            hostname: NodeName::new(name(i)),
            control_plane: i < 5,
            ..Node::default()
        });
        kube.put_node(node(i, "v1.35.0"));
    }
    let mut store = StoreView { synced: true, last_seen: BootTime::new(1000.0), ..StoreView::default() };
    for i in 0..entries {
        store.reboots.entries.insert(i, stored(key_of(i), RebootEntry::queued(i, &Address::new(address(i % nodes)))));
    }
    let members = Members::of(&cluster);
    store.cluster = Some(stored("/cke/cluster".to_owned(), Definition { cluster, members }));
    let leading = Leading {
        key: "leader//1".to_owned(),
        create_revision: 1,
        since: BootTime::ZERO,
        acknowledged: BootTime::ZERO,
    };
    Snapshot {
        store: Arc::new(store),
        kube: Arc::new(kube),
        engine: Engine { lease: 1, ttl: 60, leading: Some(leading), ..Engine::default() },
        ..Snapshot::default()
    }
}

/// The same snapshot in a process beside CKE: CKE leads and drains as many machines as it has slots for, each with ten
/// pods.
pub fn beside_cke(of: &Snapshot) -> Snapshot {
    let mut snapshot = of.clone();
    snapshot.engine = Engine::default();
    let (store, kube) = (Arc::make_mut(&mut snapshot.store), Arc::make_mut(&mut snapshot.kube));
    let leader = Candidate { key: "leader//7".into(), lease: 7, host: "boot-0".into(), create_revision: 1 };
    store.candidates.insert(1, leader);
    for i in 0..u64::from(SLOTS) {
        let index = i + 5; // workers
        let entry = RebootEntry::queued(index, &Address::new(address(index)));
        let entry = entry.moved_to(RebootStatus::Draining, now().wall);
        store.reboots.entries.insert(index, stored(key_of(index), entry));
        let node = NodeName::new(name(index));
        let pod = |n: u64| {
            let uid = format!("{index}-{n}");
            let row = PodRow { name: uid.clone(), uid: uid.clone(), node: node.clone(), ..PodRow::default() };
            (uid, Arc::new(row))
        };
        let pods = NodePods { synced: true, pods: (0..10).map(pod).collect(), ..NodePods::default() };
        kube.pods.insert(node.clone(), pods);
    }
    snapshot
}

/// The same snapshot while a tenth of the nodes drains, each with ten pods under one budget. All evictions were accepted:
/// half of the pods are gone, and the others terminate.
pub fn draining(of: &Snapshot) -> Snapshot {
    let mut snapshot = of.clone();
    let (store, kube) = (Arc::make_mut(&mut snapshot.store), Arc::make_mut(&mut snapshot.kube));
    let nodes = kube.nodes.len() as u64;
    let mut cluster = store.definition().unwrap().cluster.clone();
    cluster.reboot.max_concurrent_reboots = Some(i64::try_from(nodes / 10).unwrap());
    let members = Members::of(&cluster);
    store.cluster = Some(stored("/cke/cluster".to_owned(), Definition { cluster, members }));
    let selector = serde_json::from_value(serde_json::json!({})).unwrap();
    let budget = BudgetRow {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        resource_version: "5".to_owned(),
        selector: Some(selector),
        allowed: 1000,
        ..BudgetRow::default()
    };
    kube.budgets.insert((budget.namespace.clone(), budget.name.clone()), Arc::new(budget.clone()));
    for index in 5..5 + nodes / 10 {
        let id = EntryId::reboot(index);
        let entry = RebootEntry::queued(index, &Address::new(address(index)));
        store.reboots.entries.insert(index, stored(key_of(index), entry.moved_to(RebootStatus::Draining, now().wall)));
        let mut row = node(index, "v1.35.0");
        (row.unschedulable, row.cke_mark) = (true, true);
        row.owner = Some(Ok(Owner {
            lease: 1,
            entry: id,
            schedulable_before: true,
            uid: row.uid.clone(),
            boot_id: "before".to_owned(),
            taken_over_rebooting: false,
            called_done: false,
            since: None,
            recordoned: 0,
        }));
        let name = row.name.clone();
        kube.put_node(row);
        let pod = |n: u64| PodRow {
            namespace: "shop".to_owned(),
            name: format!("web-{index}-{n}"),
            uid: format!("{index}-{n}"),
            node: name.clone(),
            phase: "Running".to_owned(),
            ready: true,
            terminating_since: Some(now().wall),
            ..PodRow::default()
        };
        let pods = (0..5).map(|n| (pod(n).uid, Arc::new(pod(n)))).collect();
        kube.pods.insert(name.clone(), NodePods { synced: true, fresh_as_of: BootTime::new(1000.0), pods });
        let answer = Answer {
            verdict: Verdict::Accepted,
            at: now().boot,
            budgets: [(budget.full_name(), "5".to_owned())].into(),
            undecided: 0,
        };
        let drain = &mut snapshot.work.entry(id).or_default().drain;
        (drain.previewed, drain.accepted, drain.pods_at_start) = (true, true, Some(10));
        drain.answers = (0..10).map(|n| (format!("{index}-{n}"), answer.clone())).collect();
    }
    snapshot
}

/// The same snapshot with sabakan enabled, and eight labels for each member, which its Node has already.
pub fn with_sabakan(of: &Snapshot) -> Snapshot {
    let mut snapshot = of.clone();
    let (store, kube) = (Arc::make_mut(&mut snapshot.store), Arc::make_mut(&mut snapshot.kube));
    let mut cluster = store.definition().unwrap().cluster.clone();
    for (i, member) in (0..).zip(&mut cluster.nodes) {
        let labels: BTreeMap<_, _> =
            (0..8).map(|n| (format!("cke.cybozu.com/label-{n}"), format!("{}", i % (n + 2)))).collect();
        let mut row = node(i, "v1.35.0");
        row.described.labels = labels.clone().into();
        member.labels = Some(labels);
        kube.put_node(row);
    }
    let members = Members::of(&cluster);
    store.cluster = Some(stored("/cke/cluster".to_owned(), Definition { cluster, members }));
    store.registry.template = Some(stored("/cke/sabakan/template".to_owned(), String::new()));
    snapshot
}

/// Machines of sabakan, one for each node.
pub fn machines(nodes: u64) -> Vec<Machine> {
    let date = |day: &str| Date::parse(&format!("{day}T00:00:00Z")).unwrap();
    let machine = |i: u64| Machine {
        serial: format!("SN{i:06}"),
        labels: vec![("product".to_owned(), "r640".to_owned())],
        rack: i64::try_from(i / 20).unwrap(),
        index_in_rack: i64::try_from(i % 20).unwrap() + 4,
        role: "compute".to_owned(),
        ipv4: vec![address(i)],
        address: Address::new(address(i)),
        register_date: date("2025-01-01"),
        retire_date: date("2030-01-01"),
        bmc_type: "iDRAC-9".to_owned(),
        bmc_ipv4: String::new(),
        state: State::Healthy,
        since: None,
        duration: Seconds::new(86_400.0),
    };
    (0..nodes).map(machine).collect()
}

/// The same snapshot with a BareMetalHost for each node; one of twenty has a reboot annotation.
pub fn with_hosts(of: &Snapshot) -> Snapshot {
    let mut snapshot = of.clone();
    let kube = Arc::make_mut(&mut snapshot.kube);
    for i in 0..kube.nodes.len() as u64 {
        let mut host = HostRow {
            namespace: "metal3".to_owned(),
            name: format!("host-{i:05}"),
            uid: i.to_string(),
            online: true,
            powered_on: Some(true),
            provisioning: "provisioned".to_owned(),
            consumer: name(i),
            node: NodeName::new(name(i)),
            addresses: vec![Address::new(address(i))],
            ..HostRow::default()
        };
        if i % 20 == 0 {
            host.asked.base = Some(String::new());
        }
        kube.hosts.insert((host.namespace.clone(), host.name.clone()), Arc::new(host));
    }
    let nodes = kube.sources["nodes"].clone();
    kube.sources.insert("baremetalhosts".to_owned(), nodes);
    snapshot
}

/// The console's input for this snapshot: every entry waits for a slot.
pub fn seen(nodes: u64, entries: u64) -> Seen {
    let waits = Reason::WaitingForSlot { holder: Some(EntryId::reboot(0)), limit: 10, ahead: false };
    let reasons: BTreeMap<_, _> = (0..entries).map(|i| (EntryId::reboot(i), waits.clone())).collect();
    Seen { snapshot: snapshot(nodes, entries), reasons: Arc::new(reasons), ..Seen::default() }
}

/// Counts the bytes that would go to the terminal.
#[derive(Clone, Default)]
pub struct CountingWriter {
    pub bytes: Rc<Cell<usize>>,
    pub writes: Rc<Cell<usize>>,
}

impl Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.set(self.bytes.get() + bytes.len());
        self.writes.set(self.writes.get() + 1);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A console without a terminal.
pub struct Console {
    pub app: App,
    pub terminal: Terminal<BufferedBackend<CountingWriter>>,
    pub writer: CountingWriter,
}

impl Console {
    /// Creates the console and draws its first frame.
    pub fn new(seen: Seen) -> Self {
        let mut app = App::new(AppConfig::default(), View::Nodes, now());
        app.size = SIZE;
        let writer = CountingWriter::default();
        let terminal = Terminal::new(BufferedBackend::new(writer.clone(), SIZE)).unwrap();
        let mut console = Self { app, terminal, writer };
        update(&mut console.app, Event::Seen(Arc::new(seen)));
        console.draw();
        console
    }

    /// Draws a frame.
    pub fn draw(&mut self) {
        let app = &self.app;
        self.terminal.draw(|frame| views::draw(app, frame)).unwrap();
    }

    /// Handles an event and draws the frame after it.
    pub fn take(&mut self, event: Event) {
        update(&mut self.app, event);
        self.draw();
    }
}

/// Event of a pressed key.
pub fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::from(code))
}
