//! Two engines whose pods are on Nodes of the cluster: the leader passes the lock on before its own Node is drained
//! (SAF-41), in both worlds.

use std::path::Path;

use serde_json::json;

use crate::world::{Options, World, cluster::machines, history::changes, in_both_worlds, program::Daemon, wait_for};

in_both_worlds! {
    Options { kcm: false, kwok: true, ..Options::default() };
    saf41_the_leader_passes_the_lock_on_before_its_own_node_is_drained,
}

fn engine_on(world: &World, node: &str) -> Daemon {
    Daemon::start_in(world.dir(), &world.config(), node, &[("CKETERM_NODE", Path::new(node))])
}

fn wait_for_leader(daemon: &Daemon) {
    wait_for("the engine leads", 90, || daemon.page("/readyz").1.contains("leading").then_some(()));
}

fn saf41_the_leader_passes_the_lock_on_before_its_own_node_is_drained(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    let (first, second) = (engine_on(world, "w1"), engine_on(world, "w2"));
    wait_for("one engine leads and the other can", 90, || {
        let pages = [first.page("/readyz").1, second.page("/readyz").1];
        (pages.iter().any(|page| page.contains("leading")) && pages.iter().all(|page| !page.is_empty())).then_some(())
    });
    let first_leads = first.page("/readyz").1.contains("leading");
    let (leader, other) = if first_leads { (first, second) } else { (second, first) };
    let (own, its) = if first_leads { (&all[1], &all[2]) } else { (&all[2], &all[1]) };

    // only a complete engine can take the lock
    wait_for("both engines are complete", 60, || {
        let mut registered = std::collections::BTreeMap::new();
        for change in changes(&world.etcd, "/cke/cketerm/engines/") {
            let is_complete = change.json()["probes_seen"] == true && change.json()["etcd_members_seen"] == true;
            registered.insert(change.key, is_complete);
        }
        (registered.values().filter(|complete| **complete).count() == 2).then_some(())
    });
    world.queue(&[own]);
    wait_for_leader(&other);
    assert!(leader.logged().contains("passing the lock"), "{}", leader.logged());
    world.wait_for_empty_queue(120);
    let started = |daemon: &Daemon, entry: &str| daemon.logged().contains(&format!("entry=reboots/{entry}"));
    assert!(started(&other, "0") && !leader.logged().contains("command started"), "{}", leader.logged());

    // and back
    world.queue(&[its]);
    wait_for_leader(&leader);
    world.wait_for_empty_queue(120);
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 2);
}
