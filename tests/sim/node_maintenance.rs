//! Nodes in maintenance, on the sandbox with a paused clock: people request and release maintenance for short and long
//! times and queue reboots beside it, while engines are killed.
//!
//! Beside the observers (I73 and all others) the stories judge one rule: once every maintenance is over, all machines that
//! were queued are rebooted, no maintenance is left, and no Node is cordoned (H14).

use std::{sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::{entry::Stored, maintenance::MaintenanceStatus, time::after};
use cketerm_sandbox::kubernetes::resource::NODES;
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    gather,
    observers::{self, record::Breach},
    people::addressed,
    stories::{self, Least, Stories, Story},
};

/// The stories.
pub const STORIES: Stories = Stories {
    name: "maintenance",
    variable: "MAINTENANCE",
    seeds: 20,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    // stories in which no Node is ever empty prove nothing
    least: &[("in maintenance", Least::Each(1)), ("commands", Least::Each(1)), ("expired", Least::All(5))],
};
/// End of the part in which people act.
const LAST_ACTION: Duration = Duration::from_mins(30);
/// Time within which all work has ended: the longest maintenance, and the reboots after it.
const SETTLE_LIMIT: Duration = Duration::from_hours(3);

fn site(rng: &mut Rng) -> String {
    format!(
        "name: maintenance\nabout: Some machines are worked on by hand.\n\
         population: {{nodes: 9, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 20, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 60, command_timeout_seconds: 15}}\n",
        rng.u8(1..4),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x6d61_696e_7465);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, stage) = (site.began, Arc::clone(&site.stage));
    let operator = stage.operator("bob");
    operator.set_policy("settle_seconds", "5", None).await.unwrap();
    let people = tokio::spawn(people(stage.operator("alice"), rng.fork(), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    people.await.unwrap();
    crashes.await.unwrap();

    let settled = async {
        loop {
            let view = operator.store.read_view().await;
            let cordoned = stage.sandbox.objects.list(&NODES, "").0.iter().any(|n| n["spec"]["unschedulable"] == true);
            let is_empty = |v: &cketerm_model::stored::view::StoreView| {
                v.reboots.entries.is_empty() && v.maintenance.entries.is_empty()
            };
            if !cordoned && view.is_ok_and(|view| is_empty(&view)) {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    let mut story = Story::default();
    if timeout(SETTLE_LIMIT, settled).await.is_err() {
        let view = operator.store.read_view().await.unwrap();
        let mut left: Vec<String> =
            view.reboots.entries.values().filter_map(Stored::get).map(|e| format!("{e:?}")).collect();
        left.extend(view.maintenance.entries.values().filter_map(Stored::get).map(|e| format!("{e:?}")));
        story.breaches.push(Breach { code: "H14", at: site.clock.wall(), what: format!("left: {}", left.join(", ")) });
    }
    sleep(Duration::from_mins(5)).await;
    let record = gather::record(&stage.sandbox);
    story.breaches.extend(observers::observe(&record));
    story.breaches.sort_by_key(|breach| breach.at);
    let (mut kept, mut expired) = (0, 0);
    for change in record.keys.iter().filter(|change| change.key.starts_with("cketerm/maintenance/data/")) {
        let entry = change.value.as_deref().and_then(|v| serde_json::from_slice(v).ok());
        let entry: Option<cketerm_model::maintenance::MaintenanceEntry> = entry;
        kept +=
            usize::from(entry.is_some_and(|e| e.status == MaintenanceStatus::InMaintenance && e.released.is_none()));
    }
    let ends = record.keys.iter().filter(|change| change.key.starts_with("cketerm/history/maintenance-"));
    for end in ends {
        let text = end.value.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        expired += usize::from(text.contains("\"expired\""));
    }
    story.add("in maintenance", kept);
    story.add("expired", expired);
    let begins = |power: &&observers::record::Power| power.what == observers::record::PowerEvent::Begin;
    story.add("commands", record.power.iter().filter(begins).count());
    story
}

/// Requests and releases maintenance, and queues and cancels reboots.
async fn people(operator: Operator, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(1..10));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(5_000..90_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        let Some(definition) = view.definition() else { continue };
        let all = &definition.cluster.nodes;
        let mut some = |most: usize| -> Vec<String> {
            (0..rng.usize(1..most)).map(|_| all[rng.usize(..all.len())].address.to_string()).collect()
        };
        let (few, one) = (addressed(&some(4)), addressed(&some(2)));
        let open: Vec<_> = view.maintenance.entries.values().filter_map(Stored::get).map(|e| e.node.clone()).collect();
        match rng.u32(0..8) {
            0..=2 => {
                let until = after(operator.store.clock().wall(), rng.i64(30..1500));
                let _ = operator.add_maintenance(&one, until, Some("a disk")).await;
            }
            3 | 4 if !open.is_empty() => {
                let which = open[rng.usize(..open.len())].clone();
                let _ = operator.release_maintenance(&[which.to_string()], None).await;
            }
            5 => {
                let reboots: Vec<u64> = view.reboots.entries.keys().copied().collect();
                if !reboots.is_empty() {
                    let _ = operator.cancel_reboot(reboots[rng.usize(..reboots.len())], None, None).await;
                }
            }
            _ => {
                let _ = operator.add_reboots(&few, Some("kernel")).await;
            }
        }
    }
}
