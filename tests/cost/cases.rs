//! What is counted.

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

/// Something that happens again and again.
pub struct Case {
    /// As in the table.
    pub name: &'static str,
    /// How many times more allocations ten times the nodes may take.
    pub allocations_grow: f64,
    /// And instructions.
    pub instructions_grow: f64,
    /// Takes the scene; each call of what comes back does it once.
    pub prepare: fn(&Seen) -> Box<dyn FnMut()>,
}

/// A pass looks at every entry: it may grow as the queue does, a little more for the depth of trees.
const AS_THE_QUEUE: f64 = 11.5;
/// What follows the work: hardly more in a large cluster, for the depth of trees again.
const AS_THE_WORK: f64 = 1.5;

/// News that a console draws: the header's counts and the list's order are looked through, nothing is made anew.
const WITH_A_LOOK_AT_ALL: f64 = 2.0;

/// All of them.
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

/// One of the Nodes, with a kubelet that it did not have.
fn changed(times: u64, kube: &KubeView) -> NodeRow {
    node(times * 37 % kube.nodes.len() as u64, &format!("v1.35.{times}"))
}

/// The cursor goes down in this view.
fn moves(view: char, seen: &Seen) -> Box<dyn FnMut()> {
    let mut console = Console::new(seen.clone());
    console.take(key(KeyCode::Char(view)));
    Box::new(move || console.take(key(KeyCode::Char('j'))))
}
