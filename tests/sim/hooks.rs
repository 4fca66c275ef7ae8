//! Hooks of a site around drains, on the sandbox with a paused clock: they fail and hang on some machines for a while,
//! while people queue and cancel reboots and change the policy, and engines are killed.
//!
//! Beside the observers (I64 to I66 and all others) the stories judge one rule: once no hook fails any more, all work
//! ends, no cordon is left, and no record of hooks (H10).

use std::{sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::{
    cketerm_records::Verb,
    entry::Stored,
    hook_runs::{HookPoint, HookRun, HookRuns},
};
use cketerm_sandbox::{
    kubernetes::resource::NODES,
    machines::{Behaviour, OnCheck, OnHook},
};
use cketerm_scenario::Stage;
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
    name: "hooks",
    variable: "HOOKS",
    seeds: 15,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    // stories in which no hook fails prove nothing
    least: &[("failed", Least::Each(1)), ("commands", Least::Each(1))],
};
/// End of the part in which hooks fail and people act.
const LAST_ACTION: Duration = Duration::from_mins(20);
/// Time within which all work has ended.
const SETTLE_LIMIT: Duration = Duration::from_hours(2);

const HOOKS: &str = "- {name: silence, at: before_drain, command: [/site/silence, hook], retries: 1, retry_interval_seconds: 2}\n\
                     - {name: moved, at: after_drain, command: [/site/moved, hook], timeout_seconds: 5}\n\
                     - {name: sound, at: before_uncordon, command: [/site/sound, hook], timeout_seconds: 5, retries: 2}\n\
                     - {name: repairs, at: before_drain, queue: repair, command: [/site/repairs, hook]}\n\
                     - {name: unsilence, at: after_uncordon, command: [/site/unsilence, hook]}\n\
                     - {name: ticket, at: after_uncordon, url: 'http://tickets.invalid/', timeout_seconds: 3}\n";

