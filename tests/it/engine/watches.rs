//! API servers that answer slowly, and watches whose connection is dead while all others work (sandbox, paused clock).

use std::{sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_engine::run::Handle;
use cketerm_model::{
    cketerm_records::EngineMode, entry::EntryId, names::Address, reason::Reason, reboot::RebootStatus,
    stored::keys::SwitchName,
};
use cketerm_rules::seen::Seen;
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::kubernetes::resource::NODES;
use cketerm_scenario::{Links, Options, Scenario, Stage, backends};
use tokio::time::sleep;

const NODES_WATCH: &str = "/api/v1/nodes";
fn first() -> EntryId {
    EntryId::reboot(0)
}

struct Site {
    stage: Stage,
    engine: Handle,
    operator: Operator,
    links: Links,
}

impl Site {
    /// Three API servers, four workers, and an engine that leads, with a TTL of 60 s.
    async fn new() -> Self {
        let text = "name: test\nabout: A test.\npopulation: {nodes: 7, pods_per_node: 1, workloads: []}\n";
        let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
        let stage = Stage::set(Scenario::parse(text).unwrap(), Options::default(), clock.clone()).await.unwrap();
        let links = Links::new("engine-host", &Gate::default(), 1);
        let mut backends = backends(&stage.sandbox, "engine-host", clock, &links);
        backends.ttl = Duration::from_mins(1);
        let engine = backends.start(EngineMode::Daemon, true, None);
        let operator = stage.operator("ann");
        let site = Self { stage, engine, operator, links };
        site.operator.set_switch(SwitchName::Reboots, true, None).await.unwrap();
        site.until("the engine leads", |s| s.snapshot.engine.leading.is_some() && s.snapshot.kube.synced()).await;
        site
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
        self.operator.add_reboots(&[Address::new(self.worker(n).1)], None).await.unwrap();
    }

    async fn until(&self, what: &str, mut good: impl FnMut(&Seen) -> bool) -> Arc<Seen> {
        let mut seen = self.engine.seen();
        match tokio::time::timeout(Duration::from_mins(40), seen.wait_for(|s| good(s))).await {
            Ok(Ok(seen)) => seen.clone(),
            _ => panic!("timed out: {what}; reasons: {:?}", self.engine.seen().borrow().reasons),
        }
    }

    /// Number of watches of Nodes that the engine has opened.
    fn node_watches_opened(&self) -> usize {
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
async fn a_reboot_succeeds_on_an_api_server_with_three_seconds_of_latency() {
    let site = Box::pin(Site::new()).await;
    site.links.kubernetes.slow(Some((Duration::from_secs(3), Duration::from_secs(3))), 1);
    site.queue(0).await;
    let began = tokio::time::Instant::now();
    site.until("the drain starts", |s| status(s) == Some(RebootStatus::Draining)).await;
    site.until("the reboot starts", |s| status(s) == Some(RebootStatus::Rebooting)).await;
    site.until("the entry has ended", |s| status(s).is_none()).await;
    assert!(began.elapsed() < Duration::from_mins(15), "{:?}", began.elapsed());
    let commands = site.stage.sandbox.machines.power_log();
    assert!(commands.iter().any(|p| p.address == site.worker(0).1), "{commands:?}");
}

/// Every answer takes longer than the call's timeout: the drain ends at its deadline and names the server that did not
/// answer.
#[tokio::test(start_paused = true)]
async fn a_drain_whose_node_cannot_be_read_backs_off_at_its_deadline_with_the_cause() {
    let site = Box::pin(Site::new()).await;
    site.queue(0).await;
    site.until("the drain starts", |s| status(s) == Some(RebootStatus::Draining)).await;
    site.links.kubernetes.slow(Some((Duration::from_secs(30), Duration::from_secs(30))), 1);
    let began = tokio::time::Instant::now();
    let seen = site.until("the drain backs off", |s| status(s) == Some(RebootStatus::Queued)).await;
    assert!(began.elapsed() < Duration::from_mins(11), "the drain must end at its deadline: {:?}", began.elapsed());
    assert!(seen.snapshot.store.reboots.entries[&0].get().unwrap().drain_backoff_count == 1);
    let seen =
        site.until("the reason is Backoff", |s| matches!(s.reasons.get(&first()), Some(Reason::Backoff { .. }))).await;
    let Some(Reason::Backoff { cause: Some(cause), .. }) = seen.reasons.get(&first()) else { unreachable!() };
    let cause = cause.to_string();
    assert!(cause.contains("no answer") || cause.contains("is older") || cause.contains("pods on"), "{cause}");
    site.links.kubernetes.slow(None, 0);
    site.until("the machine is rebooted after the server recovers", |s| status(s).is_none()).await;
}

/// The heartbeat and all other watches are healthy: only this watch's live copy is old, and nothing starts on it.
#[tokio::test(start_paused = true)]
async fn nothing_starts_on_the_stale_copy_of_a_dead_watch_until_it_recovers() {
    let site = Box::pin(Site::new()).await;
    sleep(Duration::from_secs(30)).await;
    site.links.kubernetes.mute(Some(NODES_WATCH), true);
    // the dead watch does not report this
    let (other, _) = site.worker(1);
    let row = |s: &Seen| s.snapshot.kube.nodes[other.as_str()].unschedulable;
    site.cordon(&other);
    site.queue(0).await;
    let stale =
        |s: &Seen| matches!(s.reasons.get(&first()), Some(Reason::Stale { source, .. }) if source.starts_with("nodes"));
    site.until("the reason names the stale watch", stale).await;
    for _ in 0..120 {
        sleep(Duration::from_secs(1)).await;
        let seen = site.engine.seen().borrow().clone();
        assert_eq!(status(&seen), Some(RebootStatus::Queued), "{:?}", seen.reasons);
    }
    assert!(stale(&site.engine.seen().borrow()), "{:?}", site.engine.seen().borrow().reasons);
    site.links.kubernetes.mute(None, false);
    let seen = site.until("the drain starts", |s| status(s) == Some(RebootStatus::Draining)).await;
    assert!(row(&seen), "the decision must use the current state");
    site.until("the machine is rebooted", |s| status(s).is_none()).await;
}

/// One connection dies while nothing is in progress: the first work reopens it before anything is decided from it.
#[tokio::test(start_paused = true)]
async fn a_silently_dead_watch_connection_is_replaced_before_work_starts() {
    let site = Box::pin(Site::new()).await;
    sleep(Duration::from_secs(30)).await;
    site.links.kubernetes.mute(Some(NODES_WATCH), false);
    let (other, _) = site.worker(1);
    let row = |s: &Seen| s.snapshot.kube.nodes[other.as_str()].unschedulable;
    site.cordon(&other);
    sleep(Duration::from_secs(20)).await;
    assert!(!row(&site.engine.seen().borrow()), "without work the stale copy is not refreshed");
    site.queue(0).await;
    let seen = site
        .until("the drain starts", |s| {
            s.snapshot
                .store
                .reboots
                .entries
                .get(&0)
                .is_some_and(|e| e.get().is_some_and(|e| e.status == RebootStatus::Draining))
        })
        .await;
    assert!(row(&seen), "the decision must use the current state");
}

/// Ten minutes without a change cost almost nothing, and work still starts at once.
#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_no_requests_and_its_first_work_starts_at_once() {
    let site = Box::pin(Site::new()).await;
    sleep(Duration::from_mins(1)).await;
    let before = site.node_watches_opened();
    sleep(Duration::from_mins(10)).await;
    let idle = site.node_watches_opened() - before;
    assert!(idle <= 8, "{idle} watches of Nodes in ten idle minutes, at most one in 90 s is expected");
    site.queue(0).await;
    let began = tokio::time::Instant::now();
    site.until("the drain starts", |s| status(s) == Some(RebootStatus::Draining)).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    site.until("the entry has ended", |s| status(s).is_none()).await;
    sleep(Duration::from_secs(30)).await;
    let before = site.node_watches_opened();
    sleep(Duration::from_mins(5)).await;
    assert!(site.node_watches_opened() - before <= 4, "after the work few watches may be opened");
}
