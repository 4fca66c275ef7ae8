//! Histories with faults at fixed moments: lost answers, a lost lock, an etcd that is cut off, full or compacted, wrong
//! clocks and another cluster.

use std::time::Duration;

use cketerm_sandbox::{
    faults::{RequestFault, State},
    machines::Behaviour,
};
use cketerm_sandbox::{
    kubernetes::resource::{BARE_METAL_HOSTS, NODES},
    metal3::NAMESPACE,
};
use jiff::SignedDuration;
use serde_json::json;

use super::{
    History, Play, block_on,
    features::{SITE, small},
};

/// All of them.
pub const HISTORIES: &[History] = &[
    History { name: "lost-answers", play: || block_on(lost_answers()) },
    History { name: "lost-lock", play: || block_on(lost_lock()) },
    History { name: "cut-off", play: || block_on(cut_off()) },
    History { name: "watches", play: || block_on(watches()) },
    History { name: "not-ready-to-lead", play: || block_on(not_ready_to_lead()) },
    History { name: "interrupted-hosts", play: || block_on(interrupted_hosts()) },
    History { name: "failing-receiver", play: || block_on(failing_receiver()) },
    History { name: "stuck", play: || block_on(stuck()) },
    History { name: "removed-machine", play: || block_on(removed_machine()) },
];

impl Play {
    /// Puts a fault on the next request of an engine to etcd whose path contains this.
    fn next_to_etcd(&self, engine: usize, path: &str, fault: RequestFault) {
        self.engines.lock().unwrap()[engine].links.etcd.next(path, fault);
    }

    fn next_to_kubernetes(&self, engine: usize, path: &str, fault: RequestFault) {
        self.engines.lock().unwrap()[engine].links.kubernetes.next(path, fault);
    }
}

/// The answers to a leader's transactions and requests get lost, or the requests arrive twice.
async fn lost_answers() -> String {
    let play = small().await;
    play.until(5).await;
    play.next_to_etcd(0, "Txn", RequestFault::LoseReply);
    play.add(&["w1"]).await;
    play.until(7).await;
    play.next_to_etcd(0, "Txn", RequestFault::Duplicate);
    play.next_to_kubernetes(0, "eviction", RequestFault::LoseReply);
    play.until(10).await;
    play.next_to_etcd(0, "Txn", RequestFault::DropReply);
    play.next_to_kubernetes(0, "/api/v1/nodes", RequestFault::LoseReply);
    play.until(90).await;
    play.next_to_kubernetes(0, "/api/v1/nodes", RequestFault::LoseReply);
    play.next_to_etcd(0, "Txn", RequestFault::LoseRequest);
    play.add(&["w2"]).await;
    play.until(95).await;
    play.next_to_kubernetes(0, "/api/v1/nodes", RequestFault::Duplicate);
    play.next_to_etcd(0, "Txn", RequestFault::LoseReply);
    play.until(240).await;
    play.history()
}

/// Somebody deletes the leader's key, a lease ends, and the process stands still for longer than its lease.
async fn lost_lock() -> String {
    let play = small().await;
    play.add(&["w1", "w2"]).await;
    play.until(3).await;
    let etcd = &play.stage.sandbox.etcd;
    let key = etcd.history().into_iter().find(|c| c.key.starts_with(b"/cke/leader//")).unwrap().key;
    etcd.delete(&key);
    play.until(60).await;
    for lease in etcd.leases() {
        etcd.expire_lease(lease);
    }
    play.until(150).await;
    let gate = play.engines.lock().unwrap()[0].gate.clone();
    gate.freeze();
    play.until(175).await;
    gate.thaw();
    play.add(&["w3"]).await;
    play.until(330).await;
    play.history()
}

/// The leader cannot reach etcd, then Kubernetes, for a while.
async fn cut_off() -> String {
    let play = small().await;
    let set = |engine: usize, etcd: State, kubernetes: State| {
        let engines = play.engines.lock().unwrap();
        engines[engine].links.etcd.set_state(etcd);
        engines[engine].links.kubernetes.set_state(kubernetes);
    };
    play.add(&["w1", "w2"]).await;
    play.until(6).await;
    set(0, State::Open, State::Cut);
    play.until(40).await;
    set(0, State::Open, State::Open);
    play.until(60).await;
    set(0, State::Silent, State::Open);
    play.until(100).await;
    set(0, State::Open, State::Open);
    play.add(&["w3"]).await;
    play.until(103).await;
    set(1, State::Cut, State::Open);
    play.until(140).await;
    set(1, State::Open, State::Silent);
    play.until(200).await;
    set(1, State::Open, State::Open);
    play.until(320).await;
    play.history()
}

/// etcd's watches break, stand still and are compacted; etcd is full for a while.
async fn watches() -> String {
    let play = small().await;
    let etcd = &play.stage.sandbox.etcd;
    play.add(&["w1"]).await;
    play.until(4).await;
    etcd.cut_watches();
    play.until(8).await;
    etcd.stall_watches(true);
    play.add(&["w2"]).await;
    etcd.put("/cke/reboots/data/0000000000000063", "{");
    play.until(60).await;
    etcd.delete("/cke/reboots/data/0000000000000063");
    etcd.stall_watches(false);
    play.until(90).await;
    let _ = etcd.compact(etcd.revision());
    etcd.cut_watches();
    play.stage.sandbox.api.stall_watches(true);
    play.add(&["w3"]).await;
    play.until(150).await;
    play.stage.sandbox.api.stall_watches(false);
    etcd.set_nospace(true);
    play.until(180).await;
    etcd.set_nospace(false);
    play.until(330).await;
    play.history()
}

