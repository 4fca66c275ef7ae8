//! The breaker and canaries (policies `breaker` and `canary`), in both worlds: over a killed leader, and until an operator
//! resets the breaker.

use serde_json::{Value, json};

use crate::world::{Options, World, cluster::machines, history::value, in_both_worlds, program::cketerm, wait_for};

in_both_worlds! {
    Options { kcm: false, kwok: true, ..Options::default() };
    i70_nothing_starts_after_failures_until_a_reset,
    i71_the_first_machine_of_a_batch_runs_alone,
}

fn reason(world: &World, index: u64) -> String {
    let why: Value = serde_json::from_str(&world.run(&["rq", "why", &index.to_string(), "-o", "json"])).expect("JSON");
    why["reason"].to_string()
}

fn wait_for_reason(world: &World, index: u64, name: &str) -> String {
    wait_for(name, 40, || Some(reason(world, index)).filter(|reason| reason.contains(name)))
}

/// Resets the breaker and returns the message.
fn reset(world: &World, why: &str) -> String {
    let reset = cketerm(&world.config(), &["rq", "reset-breaker", "--reason", why]);
    assert_eq!(reset.code, 0, "{}", reset.stderr);
    reset.stderr.trim().to_owned()
}

fn begun(world: &World) -> usize {
    world.power().iter().filter(|p| p.what == "begin").count()
}

fn i70_nothing_starts_after_failures_until_a_reset(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    world.run(&["policy", "set", "breaker", "{failures: 1, of: 3}"]);
    let first = world.daemon("first");
    first.ready();

    // a machine that is cancelled before its command does not count
    world.run(&["rq", "disable"]);
    world.queue(&[&all[1]]);
    world.run(&["rq", "cancel", "0"]);
    world.run(&["rq", "enable"]);
    wait_for("the entry is removed", 20, || world.entries().is_empty().then_some(()));

    world.set_command_seconds(6);
    world.queue(&[&all[1]]);
    world.wait_for_entry_status(1, "rebooting", 40);
    wait_for("the command runs", 20, || (begun(world) == 1).then_some(()));
    world.run(&["rq", "cancel", "1"]);
    wait_for("the outcome is recorded", 20, || {
        value(&world.etcd, "/cke/cketerm/outcomes/0000000000000001").filter(|text| text.contains("withdrawn"))
    });
    assert_eq!(value(&world.etcd, "/cke/cketerm/outcomes/0000000000000000"), None);
    wait_for("the node is uncordoned after its boot", 60, || world.cordoned().is_empty().then_some(()));

    // a new leader comes to the same conclusion
    first.kill();
    world.set_command_seconds(0);
    world.queue(&[&all[2], &all[3]]);
    let second = world.daemon("second");
    second.ready();
    let open = wait_for_reason(world, 2, "BreakerOpen");
    assert!(open.contains("w1"), "{open}");
    assert!(world.run(&["rq", "why", "3"]).contains("`rq reset-breaker` closes it"));
    assert_eq!(begun(world), 1);

    assert_eq!(reset(world, "looked at w1"), "breaker reset: 1 of 1 reboots had ended badly; 0 in reboot");
    world.wait_for_empty_queue(120);
    assert_eq!(begun(world), 3);
    assert_eq!(reset(world, "again"), "breaker reset: 0 of 2 reboots had ended badly; 0 in reboot");
}

fn i71_the_first_machine_of_a_batch_runs_alone(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    world.set_up(&all, &json!({"max_concurrent_reboots": 3}));
    world.run(&["constraints", "set", "maximum-unreachable-nodes-for-reboot", "9"]);
    world.run(&["policy", "set", "canary", "{first: 1, soak_seconds: 20}"]);
    let first = world.daemon("first");
    first.ready();
    world.queue(&[&all[1], &all[2], &all[3]]);
    wait_for("the canary reboots", 40, || (begun(world) == 1).then_some(()));
    wait_for_reason(world, 1, "CanaryPending");
    wait_for("the canary has booted", 60, || (!world.entries().contains_key(&0)).then_some(()));
    // the soak time goes on under a new leader
    first.kill();
    let second = world.daemon("second");
    second.ready();
    wait_for("the reason names the end of the soak time", 20, || {
        reason(world, 2).contains("\"until\":\"20").then_some(())
    });
    assert_eq!(begun(world), 1);
    world.wait_for_empty_queue(120);
    assert_eq!(begun(world), 3);
}
