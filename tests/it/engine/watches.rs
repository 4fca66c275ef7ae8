//! API servers that answer slowly, and watches whose connection is dead while all others work (sandbox, paused clock).

use std::{sync::Arc, time::Duration};

use cketerm::{
    actions::Operator,
    clock::Clock,
    engine::{run::Handle, snapshot::Seen},
    model::{entry::EntryId, reason::Reason, reboot::RebootStatus},
    sandbox::kubernetes::resource::NODES,
    scenario::{Lines, Options, Scenario, Stage, backends},
    store::keys::SwitchName,
    tasks::Gate,
};
use tokio::time::sleep;

const NODES_WATCH: &str = "/api/v1/nodes";
fn first() -> EntryId {
    EntryId::reboot(0)
}

struct Place {
    stage: Stage,
    engine: Handle,
    operator: Operator,
    lines: Lines,
}

impl Place {
    /// Three API servers, four workers, and an engine that leads, with a TTL of 60 s.
    async fn new() -> Self {
        let text = "name: test\nabout: A test.\npopulation: {nodes: 7, pods_per_node: 1, workloads: []}\n";
        let clock = Clock::tokio("2026-08-01T12:00:00Z".parse().unwrap());
        let stage = Stage::set(Scenario::parse(text).unwrap(), Options::default(), clock.clone()).await.unwrap();
        let lines = Lines::new("engine-host", &Gate::default(), 1);
        let mut backends = backends(&stage.sandbox, "engine-host", clock, &lines);
        backends.ttl = Duration::from_mins(1);
        let engine = backends.start("daemon", true, None);
        let operator = stage.operator("ann");
        let place = Self { stage, engine, operator, lines };
        place.operator.set_switch(SwitchName::Reboots, true, None).await.unwrap();
        place.until("it leads", |s| s.snapshot.engine.leading.is_some() && s.snapshot.kube.synced()).await;
        place
    }

    fn worker(&self, n: usize) -> (String, String) {
        let machines = self.stage.sandbox.machines.list();
        let worker = machines.iter().filter(|m| !m.control_plane).nth(n).unwrap();
        (worker.name.clone(), worker.address.clone())
    }

    /// Cordons a node as an administrator does.
    fn cordon(&self, node: &str) {
        let cordoned = self.stage.sandbox.objects.update(&NODES, "", node, |node| {
            node["spec"]["unschedulable"] = true.into();
            Ok(())
        });
        cordoned.map_err(|e| e.message).unwrap();
    }

    async fn queue(&self, n: usize) {
        self.operator.add_reboots(&[self.worker(n).1], None).await.unwrap();
    }

    async fn until(&self, what: &str, mut good: impl FnMut(&Seen) -> bool) -> Arc<Seen> {
        let mut seen = self.engine.seen();
        match tokio::time::timeout(Duration::from_mins(40), seen.wait_for(|s| good(s))).await {
            Ok(Ok(seen)) => seen.clone(),
            _ => panic!("never: {what}; {:?}", self.engine.seen().borrow().reasons),
        }
    }

    /// Number of watches of Nodes that the engine has opened.
    fn opened(&self) -> usize {
        let asked = self.stage.sandbox.api.audit();
        asked.iter().filter(|a| a.user == "engine-host" && a.verb == "watch" && a.path.contains("nodes")).count()
    }
}

fn status(seen: &Seen) -> Option<RebootStatus> {
    seen.snapshot.store.reboots.entries.get(&0).and_then(|e| e.get()).map(|e| e.status)
}

/// At TTL 60 a twelfth is 5 s. Three seconds for the Node and three for its pods, one after the other, would not fit
/// in.
#[tokio::test(start_paused = true)]
async fn a_reboot_goes_through_on_an_api_server_that_takes_three_seconds_for_each_request() {
    let place = Box::pin(Place::new()).await;
    place.lines.kubernetes.slow(Some((Duration::from_secs(3), Duration::from_secs(3))), 1);
    place.queue(0).await;
    let began = tokio::time::Instant::now();
    place.until("it drains", |s| status(s) == Some(RebootStatus::Draining)).await;
    place.until("it reboots", |s| status(s) == Some(RebootStatus::Rebooting)).await;
    place.until("it is done", |s| status(s).is_none()).await;
    assert!(began.elapsed() < Duration::from_mins(15), "{:?}", began.elapsed());
    let commands = place.stage.sandbox.machines.power_log();
    assert!(commands.iter().any(|p| p.address == place.worker(0).1), "{commands:?}");
}

