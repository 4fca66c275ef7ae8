//! Histories of one feature each, on a small site.

use cketerm_model::{boot_time::Seconds, stored::keys::SwitchName, time::after};
use cketerm_sandbox::{
    kubernetes::resource::{MAINTENANCE_REQUESTS, NODES},
    machines::{Behaviour, OnHook},
    members::MemberFaults,
    prometheus::{self, Kind},
};
use serde_json::{Value, json};

use super::{History, Play, block_on};
use crate::registry;

/// All of them.
pub const HISTORIES: &[History] = &[
    History { name: "conditions", play: || block_on(conditions()) },
    History { name: "failover", play: || block_on(failover()) },
    History { name: "shutdown", play: || block_on(shutdown()) },
    History { name: "handover", play: || block_on(handover()) },
    History { name: "maintenance", play: || block_on(maintenance()) },
    History { name: "maintenance-requests", play: || block_on(maintenance_requests()) },
    History { name: "hooks", play: || block_on(hooks()) },
    History { name: "reboot-needed", play: || block_on(reboot_needed()) },
    History { name: "etcd-members", play: || block_on(etcd_members()) },
    History { name: "start-gates", play: || block_on(start_gates()) },
    History { name: "membership", play: || block_on(membership()) },
    History { name: "automatic-repair", play: || block_on(automatic_repair()) },
    History { name: "breaker", play: || block_on(breaker()) },
];

/// A small site. Nothing is drawn by lot but the time that a pod needs to stop.
pub const SITE: &str = r"
name: small
about: Three control planes and three workers.
population: {nodes: 6, pods_per_node: 1}
pace: {boot: {seconds: 30, jitter: 0}, command: {seconds: 2, jitter: 0}, node_ready: {seconds: 2, jitter: 0},
  kubelet_start: {seconds: 2, jitter: 0}, api_settle: 5, node_monitor_grace: 10}
reboot: {max_concurrent_reboots: 2, eviction_timeout_seconds: 60, command_timeout_seconds: 15, evict_retries: 1, evict_interval: 3}
";

pub async fn small() -> Play {
    let play = Play::parse(SITE).await;
    play.operator("bob").set_policy("settle_seconds", "5", None).await.unwrap();
    play
}

/// Conditions, the taint of planned reboots and Events on pods appear and go.
async fn conditions() -> String {
    let play = small().await;
    let operator = play.operator("alice");
    for (name, value) in [("node_conditions", "true"), ("planned_taint_waves", "2"), ("pod_events", "true")] {
        operator.set_policy(name, value, None).await.unwrap();
    }
    let taint = json!({"key": "example.com/disk", "effect": "NoSchedule"});
    play.change(&NODES, "w3", |node| node["spec"]["taints"] = json!([taint]));
    operator.set_constraint("maximum-unreachable-nodes-for-reboot", "2", None).await.unwrap();
    play.add(&["w1", "w2", "w3"]).await;
    play.until(200).await;
    play.history()
}

/// Leaders die before, during and after a command whose host keeps its result.
async fn failover() -> String {
    let play = small().await;
    play.add(&["w1", "w2"]).await;
    play.until_command_begins("w1").await;
    play.kill(0);
    play.until(60).await;
    play.start(0).await;
    play.until(90).await;
    play.add(&["w3"]).await;
    play.until(93).await;
    play.kill(1);
    play.until(150).await;
    play.start(1).await;
    play.until(300).await;
    play.history()
}

/// A leader is stopped while a drain waits and while a command runs.
async fn shutdown() -> String {
    let play = small().await;
    play.add(&["w1", "w2", "w3"]).await;
    play.until_command_begins("w1").await;
    play.stop(0).await;
    play.until(240).await;
    play.history()
}

/// The policy gives the queues to CKE and takes them back while a reboot is in progress.
async fn handover() -> String {
    let play = small().await;
    let operator = play.operator("alice");
    play.add(&["w1", "w2", "w3"]).await;
    play.until(8).await;
    play.say("set policy", &operator.set_policy("engine", "cke", Some("handover")).await.map(drop));
    play.until(60).await;
    play.say("add", &operator.add_reboots(&play.addresses(&["w3"]), None).await);
    play.until(180).await;
    play.say("set policy", &operator.set_policy("engine", "cketerm", Some("back")).await.map(drop));
    play.until(400).await;
    play.history()
}

