//! Cases whose cost is counted.

use std::{collections::BTreeSet, hint::black_box, sync::Arc};

use cketerm_console::state::event::Event;
use cketerm_model::{
    boot_time::Seconds,
    cluster::Cluster,
    constraints::Constraints,
    kube::{KubeView, NodeRow},
    names::{Address, NodeName},
    policy::Strategy,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    stored::{keys::Keys, row::Row},
};
use cketerm_rules::{beside_cke, decide::decide, registry::descriptions::DescriptionCache, seen::Seen};
use cketerm_sabakan::{
    Input, Template, plan,
    unchanged::{PlannedMachines, give_the_same_plan},
};
use crossterm::event::KeyCode;

use crate::scene::{self, Console, key, node};

/// An action that cketerm repeats often.
pub struct Case {
    /// Name, as in the table.
    pub name: &'static str,
    /// Largest factor by which allocations may grow with ten times the nodes.
    pub max_allocation_growth: f64,
    /// Largest factor by which instructions may grow.
    pub max_instruction_growth: f64,
    /// Takes the scene, and returns a function that performs the action once per call.
    pub prepare: fn(&Seen) -> Box<dyn FnMut()>,
}

/// Template of the definition that is planned again.
const TEMPLATE: &str = "\
name: large
nodes:
- {user: u, control_plane: true, labels: {cke.cybozu.com/role: compute}}
- {user: u, labels: {cke.cybozu.com/role: compute}}
";

/// A pass looks at every entry. It may grow with the queue, and a little more for the depth of trees.
const PER_ENTRY_GROWTH: f64 = 11.5;
/// For costs that follow the amount of work: hardly more in a large cluster, again for the depth of trees.
const CONSTANT_GROWTH: f64 = 1.5;

/// For news that a console draws: it looks through the header's counts and the list's order, and rebuilds nothing.
const SCAN_GROWTH: f64 = 2.0;

