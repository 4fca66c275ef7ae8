//! The breaker and canaries, on the sandbox with a paused clock: machines come back late, people queue and cancel reboots
//! in all states and reset the breaker, and engines are killed.
//!
//! Beside the observers (I69 to I71 and all others) the stories judge one rule: once people only reset the breaker, every
//! reboot starts and ends (H12).

use std::{sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::outcomes::Outcome;
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    gather,
    observers::{self, record::Breach},
    people::addressed,
    stories::{self, Least, Stories, Story, insist, reached},
};

/// The stories.
pub const STORIES: Stories = Stories {
    name: "breaker",
    variable: "BREAKER",
    seeds: 15,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    // stories in which no machine ends badly, or nobody resets an open breaker, prove nothing
    least: &[("outcomes", Least::Each(5)), ("bad outcomes", Least::Each(1)), ("resets", Least::Each(1))],
};
/// End of the part in which people queue and cancel.
const LAST_ACTION: Duration = Duration::from_mins(40);
/// Time within which all work has ended.
const SETTLE_LIMIT: Duration = Duration::from_hours(8);

fn site(rng: &mut Rng) -> String {
    format!(
        "name: breaker\nabout: A site whose machines sometimes come back late.\n\
         population: {{nodes: 12, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 20, jitter: 60}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 60, command_timeout_seconds: 15}}\n",
        rng.u8(2..5),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x62_7265_616b_6572);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, stage) = (site.began, Arc::clone(&site.stage));
    let operator = stage.operator("bob");
    let breaker = format!("{{failures: {}, of: 4}}", rng.u8(1..4));
    let canary = format!("{{first: {}, soak_seconds: {}}}", rng.u8(1..3), rng.u16(0..120));
    let policies =
        [("settle_seconds", "5"), ("stuck_seconds", "60"), ("breaker", breaker.as_str()), ("canary", canary.as_str())];
    for (name, value) in policies {
        operator.set_policy(name, value, None).await.unwrap();
    }
    operator.set_constraint("maximum-unreachable-nodes-for-reboot", "9", None).await.unwrap();
    let people = tokio::spawn(people(stage.operator("alice"), rng.fork(), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    let mut resets = people.await.unwrap();
    crashes.await.unwrap();

    let mut story = Story::default();
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let is_empty = || async { operator.store.read_view().await.is_ok_and(|view| view.reboots.entries.is_empty()) };
        if reached(Duration::from_mins(5), is_empty).await {
            break;
        }
        if Instant::now() > deadline {
            let what = "reboots are left although the breaker was reset again and again".to_owned();
            story.breaches.push(Breach { code: "H12", at: site.clock.wall(), what });
            break;
        }
        insist(|| operator.reset_breaker(Some("looked at it"))).await;
        resets += 1;
    }
    sleep(Duration::from_mins(2)).await;
    let record = gather::record(&stage.sandbox);
    story.breaches.extend(observers::observe(&record));
    story.breaches.sort_by_key(|breach| breach.at);
    let outcomes = record.keys.iter().filter(|change| change.key.starts_with("cketerm/outcomes/"));
    let outcomes: Vec<Outcome> =
        outcomes.filter_map(|change| serde_json::from_slice(change.value.as_deref()?).ok()).collect();
    story.add("outcomes", outcomes.len());
    story.add("bad outcomes", outcomes.iter().filter(|outcome| outcome.bad.is_some()).count());
    story.add("resets", resets);
    story
}

/// Queues reboots, cancels some of them in any state, and resets the breaker. Returns the number of resets.
async fn people(operator: Operator, mut rng: Rng, began: Instant) -> usize {
    let mut resets = 0;
    let mut at = Duration::from_secs(rng.u64(1..10));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(5_000..90_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        let Some(definition) = view.definition() else { continue };
        let open: Vec<u64> = view.reboots.entries.keys().copied().collect();
        match rng.u32(0..8) {
            0 | 1 if !open.is_empty() => {
                let _ = operator.cancel_reboot(open[rng.usize(..open.len())], None, None).await;
            }
            2 => resets += usize::from(operator.reset_breaker(Some("looked at it")).await.is_ok()),
            _ => {
                let all = &definition.cluster.nodes;
                let some: Vec<String> =
                    (0..rng.usize(1..6)).map(|_| all[rng.usize(..all.len())].address.to_string()).collect();
                let _ = operator.add_reboots(&addressed(&some), Some("kernel")).await;
            }
        }
    }
    resets
}