/// Every answer takes longer than the call's timeout: the drain ends at its deadline and names the server that did not
/// answer.
#[tokio::test(start_paused = true)]
async fn a_command_whose_machine_cannot_be_asked_for_backs_off_at_the_drains_deadline_with_its_cause() {
    let place = Box::pin(Place::new()).await;
    place.queue(0).await;
    place.until("it drains", |s| status(s) == Some(RebootStatus::Draining)).await;
    place.lines.kubernetes.slow(Some((Duration::from_secs(30), Duration::from_secs(30))), 1);
    let began = tokio::time::Instant::now();
    let seen = place.until("it backs off", |s| status(s) == Some(RebootStatus::Queued)).await;
    assert!(began.elapsed() < Duration::from_mins(11), "the deadline of drains holds: {:?}", began.elapsed());
    assert!(seen.snapshot.store.reboots.entries[&0].get().unwrap().drain_backoff_count == 1);
    let seen = place.until("it says why", |s| matches!(s.reasons.get(&first()), Some(Reason::Backoff { .. }))).await;
    let Some(Reason::Backoff { cause: Some(cause), .. }) = seen.reasons.get(&first()) else { unreachable!() };
    let cause = cause.to_string();
    assert!(cause.contains("no answer") || cause.contains("is older") || cause.contains("pods on"), "{cause}");
    place.lines.kubernetes.slow(None, 0);
    place.until("and it is rebooted when the server is well", |s| status(s).is_none()).await;
}

/// The heartbeat and all other watches are healthy: only this watch's live copy is old, and nothing starts on it.
#[tokio::test(start_paused = true)]
async fn nothing_starts_on_the_copy_of_a_watch_that_is_dead_and_it_recovers() {
    let place = Box::pin(Place::new()).await;
    sleep(Duration::from_secs(30)).await;
    place.lines.kubernetes.mute(Some(NODES_WATCH), true);
    // the dead watch does not report this
    let (other, _) = place.worker(1);
    let row = |s: &Seen| s.snapshot.kube.nodes[&other].unschedulable;
    place.cordon(&other);
    place.queue(0).await;
    let stale =
        |s: &Seen| matches!(s.reasons.get(&first()), Some(Reason::Stale { source, .. }) if source.starts_with("nodes"));
    place.until("it says whose copy is old", stale).await;
    for _ in 0..120 {
        sleep(Duration::from_secs(1)).await;
        let seen = place.engine.seen().borrow().clone();
        assert_eq!(status(&seen), Some(RebootStatus::Queued), "{:?}", seen.reasons);
    }
    assert!(stale(&place.engine.seen().borrow()), "{:?}", place.engine.seen().borrow().reasons);
    place.lines.kubernetes.mute(None, false);
    let seen = place.until("it starts", |s| status(s) == Some(RebootStatus::Draining)).await;
    assert!(row(&seen), "decided from what is so");
    place.until("it is rebooted", |s| status(s).is_none()).await;
}

/// One connection dies while nothing is in progress: the first work reopens it before anything is decided from it.
#[tokio::test(start_paused = true)]
async fn a_connection_that_died_unnoticed_is_replaced_before_work_starts() {
    let place = Box::pin(Place::new()).await;
    sleep(Duration::from_secs(30)).await;
    place.lines.kubernetes.mute(Some(NODES_WATCH), false);
    let (other, _) = place.worker(1);
    let row = |s: &Seen| s.snapshot.kube.nodes[&other].unschedulable;
    place.cordon(&other);
    sleep(Duration::from_secs(20)).await;
    assert!(!row(&place.engine.seen().borrow()), "nobody works: the copy is what it was");
    place.queue(0).await;
    let seen = place
        .until("it starts", |s| {
            s.snapshot
                .store
                .reboots
                .entries
                .get(&0)
                .is_some_and(|e| e.get().is_some_and(|e| e.status == RebootStatus::Draining))
        })
        .await;
    assert!(row(&seen), "decided from what is so");
}

/// Ten minutes without a change cost almost nothing, and work still starts at once.
#[tokio::test(start_paused = true)]
async fn a_quiet_cluster_costs_nothing_and_its_first_work_starts_at_once() {
    let place = Box::pin(Place::new()).await;
    sleep(Duration::from_mins(1)).await;
    let before = place.opened();
    sleep(Duration::from_mins(10)).await;
    let idle = place.opened() - before;
    assert!(idle <= 8, "{idle} watches of Nodes in ten idle minutes: one in 90 s at most");
    place.queue(0).await;
    let began = tokio::time::Instant::now();
    place.until("it drains", |s| status(s) == Some(RebootStatus::Draining)).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    place.until("it is done", |s| status(s).is_none()).await;
    sleep(Duration::from_secs(30)).await;
    let before = place.opened();
    sleep(Duration::from_mins(5)).await;
    assert!(place.opened() - before <= 4, "and afterwards it is quiet again");
}