fn site(rng: &mut Rng) -> String {
    format!(
        "name: hooks\nabout: A site with hooks.\n\
         population: {{nodes: 8, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 20, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 60, command_timeout_seconds: 15}}\n",
        rng.u8(1..4),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x686f_6f6b_7300);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, stage) = (site.began, Arc::clone(&site.stage));
    let operator = stage.operator("bob");
    // control planes go one at a time, so a long wait after each would make most of the story
    operator.set_policy("settle_seconds", "5", None).await.unwrap();
    operator.set_policy("hooks", HOOKS, None).await.unwrap();
    let behaviours = tokio::spawn(behaviours(Arc::clone(&stage), rng.fork(), began));
    let people = tokio::spawn(people(stage.operator("alice"), rng.fork(), began));
    // a separate generator, so that the rest of the seed's story does not change
    let retries = tokio::spawn(retries(Arc::clone(&stage), Rng::with_seed(seed ^ 0x7265_7472), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    behaviours.await.unwrap();
    retries.await.unwrap();
    people.await.unwrap();
    crashes.await.unwrap();

    let mut story = Story::default();
    let settled = async {
        loop {
            let view = operator.store.read_view().await;
            let cordoned = stage.sandbox.objects.list(&NODES, "").0.iter().any(|n| n["spec"]["unschedulable"] == true);
            let ended = view.is_ok_and(|view| view.reboots.entries.is_empty() && view.hooks.is_empty());
            if ended && !cordoned {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    if timeout(SETTLE_LIMIT, settled).await.is_err() {
        let view = operator.store.read_view().await.unwrap();
        let left = view.reboots.entries.values().filter_map(Stored::get);
        let left: Vec<String> = left.map(|e| format!("{} {} {}", e.index, e.node, e.status)).collect();
        let hooks: Vec<String> = view.hooks.keys().map(ToString::to_string).collect();
        let what = format!("left: {}; hooks of {}", left.join(", "), hooks.join(", "));
        story.breaches.push(Breach { code: "H10", at: site.clock.wall(), what });
    }
    let mut record = gather::record(&stage.sandbox);
    record.calm_since = Some(site.clock.wall());
    record.ttl_seconds = 60;
    story.breaches.extend(observers::observe(&record));
    story.breaches.sort_by_key(|breach| breach.at);
    let (succeeded, failed) = runs(&record);
    story.add("runs succeeded", succeeded);
    story.add("failed", failed);
    let begins = |power: &&observers::record::Power| power.what == observers::record::PowerEvent::Begin;
    story.add("commands", record.power.iter().filter(begins).count());
    story
}

/// Counts the runs that succeeded and that failed.
fn runs(record: &observers::Record) -> (usize, usize) {
    let values = record.keys.iter().filter(|change| change.key.starts_with("cketerm/hooks/"));
    let values = values.filter_map(|change| serde_json::from_slice::<HookRuns>(change.value.as_ref()?).ok());
    // each write changes the last run
    let ends = values.filter_map(|record| record.runs.last()?.outcome.as_ref().map(|o| o.end.succeeded()));
    ends.fold((0, 0), |(good, bad), succeeded| (good + usize::from(succeeded), bad + usize::from(!succeeded)))
}

/// Lets the hooks of machines fail or hang for a while.
async fn behaviours(stage: Arc<Stage>, mut rng: Rng, began: Instant) {
    let machines = &stage.sandbox.machines;
    let addresses: Vec<String> = machines.list().into_iter().map(|machine| machine.address).collect();
    let set = |address: &str, hook: OnHook| {
        if let Some(behaviour) = machines.behaviour(address) {
            machines.behave(address, Behaviour { hook, ..behaviour });
        }
    };
    let mut at = Duration::from_secs(rng.u64(5..30));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        let address = &addresses[rng.usize(..addresses.len())];
        set(address, [OnHook::Succeeds, OnHook::Fails, OnHook::Hangs][rng.usize(..3)]);
        at += Duration::from_millis(rng.u64(1_000..40_000));
    }
    for address in &addresses {
        set(address, OnHook::Succeeds);
    }
}

/// Orders a `retry` of entries whose hook before the uncordon has failed. Meanwhile a boot check may fail.
async fn retries(stage: Arc<Stage>, mut rng: Rng, began: Instant) {
    let operator = stage.operator("carol");
    let set = |address: &str, check: OnCheck| {
        if let Some(behaviour) = stage.sandbox.machines.behaviour(address) {
            stage.sandbox.machines.behave(address, Behaviour { check, ..behaviour });
        }
    };
    let mut at = Duration::from_secs(rng.u64(5..20));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(2_000..20_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        let failed = |record: &HookRuns| {
            let fails = |run: &HookRun| run.outcome.as_ref().is_some_and(|outcome| !outcome.end.succeeded());
            record.runs.iter().any(|run| run.at == HookPoint::BeforeUncordon && fails(run))
        };
        let waiting = view.hooks.iter().filter_map(|(id, stored)| Some((*id, stored.get().filter(|r| failed(r))?)));
        for (id, record) in waiting {
            if rng.bool() {
                // long enough for another leader, which has not seen the machine well
                set(record.address.as_str(), OnCheck::No);
                sleep(Duration::from_secs(rng.u64(5..90))).await;
            }
            let _ = operator.order(id, Verb::Retry, None, Some("the hook")).await;
            sleep(Duration::from_secs(3)).await;
            set(record.address.as_str(), OnCheck::Honest);
        }
    }
}

/// Queues and cancels reboots, and changes the hooks.
async fn people(operator: Operator, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(1..10));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(5_000..60_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        let Some(definition) = view.definition() else { continue };
        match rng.u32(0..8) {
            0 => {
                let open: Vec<u64> = view.reboots.entries.keys().copied().collect();
                if let Some(index) = (!open.is_empty()).then(|| open[rng.usize(..open.len())]) {
                    let _ = operator.cancel_reboot(index, None, None).await;
                }
            }
            1 => {
                let hooks = if rng.bool() { HOOKS } else { "none" };
                let _ = operator.set_policy("hooks", hooks, None).await;
            }
            _ => {
                let all = &definition.cluster.nodes;
                let some: Vec<String> =
                    (0..rng.usize(1..4)).map(|_| all[rng.usize(..all.len())].address.to_string()).collect();
                let _ = operator.add_reboots(&addressed(&some), Some("kernel")).await;
            }
        }
    }
    let _ = operator.set_policy("hooks", HOOKS, None).await;
}
