//! Histories of operators' commands: what each answers and writes.

use cketerm_actions::{HostAction, Hosts, NewRepair, own_key};
use cketerm_clients::store::{
    folders::{AuditRetention, FolderCursor},
    repairs::Which,
};
use cketerm_model::{
    entry::{EntryId, QueueKind},
    host::Mode,
    names::{Address, NodeName},
    policy::FenceBy,
    stored::keys::SwitchName,
    time::after,
    verb::Verb,
};
use cketerm_sandbox::machines::Behaviour;

use super::{History, Play, block_on, features::SITE};

/// All of them.
pub const HISTORIES: &[History] = &[
    History { name: "queue-commands", play: || block_on(queue()) },
    History { name: "setting-commands", play: || block_on(settings()) },
    History { name: "node-commands", play: || block_on(nodes()) },
];

async fn queue() -> String {
    let play = Play::parse(SITE).await;
    let operator = play.operator("alice");
    play.until(5).await;
    play.say("disable", &operator.set_switch(SwitchName::Reboots, false, Some("freeze")).await);
    let all = play.addresses(&["w1", "w2", "w3", "cp1"]);
    play.say("add", &operator.add_reboots(&all, Some("kernel")).await);
    play.say("add", &operator.add_reboots(&all[..2], None).await);
    play.say("add nothing", &operator.add_reboots(&[], None).await);
    play.say("add of a stranger", &operator.add_reboots(&[Address::new("10.9.9.9")], None).await);
    play.say("warnings", &operator.reboot_warnings(&all).await.lines);
    play.say("choose", &operator.resolve(&["w1", "10.1.0.11"]).await);
    play.say("choose a machine", &operator.resolve_machine("w2").await);
    play.say("choose a machine", &operator.resolve_machine("10.8.8.8").await);
    play.say("choose a machine", &operator.resolve_machine("nobody").await);
    let view = operator.store.read_view().await.unwrap();
    let batch = *view.batches.keys().next().unwrap();
    play.say("pause", &operator.pause_batch(QueueKind::Reboot, batch, Some("later")).await);
    play.say("pause again", &operator.pause_batch(QueueKind::Reboot, batch, None).await);
    play.say("resume", &operator.resume_batch(QueueKind::Reboot, batch, None, None).await);
    play.say("resume again", &operator.resume_batch(QueueKind::Reboot, batch, None, None).await);
    let shown = operator.store.read_view().await.unwrap().batches[&batch].mod_revision;
    play.say("pause", &operator.pause_batch(QueueKind::Reboot, batch, Some("later")).await);
    play.say("resume what was shown before", &operator.resume_batch(QueueKind::Reboot, batch, Some(shown), None).await);
    let shown = operator.store.read_view().await.unwrap().batches[&batch].mod_revision;
    play.say("resume what is shown", &operator.resume_batch(QueueKind::Reboot, batch, Some(shown), None).await);
    play.say("cancel", &operator.cancel_reboot(4, None, Some("twice")).await);
    play.say("cancel of none", &operator.cancel_reboot(77, None, None).await);
    play.say("hold", &operator.order(EntryId::reboot(0), Verb::Hold, None, None).await);
    play.say("unhold", &operator.order(EntryId::reboot(0), Verb::Unhold, None, None).await);
    play.say("retry", &operator.order(EntryId::reboot(0), Verb::Retry, None, Some("again")).await);
    play.say("retry without a reason", &operator.order(EntryId::reboot(0), Verb::Retry, None, None).await);
    play.say("done", &operator.order(EntryId::reboot(1), Verb::Done, None, Some("by hand")).await);
    play.say("force", &operator.order(EntryId::reboot(1), Verb::Force, None, Some("now")).await);
    play.say("uncordon", &operator.order(EntryId::reboot(1), Verb::Uncordon, None, None).await);
    play.say("not ready", &operator.not_ready(EntryId::reboot(1)).await);
    play.say("enable", &operator.set_switch(SwitchName::Reboots, true, None).await);
    play.until(12).await;
    play.say("hold in work", &operator.order(EntryId::reboot(0), Verb::Hold, None, None).await);
    play.until(20).await;
    play.say("reset", &operator.reset_backoff(QueueKind::Reboot, None, None).await);
    play.say("cancel a batch", &operator.cancel_batch(QueueKind::Reboot, batch, None, Some("enough")).await);
    play.say("confirm", &operator.leader_that_loses_cancels().await);
    play.until(60).await;
    play.say("add", &operator.add_reboots(&all[..2], None).await);
    play.say("cancel all", &operator.cancel_all_reboots(Some("enough")).await);
    let repair = |operation: &str, address: &str| NewRepair {
        operation: operation.to_owned(),
        machine_type: "IPMI-2.0".to_owned(),
        address: Address::new(address),
        serial: Some("1234".to_owned()),
    };
    let known = repair("unhealthy", all[0].as_str());
    play.say("repair warnings", &operator.repair_warnings(&known).await);
    play.say("repair", &operator.add_repair(&known, Some("INC-1")).await);
    let of_repairs = operator.store.read_view().await.unwrap().batches.keys().next_back().copied();
    let other = repair("unreachable", all[1].as_str());
    play.say("repair of the same batch", &operator.add_repair_to(of_repairs, &other, Some("INC-1")).await);
    play.say("repair of no batch", &operator.add_repair_to(Some(of_repairs.unwrap().next()), &other, None).await);
    play.say("repair", &operator.add_repair(&repair("unknown", "10.1.0.11"), None).await);
    play.say("repair", &operator.add_repair(&repair("unhealthy", "10.200.0.1"), None).await);
    play.until(90).await;
    play.say("delete", &operator.delete_repair(0, None, Some("gone")).await);
    play.say("delete finished", &operator.delete_repairs(Which::Finished, None).await);
    play.say("delete unfinished", &operator.delete_repairs(Which::Unfinished, Some("all")).await);
    play.until(120).await;
    let store = &operator.store;
    let past = after(store.clock().wall(), -20);
    let (keep, mut walk) = (AuditRetention { engine: 5, people: 5 }, FolderCursor::default());
    let outdated = store.outdated_audit(keep, past, &mut walk).await.map(|keys| keys.len());
    play.say("outdated of the audit", &outdated);
    let outdated = store.outdated_history(1, past, &mut FolderCursor::default()).await.map(|keys| keys.len());
    play.say("outdated of the history", &outdated);
    play.history()
}

