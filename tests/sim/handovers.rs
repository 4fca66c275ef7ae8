//! Handovers, on the sandbox with a paused clock: a CKE processes the queue, cketerm takes it over, and CKE gets it
//! back. Meanwhile an operator adds and cancels reboots, and programs are killed.
//!
//! Judged are the rules that concern two programs: no engine of cketerm writes or starts anything while CKE leads (I23,
//! I24, H1), no machine is rebooted twice for one entry (H2), no accepted cancel is lost (H3), and in the end nothing is
//! left: no entry, no cordon, no machine that is off (H4).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::{acceptance::LeaderKind, clock::Clock, reboot::RebootStatus, stored::view::StoreView};
use cketerm_sandbox::{kubernetes::resource::NODES, machines::State};
use cketerm_scenario::Stage;
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    gather,
    observers::{
        self, View,
        record::{Breach, PowerEvent},
        status_of,
    },
    people::addressed,
    stories::{self, Least, Stories, Story, insist},
};

/// The stories.
pub const STORIES: Stories = Stories {
    name: "handovers",
    variable: "HANDOVERS",
    seeds: 40,
    play: |seed| stories::block_on(seed, play(seed)),
    fails: Story::has_breaches,
    // stories in which one program did nothing, or no cancel was overwritten, prove nothing
    least: &[
        ("reboots by CKE", Least::All(1)),
        ("reboots by cketerm", Least::All(1)),
        ("cancels overwritten by CKE", Least::All(1)),
    ],
};
/// Time within which an accepted cancel holds: until then CKE may have begun the command that it had decided on.
const CANCEL_HOLDS_AFTER: SignedDuration = SignedDuration::from_secs(8);
/// Time by which a request may arrive after its engine has lost the lock.
const LATE: SignedDuration = SignedDuration::from_secs(10);
/// Time within which the other program leads.
const HANDOVER_LIMIT: Duration = Duration::from_mins(10);
/// End of the part in which people act and engines are killed.
const LAST_ACTION: Duration = Duration::from_mins(16);
/// Beginning of the last part, in which nothing goes wrong any more.
const QUIET: Duration = Duration::from_mins(20);

/// A cancel that its operator was told of.
struct Cancel {
    at: Timestamp,
    index: u64,
}

fn site(rng: &mut Rng) -> String {
    format!(
        "name: handover\nabout: A CKE and two engines.\npopulation: {{nodes: 9, pods_per_node: 3}}\n\
         cke: {{host: boot-0, interval: {}, write_delay: {}}}\n\
         pace: {{boot: {{seconds: 30, jitter: 40}}, command: {{seconds: 1, jitter: 5}}, node_monitor_grace: 10,\n  \
         pod_stop: {{seconds: 20, jitter: 20}}}}\n\
         reboot: {{max_concurrent_reboots: {}, eviction_timeout_seconds: 120, command_timeout_seconds: 15}}\n",
        rng.u8(1..6),
        [0.1, 2.0][rng.usize(..2)],
        rng.u8(1..4),
    )
}

