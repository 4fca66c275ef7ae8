//! Conditions and the taint of planned reboots, on the sandbox with a paused clock: people queue, hold and cancel
//! reboots and change the policies, other programs set conditions of the same types and taints of their own, and engines
//! are killed.
//!
//! Beside the observers (I67, I68 and all others) the stories judge one rule: once nobody acts any more, the Nodes carry
//! nothing of cketerm's, and everything of the other programs. Nor do they after the engine has resigned amid work, and
//! then no Node is cordoned (H11). In a third of the stories it resigns because etcd belongs to another cluster, and
//! changes nothing any more but for the work in progress (I76).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::{
    cketerm_records::Verb,
    entry::{EntryId, Stored},
    reboot::RebootStatus,
};
use cketerm_sandbox::{Sandbox, kubernetes::resource::NODES};
use cketerm_scenario::Stage;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    gather,
    observers::{self, record::Breach},
    people::addressed,
    stories::{self, Least, Stories, Story, insist, reached},
};

/// The stories.
pub const STORIES: Stories = Stories {
    name: "signs",
    variable: "SIGNS",
    seeds: 15,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    // stories in which nothing is set, or in which no other program acts, prove nothing
    least: &[
        ("conditions set", Least::Each(10)),
        ("taints set", Least::Each(1)),
        ("foreign conditions", Least::Each(5)),
        ("signs at a hand-over", Least::Each(1)),
        ("another cluster amid work", Least::All(1)),
    ],
};
/// End of the part in which people and programs act.
const LAST_ACTION: Duration = Duration::from_mins(20);
/// Time within which all work has ended and all signs are gone.
const SETTLE_LIMIT: Duration = Duration::from_hours(2);
/// Time after that in which nothing may come back.
const QUIET: Duration = Duration::from_mins(8);
/// Condition types that other programs use too.
const TYPES: [&str; 4] = ["MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress"];

