//! Machines that are rebooted by the agents of their Nodes, on the sandbox with a paused clock. The reboot command gives
//! the driver's order, and honest agents run the agent's own code. Others lie, answer late, or reboot without an order.
//! Agents, commands and engines are killed, and people cancel.
//!
//! Beside the observers (I60 to I63 and all others) the stories judge one rule: one agent that never reboots hinders no
//! other worker, and once it is honest, its machine and the API servers are rebooted too (H9). API servers wait for the
//! workers before them.

mod commands;
mod conduct;
mod liars;
mod processes;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use cketerm_actions::Operator;
use cketerm_engine::command::Spawner;
use cketerm_model::{
    cketerm_records::Verb,
    entry::{EntryId, Stored},
    reboot::{RebootEntry, RebootStatus},
    stored::view::StoreView,
};
use cketerm_sandbox::kubernetes::resource::NODES;
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use self::{commands::AgentCommands, processes::Agents};
use crate::{
    engines::MakeSpawner,
    gather,
    observers::{self, record::Breach},
    people::{self, addressed},
    stories::{self, Least, Site, Stories, Story, insist, reached},
};

/// The stories.
pub const STORIES: Stories = Stories {
    name: "agents",
    variable: "AGENTS",
    seeds: 20,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    least: &[
        ("reboots by agents", Least::Each(5)),
        ("boots with a liar", Least::Each(2)),
        ("crashes of agents", Least::Each(1)),
        ("failed commands", Least::Each(2)),
    ],
};

/// End of the part with faults, and of the acts of people.
const LAST_ACTION: Duration = Duration::from_mins(25);
/// Time within which all work has ended that a liar does not hold up.
const SETTLE_LIMIT: Duration = Duration::from_hours(1);
/// Time that a person gives a machine before another try.
const ANSWER_LIMIT: Duration = Duration::from_mins(3);