async fn play(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed ^ 0x6861_6e64_6f76_6572);
    let text = site(&mut rng);
    let site = stories::set_up(seed, &text, &mut rng).await;
    let (began, clock, stage) = (site.began, site.clock.clone(), Arc::clone(&site.stage));
    let people =
        tokio::spawn(add_and_cancel(stage.operator("alice"), rng.fork(), clock.clone(), machines(&stage), began));
    let crashes = site.crashes(&mut rng, LAST_ACTION);
    let mut story = Story::default();
    let late = |found: &mut Vec<Breach>, what: &str| {
        found.push(Breach { code: "handover", at: clock.wall(), what: what.to_owned() });
    };
    let operator = stage.operator("bob");
    let cke = stage.cke().unwrap();

    sleep_until(began + Duration::from_secs(rng.u64(90..300))).await;
    insist(|| operator.set_policy("engine", "cketerm", Some("handover"))).await;
    sleep(Duration::from_secs(rng.u64(0..30))).await;
    if rng.bool() {
        cke.stop();
    } else {
        cke.kill();
    }
    if !leads(&operator, LeaderKind::Cketerm).await {
        late(&mut story.breaches, "cketerm does not lead in time");
    }
    story.add("cancels overwritten by CKE", cke.log().lost_cancels.len());

    sleep(Duration::from_secs(rng.u64(120..400))).await;
    insist(|| operator.set_policy("engine", "cke", Some("handover"))).await;
    // in half of the stories CKE waits behind the engine that still finishes its work
    if rng.bool() && !resigns(&operator).await {
        late(&mut story.breaches, "cketerm does not resign in time");
    }
    cke.start_again(&stage.sandbox, &clock);
    if !leads(&operator, LeaderKind::Cke).await {
        late(&mut story.breaches, "CKE does not lead in time");
    }
    sleep_until(began + QUIET).await;
    let cancels = people.await.unwrap();
    crashes.await.unwrap();
    let is_empty = |view: &StoreView| view.reboots.entries.is_empty();
    if !waits_for(&operator, Duration::from_mins(20), is_empty).await {
        // a program that was killed before its command leaves an entry that only an operator can judge
        let settled = operator.cancel_all_reboots(Some("the end of the day")).await.map_or(0, |all| all.len());
        story.add("entries settled by hand", settled);
        if !waits_for(&operator, Duration::from_mins(20), is_empty).await {
            let view = operator.store.read_view().await.unwrap();
            let left: Vec<String> = view
                .reboots
                .entries
                .values()
                .filter_map(|s| s.get())
                .map(|e| format!("{} {} {}", e.index, e.node, e.status))
                .collect();
            late(&mut story.breaches, &format!("entries are left: {}", left.join(", ")));
        }
    }
    sleep(Duration::from_mins(2)).await;
    story.add("cancels overwritten by CKE", cke.log().lost_cancels.len());
    story.add("cancels", cancels.len());

    let mut record = gather::record(&stage.sandbox);
    record.calm_since = Some(clock.wall());
    record.ttl_seconds = 60;
    let view = View::of(&record);
    let rules = observers::ALL.iter().filter(|(code, _)| ["I23", "I24"].contains(code));
    story.breaches.extend(rules.flat_map(|(_, rule)| rule(&view)));
    story.breaches.extend(writes_beside_cke(&view));
    story.breaches.extend(second_reboots(&view));
    story.breaches.extend(lost_cancels(&view, &cancels));
    story.breaches.extend(leftovers(&stage, &record.end));
    let begins = || record.power.iter().filter(|power| power.what == PowerEvent::Begin);
    story.add("reboots by CKE", begins().filter(|p| p.entry.is_empty()).count());
    story.add("reboots by cketerm", begins().filter(|p| !p.entry.is_empty()).count());
    story.breaches.sort_by_key(|breach| breach.at);
    story
}

fn machines(stage: &Stage) -> Vec<String> {
    stage.sandbox.machines.list().iter().filter(|m| !m.apart).map(|m| m.address.clone()).collect()
}

/// Adds reboots of some machines, and cancels some that have not ended.
async fn add_and_cancel(
    operator: Operator,
    mut rng: Rng,
    clock: Clock,
    machines: Vec<String>,
    began: Instant,
) -> Vec<Cancel> {
    let mut cancels = Vec::new();
    let mut at = Duration::from_secs(rng.u64(1..10));
    while at < LAST_ACTION {
        sleep_until(began + at).await;
        at += Duration::from_millis(rng.u64(500..40_000));
        if rng.bool() {
            let some: Vec<String> =
                (0..rng.usize(1..4)).map(|_| machines[rng.usize(..machines.len())].clone()).collect();
            let _ = operator.add_reboots(&addressed(&some), Some("kernel")).await;
            continue;
        }
        let Ok(view) = operator.store.read_view().await else { continue };
        let open: Vec<u64> = view
            .reboots
            .entries
            .iter()
            .filter_map(|(index, stored)| {
                let status = stored.get()?.status;
                matches!(status, RebootStatus::Queued | RebootStatus::Draining).then_some(*index)
            })
            .collect();
        if open.is_empty() {
            continue;
        }
        let index = open[rng.usize(..open.len())];
        if operator.cancel_reboot(index, None, None).await.is_ok() {
            cancels.push(Cancel { at: clock.wall(), index });
        }
    }
    cancels
}

