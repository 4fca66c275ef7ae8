//! Nodes that need a reboot, and a leader that queues it by itself, on the sandbox with a paused clock. Signals are set,
//! go after the reboot, stay, or flicker, while people cancel entries, queue machines, and change limits, the switch and
//! a freeze, and engines are killed.
//!
//! Beside the observers (I57, I58 and all others) the stories judge one rule: in the end the leader has queued every
//! machine that it may queue, and no record outlives its signals (H7).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cketerm_actions::Operator;
use cketerm_model::{
    cketerm_records::REBOOT_NEEDED_USER,
    entry::{EntryId, Stored},
    reboot::RebootStatus,
    reboot_signals::REBOOT_NEEDED_ANNOTATION,
    stored::{keys::SwitchName, view::StoreView},
};
use cketerm_rules::reboot_needed::list::{Row, State, list};
use cketerm_sandbox::{Sandbox, kubernetes::resource::NODES};
use cketerm_scenario::Stage;
use fastrand::Rng;
use jiff::SignedDuration;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    engines::Engines,
    gather,
    observers::{self, record::Breach},
    people::{addressed, set},
    stories::{self, Least, Stories, Story, insist, reached},
};

/// The stories.
pub const STORIES: Stories = Stories {
    name: "needed",
    variable: "NEEDED",
    seeds: 30,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    // stories in which nothing is queued, cancelled or stays prove nothing
    least: &[
        ("entries queued by the leader", Least::Each(5)),
        ("of them cancelled", Least::Each(1)),
        ("signals stayed", Least::All(1)),
    ],
};
/// End of the part in which signals are set and people act.
const LAST_ACTION: Duration = Duration::from_mins(20);
/// Time within which everything that may be queued has been rebooted.
const SETTLE_LIMIT: Duration = Duration::from_mins(30);
/// Time within which the records of signals that are gone are gone too.
const RECORDS_LIMIT: Duration = Duration::from_mins(2);
/// Causes that programs on the machines give.
const CAUSES: [&str; 3] = ["kernel 6.12.60", "firmware", "glibc"];

fn site(rng: &mut Rng) -> String {
    format!(
        "name: needed\nabout: Nodes that need a reboot.\n\
         population: {{nodes: 12, pods_per_node: 2, workloads: []}}\n\
         pace: {{boot: {{seconds: 30, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 120, command_timeout_seconds: 15}}\n",
        rng.u8(1..4),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x6e65_6564_6564);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, stage) = (site.began, Arc::clone(&site.stage));
    let operator = stage.operator("bob");
    operator.set_policy("reboot_needed", "queue", None).await.unwrap();
    let agents = tokio::spawn(agents(Arc::clone(&stage), rng.fork()));
    let signals = tokio::spawn(signals(Arc::clone(&stage), rng.fork(), began));
    let people = tokio::spawn(people(stage.operator("alice"), rng.fork(), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    signals.await.unwrap();
    people.await.unwrap();
    crashes.await.unwrap();
    for (name, value) in [("freeze", "none"), ("reboot_needed_at_once", "3"), ("reboot_needed_per_day", "0")] {
        insist(|| operator.set_policy(name, value, None)).await;
    }
    insist(|| operator.set_switch(SwitchName::Reboots, true, None)).await;

    let has_stayed = |row: &Row| matches!(row.state, State::StillSet { .. } | State::Rebooted { .. });
    let stayed = rows(&site.engines).unwrap_or_default().iter().filter(|row| has_stayed(row)).count();
    let mut story = Story::default();
    story.add("signals stayed", stayed);
    let is_done = || async {
        let view = operator.store.read_view().await;
        let rows = rows(&site.engines);
        // people look after the signals that stayed
        for row in rows.iter().flatten().filter(|row| has_stayed(row)) {
            set(&stage.sandbox, row.node.as_str(), "annotations", REBOOT_NEEDED_ANNOTATION, None);
        }
        let waits = |row: &Row| matches!(row.state, State::Proposed | State::InVain { .. } | State::Queued { .. });
        view.is_ok_and(|view| view.reboots.entries.is_empty()) && rows.is_some_and(|rows| !rows.iter().any(waits))
    };
    if !reached(SETTLE_LIMIT, is_done).await {
        let view = operator.store.read_view().await.unwrap();
        let left = view.reboots.entries.values().filter_map(Stored::get);
        let left: Vec<String> = left.map(|e| format!("{} {} {}", e.index, e.node, e.status)).collect();
        let what = format!("still to be rebooted: {:?}; entries: {}", rows(&site.engines), left.join(", "));
        story.breaches.push(Breach { code: "H7", at: site.clock.wall(), what });
    }
    agents.abort();
    for node in nodes(&stage.sandbox).into_keys() {
        set(&stage.sandbox, &node, "annotations", REBOOT_NEEDED_ANNOTATION, None);
    }
    let is_clear = || async {
        let view = operator.store.read_view().await;
        // a record outlives its signals while the boot lasts for which an entry was queued
        view.is_ok_and(|view| view.needed.values().all(|r| r.get().is_some_and(|r| r.signals.is_empty())))
    };
    if !reached(RECORDS_LIMIT, is_clear).await {
        let view = operator.store.read_view().await.unwrap();
        let what = format!("records outlive their signals: {:?}", view.needed);
        story.breaches.push(Breach { code: "H7", at: site.clock.wall(), what });
    }

    let mut record = gather::record(&stage.sandbox);
    record.calm_since = Some(site.clock.wall());
    record.ttl_seconds = 60;
    story.breaches.extend(observers::observe(&record));
    story.breaches.sort_by_key(|breach| breach.at);
    let view = observers::View::of(&record);
    let own: BTreeSet<u64> = view
        .requests
        .iter()
        .filter(|(_, line)| {
            let first = line.steps().first().and_then(|step| step.value.as_ref());
            first.is_some_and(|request| request.who.user == REBOOT_NEEDED_USER)
        })
        .map(|(index, _)| *index)
        .collect();
    story.add("entries queued by the leader", own.len());
    let is_cancelled = |index: &&u64| {
        let Some(line) = view.entries.get(*index) else { return false };
        let steps = line.steps();
        steps.iter().any(|step| observers::status_of(step.value.as_ref()) == Some(RebootStatus::Cancelled))
    };
    story.add("of them cancelled", own.iter().filter(is_cancelled).count());
    story
}

/// The leader's list of Nodes that need a reboot; none while nobody leads.
fn rows(engines: &Engines) -> Option<Vec<Row>> {
    let seen = stories::leader(engines)?;
    let snap = &seen.snapshot;
    Some(list(&snap.store, &snap.kube, &snap.reboot_signals, seen.now.wall))
}

/// Boot ids by Node.
fn nodes(sandbox: &Sandbox) -> BTreeMap<String, String> {
    let (nodes, _) = sandbox.objects.list(&NODES, "");
    let each = nodes.iter().filter_map(|node| {
        let boot_id = node["status"]["nodeInfo"]["bootID"].as_str().unwrap_or_default();
        Some((node["metadata"]["name"].as_str()?.to_owned(), boot_id.to_owned()))
    });
    each.collect()
}

/// Sets signals. Some flicker in one boot.
async fn signals(stage: Arc<Stage>, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(5..30));
    let names: Vec<String> = nodes(&stage.sandbox).into_keys().collect();
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(3_000..60_000));
        let node = &names[rng.usize(..names.len())];
        let cause = CAUSES[rng.usize(..CAUSES.len())];
        set(&stage.sandbox, node, "annotations", REBOOT_NEEDED_ANNOTATION, Some(json!(cause)));
        if rng.u32(0..4) == 0 {
            sleep(Duration::from_millis(rng.u64(200..20_000))).await;
            set(&stage.sandbox, node, "annotations", REBOOT_NEEDED_ANNOTATION, None);
            sleep(Duration::from_millis(rng.u64(200..5_000))).await;
            set(&stage.sandbox, node, "annotations", REBOOT_NEEDED_ANNOTATION, Some(json!(cause)));
        }
    }
}