fn site(rng: &mut Rng) -> String {
    format!(
        "name: agents\nabout: Agents reboot the machines.\n\
         population: {{nodes: 10, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 20, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 60, command_timeout_seconds: 60,\n  \
         command_retries: {}, command_interval: 5}}\n",
        rng.u8(2..4),
        rng.u8(0..2),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x61_6765_6e74);
    let (text, timeout, mut agents) = (site(&mut rng), Duration::from_secs([20, 90, 150][rng.usize(..3)]), None);
    let site = stories::set_up_with(seed, &text, &mut rng, |stage, clock| {
        let all = Agents::new(stage, clock);
        agents = Some(Arc::clone(&all));
        let next = Arc::default();
        let spawner: MakeSpawner = Arc::new(move |clock| {
            Spawner::elsewhere(AgentCommands {
                agents: Arc::clone(&all),
                clock,
                timeout,
                next: Arc::clone(&next),
                seed,
            })
        });
        Some(spawner)
    })
    .await;
    let agents = agents.unwrap();
    agents.start(&mut rng);
    let operator = site.stage.operator("bob");
    operator.set_policy("settle_seconds", "5", None).await.unwrap();
    operator.set_policy("reboot_needed", "queue", None).await.unwrap();
    let people = tokio::spawn(people(site.stage.operator("alice"), Arc::clone(&agents), rng.fork(), site.began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    people.await.unwrap();
    crashes.await.unwrap();

    let workers = site.stage.sandbox.machines.list().into_iter().filter(|machine| !machine.control_plane);
    let workers: Vec<String> = workers.map(|machine| machine.address).collect();
    let liar = &workers[rng.usize(..workers.len())];
    agents.calm(Some(liar));
    let all = addressed(&workers);
    insist(|| operator.add_reboots(&all, Some("the end of the day"))).await;
    let mut story = Story::default();
    if !settles(&site, &operator, Some(liar)).await {
        story.breaches.push(left(&site, &operator, "with a liar").await);
    }
    agents.calm(None);
    if !settles(&site, &operator, None).await {
        story.breaches.push(left(&site, &operator, "without a liar").await);
    }
    judge(&site, &agents, &mut story);
    story
}

fn judge(site: &Site, agents: &Agents, story: &mut Story) {
    let mut record = gather::record(&site.stage.sandbox);
    record.calm_since = Some(site.clock.wall());
    record.ttl_seconds = 60;
    let reboots = agents.reboots.lock().unwrap().clone();
    let failed = record
        .power
        .iter()
        .filter(|power| matches!(power.what, observers::record::PowerEvent::End(code) if code != Some(0)));
    story.add("failed commands", failed.count());
    story.add("reboots by agents", reboots.len());
    let count = |count: &std::sync::atomic::AtomicU64| usize::try_from(count.load(Ordering::SeqCst)).unwrap();
    story.add("boots with a liar", count(&agents.lies));
    story.add("crashes of agents", count(&agents.crashes));
    record.agent_reboots = Some(reboots);
    story.breaches.extend(observers::observe(&record));
    story.breaches.sort_by_key(|breach| breach.at);
}

/// Returns a breach that names the entries and cordons that are left.
async fn left(site: &Site, operator: &Operator, when: &str) -> Breach {
    let view = operator.store.read_view().await.unwrap();
    let reasons = stories::leader(&site.engines).map(|seen| Arc::clone(&seen.reasons)).unwrap_or_default();
    let entries = view.reboots.entries.values().filter_map(Stored::get);
    let entries: Vec<String> = entries
        .map(|e| format!("{} {} {} {:?}", e.index, e.node, e.status, reasons.get(&EntryId::reboot(e.index))))
        .collect();
    let what = format!("left {when}: {}; cordoned: {}", entries.join(", "), cordoned(site).join(", "));
    Breach { code: "H9", at: site.clock.wall(), what }
}

fn cordoned(site: &Site) -> Vec<String> {
    let (nodes, _) = site.stage.sandbox.objects.list(&NODES, "");
    let cordoned = nodes.iter().filter(|node| node["spec"]["unschedulable"] == true);
    cordoned.filter_map(|node| Some(node["metadata"]["name"].as_str()?.to_owned())).collect()
}

/// Readable entries.
fn entries(view: &StoreView) -> impl Iterator<Item = &RebootEntry> {
    view.reboots.entries.values().filter_map(Stored::get)
}

/// Waits until all machines are rebooted and uncordoned, except this one and those that wait for it. Meanwhile a person
/// orders another try where a machine does not come back. Returns false if that takes too long.
async fn settles(site: &Site, operator: &Operator, liar: Option<&String>) -> bool {
    let (began, mut ordered) = (Instant::now(), BTreeMap::new());
    let mut orphans: BTreeMap<String, Instant> = BTreeMap::new();
    let machines = site.stage.sandbox.machines.list();
    let name = machines.iter().find(|machine| Some(&machine.address) == liar).map(|machine| machine.name.clone());
    let is_awaited = |entry: &&RebootEntry| {
        let machine = machines.iter().find(|machine| machine.address == entry.node.as_str());
        liar.is_none() || machine.is_some_and(|machine| !machine.control_plane && Some(&machine.address) != liar)
    };
    while began.elapsed() < SETTLE_LIMIT {
        sleep(Duration::from_secs(5)).await;
        let (Ok(view), Some(seen)) = (operator.store.read_view().await, stories::leader(&site.engines)) else {
            continue;
        };
        let nodes: Vec<String> = cordoned(site).into_iter().filter(|node| Some(node) != name.as_ref()).collect();
        if !entries(&view).any(|entry| is_awaited(&entry)) && nodes.is_empty() {
            return true;
        }
        let is_stuck = |entry: &&RebootEntry| {
            entry.status == RebootStatus::Rebooting && liar.is_none_or(|liar| entry.node.as_str() != liar)
        };
        for entry in entries(&view).filter(is_stuck) {
            let id = EntryId::reboot(entry.index);
            let since = *ordered.entry(entry.index).or_insert_with(Instant::now);
            if since.elapsed() > ANSWER_LIMIT
                && operator.order(id, Verb::Retry, None, Some("the agent did not reboot it")).await.is_ok()
            {
                ordered.insert(entry.index, Instant::now());
            }
        }
        // the cordon of a cancelled reboot whose machine never went down: only a person can know that
        orphans.retain(|node, _| seen.orphans.contains_key(node.as_str()));
        for node in seen.orphans.keys() {
            let since = *orphans.entry(node.to_string()).or_insert_with(Instant::now);
            if since.elapsed() > ANSWER_LIMIT {
                people::set(&site.stage.sandbox, node, "spec", "unschedulable", None);
            }
        }
    }
    false
}

/// People who queue, cancel, and order another try; and packages that ask for reboots.
async fn people(operator: Operator, agents: Arc<Agents>, mut rng: Rng, began: Instant) {
    let machines: Vec<String> = agents.stage.sandbox.machines.list().into_iter().map(|m| m.address).collect();
    let mut at = Duration::from_secs(rng.u64(20..40));
    let mut last: Vec<String> = Vec::new();
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(3_000..60_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        let all: Vec<&RebootEntry> = entries(&view).collect();
        let any = (!all.is_empty()).then(|| all[rng.usize(..all.len())]);
        match (rng.u32(0..20), any) {
            (0..9, _) => {
                last = (0..rng.usize(1..4)).map(|_| machines[rng.usize(..machines.len())].clone()).collect();
                let _ = operator.add_reboots(&addressed(&last), Some("kernel")).await;
            }
            (9..11, _) => {
                let _ = operator.cancel_all_reboots(Some("not now")).await;
                // the next queue gives the same ids of attempts again, often in the same boot
                let is_empty =
                    || async { operator.store.read_view().await.is_ok_and(|v| v.reboots.entries.is_empty()) };
                if reached(Duration::from_mins(2), is_empty).await && !last.is_empty() {
                    let _ = operator.add_reboots(&addressed(&last), Some("kernel")).await;
                }
            }
            (11..13, _) => {
                let one = machines[rng.usize(..machines.len())].clone();
                agents.sentinels.lock().unwrap().insert(one);
            }
            (13..15, Some(entry)) => {
                let _ = operator.cancel_reboot(entry.index, None, Some("not now")).await;
            }
            (_, Some(entry)) => {
                let id = EntryId::reboot(entry.index);
                let _ = operator.order(id, Verb::Retry, None, Some("the agent did not reboot it")).await;
            }
            (_, None) => {}
        }
    }
}