async fn settings() -> String {
    let play = Play::parse(SITE).await;
    let operator = play.operator("alice");
    play.until(5).await;
    let store = &operator.store;
    let definition = store.cluster_text().await.unwrap().unwrap().text;
    play.say("set cluster", &operator.set_cluster(&definition, Some("again")).await);
    play.say("set cluster", &operator.set_cluster("{}", None).await);
    play.say("set cluster", &operator.set_cluster("name: [", None).await);
    play.say("identify", &operator.identify().await);
    play.say("confirm", &operator.confirm_identity(None).await.map(drop));
    play.say("confirm", &operator.confirm_identity(Some("another")).await.map(drop));
    for (name, value) in [("stuck_seconds", "90"), ("stuck_seconds", "-1"), ("nonsense", "1"), ("hooks", "none")] {
        play.say(&format!("set {name}"), &operator.set_policy(name, value, None).await.map(drop));
    }
    for (name, value) in [("control-plane-count", "3"), ("minimum-workers-rate", "900"), ("wrong", "1")] {
        play.say(&format!("set {name}"), &operator.set_constraint(name, value, None).await);
    }
    let end = after(store.clock().wall(), 600);
    play.say("freeze", &operator.freeze(end, "network").await.map(|before| before.is_some()));
    play.say("unfreeze", &operator.unfreeze(None).await.map(|before| before.is_some()));
    play.say("url", &operator.set_sabakan_url("http://sabakan.sandbox:10080", None).await);
    play.say("url", &operator.set_sabakan_url("ftp://x", None).await);
    play.say("template", &operator.set_sabakan_template(&definition, None).await);
    play.say("template", &operator.set_sabakan_template("[", None).await);
    play.say("variables", &operator.set_query_variables(SwitchName::Sabakan, r#"{"having": {}}"#, None).await);
    play.say("variables", &operator.set_query_variables(SwitchName::AutoRepair, "{", None).await);
    play.say("hold", &operator.hold_registry(true, None, Some("wait")).await);
    play.say("approve", &operator.approve("abcd", Some("fine")).await.map(drop));
    play.say("unhold", &operator.hold_registry(false, None, None).await);
    play.say("approve", &operator.approve("abcd", Some("fine")).await.map(|approval| approval.reason));
    play.stage.sandbox.etcd.put("/cke/sabakan/template", "{}");
    play.stage.sandbox.etcd.put("/cke/sabakan/url", "http://127.0.0.1:1");
    play.say("stop", &operator.stop(Some("storm")).await);
    play.until(20).await;
    play.say("stop again", &operator.stop(None).await);
    play.say("resume", &operator.resume(None).await);
    play.say("resume again", &operator.resume(None).await);
    play.say("switches", &store.switch(SwitchName::Repairs).await);
    play.say("status", &store.status().await.map(|status| status.is_some()));
    play.until(30).await;
    play.history()
}

async fn nodes() -> String {
    let play = Play::parse(&SITE.replace("pods_per_node: 1", "pods_per_node: 1, metal3: {operator: none}")).await;
    let operator = play.operator("alice");
    play.until(5).await;
    operator.set_policy("metal3_controller", "true", None).await.unwrap();
    play.until(15).await;
    play.say("cordon", &operator.cordon_node("w1", Some("look")).await);
    play.say("cordon again", &operator.cordon_node("w1", None).await);
    play.say("keep", &operator.keep_cordon_of("w2", true, Some("disk")).await);
    play.say("keep again", &operator.keep_cordon_of("w2", true, None).await);
    play.say("keep not", &operator.keep_cordon_of("w2", false, None).await);
    play.say("uncordon", &operator.uncordon_node("w1", None).await);
    play.say("uncordon of a stranger", &operator.uncordon_node("nobody", None).await);
    let mut steps = 0;
    play.say("drain", &operator.drain_node("w3", Some("by hand"), |_| steps += 1).await.map(drop));
    play.until(80).await;
    play.say("uncordon", &operator.uncordon_node("w3", None).await);
    play.say("reset", &operator.reset_backoff(QueueKind::Reboot, Some(3), None).await);
    play.behave("w2", Behaviour { fails: 1, exit_code: 3, ..Behaviour::default() });
    let hosts = Hosts::new(operator.kube.clone().unwrap()).by(operator.who(), &play.clock);
    let list = hosts.list().await.unwrap();
    let host = list.iter().find(|host| host.name == "w1").unwrap();
    let (name, uid) = (host.full_name(), host.uid.clone());
    let key = own_key(None).unwrap();
    for mode in [Mode::Soft, Mode::Soft, Mode::Hard, Mode::Hard, Mode::Soft] {
        let asked = hosts.reboot(&name, mode).await.map(|asked| asked.already);
        play.say(&format!("reboot {mode}"), &asked);
    }
    play.until(play.seconds() + 40).await;
    for by in [FenceBy::Delete, FenceBy::Taint] {
        play.say("fence of another node", &hosts.fence_node(&name, &NodeName::new("w2"), by).await);
        play.say("fence", &hosts.fence_node(&name, &NodeName::new("w1"), by).await);
    }
    play.add(&["w3"]).await;
    play.until(play.seconds() + 2).await;
    for keep in [true, true, false] {
        play.say(&format!("keep {keep}"), &operator.keep_cordoned(&NodeName::new("w3"), keep, None).await);
    }
    play.until(play.seconds() + 90).await;
    for action in [
        HostAction::Reboot(Mode::Soft),
        HostAction::Reboot(Mode::Hard),
        HostAction::Hold(Mode::Hard),
        HostAction::Release(key.clone()),
        HostAction::Online(false),
        HostAction::Online(true),
    ] {
        play.say(&format!("host {action:?}"), &operator.host(&name, &uid, action, Some("INC-2")).await);
        play.until(play.seconds() + 20).await;
    }
    play.say("another host", &operator.host(&name, "another", HostAction::Online(true), None).await);
    operator.set_policy("metal3_controller", "false", None).await.unwrap();
    let held = hosts.hold(&name, &key, Mode::Hard).await.unwrap();
    play.say("wait for a host that stays on", &hosts.wait_until_off(&held.host, &key, 10).await.map(drop));
    play.say("release", &hosts.release(&name, &key).await.map(drop));
    play.history()
}
