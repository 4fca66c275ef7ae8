//! A definition that follows the Nodes, on the sandbox with a paused clock: Nodes are deleted, come back, join, and lose
//! their labels, while an operator reboots machines and engines are killed.
//!
//! Beside the observers (I55, I56 and all others) the stories judge one rule: a Node that vanished or joined holds back
//! nobody, and in the end the definition has exactly the Nodes (H6).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::{
    entry::{EntryId, Stored},
    reason::Reason,
    stored::view::StoreView,
};
use cketerm_sandbox::{kubernetes::resource::NODES, machines::Machine};
use cketerm_scenario::Stage;
use fastrand::Rng;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    engines::Engines,
    gather,
    observers::{self, record::Breach},
    people::addressed,
    stories::{self, Least, Stories, Story},
};

/// The stories.
pub const STORIES: Stories = Stories {
    name: "membership",
    variable: "MEMBERSHIP",
    seeds: 30,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    // stories in which nobody joins or leaves prove nothing
    least: &[("joins", Least::Each(1)), ("leaves", Least::Each(1)), ("reboots ended", Least::Each(1))],
};
/// End of the part in which Nodes come and go.
const LAST_ACTION: Duration = Duration::from_mins(15);
/// Time within which the queue is empty and the definition has the Nodes.
const SETTLE_LIMIT: Duration = Duration::from_mins(25);
/// Grace periods of a member without a Node, in seconds: with the shortest one, many end while the machine is in work.
const GRACE_PERIODS: [&str; 3] = ["5", "30", "90"];