async fn waits_for(operator: &Operator, limit: Duration, is: impl Fn(&StoreView) -> bool) -> bool {
    let reached = timeout(limit, async {
        while !operator.store.read_view().await.is_ok_and(|view| is(&view)) {
            sleep(Duration::from_secs(1)).await;
        }
    });
    reached.await.is_ok()
}

async fn leads(operator: &Operator, kind: LeaderKind) -> bool {
    waits_for(operator, HANDOVER_LIMIT, |view| view.leader().is_some() && view.leadership().lead == kind).await
}

async fn resigns(operator: &Operator) -> bool {
    waits_for(operator, HANDOVER_LIMIT, |view| view.leader().is_none()).await
}

/// H1: an engine changes something in Kubernetes only while a key of its own leads, or at most as much later as a
/// request may be late.
fn writes_beside_cke(view: &View<'_>) -> Vec<Breach> {
    let asks = |path: &str| path.contains("accessreviews") || path.contains("/events");
    let writes = view.record.api_requests.iter().filter(|request| {
        observers::is_engine(&request.by) && request.method != "GET" && request.code < 300 && !asks(&request.path)
    });
    let mut found = Vec::new();
    for request in writes {
        let own = view.candidates.iter().filter(|candidate| candidate.by.as_deref() == Some(&request.by));
        if !own.clone().any(|candidate| view.led(&candidate.lease, request.at - LATE, request.at)) {
            let what = format!("{} sends {} {} and does not lead", request.by, request.method, request.path);
            found.push(Breach { code: "H1", at: request.at, what });
        }
    }
    found
}

/// H2: a machine gets at most one power command for each of its entries that reached `rebooting`, and one for each
/// further attempt that cketerm recorded.
fn second_reboots(view: &View<'_>) -> Vec<Breach> {
    let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
    for (index, entry) in &view.entries {
        let states = entry.steps().iter().filter_map(|step| step.value.as_ref()?.as_ref().ok());
        let reached = states.clone().any(|entry| entry.status == RebootStatus::Rebooting);
        let Some(node) = states.map(|entry| entry.node.clone()).next() else { continue };
        let attempts = view.attempts.keys().filter(|(of, _)| of == index).count();
        *allowed.entry(node.to_string()).or_default() += usize::from(reached).max(attempts);
    }
    let mut begun: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for power in view.record.power.iter().filter(|power| power.what == PowerEvent::Begin) {
        let count = begun.entry(&power.address).or_default();
        *count += 1;
        let most = allowed.get(&power.address).copied().unwrap_or(0);
        if *count > most {
            let what = format!("{} gets command {count}, its entries account for {most}", power.address);
            found.push(Breach { code: "H2", at: power.at, what });
        }
    }
    found
}

/// H3: no entry begins to reboot after its cancel was accepted, except by a command that was about to begin.
fn lost_cancels(view: &View<'_>, cancels: &[Cancel]) -> Vec<Breach> {
    let mut found = Vec::new();
    for cancel in cancels {
        let Some(entry) = view.entries.get(&cancel.index) else { continue };
        let until = cancel.at + CANCEL_HOLDS_AFTER;
        let mut before = None;
        for step in entry.steps() {
            let status = status_of(step.value.as_ref());
            if step.at > until && status == Some(RebootStatus::Rebooting) && before != status {
                let what =
                    format!("reboots/{} begins, although its cancel was accepted at {}", cancel.index, cancel.at);
                found.push(Breach { code: "H3", at: step.at, what });
            }
            before = status;
        }
    }
    found
}

/// H4: in the end no Node is cordoned and every machine runs.
fn leftovers(stage: &Stage, at: &Timestamp) -> Vec<Breach> {
    let (nodes, _) = stage.sandbox.objects.list(&NODES, "");
    let cordoned = nodes.iter().filter(|node| node["spec"]["unschedulable"] == true);
    let machines = &stage.sandbox.machines;
    let runs = |address: &str| machines.machine_status(address).is_some_and(|status| status.state == State::Up);
    let off = machines.list().into_iter().filter(|machine| !runs(&machine.address));
    let mut found = Vec::new();
    for node in cordoned {
        let what = format!("node {} is still cordoned", node["metadata"]["name"]);
        found.push(Breach { code: "H4", at: *at, what });
    }
    for machine in off {
        found.push(Breach { code: "H4", at: *at, what: format!("machine {} does not run", machine.address) });
    }
    found
}
