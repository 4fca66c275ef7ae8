//! Blockers of a drain: each is named with its object, and the reason disappears with it.

use serde_json::json;

use crate::world::{Options, World, cluster::machines, in_both_worlds, wait_for};

in_both_worlds! {
    Options { kcm: true, kwok: true, audit: true, etcd34: false, scheduler: false };
    i32_a_budget_that_blocks_a_running_drain_is_named_until_it_allows_the_eviction,
    i15_a_budget_found_by_the_preview_backs_off_before_any_eviction,
    i18_a_protected_running_job_backs_the_drain_off_and_is_never_evicted,
}

fn why(world: &World) -> String {
    world.run(&["rq", "why", "0", "-o", "json"])
}

fn i32_a_budget_that_blocks_a_running_drain_is_named_until_it_allows_the_eviction(world: &World) {
    world.set_up_web(1);
    // only one of the two pods may be evicted; the preview checks each pod alone, so it allows both
    world.add_budget("default", "web", "web", 1);
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&machines(1, 1)[1]]);
    wait_for("the reason names the budget", 30, || {
        // no controller makes another pod: once the cause is looked up, the budget never allows the second one to go
        let why = why(world);
        let named = why.contains("BlockedByPDB") || why.contains("PDBNeverAllows");
        (named && why.contains("default/web")).then_some(())
    });
    world.wait_for_entry_status(0, "draining", 1);
    assert!(world.power().is_empty());
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web";
    world.ok("PATCH", path, Some(&json!({"spec": {"minAvailable": 0}})));
    world.wait_for_empty_queue(40);
    wait_for("the node is uncordoned", 10, || world.cordoned().is_empty().then_some(()));
}

fn i15_a_budget_found_by_the_preview_backs_off_before_any_eviction(world: &World) {
    world.set_up_web(1);
    world.add_budget("default", "web", "web", 2);
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&machines(1, 1)[1]]);
    wait_for("the drain backs off and the reason names the budget", 30, || {
        let backed_off = world.entries().get(&0)?["drain_backoff_count"].as_i64()? >= 1;
        (backed_off && why(world).contains("default/web")).then_some(())
    });
    assert_no_eviction(world);
    wait_for("the node is uncordoned at once", 10, || world.cordoned().is_empty().then_some(()));
    world.ok("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web", None);
    world.run(&["rq", "reset-backoff"]);
    world.wait_for_empty_queue(40);
}

fn i18_a_protected_running_job_backs_the_drain_off_and_is_never_evicted(world: &World) {
    world.set_up_web(1);
    let job = world.add_job("default", "nightly");
    world.add_pod("default", "nightly-1", "w1", "batch", Some(&job));
    world.wait_for_running_pods("default");
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&machines(1, 1)[1]]);
    wait_for("the drain backs off and the reason names the job", 30, || {
        let backed_off = world.entries().get(&0)?["drain_backoff_count"].as_i64()? >= 1;
        (backed_off && why(world).contains("default/nightly")).then_some(())
    });
    assert_no_eviction(world);
    world.ok("DELETE", "/api/v1/namespaces/default/pods/nightly-1", None);
    world.run(&["rq", "reset-backoff"]);
    world.wait_for_empty_queue(40);
}

/// Asserts that no pod has been evicted or deleted so far, and no power command has run.
fn assert_no_eviction(world: &World) {
    let list = world.ok("GET", "/api/v1/namespaces/default/pods", None);
    let going: Vec<_> =
        list["items"].as_array().unwrap().iter().filter(|p| !p["metadata"]["deletionTimestamp"].is_null()).collect();
    assert!(going.is_empty(), "{going:?}");
    let deletions =
        world.audit().iter().filter(|e| e["verb"] == "delete" && e["objectRef"]["resource"] == "pods").count();
    assert_eq!(deletions, 0);
    assert!(world.power().is_empty());
}