fn site(rng: &mut Rng) -> String {
    format!(
        "name: membership\nabout: A definition that follows the Nodes.\n\
         population: {{nodes: 14, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 30, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 120, command_timeout_seconds: 15}}\n",
        rng.u8(1..4),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x6d65_6d62_6572);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, clock, stage) = (site.began, site.clock.clone(), Arc::clone(&site.stage));
    let engines = Arc::clone(&site.engines);
    let operator = stage.operator("bob");
    let grace = GRACE_PERIODS[rng.usize(..GRACE_PERIODS.len())];
    for (name, value) in [("node_grace_seconds", grace), ("membership", "nodes"), ("approval", "gate")] {
        operator.set_policy(name, value, None).await.unwrap();
    }
    let churn = tokio::spawn(churn(Arc::clone(&stage), rng.fork(), began));
    let reboots = tokio::spawn(reboot(stage.operator("alice"), rng.fork(), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    let person = tokio::spawn(obey(Arc::clone(&engines), stage.operator("carol"), rng.fork()));
    churn.await.unwrap();
    reboots.await.unwrap();
    crashes.await.unwrap();

    let mut story = Story::default();
    let follows = async {
        loop {
            let view = operator.store.read_view().await;
            if view.is_ok_and(|view| view.reboots.entries.is_empty() && members(&view) == nodes(&stage)) {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    if timeout(SETTLE_LIMIT, follows).await.is_err() {
        let view = operator.store.read_view().await.unwrap();
        let left = view.reboots.entries.values().filter_map(Stored::get);
        let left: Vec<String> = left.map(|e| format!("{} {} {}", e.index, e.node, e.status)).collect();
        let (members, nodes) = (members(&view), nodes(&stage));
        let differ: Vec<&String> = members.symmetric_difference(&nodes).collect();
        let reasons = reasons(&engines);
        let what = format!(
            "members and Nodes differ: {differ:?}; entries are left: {}; the leader says: {reasons}",
            left.join(", ")
        );
        story.breaches.push(Breach { code: "H6", at: clock.wall(), what });
    }
    person.abort();

    let mut record = gather::record(&stage.sandbox);
    record.calm_since = Some(clock.wall());
    record.ttl_seconds = 60;
    story.breaches.extend(observers::observe(&record));
    story.breaches.sort_by_key(|breach| breach.at);
    let view = observers::View::of(&record);
    let mut before: BTreeSet<String> = BTreeSet::new();
    for (i, step) in view.clusters.steps().iter().enumerate() {
        let now: BTreeSet<String> =
            step.value.iter().flat_map(|c| c.nodes.iter().map(|n| n.address.to_string())).collect();
        if i > 0 {
            story.add("joins", now.difference(&before).count());
            story.add("leaves", before.difference(&now).count());
        }
        before = now;
    }
    story.add("reboots ended", view.endings.len());
    story
}

/// Decisions of the leader: the state of the definition, and the reason of each entry.
struct Decided {
    definition: Value,
    reasons: Vec<(EntryId, Reason)>,
}

fn leader(engines: &Engines) -> Option<Decided> {
    let seen = stories::leader(engines)?;
    let reasons = seen.reasons.iter().map(|(id, reason)| (*id, reason.clone())).collect();
    Some(Decided { definition: serde_json::to_value(&*seen.applying).unwrap(), reasons })
}

/// Reasons that the leader gives, and the state of the definition.
fn reasons(engines: &Engines) -> String {
    let Some(Decided { definition, reasons }) = leader(engines) else { return "nobody leads".to_owned() };
    let all: Vec<String> = reasons.iter().map(|(id, reason)| format!("{id} {reason}")).collect();
    format!("{}; definition: {definition}", all.join(", "))
}

fn members(view: &StoreView) -> BTreeSet<String> {
    view.definition().iter().flat_map(|d| d.cluster.nodes.iter().map(|n| n.node_name().to_string())).collect()
}

fn nodes(stage: &Stage) -> BTreeSet<String> {
    let (nodes, _) = stage.sandbox.objects.list(&NODES, "");
    nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).map(str::to_owned).collect()
}

/// Deletes Nodes, some of which come back, and adds machines. Sometimes many Nodes vanish for a while.
async fn churn(stage: Arc<Stage>, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(20..60));
    let (mut gone, mut new): (Vec<Value>, u8) = (Vec::new(), 0);
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(5_000..60_000));
        let (all, _) = stage.sandbox.objects.list(&NODES, "");
        match rng.u32(0..10) {
            0..5 if all.len() > 9 => {
                // control planes too, but seldom
                let planes = rng.u32(0..6) == 0;
                let plane =
                    |node: &Value| !node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"].is_null();
                let some: Vec<_> = all.iter().filter(|node| plane(node) == planes).collect();
                if some.len() < 3 && planes {
                    continue;
                }
                let node = some[rng.usize(..some.len())];
                let name = node["metadata"]["name"].as_str().unwrap();
                if stage.sandbox.objects.remove(&NODES, "", name, |_| Ok(())).is_ok() {
                    gone.push(Value::clone(node));
                }
            }
            5..7 if !gone.is_empty() => {
                let node = gone.swap_remove(rng.usize(..gone.len()));
                let _ = stage.sandbox.objects.create(&NODES, "", node);
            }
            7 => {
                // most of the Nodes vanish for a while
                let some: Vec<Value> = all.iter().take(rng.usize(3..9)).map(|node| Value::clone(node)).collect();
                for node in &some {
                    let name = node["metadata"]["name"].as_str().unwrap();
                    let _ = stage.sandbox.objects.remove(&NODES, "", name, |_| Ok(()));
                }
                sleep(Duration::from_secs(rng.u64(1..80))).await;
                for node in some {
                    let _ = stage.sandbox.objects.create(&NODES, "", node);
                }
            }
            8 if new < 5 => {
                new += 1;
                let machine = Machine {
                    name: format!("new{new}"),
                    address: format!("10.1.9.{new}"),
                    rack: 1,
                    ..Machine::default()
                };
                stage.sandbox.machines.rack(machine);
            }
            _ => {}
        }
    }
    // a control plane that never comes back would need people to rebuild it
    for node in gone {
        let is_plane = !node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"].is_null();
        if is_plane || rng.bool() {
            let _ = stage.sandbox.objects.create(&NODES, "", node);
        }
    }
}

/// Adds reboots of members.
async fn reboot(operator: Operator, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(1..10));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(5_000..60_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        let Some(definition) = view.definition() else { continue };
        let all = &definition.cluster.nodes;
        let some: Vec<String> = (0..rng.usize(1..4)).map(|_| all[rng.usize(..all.len())].address.to_string()).collect();
        let _ = operator.add_reboots(&addressed(&some), Some("kernel")).await;
    }
}

/// Does what the leader asks of people, after a while, until it is aborted: approves changes, and cancels the entries
/// of Nodes that were replaced.
async fn obey(engines: Engines, operator: Operator, mut rng: Rng) {
    loop {
        sleep(Duration::from_secs(rng.u64(20..120))).await;
        let Some(Decided { definition, reasons }) = leader(&engines) else { continue };
        if let Some(digest) = definition["why"][0].as_str().filter(|_| definition["state"] == "approval") {
            let _ = operator.approve(digest, Some("as planned")).await;
        }
        let is_replaced = |reason: &Reason| matches!(reason, Reason::NodeMismatch { .. });
        for (id, _) in reasons.iter().filter(|(_, reason)| is_replaced(reason)) {
            let _ = operator.cancel_reboot(id.index, None, Some("another machine")).await;
        }
    }
}
