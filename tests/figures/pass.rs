//! One pass over 10,000 entries and 5,000 nodes: the time of `decide` alone, and that it asks nobody anything.
//!
//! `cargo bench --bench pass` prints one JSON line: microseconds as median, 99th percentile and maximum of 300 passes.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cketerm::{
    clock::Now,
    engine::{
        decide::decide,
        snapshot::{Engine, Leading, Snapshot},
    },
    model::{
        cluster::{Cluster, Members, Node},
        entry::Stored,
        kube::{KubeView, NodeRow, SourceState},
        reboot::RebootEntry,
    },
    store::view::{Definition, StoreView},
};

const NODES: u64 = 5_000;
const ENTRIES: u64 = 10_000;
const PASSES: usize = 300;

fn stored<T>(key: String, value: T) -> Stored<T> {
    Stored { key, mod_revision: 5, value: Ok(Arc::new(value)) }
}

fn snapshot() -> Snapshot {
    let mut cluster = Cluster { name: "large".to_owned(), ..Cluster::default() };
    cluster.reboot.reboot_command = Some(vec!["reboot".to_owned()]);
    cluster.reboot.boot_check_command = Some(vec!["check".to_owned()]);
    cluster.reboot.max_concurrent_reboots = Some(20);
    let mut kube = KubeView::default();
    for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
        kube.sources.insert(source.to_owned(), SourceState { synced: true, heard: 1000.0, error: None });
    }
    let address = |i: u64| format!("10.{}.{}.{}", i / 60_000, i / 250 % 240, i % 250 + 1);
    for i in 0..NODES {
        cluster.nodes.push(Node { address: address(i), control_plane: i < 5, ..Node::default() });
        kube.put_node(NodeRow {
            name: address(i),
            uid: format!("{i}"),
            addresses: vec![address(i)],
            ready: true,
            ..NodeRow::default()
        });
    }
    let mut store = StoreView { synced: true, heard: 1000.0, ..StoreView::default() };
    for i in 0..ENTRIES {
        let entry = RebootEntry::queued(i, &address(i % NODES));
        store.reboots.entries.insert(i, stored(format!("/cke/reboots/data/{i:016x}"), entry));
    }
    let members = Members::of(&cluster);
    store.cluster = Some(stored("/cke/cluster".to_owned(), Definition { cluster, members }));
    let leading = Leading { key: "leader//1".to_owned(), create_revision: 1, since: 0.0, acknowledged: 0.0 };
    Snapshot {
        store: Arc::new(store),
        kube: Arc::new(kube),
        engine: Engine { lease: 1, ttl: 60, leading: Some(leading), ..Engine::default() },
        ..Snapshot::default()
    }
}

fn main() {
    let snap = snapshot();
    let now = Now { boot: Duration::from_secs(1001), wall: "2026-08-01T12:00:00Z".parse().unwrap() };
    let first = decide(&snap, now);
    assert_eq!(first.effects.len(), 20, "the front of the queue starts");
    assert_eq!(first.reasons.len() as u64, ENTRIES, "every entry has a reason");
    let mut times: Vec<u128> = (0..PASSES)
        .map(|_| {
            let began = Instant::now();
            std::hint::black_box(decide(std::hint::black_box(&snap), now));
            began.elapsed().as_micros()
        })
        .collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{{\"figure\": \"pass\", \"entries\": {ENTRIES}, \"nodes\": {NODES}, \"median_us\": {}, \"p99_us\": {}, \"max_us\": {}}}",
        at(50),
        at(99),
        at(100)
    );
}