/// Programs on the machines: after a reboot most of them take their signal away, some late, until this is aborted.
async fn agents(stage: Arc<Stage>, mut rng: Rng) {
    let mut known = nodes(&stage.sandbox);
    let mut due: Vec<(Instant, String)> = Vec::new();
    loop {
        sleep(Duration::from_secs(1)).await;
        for (node, boot_id) in nodes(&stage.sandbox) {
            if known.insert(node.clone(), boot_id.clone()).is_some_and(|before| before != boot_id) && rng.u32(0..4) > 0
            {
                due.push((Instant::now() + Duration::from_secs(rng.u64(0..90)), node));
            }
        }
        for (_, node) in due.extract_if(.., |(at, _)| *at <= Instant::now()) {
            set(&stage.sandbox, &node, "annotations", REBOOT_NEEDED_ANNOTATION, None);
        }
    }
}

/// Entries that the leader queued by itself and that wait.
fn own_waiting(view: &StoreView) -> Vec<u64> {
    let is_own = |index: &u64| {
        let request = view.requests.get(&EntryId::reboot(*index)).and_then(Stored::get);
        request.is_some_and(|request| request.who.user == REBOOT_NEEDED_USER)
    };
    let waits = |entry: &Stored<_>| {
        entry.get().is_some_and(|entry: &cketerm_model::reboot::RebootEntry| {
            matches!(entry.status, RebootStatus::Queued | RebootStatus::Draining)
        })
    };
    let all = view.reboots.entries.iter().filter(|(_, entry)| waits(entry));
    all.map(|(index, _)| *index).filter(is_own).collect()
}

/// People who cancel, queue and change the rules.
async fn people(operator: Operator, mut rng: Rng, began: Instant) {
    let mut at = Duration::from_secs(rng.u64(10..40));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(2_000..50_000));
        let Ok(view) = operator.store.read_view().await else { continue };
        match rng.u32(0..10) {
            0..3 => {
                let own = own_waiting(&view);
                if !own.is_empty() {
                    let _ = operator.cancel_reboot(own[rng.usize(..own.len())], None, Some("not now")).await;
                }
            }
            3..5 => {
                let Some(definition) = view.definition() else { continue };
                let all = &definition.cluster.nodes;
                let one = all[rng.usize(..all.len())].address.to_string();
                let _ = operator.add_reboots(&addressed(&[one]), Some("by hand")).await;
            }
            5 => {
                let _ = operator.set_switch(SwitchName::Reboots, rng.bool(), None).await;
            }
            6 => {
                let until = operator.store.clock().wall() + SignedDuration::from_secs(rng.i64(5..90));
                let _ = operator.freeze(until, "audit").await;
            }
            7 => {
                let choice = ["queue", "queue", "propose", "off"][rng.usize(..4)];
                let _ = operator.set_policy("reboot_needed", choice, None).await;
                sleep(Duration::from_secs(rng.u64(1..60))).await;
                insist(|| operator.set_policy("reboot_needed", "queue", None)).await;
                insist(|| operator.set_switch(SwitchName::Reboots, true, None)).await;
            }
            8 => {
                let most = rng.u8(1..4).to_string();
                let _ = operator.set_policy("reboot_needed_at_once", &most, None).await;
            }
            _ => {
                let most = [0, 2, 5, 9, 14][rng.usize(..5)].to_string();
                let _ = operator.set_policy("reboot_needed_per_day", &most, None).await;
            }
        }
    }
}
