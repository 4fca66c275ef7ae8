//! Other programs that drain Nodes beside cketerm, on the sandbox with a paused clock: they set their sign, cordon, and
//! take both away, while reboots are queued and engines are killed.
//!
//! Beside the observers (I59 and all others) the stories judge one rule: in the end every machine was rebooted and no
//! cordon is left (H8).

use std::{sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::entry::Stored;
use cketerm_sandbox::kubernetes::resource::NODES;
use cketerm_scenario::Stage;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    gather,
    observers::{self, record::Breach},
    people::addressed,
    stories::{self, Least, Stories, Story},
};

/// The stories.
pub const STORIES: Stories = Stories {
    name: "drainers",
    variable: "DRAINERS",
    seeds: 20,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    // stories in which the programs do not meet prove nothing
    least: &[("works on a Node of cketerm's", Least::Each(1)), ("commands", Least::Each(1))],
};
/// End of the part in which programs and people act.
const LAST_ACTION: Duration = Duration::from_mins(20);
/// Time within which all work has ended.
const SETTLE_LIMIT: Duration = Duration::from_hours(1);

fn site(rng: &mut Rng) -> String {
    format!(
        "name: drainers\nabout: Other programs drain Nodes.\n\
         population: {{nodes: 8, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 20, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 60, command_timeout_seconds: 15}}\n",
        rng.u8(1..4),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x6472_6169_6e65);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, stage) = (site.began, Arc::clone(&site.stage));
    let operator = stage.operator("bob");
    // control planes go one at a time, so a long wait after each would make most of the story
    operator.set_policy("settle_seconds", "5", None).await.unwrap();
    let programs = tokio::spawn(programs(Arc::clone(&stage), rng.fork(), began));
    let people = tokio::spawn(queue(stage.operator("alice"), rng.fork(), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    let (works, met) = programs.await.unwrap();
    people.await.unwrap();
    crashes.await.unwrap();

    let mut story = Story::default();
    story.add("works of others", works);
    story.add("works on a Node of cketerm's", met);
    let settled = async {
        loop {
            let view = operator.store.read_view().await;
            let cordoned = stage.sandbox.objects.list(&NODES, "").0.iter().any(|n| n["spec"]["unschedulable"] == true);
            if !cordoned && view.is_ok_and(|view| view.reboots.entries.is_empty()) {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    if timeout(SETTLE_LIMIT, settled).await.is_err() {
        let view = operator.store.read_view().await.unwrap();
        let left = view.reboots.entries.values().filter_map(Stored::get);
        let left: Vec<String> = left.map(|e| format!("{} {} {}", e.index, e.node, e.status)).collect();
        story.breaches.push(Breach { code: "H8", at: site.clock.wall(), what: format!("left: {}", left.join(", ")) });
    }
    let mut record = gather::record(&stage.sandbox);
    record.calm_since = Some(site.clock.wall());
    record.ttl_seconds = 60;
    story.breaches.extend(observers::observe(&record));
    story.breaches.sort_by_key(|breach| breach.at);
    let begins = |power: &&observers::record::Power| power.what == observers::record::PowerEvent::Begin;
    story.add("commands", record.power.iter().filter(begins).count());
    story
}

/// Sets or removes the sign of a program on a Node, together with its cordon. Reports whether the Node was cordoned.
fn change(stage: &Stage, node: &str, by_taint: bool, begin: bool, cordon: bool) -> bool {
    const TAINT: &str = "ToBeDeletedByClusterAutoscaler";
    const ANNOTATION: &str = "weave.works/kured-reboot-in-progress";
    let mut was_cordoned = false;
    let _ = stage.sandbox.objects.update(&NODES, "", node, |node| {
        was_cordoned = node["spec"]["unschedulable"] == true;
        if by_taint {
            let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            taints.retain(|taint| taint["key"] != TAINT);
            if begin {
                taints.push(json!({"key": TAINT, "value": "1795735530", "effect": "NoSchedule"}));
            }
            node["spec"]["taints"] = Value::Array(taints);
        } else if begin {
            node["metadata"]["annotations"][ANNOTATION] = json!("2026-08-01T12:00:00Z");
        } else if let Some(annotations) = node["metadata"]["annotations"].as_object_mut() {
            annotations.remove(ANNOTATION);
        }
        if cordon && begin {
            node["spec"]["unschedulable"] = json!(true);
        } else if cordon && let Some(spec) = node["spec"].as_object_mut() {
            spec.remove("unschedulable");
        }
        Ok(())
    });
    was_cordoned
}

/// Programs that work on one Node at a time. Returns how often, and how often they met a cordon of cketerm.
async fn programs(stage: Arc<Stage>, mut rng: Rng, began: Instant) -> (usize, usize) {
    let (mut works, mut met) = (0, 0);
    let (nodes, _) = stage.sandbox.objects.list(&NODES, "");
    let names: Vec<String> = nodes.iter().filter_map(|n| Some(n["metadata"]["name"].as_str()?.to_owned())).collect();
    let mut at = Duration::from_secs(rng.u64(5..30));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        let cordoned = |name: &&String| {
            stage.sandbox.objects.get(&NODES, "", name).is_some_and(|node| node["spec"]["unschedulable"] == true)
        };
        // mostly where cketerm is at work
        let busy: Vec<&String> = names.iter().filter(cordoned).collect();
        let name = match busy.len() {
            0 => &names[rng.usize(..names.len())],
            _ if rng.u32(0..4) == 0 => &names[rng.usize(..names.len())],
            n => busy[rng.usize(..n)],
        };
        let by_taint = rng.bool();
        // kured works on a Node only with a cordon
        let cordons = !by_taint || rng.bool();
        let is_free = stage.sandbox.objects.get(&NODES, "", name).is_some_and(|n| n["spec"]["unschedulable"] != true);
        let was_cordoned = change(&stage, name, by_taint, true, cordons && is_free);
        works += 1;
        met += usize::from(was_cordoned);
        let work = Duration::from_secs(rng.u64(1..150));
        sleep(work).await;
        change(&stage, name, by_taint, false, cordons && is_free);
        at += work + Duration::from_millis(rng.u64(1_000..60_000));
    }
    (works, met)
}

/// Queues reboots of members.
async fn queue(operator: Operator, mut rng: Rng, began: Instant) {
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