fn site(rng: &mut Rng) -> String {
    format!(
        "name: signs\nabout: A site with conditions on its Nodes.\n\
         population: {{nodes: 12, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 20, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 60, command_timeout_seconds: 15}}\n",
        rng.u8(1..4),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x7369_676e_7300);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, stage) = (site.began, Arc::clone(&site.stage));
    let operator = stage.operator("bob");
    for (name, value) in [("settle_seconds", "5"), ("pod_events", "true")] {
        operator.set_policy(name, value, None).await.unwrap();
    }
    turn(&operator, true, &mut rng).await;
    let programs = tokio::spawn(programs(Arc::clone(&stage), rng.fork(), began));
    let people = tokio::spawn(people(stage.operator("alice"), rng.fork(), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    let foreign = programs.await.unwrap();
    people.await.unwrap();
    crashes.await.unwrap();
    for id in insisted_entries(&operator).await {
        let _ = operator.order(id, Verb::Unhold, None, None).await;
    }

    let mut story = Story::default();
    story.add("foreign conditions", foreign.len());
    let is_done = || async {
        let view = operator.store.read_view().await;
        let ended = view.is_ok_and(|view| view.reboots.entries.is_empty());
        ended && signed(&stage.sandbox).is_empty()
    };
    if !reached(SETTLE_LIMIT, is_done).await {
        let left = insisted_entries(&operator).await;
        let what = format!("left: entries {left:?}, signs on {:?}", signed(&stage.sandbox));
        story.breaches.push(Breach { code: "H11", at: site.clock.wall(), what });
    }
    let calm = site.clock.wall();
    sleep(QUIET).await;
    for ((node, kind), content) in foreign {
        let is_there =
            stage.sandbox.objects.get(&NODES, "", &node).is_some_and(|object| {
                object["status"]["conditions"].as_array().is_some_and(|all| all.contains(&content))
            });
        if !is_there {
            let what = format!("condition {kind} of another program is gone from {node}");
            story.breaches.push(Breach { code: "H11", at: calm, what });
        }
    }
    let mut record = gather::record(&stage.sandbox);
    record.calm_since = Some(calm);
    record.ttl_seconds = 60;
    story.breaches.extend(observers::observe(&record));
    story.breaches.sort_by_key(|breach| breach.at);
    let engines = record.api_requests.iter().filter(|request| observers::is_engine(&request.by) && request.code == 200);
    let patches: Vec<&observers::record::ApiRequest> = engines.filter(|request| request.method == "PATCH").collect();
    let sets = |request: &&&observers::record::ApiRequest| request.body["status"]["conditions"].is_array();
    story.add("conditions set", patches.iter().filter(sets).count());
    let taints = |request: &&&observers::record::ApiRequest| request.body["spec"]["taints"].is_array();
    story.add("taints set", patches.iter().filter(taints).count());
    if seed % 3 == 2 {
        meet_another_cluster(&stage, &operator, &mut rng, &mut story).await;
        let mut record = gather::record(&stage.sandbox);
        record.ttl_seconds = 60;
        let all = observers::observe(&record);
        story.breaches.extend(all.into_iter().filter(|breach| breach.at >= calm));
    } else {
        hand_over(&stage, &operator, &mut rng, &mut story).await;
    }
    story
}

/// Queues reboots and lets the engine work on them.
async fn begin_work(stage: &Stage, operator: &Operator, rng: &mut Rng, story: &mut Story) {
    let view = operator.store.read_view().await.unwrap();
    let nodes = &view.definition().unwrap().cluster.nodes;
    let some: Vec<String> = nodes.iter().take(8).map(|node| node.address.to_string()).collect();
    operator.add_reboots(&addressed(&some), Some("hand-over")).await.unwrap();
    sleep(Duration::from_secs(rng.u64(3..90))).await;
    story.add("signs at a hand-over", signed(&stage.sandbox).len());
}

/// Queues reboots, lets the engine resign amid them, and looks at what it leaves for a leader that does not know the signs.
async fn hand_over(stage: &Stage, operator: &Operator, rng: &mut Rng, story: &mut Story) {
    begin_work(stage, operator, rng, story).await;
    operator.set_policy("engine", "cke", None).await.unwrap();
    let is_free = || async { operator.store.read_view().await.is_ok_and(|view| view.leader().is_none()) };
    let resigned = reached(SETTLE_LIMIT, is_free).await;
    let (left, cordoned) = (signed(&stage.sandbox), cordoned(&stage.sandbox));
    if !resigned || !left.is_empty() || !cordoned.is_empty() {
        let what = format!("resigned: {resigned}; the engine leaves signs on {left:?}, and cordoned: {cordoned:?}");
        story.breaches.push(Breach { code: "H11", at: operator.store.clock().wall(), what });
    }
}

/// Queues reboots, and lets the engine meet the identity of another cluster amid them.
async fn meet_another_cluster(stage: &Stage, operator: &Operator, rng: &mut Rng, story: &mut Story) {
    begin_work(stage, operator, rng, story).await;
    let view = operator.store.read_view().await.unwrap();
    let is_in_progress = |status| matches!(status, RebootStatus::Draining | RebootStatus::Rebooting);
    let entries = view.reboots.entries.values().filter_map(Stored::get);
    let in_progress = entries.filter(|entry| is_in_progress(entry.status)).count();
    story.add("another cluster amid work", in_progress.min(1));
    let who = json!({"user": "bob", "host": "h"});
    let identity = json!({"uid": "another", "confirmed_by": who, "at": operator.store.clock().wall()});
    stage.sandbox.etcd.put("/cke/cketerm/identity", identity.to_string());
    let is_free = || async { operator.store.read_view().await.is_ok_and(|view| view.leader().is_none()) };
    if !reached(SETTLE_LIMIT, is_free).await {
        let what = "the engine goes on leading in another cluster".to_owned();
        story.breaches.push(Breach { code: "H11", at: operator.store.clock().wall(), what });
    }
    sleep(QUIET).await;
}

async fn insisted_entries(operator: &Operator) -> Vec<EntryId> {
    loop {
        if let Ok(view) = operator.store.read_view().await {
            return view.reboots.entries.keys().map(|index| EntryId::reboot(*index)).collect();
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Turns the conditions and the taint on or off.
async fn turn(operator: &Operator, on: bool, rng: &mut Rng) {
    let waves = if on { rng.u8(1..4) } else { 0 }.to_string();
    let conditions = on.to_string();
    insist(|| operator.set_policy("node_conditions", &conditions, None)).await;
    insist(|| operator.set_policy("planned_taint_waves", &waves, None)).await;
}

/// Names of Nodes that are cordoned.
fn cordoned(sandbox: &Sandbox) -> Vec<String> {
    names(sandbox, |node| node["spec"]["unschedulable"] == true)
}

/// Names of Nodes with conditions of cketerm, or with its taint.
fn signed(sandbox: &Sandbox) -> Vec<String> {
    names(sandbox, |node| {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let mut own = conditions.filter(|c| c["reason"].as_str().is_some_and(|r| r.starts_with("Cketerm")));
        let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
        own.next().is_some() || taints.any(|taint| taint["key"] == "cketerm.io/reboot-planned")
    })
}

fn names(sandbox: &Sandbox, has: impl Fn(&Value) -> bool) -> Vec<String> {
    let (nodes, _) = sandbox.objects.list(&NODES, "");
    let found = nodes.iter().filter(|node| has(node));
    found.filter_map(|node| Some(node["metadata"]["name"].as_str()?.to_owned())).collect()
}

/// Other programs that set conditions of the same types where there are none, and taints. Returns the conditions that
/// they leave.
async fn programs(stage: Arc<Stage>, mut rng: Rng, began: Instant) -> BTreeMap<(String, String), Value> {
    let (nodes, _) = stage.sandbox.objects.list(&NODES, "");
    let names: Vec<String> = nodes.iter().filter_map(|n| Some(n["metadata"]["name"].as_str()?.to_owned())).collect();
    let mut left = BTreeMap::new();
    let mut at = Duration::from_secs(rng.u64(5..30));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(5_000..90_000));
        let (name, kind) = (&names[rng.usize(..names.len())], TYPES[rng.usize(..TYPES.len())]);
        let status = ["True", "False"][rng.usize(..2)];
        let content = json!({"type": kind, "status": status, "reason": "SomebodyElse",
            "message": format!("at {}", at.as_secs())});
        let taints = rng.bool();
        let mut is_set = false;
        let _ = stage.sandbox.objects.update(&NODES, "", name, |node| {
            if taints {
                let mut all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
                all.retain(|taint| taint["key"] != "example.com/theirs");
                all.push(json!({"key": "example.com/theirs", "value": "x", "effect": "PreferNoSchedule"}));
                node["spec"]["taints"] = Value::Array(all);
            }
            let Some(all) = node["status"]["conditions"].as_array_mut() else { return Ok(()) };
            // an honest program does not overwrite others either
            let is_taken = |c: &Value| c["type"] == kind && c["reason"] != "SomebodyElse";
            if !all.iter().any(is_taken) {
                all.retain(|c| c["type"] != kind);
                all.push(content.clone());
                is_set = true;
            }
            Ok(())
        });
        if is_set {
            left.insert((name.clone(), kind.to_owned()), content);
        }
    }
    left
}

/// Queues, holds and cancels reboots, and changes the policies.
async fn people(operator: Operator, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(1..10));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(5_000..60_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        let Some(definition) = view.definition() else { continue };
        let open: Vec<u64> = view.reboots.entries.keys().copied().collect();
        let index = (!open.is_empty()).then(|| open[rng.usize(..open.len())]);
        match (rng.u32(0..10), index) {
            (0, Some(index)) => {
                let _ = operator.cancel_reboot(index, None, None).await;
            }
            (1, Some(index)) => {
                let _ = operator.order(EntryId::reboot(index), Verb::Hold, None, Some("later")).await;
            }
            (2, Some(index)) => {
                let _ = operator.order(EntryId::reboot(index), Verb::Unhold, None, None).await;
            }
            (3, _) => {
                let on = rng.bool();
                turn(&operator, on, &mut rng).await;
            }
            _ => {
                let all = &definition.cluster.nodes;
                let some: Vec<String> =
                    (0..rng.usize(1..6)).map(|_| all[rng.usize(..all.len())].address.to_string()).collect();
                let _ = operator.add_reboots(&addressed(&some), Some("kernel")).await;
            }
        }
    }
    turn(&operator, true, &mut rng).await;
}