async fn maintenance() -> String {
    let play = small().await;
    let operator = play.operator("alice");
    let (w1, w2) = (play.addresses(&["w1"]), play.addresses(&["w2"]));
    let until = |seconds| after(operator.store.clock().wall(), seconds);
    play.say("maintain", &operator.add_maintenance(&w1, until(90), Some("disk")).await);
    play.say("maintain", &operator.add_maintenance(&w2, until(3600), Some("fan")).await);
    play.say("maintain again", &operator.add_maintenance(&w1, until(50), Some("disk")).await);
    play.say("maintain without a reason", &operator.add_maintenance(&w1, until(50), None).await);
    play.add(&["w1", "w3"]).await;
    play.until(60).await;
    play.say("extend", &operator.extend_maintenance(&["w2".to_owned()], until(120), Some("slow")).await);
    play.say("extend into the past", &operator.extend_maintenance(&["w2".to_owned()], until(-1), None).await);
    play.until(80).await;
    play.say("release", &operator.release_maintenance(&["maintenance/1".to_owned()], Some("done")).await);
    play.say("release of none", &operator.release_maintenance(&["w3".to_owned()], None).await);
    play.until(260).await;
    play.say("note", &operator.release_note().await);
    play.history()
}

async fn maintenance_requests() -> String {
    let play = small().await;
    let operator = play.operator("alice");
    operator.set_policy("maintenance_requests", "true", None).await.unwrap();
    let end = after(operator.store.clock().wall(), 900).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let request = |name: &str, nodes: &[&str], action: &str| {
        json!({
            "apiVersion": "cketerm.io/v1alpha1", "kind": "MaintenanceRequest", "metadata": {"name": name},
            "spec": {"nodeNames": nodes, "reason": "firmware", "action": action, "window": {"end": end}},
        })
    };
    let objects = &play.stage.sandbox.objects;
    objects.create(&MAINTENANCE_REQUESTS, "", request("keep", &["w1"], "Keep")).map_err(|e| e.message).unwrap();
    play.until(10).await;
    objects.create(&MAINTENANCE_REQUESTS, "", request("boot", &["w2", "w3"], "Reboot")).map_err(|e| e.message).unwrap();
    objects.create(&MAINTENANCE_REQUESTS, "", request("wrong", &["w9"], "Reboot")).map_err(|e| e.message).unwrap();
    play.until(120).await;
    for name in ["keep", "boot", "wrong"] {
        play.delete(&MAINTENANCE_REQUESTS, name);
    }
    play.until(300).await;
    play.history()
}

async fn hooks() -> String {
    const HOOKS: &str = "- {name: silence, at: before_drain, command: [/site/silence, hook], retries: 1, retry_interval_seconds: 2}\n\
                         - {name: moved, at: after_drain, command: [/site/moved, hook], timeout_seconds: 5}\n\
                         - {name: sound, at: before_uncordon, command: [/site/sound, hook], timeout_seconds: 5, retries: 2}\n\
                         - {name: unsilence, at: after_uncordon, command: [/site/unsilence, hook]}\n\
                         - {name: ticket, at: after_uncordon, url: 'http://tickets.invalid/', timeout_seconds: 3}\n";
    let play = small().await;
    let operator = play.operator("alice");
    operator.set_policy("hooks", HOOKS, None).await.unwrap();
    play.behave("w1", Behaviour { hook: OnHook::Fails, ..Behaviour::default() });
    play.behave("w2", Behaviour { hook: OnHook::Hangs, ..Behaviour::default() });
    play.add(&["w1", "w2", "w3"]).await;
    play.until(100).await;
    play.behave("w1", Behaviour::default());
    play.behave("w2", Behaviour::default());
    play.until(140).await;
    play.say("cancel", &operator.cancel_reboot(1, None, Some("not today")).await);
    play.until(160).await;
    play.say("set hooks", &operator.set_policy("hooks", "none", None).await.map(drop));
    play.until(500).await;
    play.history()
}

async fn reboot_needed() -> String {
    let play = small().await;
    let operator = play.operator("alice");
    operator.set_policy("reboot_needed", "queue", None).await.unwrap();
    operator.set_policy("reboot_needed_at_once", "1", None).await.unwrap();
    let signal = cketerm_model::reboot_signals::REBOOT_NEEDED_ANNOTATION;
    for node in ["w1", "w2"] {
        play.change(&NODES, node, |node| node["metadata"]["annotations"][signal] = json!("kernel 6.6.74"));
    }
    play.until(100).await;
    play.change(&NODES, "w1", |node| node["metadata"]["annotations"][signal] = Value::Null);
    play.until(400).await;
    play.say("set policy", &operator.set_policy("reboot_needed", "propose", None).await.map(drop));
    play.change(&NODES, "w3", |node| node["metadata"]["annotations"][signal] = json!("kernel 6.6.75"));
    play.until(500).await;
    play.history()
}