/// One engine's clock is wrong, and the other's etcd belongs to another cluster than its Kubernetes.
async fn not_ready_to_lead() -> String {
    let play = small().await;
    play.engines.lock().unwrap()[0].clock.step(SignedDuration::from_secs(30));
    play.kill(0);
    play.until(40).await;
    play.start(0).await;
    play.until(70).await;
    let etcd = &play.stage.sandbox.etcd;
    let identity = etcd.get("/cke/cketerm/identity").unwrap();
    play.add(&["w1"]).await;
    etcd.put("/cke/cketerm/identity", r#"{"uid":"another","confirmed_by":null,"at":"2026-10-01T12:00:00Z"}"#);
    play.until(140).await;
    play.kill(1);
    play.until(200).await;
    let unconfirmed = String::from_utf8(identity.clone()).unwrap();
    let mut unconfirmed: serde_json::Value = serde_json::from_str(&unconfirmed).unwrap();
    unconfirmed["confirmed_by"] = serde_json::Value::Null;
    etcd.put("/cke/cketerm/identity", unconfirmed.to_string());
    play.until(240).await;
    etcd.put("/cke/cketerm/identity", identity);
    play.engines.lock().unwrap()[0].clock.step(SignedDuration::from_secs(-30));
    play.until(400).await;
    play.history()
}

/// Engines stop, and the controller is switched off, while a host's power is cycled.
async fn interrupted_hosts() -> String {
    let play = Play::parse(&SITE.replace("pods_per_node: 1", "pods_per_node: 1, metal3: {operator: none}")).await;
    let operator = play.operator("alice");
    operator.set_policy("metal3_controller", "true", None).await.unwrap();
    play.until(20).await;
    let annotate = |name: &str, key: &str, value: serde_json::Value| {
        let changed = play.stage.sandbox.objects.update(&BARE_METAL_HOSTS, NAMESPACE, name, |host| {
            host["metadata"]["annotations"][key] = value.clone();
            Ok(())
        });
        changed.map_err(|e| e.message).unwrap();
    };
    let is_off = async |name: &str| {
        while play.stage.sandbox.objects.get(&BARE_METAL_HOSTS, NAMESPACE, name).unwrap()["status"]["poweredOn"]
            != false
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    annotate("w1", "reboot.metal3.io", json!("{\"mode\": \"hard\"}"));
    annotate("w2", "reboot.metal3.io/remediation", json!(""));
    is_off("w1").await;
    play.stop(0).await;
    play.until(100).await;
    annotate("w3", "reboot.metal3.io", json!("{\"mode\": \"hard\"}"));
    is_off("w3").await;
    play.say("controller off", &operator.set_policy("metal3_controller", "false", None).await.map(drop));
    play.until(160).await;
    play.say("controller on", &operator.set_policy("metal3_controller", "true", None).await.map(drop));
    annotate("w2", "reboot.metal3.io/remediation", serde_json::Value::Null);
    play.start(0).await;
    play.until(240).await;
    play.kill(1);
    annotate("w1", "reboot.metal3.io", json!(""));
    play.until(330).await;
    play.history()
}

/// The receiver of notices is slow, answers 500 and takes notices without an answer, until it is well again.
async fn failing_receiver() -> String {
    let play = small().await;
    play.receiver.fail();
    play.operator("alice").set_policy("stuck_seconds", "30", None).await.unwrap();
    play.behave("w1", Behaviour { fails: 2, exit_code: 3, ..Behaviour::default() });
    play.add(&["w1", "w2", "w3"]).await;
    play.until(100).await;
    play.kill(0);
    play.until(300).await;
    play.receiver.heal();
    play.until(900).await;
    play.history()
}

/// A machine does not come back; an operator is told, looks, and says that it is done.
async fn stuck() -> String {
    let play = small().await;
    let operator = play.operator("alice");
    operator.set_policy("stuck_seconds", "60", None).await.unwrap();
    let never = Behaviour { boot: cketerm_sandbox::machines::OnBoot::Never, ..Behaviour::default() };
    play.behave("w1", never);
    play.add(&["w1"]).await;
    play.until(200).await;
    let id = cketerm_model::entry::EntryId::reboot(0);
    play.say("not ready", &operator.not_ready(id).await);
    let verb = cketerm_model::verb::Verb::Done;
    play.say("done", &operator.order(id, verb, None, Some("it is on")).await);
    play.until(260).await;
    play.behave("w1", Behaviour::default());
    play.say("cancel", &operator.cancel_reboot(0, None, None).await);
    tokio::time::sleep(Duration::from_secs(100)).await;
    play.history()
}

/// A machine does not come back, its reboot is cancelled, and its Node is deleted: no Node carries the record of the
/// attempt any more, so the attempt moves into the history.
async fn removed_machine() -> String {
    let play = small().await;
    let never = Behaviour { boot: cketerm_sandbox::machines::OnBoot::Never, ..Behaviour::default() };
    play.behave("w1", never);
    play.add(&["w1"]).await;
    play.until_command_begins("w1").await;
    play.until(60).await;
    play.say("cancel", &play.operator("alice").cancel_reboot(0, None, Some("broken")).await);
    play.until(80).await;
    play.delete(&NODES, "w1");
    play.until(120).await;
    play.history()
}
