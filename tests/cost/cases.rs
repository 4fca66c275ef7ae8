//! Cases whose cost is counted.

use std::{hint::black_box, sync::Arc};

use cketerm::{
    console::event::Event,
    engine::{decide::decide, snapshot::Seen},
    model::{
        kube::{KubeView, NodeRow},
        reboot::{RebootEntry, RebootStatus},
    },
    store::{apply::Row, keys::Keys},
};
use crossterm::event::KeyCode;

use crate::scene::{self, Console, key, node};

/// An action that cketerm repeats often.
pub struct Case {
    /// Name, as in the table.
    pub name: &'static str,
    /// Largest factor by which allocations may grow with ten times the nodes.
    pub allocations_grow: f64,
    /// Largest factor by which instructions may grow.
    pub instructions_grow: f64,
    /// Takes the scene, and returns a function that performs the action once per call.
    pub prepare: fn(&Seen) -> Box<dyn FnMut()>,
}

/// A pass looks at every entry. It may grow with the queue, and a little more for the depth of trees.
const AS_THE_QUEUE: f64 = 11.5;
/// For costs that follow the amount of work: hardly more in a large cluster, again for the depth of trees.
const AS_THE_WORK: f64 = 1.5;

/// For news that a console draws: it looks through the header's counts and the list's order, and rebuilds nothing.
const WITH_A_LOOK_AT_ALL: f64 = 2.0;

/// All cases.
pub const CASES: [Case; 9] = [
    Case {
        name: "a pass, nothing changed",
        allocations_grow: AS_THE_QUEUE,
        instructions_grow: AS_THE_QUEUE,
        prepare: |seen| {
            let snap = seen.snapshot.clone();
            Box::new(move || drop(black_box(decide(black_box(&snap), scene::now()))))
        },
    },
    Case {
        name: "a pass, one Node changed",
        allocations_grow: AS_THE_QUEUE,
        instructions_grow: AS_THE_QUEUE,
        prepare: |seen| {
            let mut snap = seen.snapshot.clone();
            let mut times = 0;
            Box::new(move || {
                times += 1;
                let changed = changed(times, &snap.kube);
                Arc::make_mut(&mut snap.kube).put_node(changed);
                drop(black_box(decide(black_box(&snap), scene::now())));
            })
        },
    },
    Case {
        name: "a pass, every Node lost",
        allocations_grow: AS_THE_QUEUE,
        instructions_grow: AS_THE_QUEUE,
        prepare: |seen| {
            let mut snap = seen.snapshot.clone();
            let kube = Arc::make_mut(&mut snap.kube);
            for i in 0..kube.nodes.len() as u64 {
                kube.remove_node(&scene::name(i));
            }
            Box::new(move || drop(black_box(decide(black_box(&snap), scene::now()))))
        },
    },
    Case {
        name: "an entry read from etcd, into a view that others hold",
        allocations_grow: AS_THE_WORK,
        instructions_grow: AS_THE_WORK,
        prepare: |seen| {
            let mut snap = seen.snapshot.clone();
            let (keys, mut times) = (Keys::new("/cke/"), 0);
            Box::new(move || {
                times += 1;
                let held = Arc::clone(&snap.store);
                let entry = RebootEntry::queued(times, &scene::address(times));
                let entry = entry.moved_to(RebootStatus::Draining, scene::now().wall);
                let value = serde_json::to_string(&entry).unwrap();
                Arc::make_mut(&mut snap.store).put(&keys, &Row::new(&scene::key_of(times), &value, 6, 5));
                drop(black_box(held));
            })
        },
    },
    Case {
        name: "news of a Node, into a view that others hold",
        allocations_grow: AS_THE_WORK,
        instructions_grow: AS_THE_WORK,
        prepare: |seen| {
            let mut snap = seen.snapshot.clone();
            let mut times = 0;
            Box::new(move || {
                times += 1;
                let held = Arc::clone(&snap.kube);
                let changed = changed(times, &snap.kube);
                Arc::make_mut(&mut snap.kube).put_node(changed);
                drop(black_box(held));
            })
        },
    },
    Case {
        name: "a frame, nothing changed",
        allocations_grow: AS_THE_WORK,
        instructions_grow: AS_THE_WORK,
        prepare: |seen| {
            let mut console = Console::new(seen.clone());
            Box::new(move || console.draw())
        },
    },
    Case {
        name: "a cursor move and its frame, nodes",
        allocations_grow: AS_THE_WORK,
        instructions_grow: AS_THE_WORK,
        prepare: |seen| moves('2', seen),
    },
    Case {
        name: "a cursor move and its frame, reboots",
        allocations_grow: AS_THE_WORK,
        instructions_grow: AS_THE_WORK,
        prepare: |seen| moves('1', seen),
    },
    Case {
        name: "news of a Node and the console's frame",
        allocations_grow: AS_THE_WORK,
        instructions_grow: WITH_A_LOOK_AT_ALL,
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
fn moves(view: char, seen: &Seen) -> Box<dyn FnMut()> {
    let mut console = Console::new(seen.clone());
    console.take(key(KeyCode::Char(view)));
    Box::new(move || console.take(key(KeyCode::Char('j'))))
}