/// All cases.
pub const CASES: [Case; 18] = [
    Case {
        name: "a pass, nothing changed",
        max_allocation_growth: PER_ENTRY_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let snapshot = seen.snapshot.clone();
            Box::new(move || drop(black_box(decide(black_box(&snapshot), scene::now()))))
        },
    },
    Case {
        name: "a pass, one Node changed",
        max_allocation_growth: PER_ENTRY_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let mut snapshot = seen.snapshot.clone();
            let mut times = 0;
            Box::new(move || {
                times += 1;
                let changed = changed(times, &snapshot.kube);
                Arc::make_mut(&mut snapshot.kube).put_node(changed);
                drop(black_box(decide(black_box(&snapshot), scene::now())));
            })
        },
    },
    Case {
        name: "a pass, every Node lost",
        max_allocation_growth: PER_ENTRY_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let mut snapshot = seen.snapshot.clone();
            let kube = Arc::make_mut(&mut snapshot.kube);
            for i in 0..kube.nodes.len() as u64 {
                kube.remove_node(&NodeName::new(scene::name(i)));
            }
            Box::new(move || drop(black_box(decide(black_box(&snapshot), scene::now()))))
        },
    },
    Case {
        // each drain looks into maps of all drains
        name: "a pass, a tenth of the nodes drains",
        max_allocation_growth: PER_ENTRY_GROWTH,
        max_instruction_growth: 12.5,
        prepare: |seen| {
            let snapshot = scene::draining(&seen.snapshot);
            let reasons = decide(&snapshot, scene::now()).reasons;
            let waits = reasons.values().filter(|reason| matches!(reason, Reason::PodsLeaving { .. })).count();
            assert_eq!(waits, snapshot.kube.nodes.len() / 10, "drains that wait for their pods");
            Box::new(move || drop(black_box(decide(black_box(&snapshot), scene::now()))))
        },
    },
    Case {
        // CKE's drains, the next two and at most ten that it gave up: no other node's pods are read
        name: "a pass beside CKE, which drains",
        max_allocation_growth: PER_ENTRY_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let snapshot = scene::beside_cke(&seen.snapshot);
            let watched = beside_cke::decision(&snapshot, scene::now()).0.watch_pods.len();
            let in_work = usize::try_from(scene::SLOTS).unwrap();
            assert!((in_work..=in_work + 12).contains(&watched), "the pods of {watched} nodes are read");
            Box::new(move || drop(black_box(beside_cke::decision(black_box(&snapshot), scene::now()))))
        },
    },
    Case {
        name: "a pass, sabakan's Nodes compared",
        max_allocation_growth: PER_ENTRY_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let mut snapshot = scene::with_sabakan(&seen.snapshot);
            Box::new(move || {
                snapshot.undescribed = DescriptionCache::default().look(&snapshot.store, &snapshot.kube);
                drop(black_box(decide(black_box(&snapshot), scene::now())));
            })
        },
    },
    Case {
        name: "a pass, sabakan's Nodes unchanged",
        max_allocation_growth: PER_ENTRY_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let mut snapshot = scene::with_sabakan(&seen.snapshot);
            let mut cache = DescriptionCache::default();
            cache.look(&snapshot.store, &snapshot.kube);
            Box::new(move || {
                snapshot.undescribed = cache.look(&snapshot.store, &snapshot.kube);
                drop(black_box(decide(black_box(&snapshot), scene::now())));
            })
        },
    },
    Case {
        name: "sabakan's answer, compared with the one before",
        max_allocation_growth: CONSTANT_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let old = scene::machines(seen.snapshot.kube.nodes.len() as u64);
            let mut new = old.clone();
            for machine in &mut new {
                machine.duration = machine.duration + Seconds::new(60.0);
            }
            let now = scene::now().wall;
            Box::new(move || {
                let [was, is] = [&old, &new].map(|machines| PlannedMachines { machines, now });
                assert!(black_box(give_the_same_plan(was, is, Seconds::new(300.0))));
            })
        },
    },
    Case {
        name: "sabakan's definition planned again, nothing changes",
        max_allocation_growth: PER_ENTRY_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let machines = scene::machines(seen.snapshot.kube.nodes.len() as u64);
            let template = Template::read(TEMPLATE).unwrap();
            let workers = i64::try_from(machines.len() * 9 / 10).unwrap();
            let constraints = Constraints { minimum_workers: Some(workers), ..Constraints::default() };
            let planned = move |current: Option<&Cluster>| {
                let input = Input {
                    machines: &machines,
                    template: &template,
                    constraints: &constraints,
                    current,
                    kubernetes_nodes: None,
                    rebooting: &BTreeSet::new(),
                    template_changed: false,
                    wait_seconds: 300,
                    strategy: Strategy::Weighted,
                    now: scene::now().wall,
                };
                plan(&input).unwrap()
            };
            let current = planned(None).cluster.unwrap();
            Box::new(move || assert!(!black_box(planned(Some(&current))).changed))
        },
    },
    Case {
        name: "an entry read from etcd, into a view that others hold",
        max_allocation_growth: CONSTANT_GROWTH,
        max_instruction_growth: CONSTANT_GROWTH,
        prepare: |seen| {
            let mut snapshot = seen.snapshot.clone();
            let (keys, mut times) = (Keys::new("/cke/"), 0);
            Box::new(move || {
                times += 1;
                let shared = Arc::clone(&snapshot.store);
                let entry = RebootEntry::queued(times, &Address::new(scene::address(times)));
                let entry = entry.moved_to(RebootStatus::Draining, scene::now().wall);
                let value = serde_json::to_string(&entry).unwrap();
                Arc::make_mut(&mut snapshot.store).put(&keys, &Row::new(&scene::key_of(times), &value, 6, 5));
                drop(black_box(shared));
            })
        },
    },
    Case {
        // the parts of the view that one Node changes depend on its hash, which differs from run to run
        name: "news of 16 Nodes, into a view that others hold",
        max_allocation_growth: CONSTANT_GROWTH,
        max_instruction_growth: CONSTANT_GROWTH,
        prepare: |seen| {
            let mut snapshot = seen.snapshot.clone();
            let mut times = 0;
            Box::new(move || {
                for _ in 0..16 {
                    times += 1;
                    let shared = Arc::clone(&snapshot.kube);
                    let changed = changed(times, &snapshot.kube);
                    Arc::make_mut(&mut snapshot.kube).put_node(changed);
                    drop(black_box(shared));
                }
            })
        },
    },
    Case {
        name: "a frame, nothing changed",
        max_allocation_growth: CONSTANT_GROWTH,
        max_instruction_growth: CONSTANT_GROWTH,
        prepare: |seen| {
            let mut console = Console::new(seen.clone());
            Box::new(move || console.draw())
        },
    },
    Case {
        name: "a cursor move and its frame, nodes",
        max_allocation_growth: CONSTANT_GROWTH,
        max_instruction_growth: CONSTANT_GROWTH,
        prepare: |seen| cursor_move('2', seen),
    },
    Case {
        name: "a cursor move and its frame, reboots",
        max_allocation_growth: CONSTANT_GROWTH,
        max_instruction_growth: CONSTANT_GROWTH,
        prepare: |seen| cursor_move('1', seen),
    },
    Case {
        name: "a cursor move and its frame, hosts",
        max_allocation_growth: CONSTANT_GROWTH,
        max_instruction_growth: CONSTANT_GROWTH,
        prepare: |seen| {
            let snapshot = scene::with_hosts(&seen.snapshot);
            cursor_move('6', &Seen { snapshot, ..seen.clone() })
        },
    },
    Case {
        // the filter looks at every row
        name: "a letter typed into the filter and its frame, nodes",
        max_allocation_growth: PER_ENTRY_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let mut console = Console::new(seen.clone());
            console.take(key(KeyCode::Char('2')));
            console.take(key(KeyCode::Char('/')));
            Box::new(move || {
                console.take(key(KeyCode::Char('1')));
                console.take(key(KeyCode::Backspace));
            })
        },
    },
    Case {
        name: "a frame of the overview",
        max_allocation_growth: CONSTANT_GROWTH,
        max_instruction_growth: PER_ENTRY_GROWTH,
        prepare: |seen| {
            let mut console = Console::new(seen.clone());
            console.take(key(KeyCode::Char('0')));
            Box::new(move || console.draw())
        },
    },
    Case {
        name: "news of a Node and the console's frame",
        max_allocation_growth: CONSTANT_GROWTH,
        max_instruction_growth: SCAN_GROWTH,
        prepare: |seen| {
            let mut seen = seen.clone();
            let mut console = Console::new(seen.clone());
            let mut times = 0;
            Box::new(move || {
                times += 1;
                let changed = changed(times, &seen.snapshot.kube);
                Arc::make_mut(&mut seen.snapshot.kube).put_node(changed);
                console.take(Event::Seen(Arc::new(seen.clone())));
            })
        },
    },
];

/// One of the Nodes, with another kubelet version.
fn changed(times: u64, kube: &KubeView) -> NodeRow {
    node(times * 37 % kube.nodes.len() as u64, &format!("v1.35.{times}"))
}

/// Moves the cursor down in this view.
fn cursor_move(view: char, seen: &Seen) -> Box<dyn FnMut()> {
    let mut console = Console::new(seen.clone());
    console.take(key(KeyCode::Char(view)));
    Box::new(move || console.take(key(KeyCode::Char('j'))))
}
