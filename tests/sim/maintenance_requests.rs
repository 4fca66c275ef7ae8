//! `MaintenanceRequest`s, on the sandbox with a paused clock: other programs ask for maintenance and for reboots, and take
//! their requests back, while people queue reboots beside them and engines are killed.
//!
//! Beside the observers (I74 and all others) the stories judge one rule: once every object is deleted, no entry, record or
//! object is left, and no Node is cordoned (H15).

use std::{sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::time::after;
use cketerm_sandbox::{
    Sandbox,
    kubernetes::resource::{MAINTENANCE_REQUESTS, NODES},
};
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
    name: "maintenance requests",
    variable: "REQUESTS",
    seeds: 15,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    least: &[("accepted", Least::Each(1)), ("queued", Least::Each(1)), ("deleted", Least::Each(1))],
};
/// End of the part in which programs and people act.
const LAST_ACTION: Duration = Duration::from_mins(25);
/// Time within which all work has ended.
const SETTLE_LIMIT: Duration = Duration::from_hours(3);

fn site(rng: &mut Rng) -> String {
    format!(
        "name: requests\nabout: Other programs ask for maintenance.\n\
         population: {{nodes: 9, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 20, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 60, command_timeout_seconds: 15}}\n",
        rng.u8(1..4),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x7265_7175_6573);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, stage) = (site.began, Arc::clone(&site.stage));
    let operator = stage.operator("bob");
    operator.set_policy("settle_seconds", "5", None).await.unwrap();
    operator.set_policy("maintenance_requests", "true", None).await.unwrap();
    let people = tokio::spawn(people(stage.operator("alice"), rng.fork(), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    programs(&stage.sandbox, &operator, rng.fork(), began).await;
    people.await.unwrap();
    crashes.await.unwrap();
    for object in stage.sandbox.objects.list(&MAINTENANCE_REQUESTS, "").0 {
        delete(&stage.sandbox, object["metadata"]["name"].as_str().unwrap_or_default());
    }

    let left = async || {
        let objects = stage.sandbox.objects.list(&MAINTENANCE_REQUESTS, "").0.len();
        let cordoned =
            stage.sandbox.objects.list(&NODES, "").0.iter().filter(|n| n["spec"]["unschedulable"] == true).count();
        match operator.store.read_view().await {
            Err(e) => vec![e.to_string()],
            Ok(view) => [
                (objects, "objects"),
                (cordoned, "cordoned Nodes"),
                (view.reboots.entries.len(), "reboots"),
                (view.maintenance.entries.len(), "maintenances"),
                (view.maintenance_requests.len(), "records"),
            ]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect(),
        }
    };
    let settled = async {
        while !left().await.is_empty() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let mut story = Story::default();
    if timeout(SETTLE_LIMIT, settled).await.is_err() {
        let what = format!("left: {}", left().await.join(", "));
        story.breaches.push(Breach { code: "H15", at: site.clock.wall(), what });
    }
    let record = gather::record(&stage.sandbox);
    story.breaches.extend(observers::observe(&record));
    story.breaches.sort_by_key(|breach| breach.at);
    let audits = |what: &str| {
        let all = record.keys.iter().filter(|change| change.key.starts_with("cketerm/audit/"));
        let text = format!("\"what\":\"{what}\"");
        all.filter(|c| c.value.as_deref().is_some_and(|v| String::from_utf8_lossy(v).contains(&text))).count()
    };
    story.add("accepted", audits("request accept"));
    story.add("queued", audits("request queue"));
    story.add("deleted", audits("request end"));
    story
}

/// Creates requests, each with a name of its own, and deletes them.
async fn programs(sandbox: &Sandbox, operator: &Operator, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(1..10));
    let mut count = 0;
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(10_000..120_000));
        let names = |objects: Vec<Arc<Value>>| -> Vec<String> {
            objects.iter().filter_map(|o| Some(o["metadata"]["name"].as_str()?.to_owned())).collect()
        };
        let open = names(sandbox.objects.list(&MAINTENANCE_REQUESTS, "").0);
        if rng.u8(0..3) == 0 && !open.is_empty() {
            delete(sandbox, &open[rng.usize(..open.len())]);
            continue;
        }
        count += 1;
        let nodes = names(sandbox.objects.list(&NODES, "").0);
        let some: Vec<&String> = (0..rng.usize(1..4)).map(|_| &nodes[rng.usize(..nodes.len())]).collect();
        let now = operator.store.clock().wall();
        let end = after(now, rng.i64(60..1200)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let window = if rng.bool() { json!({"end": end}) } else { json!({"start": now.to_string(), "end": end}) };
        let action = if rng.bool() { "Keep" } else { "Reboot" };
        let object = json!({
            "apiVersion": "cketerm.io/v1alpha1", "kind": "MaintenanceRequest",
            "metadata": {"name": format!("r{count}")},
            "spec": {"nodeNames": some, "reason": "firmware", "action": action, "window": window},
        });
        let _ = sandbox.objects.create(&MAINTENANCE_REQUESTS, "", object);
    }
}

/// Deletes an object, as the API server does: with finalizers it only gets a time.
fn delete(sandbox: &Sandbox, name: &str) {
    let now = sandbox.objects.stamp();
    let _ = sandbox.objects.update(&MAINTENANCE_REQUESTS, "", name, |object| {
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!(now);
        }
        Ok(())
    });
    let is_free = |object: &Value| object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    let found = sandbox.objects.get(&MAINTENANCE_REQUESTS, "", name);
    if found.is_some_and(|object| is_free(&object)) {
        let _ = sandbox.objects.remove(&MAINTENANCE_REQUESTS, "", name, |_| Ok(()));
    }
}

/// Queues reboots, cancels batches, and requests and releases maintenance.
async fn people(operator: Operator, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(1..10));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(20_000..180_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        let Some(definition) = view.definition() else { continue };
        let all = &definition.cluster.nodes;
        let one = addressed(&[all[rng.usize(..all.len())].address.to_string()]);
        match rng.u32(0..4) {
            0 => {
                let until = after(operator.store.clock().wall(), rng.i64(30..600));
                let _ = operator.add_maintenance(&one, until, Some("a disk")).await;
            }
            1 => {
                let _ = operator.release_maintenance(&[one[0].to_string()], None).await;
            }
            2 => {
                let reboots: Vec<u64> = view.reboots.entries.keys().copied().collect();
                if !reboots.is_empty() {
                    let _ = operator.cancel_reboot(reboots[rng.usize(..reboots.len())], None, None).await;
                }
            }
            _ => {
                let _ = operator.add_reboots(&one, Some("kernel")).await;
            }
        }
    }
}