/// A member of etcd is in trouble while a control plane is to reboot, and another one is etcd's leader.
async fn etcd_members() -> String {
    let play = small().await;
    let members = &play.stage.sandbox.members;
    let address = |name: &str| play.addresses(&[name])[0].to_string();
    members.set_leader(&address("cp1"));
    members.trouble(&address("cp2"), MemberFaults { stopped: true, ..MemberFaults::default() });
    play.add(&["cp1", "cp3"]).await;
    play.until(40).await;
    members.trouble(&address("cp2"), MemberFaults { alarm: true, ..MemberFaults::default() });
    play.until(80).await;
    members.trouble(&address("cp2"), MemberFaults::default());
    play.until(400).await;
    play.history()
}

async fn start_gates() -> String {
    let play = small().await;
    let operator = play.operator("alice");
    let gates = "{prometheus: 'http://prometheus.sandbox:9090', alerts: {}, \
                 queries: [{name: ceph, query: ceph_health > 0}], interval_seconds: 10, timeout_seconds: 3}";
    operator.set_policy("start_gates", gates, None).await.unwrap();
    let prometheus = &play.stage.sandbox.prometheus;
    prometheus.behave(Kind::Alerts, prometheus::Behaviour::Fires);
    play.add(&["w1", "w2"]).await;
    play.until(40).await;
    prometheus.behave(Kind::Alerts, prometheus::Behaviour::Quiet);
    prometheus.behave(Kind::Other, prometheus::Behaviour::Fails);
    play.until(80).await;
    prometheus.behave(Kind::Other, prometheus::Behaviour::Quiet);
    play.until(200).await;
    play.history()
}

/// The definition follows the Nodes: one leaves, and one joins.
async fn membership() -> String {
    let play = small().await;
    let operator = play.operator("alice");
    for (name, value) in [("node_grace_seconds", "20"), ("membership", "nodes"), ("approval", "gate")] {
        operator.set_policy(name, value, None).await.unwrap();
    }
    play.until(30).await;
    let node = play.stage.sandbox.objects.get(&NODES, "", "w3").unwrap();
    play.add(&["w3"]).await;
    let _ = play.stage.sandbox.objects.remove(&NODES, "", "w3", |_| Ok(()));
    play.until(120).await;
    let mut back = (*node).clone();
    back["metadata"]["resourceVersion"] = Value::Null;
    back["metadata"]["name"] = json!("w7");
    back["metadata"]["labels"]["kubernetes.io/hostname"] = json!("w7");
    let _ = play.stage.sandbox.objects.create(&NODES, "", back);
    play.until(240).await;
    play.history()
}

/// sabakan reports a machine as unreachable and another one as unhealthy; its answers fail for a while.
async fn automatic_repair() -> String {
    use cketerm_sandbox::sabakan::State;
    let play = Play::parse(&format!(
        "{SITE}repair:\n  repair_procedures:\n  - machine_types: [sim]\n    repair_operations:\n    - operation: unreachable\n      \
         health_check_command: [sandbox-machine, health]\n      command_timeout_seconds: 15\n      success_command: [sandbox-machine, 'on']\n      \
         repair_steps:\n      - {{repair_command: [sandbox-machine, repair], command_timeout_seconds: 15, command_retries: 1, command_interval: 3, watch_seconds: 20}}\n      \
         - {{repair_command: [sandbox-machine, reinstall], need_drain: true, command_timeout_seconds: 15, watch_seconds: 90}}\n"
    ))
    .await;
    let operator = play.operator("alice");
    let machines = play.stage.sandbox.machines.list();
    registry::settle(&play.stage.sandbox, &operator, &machines, 4).await;
    play.until(20).await;
    let address = play.addresses(&["w1"])[0].to_string();
    let late = Behaviour { ill: 1, late_seconds: Seconds::new(1.0), ..Behaviour::default() };
    play.stage.sandbox.machines.behave(&address, late);
    registry::update_state(&play.stage.sandbox, &address, State::Unreachable);
    play.until(240).await;
    registry::update_state(&play.stage.sandbox, &address, State::Healthy);
    play.until(300).await;
    play.say("repairs off", &operator.set_switch(SwitchName::AutoRepair, false, Some("enough")).await);
    play.until(320).await;
    play.history()
}

async fn breaker() -> String {
    let play = small().await;
    let operator = play.operator("alice");
    let policies =
        [("stuck_seconds", "60"), ("breaker", "{failures: 1, of: 3}"), ("canary", "{first: 1, soak_seconds: 20}")];
    for (name, value) in policies {
        operator.set_policy(name, value, None).await.unwrap();
    }
    operator.set_constraint("maximum-unreachable-nodes-for-reboot", "9", None).await.unwrap();
    play.behave("w1", Behaviour { late_seconds: Seconds::new(200.0), ..Behaviour::default() });
    play.add(&["w1", "w2", "w3"]).await;
    play.until(300).await;
    play.say("reset without a reason", &operator.reset_breaker(Some(" ")).await);
    play.say("reset", &operator.reset_breaker(Some("looked at it")).await);
    play.until(500).await;
    play.history()
}
