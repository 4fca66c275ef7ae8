//! The repair queue on servers. The tests read the machines' events from the commands' own log.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::world::{
    Options, World,
    cluster::{Machine, machines},
    history::{changes, value},
    in_both_worlds,
    program::Daemon,
    wait_for,
};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    i40_i41_a_member_and_an_outside_machine_are_repaired_concurrently,
    i10_disabling_unwinds_a_repairs_drain_but_health_checks_continue,
    i8_a_freeze_unwinds_a_repairs_drain_and_windows_apply_only_to_their_queues,
    i25_after_a_kill_during_a_repair_command_the_health_check_decides_the_outcome,
}

const OUTSIDE: &str = "10.9.9.9";

/// Command of a step: it writes to the log, takes a while, and heals the machine if this step is set to heal.
fn step(world: &World, name: &str) -> Value {
    let dir = world.dir().display();
    let script = format!(
        r#"echo "begin $0 {name} $CKETERM_ATTEMPT" >> {dir}/repairs.log
        sleep "$(cat {dir}/takes 2>/dev/null || echo 0.2)"
        [ -e {dir}/heals-{name} ] && touch {dir}/well-$0
        echo "end $0 {name}" >> {dir}/repairs.log"#
    );
    json!(["bash", "-c", script])
}

/// Sets up the definition. Machines of type `blade` have the operation `power` of two steps, of which the second
/// drains. Machines of type `box` have the operations `reset` of one step, and `move`, which drains.
fn set_up(world: &World, all: &[Machine]) {
    world.set_up(all, &json!({}));
    let dir = world.dir().display();
    let health = json!(["bash", "-c", format!("[ -e {dir}/well-$0 ] && echo true || echo false")]);
    let success = json!(["bash", "-c", format!("echo \"success $0\" >> {dir}/repairs.log")]);
    let mut definition = world.definition(all, &json!({}));
    definition["repair"] = json!({"max_concurrent_repairs": 2, "eviction_timeout_seconds": 60, "repair_procedures": [
        {"machine_types": ["blade"], "repair_operations": [{"operation": "power", "health_check_command": health,
            "success_command": success, "repair_steps": [
                {"repair_command": step(world, "off"), "watch_seconds": 2},
                {"repair_command": step(world, "on"), "need_drain": true, "watch_seconds": 60}]}]},
        {"machine_types": ["box"], "repair_operations": [
            {"operation": "reset", "health_check_command": health, "repair_steps": [
                {"repair_command": step(world, "reset"), "watch_seconds": 60, "command_timeout_seconds": 30}]},
            {"operation": "move", "health_check_command": health, "repair_steps": [
                {"repair_command": step(world, "move"), "need_drain": true, "watch_seconds": 60}]}]}]});
    let file = world.dir().join("cluster.yaml");
    std::fs::write(&file, definition.to_string()).unwrap();
    world.run(&["cluster", "set", &file.display().to_string()]);
}

/// Makes this step heal from now on.
fn set_healing_step(world: &World, name: &str) {
    std::fs::write(world.dir().join(format!("heals-{name}")), "").unwrap();
}

fn set_healthy(world: &World, address: &str) {
    std::fs::write(world.dir().join(format!("well-{address}")), "").unwrap();
}

