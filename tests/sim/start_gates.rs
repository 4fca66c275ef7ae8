//! Gates of a site for new reboots (policy `start_gates`), on the sandbox with a paused clock: Prometheus fires, fails,
//! hangs and answers nonsense, while people queue and cancel reboots and change the policy, and engines are killed.
//!
//! Beside the observers (I72 and all others) the stories judge one rule: once nothing fires any more, all work ends, and
//! Prometheus is no longer asked (H13).

use std::{sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::entry::Stored;
use cketerm_sandbox::prometheus::{Behaviour, Kind};
use cketerm_scenario::{PROMETHEUS, Stage};
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    gather,
    observers::{self, View, record::Breach},
    people::addressed,
    stories::{self, Least, Stories, Story, insist, reached},
};

/// The stories.
pub const STORIES: Stories = Stories {
    name: "gates",
    variable: "GATES",
    seeds: 15,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    // stories in which no gate is closed, or nothing starts, prove nothing
    least: &[("starts", Least::Each(2)), ("closed", Least::Each(1)), ("failed", Least::Each(1))],
};
/// End of the part in which Prometheus misbehaves and people act.
const LAST_ACTION: Duration = Duration::from_mins(30);
/// Time within which all work has ended.
const SETTLE_LIMIT: Duration = Duration::from_hours(3);
/// Time without work in which Prometheus must not be asked.
const QUIET_TIME: Duration = Duration::from_mins(5);

fn site(rng: &mut Rng) -> String {
    format!(
        "name: gates\nabout: A site with a Prometheus.\n\
         population: {{nodes: 8, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 20, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 60, command_timeout_seconds: 15}}\n",
        rng.u8(1..4),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x67_6174_6573);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, stage) = (site.began, Arc::clone(&site.stage));
    let operator = stage.operator("bob");
    let gates = format!(
        "{{prometheus: '{PROMETHEUS}', alerts: {{}}, queries: [{{name: ceph, query: ceph_health > 0}}], \
         interval_seconds: {}, timeout_seconds: {}}}",
        rng.u8(5..40),
        rng.u8(2..10),
    );
    operator.set_policy("settle_seconds", "5", None).await.unwrap();
    operator.set_policy("start_gates", &gates, None).await.unwrap();
    operator.set_constraint("maximum-unreachable-nodes-for-reboot", "9", None).await.unwrap();
    let behaviours = tokio::spawn(behaviours(Arc::clone(&stage), rng.fork(), began));
    let people = tokio::spawn(people(stage.operator("alice"), gates.clone(), rng.fork(), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    behaviours.await.unwrap();
    people.await.unwrap();
    crashes.await.unwrap();
    insist(|| operator.set_policy("start_gates", &gates, None)).await;

    let mut story = Story::default();
    let mut breach = |what: String| story.breaches.push(Breach { code: "H13", at: site.clock.wall(), what });
    let is_empty = || async { operator.store.read_view().await.is_ok_and(|view| view.reboots.entries.is_empty()) };
    if !reached(SETTLE_LIMIT, is_empty).await {
        let view = operator.store.read_view().await.unwrap();
        let left = view.reboots.entries.values().filter_map(Stored::get);
        let left: Vec<String> = left.map(|e| format!("{} {} {}", e.index, e.node, e.status)).collect();
        breach(format!("left: {}", left.join(", ")));
    }
    sleep(Duration::from_mins(1)).await;
    let prometheus = &stage.sandbox.prometheus;
    let before = prometheus.queries().len();
    sleep(QUIET_TIME).await;
    let idle = prometheus.queries().len() - before;
    if idle > 0 {
        breach(format!("{idle} requests although nothing waits"));
    }
    let record = gather::record(&stage.sandbox);
    let view = View::of(&record);
    story.breaches.extend(observers::judge(&view));
    story.breaches.sort_by_key(|breach| breach.at);
    let starts = view.entry_changes().into_iter().filter(observers::EntryChange::starts).count();
    let queries = prometheus.queries();
    story.add("starts", starts);
    story.add("requests", queries.len());
    story.add("closed", queries.iter().filter(|query| query.answered.is_some() && !query.empty).count());
    story.add("failed", queries.iter().filter(|query| query.answered.is_none()).count());
    story
}

/// Changes the behaviour of Prometheus, and lets it be quiet in the end.
async fn behaviours(stage: Arc<Stage>, mut rng: Rng, began: Instant) {
    let prometheus = &stage.sandbox.prometheus;
    let mut at = Duration::from_secs(rng.u64(0..60));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        let kind = if rng.bool() { Kind::Alerts } else { Kind::Other };
        let behaviour = match rng.u32(0..12) {
            0..6 => Behaviour::Quiet,
            6 | 7 => Behaviour::Fires,
            8 => Behaviour::Slow(rng.u64(1..12)),
            9 => Behaviour::Fails,
            10 => Behaviour::Hangs,
            _ if rng.bool() => Behaviour::Garbage,
            _ => Behaviour::Large,
        };
        prometheus.behave(kind, behaviour);
        at += Duration::from_millis(rng.u64(2_000..60_000));
    }
    for kind in [Kind::Alerts, Kind::Other] {
        prometheus.behave(kind, Behaviour::Quiet);
    }
}

/// Queues and cancels reboots, and takes the gates away at times.
async fn people(operator: Operator, gates: String, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(1..10));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(5_000..90_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        let Some(definition) = view.definition() else { continue };
        match rng.u32(0..10) {
            0 => {
                let open: Vec<u64> = view.reboots.entries.keys().copied().collect();
                if let Some(index) = (!open.is_empty()).then(|| open[rng.usize(..open.len())]) {
                    let _ = operator.cancel_reboot(index, None, None).await;
                }
            }
            1 => {
                let _ =
                    operator.set_policy("start_gates", if rng.bool() { "none" } else { gates.as_str() }, None).await;
            }
            2 | 3 => {
                let _ = operator.set_policy("start_gates", &gates, None).await;
            }
            _ => {
                let all = &definition.cluster.nodes;
                let some: Vec<String> =
                    (0..rng.usize(1..4)).map(|_| all[rng.usize(..all.len())].address.to_string()).collect();
                let _ = operator.add_reboots(&addressed(&some), Some("kernel")).await;
            }
        }
    }
}