/// The commands' own log.
fn log(world: &World) -> Vec<String> {
    let text = std::fs::read_to_string(world.dir().join("repairs.log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn entry(world: &World, index: u64) -> Value {
    let text = value(&world.etcd, &format!("/cke/repairs/data/{index:016x}"));
    text.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default()
}

fn wait_for_status(world: &World, index: u64, status: &str, step_status: &str, seconds: u64) {
    wait_for(&format!("repair {index} is {status}/{step_status}"), seconds, || {
        let e = entry(world, index);
        (e["status"] == status && (step_status.is_empty() || e["step_status"] == step_status)).then_some(())
    });
}

fn why(world: &World, index: u64) -> String {
    world.run(&["repair-queue", "why", &index.to_string(), "-o", "json"]).replace(char::is_whitespace, "")
}

/// Every state of an entry, each once: `status/step/step_status`.
fn states(world: &World, index: u64) -> Vec<String> {
    let mut all: Vec<String> = changes(&world.etcd, &format!("/cke/repairs/data/{index:016x}"))
        .iter()
        .filter(|c| c.value.is_some())
        .map(|c| {
            let e = c.json();
            let text = |name: &str| e[name].as_str().unwrap_or_default().to_owned();
            format!("{}/{}/{}", text("status"), e["step"], text("step_status"))
        })
        .collect();
    all.dedup();
    all
}

fn with_pods(world: &World) -> Vec<Machine> {
    let all = machines(1, 2);
    world.add_nodes(&all);
    for m in all.iter().filter(|m| !m.control_plane) {
        world.add_pod("default", &format!("{}-web", m.name), &m.name, "plain", None);
    }
    world.wait_for_running_pods("default");
    set_up(world, &all);
    all
}

fn i40_i41_a_member_and_an_outside_machine_are_repaired_concurrently(world: &World) {
    let all = with_pods(world);
    let daemon = world.daemon("engine");
    daemon.ready();
    set_healing_step(world, "on");
    set_healing_step(world, "reset");
    world.run(&["repair-queue", "add", "power", "blade", &all[1].address]);
    world.run(&["repair-queue", "add", "reset", "box", OUTSIDE]);
    for index in [0, 1] {
        wait_for_status(world, index, "succeeded", "", 60);
    }
    let inside = &all[1].address;
    let log = log(world);
    let count = |words: &str| log.iter().filter(|l| l.starts_with(words)).count();
    for once in [
        format!("begin {inside} off"),
        format!("begin {inside} on"),
        format!("success {inside}"),
        format!("begin {OUTSIDE} reset"),
    ] {
        assert_eq!(count(&once), 1, "{once}: {log:?}");
    }
    assert_eq!(count("begin"), 3, "{log:?}");
    assert_eq!(
        states(world, 0),
        [
            "queued/0/waiting",
            "processing/0/watching",
            "processing/1/draining",
            "processing/1/watching",
            "succeeded/1/waiting"
        ]
    );
    assert_eq!(states(world, 1), ["queued/0/waiting", "processing/0/watching", "succeeded/0/waiting"]);
    assert_eq!((entry(world, 0)["nodename"].clone(), entry(world, 1)["nodename"].clone()), (json!("w1"), json!("")));
    wait_for("all nodes are uncordoned", 20, || world.cordoned().is_empty().then_some(()));
    let pods = world.ok("GET", "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3Dw1", None);
    assert_eq!(pods["items"].as_array().map(Vec::len), Some(0), "the second step must drain the node");
    // each attempt records its step and its kind
    let attempts: BTreeMap<String, Value> = changes(&world.etcd, "/cke/cketerm/attempts/repairs/0/")
        .iter()
        .filter(|c| c.value.is_some())
        .map(|c| (c.key.clone(), c.json()))
        .collect();
    let steps: Vec<_> = attempts.values().map(|a| (a["step"].as_i64(), a["success"] == true)).collect();
    assert_eq!(steps, [(Some(0), false), (Some(1), false), (Some(1), true)], "{attempts:?}");
    // finished entries stay until they are deleted
    world.run(&["repair-queue", "delete", "0"]);
    wait_for("the entry is removed", 20, || entry(world, 0).is_null().then_some(()));
    assert_eq!(entry(world, 1)["status"], "succeeded");
    let left = changes(&world.etcd, "/cke/cketerm/attempts/repairs/0/");
    assert!(left.iter().rev().take(3).all(|c| c.value.is_none()), "the attempts are deleted with the entry");
    let ended = value(&world.etcd, "/cke/cketerm/history/repairs-0000000000000000").unwrap_or_default();
    assert!(ended.contains("\"succeeded\"") && ended.contains("repairs-0-3"), "{ended}");
}

/// An engine that leads, and a repair of w1 whose drain does not end, because its pods stay Terminating.
fn blocked_repair(world: &World) -> (Vec<Machine>, Daemon) {
    let all = with_pods(world);
    world.act("freeze", "kwok");
    let daemon = world.daemon("engine");
    daemon.ready();
    set_healing_step(world, "move");
    world.run(&["repair-queue", "add", "move", "box", &all[1].address]);
    (all, daemon)
}

fn i10_disabling_unwinds_a_repairs_drain_but_health_checks_continue(world: &World) {
    let (_, _daemon) = blocked_repair(world);
    wait_for_status(world, 0, "processing", "draining", 20);
    wait_for("the node is cordoned", 20, || (world.cordoned() == ["w1"]).then_some(()));
    world.run(&["repair-queue", "disable"]);
    wait_for_status(world, 0, "processing", "waiting", 20);
    wait_for("the node is uncordoned", 20, || world.cordoned().is_empty().then_some(()));
    assert_eq!(entry(world, 0)["drain_backoff_count"], 1);
    // health checks continue while the queue is disabled
    world.run(&["repair-queue", "add", "reset", "box", OUTSIDE]);
    wait_for("the reason is QueueDisabled", 20, || why(world, 1).contains("QueueDisabled").then_some(()));
    set_healthy(world, OUTSIDE);
    wait_for_status(world, 1, "succeeded", "", 20);
    assert!(log(world).is_empty(), "no command may run: {:?}", log(world));

    world.act("thaw", "kwok");
    world.run(&["repair-queue", "enable"]);
    wait_for("the repair backs off", 20, || why(world, 0).contains("Backoff").then_some(()));
    world.run(&["repair-queue", "reset-backoff"]);
    wait_for_status(world, 0, "succeeded", "", 60);
    assert_eq!(log(world).iter().filter(|l| l.starts_with("begin")).count(), 1, "{:?}", log(world));
    wait_for("all nodes are uncordoned", 20, || world.cordoned().is_empty().then_some(()));
}

fn i8_a_freeze_unwinds_a_repairs_drain_and_windows_apply_only_to_their_queues(world: &World) {
    let (all, _daemon) = blocked_repair(world);
    world.run(&["repair-queue", "add", "reset", "box", OUTSIDE]);
    wait_for_status(world, 0, "processing", "draining", 20);
    wait_for_status(world, 1, "processing", "watching", 20);
    wait_for("the node is cordoned", 20, || (world.cordoned() == ["w1"]).then_some(()));
    wait_for("the command has run", 20, || log(world).contains(&format!("end {OUTSIDE} reset")).then_some(()));

    world.run(&["freeze", "--until", "1h", "--reason", "CHG-8"]);
    wait_for_status(world, 0, "processing", "waiting", 20);
    wait_for("the node is uncordoned", 20, || world.cordoned().is_empty().then_some(()));
    assert!(
        entry(world, 0)["drain_backoff_count"].as_i64().unwrap_or(0) == 0,
        "a freeze must not count as a backoff: {}",
        entry(world, 0)
    );
    wait_for("the reason is Frozen", 20, || why(world, 0).contains("Frozen").then_some(()));
    // a step whose command ran before the freeze continues to its end
    assert_eq!(entry(world, 1)["step_status"], "watching");
    set_healthy(world, OUTSIDE);
    wait_for_status(world, 1, "succeeded", "", 20);
    world.run(&["repair-queue", "add", "reset", "box", "10.9.9.8"]);
    wait_for("a new repair waits for the end of the freeze", 20, || why(world, 2).contains("Frozen").then_some(()));
    let begun = |address: &str| log(world).iter().filter(|l| l.starts_with(&format!("begin {address}"))).count();
    assert_eq!((begun(&all[1].address), begun(OUTSIDE), begun("10.9.9.8")), (0, 1, 0), "{:?}", log(world));

    // windows that apply only to the reboot queue and open in half a day
    let hour = (jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour() + 12) % 24;
    let windows = json!({"time_zone": "UTC", "allow": [format!("* {hour} * * *")], "queues": ["reboot"]});
    world.run(&["policy", "set", "windows", &windows.to_string()]);
    world.act("thaw", "kwok");
    world.run(&["unfreeze"]);
    set_healing_step(world, "reset");
    for index in [0, 2] {
        wait_for_status(world, index, "succeeded", "", 60);
    }
    let both = json!({"time_zone": "UTC", "allow": [format!("* {hour} * * *")]});
    world.run(&["policy", "set", "windows", &both.to_string()]);
    world.run(&["repair-queue", "add", "reset", "box", "10.9.9.7"]);
    wait_for("the reason is OutsideWindow", 20, || why(world, 3).contains("OutsideWindow").then_some(()));
    assert_eq!((begun("10.9.9.8"), begun("10.9.9.7")), (1, 0), "{:?}", log(world));
    wait_for("all nodes are uncordoned", 20, || world.cordoned().is_empty().then_some(()));
}

fn i25_after_a_kill_during_a_repair_command_the_health_check_decides_the_outcome(world: &World) {
    with_pods(world);
    std::fs::write(world.dir().join("takes"), "4").unwrap();
    let first = world.daemon("first");
    first.ready();
    world.run(&["repair-queue", "add", "reset", "box", OUTSIDE]);
    wait_for("the command runs", 30, || log(world).iter().any(|l| l.starts_with("begin")).then_some(()));
    first.kill();
    // the result stored on the host is lost too
    let state = world.dir().join("state");
    std::fs::rename(&state, world.dir().join("state.lost")).unwrap();
    std::fs::write(&state, "").unwrap();
    let second = world.daemon("second");
    second.ready();
    // the command may still be running: the engine waits, and the reason names the end of that time
    wait_for("the reason is OutcomeUnknown with a time limit", 40, || {
        let why = why(world, 0);
        (why.contains("OutcomeUnknown") && why.contains("\"until\":\"")).then_some(())
    });
    wait_for("the command has ended", 20, || log(world).iter().any(|l| l.starts_with("end")).then_some(()));
    // after TTL + TTL/12 + the command's timeout an operator or the health check decides the outcome
    wait_for("the reason is OutcomeUnknown without a time limit", 60, || {
        let why = why(world, 0);
        (why.contains("OutcomeUnknown") && !why.contains("\"until\":\"")).then_some(())
    });
    assert_eq!(entry(world, 0)["step_status"], "watching");
    set_healthy(world, OUTSIDE);
    wait_for_status(world, 0, "succeeded", "", 20);
    assert_eq!(
        log(world).iter().filter(|l| l.starts_with("begin")).count(),
        1,
        "no command may run twice: {:?}",
        log(world)
    );
    let attempt = value(&world.etcd, "/cke/cketerm/attempts/repairs/0/1").unwrap_or_default();
    assert!(attempt.contains("unknown") && attempt.contains("settled by the health check"), "{attempt}");
}
