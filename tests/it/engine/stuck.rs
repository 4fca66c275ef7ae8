//! An engine whose main loop is stuck gives up the lock and its process exits. Slow servers do not count as stuck.

use std::{
    fs::File,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use cketerm::config::{Overrides, Settings};
use cketerm_clients::store::Store;
use cketerm_engine::run::Handle;
use cketerm_model::{cketerm_records::EngineMode, entry::Stored};
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::faults::State;
use cketerm_scenario::{Links, Scenario, Stage, backends};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{Options, World, cluster::machines, in_both_worlds, leader, wait_for};

const TTL: Duration = Duration::from_mins(1);

/// A small site on a paused clock, with etcd as a test sees it.
struct Site {
    stage: Arc<Stage>,
    store: Store,
}

/// One engine behind a gate of its own.
struct Engine {
    gate: Gate,
    links: Links,
    handle: Handle,
}

impl Site {
    async fn new() -> Self {
        let text = "name: test\nabout: A test.\npopulation: {nodes: 6, pods_per_node: 0, workloads: []}\n";
        let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
        let options = cketerm_scenario::Options::default();
        let stage = Arc::new(Stage::set(Scenario::parse(text).unwrap(), options, clock).await.unwrap());
        let store = stage.operator("ann").store;
        Self { stage, store }
    }

    async fn engine(&self, name: &str) -> Engine {
        let gate = Gate::default();
        let links = Links::new(name, &gate, 1);
        let mut backends = backends(&self.stage.sandbox, name, self.store.clock().clone(), &links);
        backends.ttl = TTL;
        let handle = gate.hold(async move { backends.start(EngineMode::Daemon, true, None) }).await;
        Engine { gate, links, handle }
    }

    async fn leader(&self) -> Option<String> {
        let view = self.store.read_view().await.unwrap();
        let lease = view.leader()?.lease;
        view.engines.get(&lease).and_then(Stored::get).map(|engine| engine.host.clone())
    }

    async fn candidates(&self) -> usize {
        self.store.read_view().await.unwrap().candidates.len()
    }
}

impl Engine {
    async fn becomes_leader(&self) {
        let mut seen = self.handle.seen();
        let becomes_leader = seen.wait_for(|seen| seen.snapshot.engine.leading.is_some());
        timeout(Duration::from_mins(5), becomes_leader).await.expect("the engine leads in time").unwrap();
    }

    async fn wait_for_standby(&self, site: &Site, candidates: usize) {
        let there = async {
            while site.candidates().await < candidates {
                sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(Duration::from_mins(5), there).await.expect("the engine is on standby in time");
    }

    /// Waits until its process has to exit; returns the duration.
    async fn stuck(&self) -> Duration {
        let began = Instant::now();
        let why = timeout(Duration::from_mins(10), self.handle.heartbeat().stuck())
            .await
            .expect("the stuck loop is detected in time");
        assert!(why.contains("the lock was released"), "{why}");
        began.elapsed()
    }

    /// Asserts that the loop beats, and does not count as stuck, for this long.
    async fn beats(&self, long: Duration) {
        let until = Instant::now() + long;
        let heartbeat = self.handle.heartbeat();
        while Instant::now() < until {
            let before = heartbeat.beats();
            let stuck = timeout(Duration::from_secs(3), heartbeat.stuck()).await;
            assert!(stuck.is_err(), "{stuck:?}");
            assert!(heartbeat.beats() > before, "the main loop must beat within three seconds");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_a_stuck_main_loop_gives_up_the_lock() {
    let site = Site::new().await;
    let first = site.engine("first").await;
    first.becomes_leader().await;
    let second = site.engine("second").await;
    second.wait_for_standby(&site, 2).await;
    first.gate.freeze_main();
    let took = first.stuck().await;
    assert!((TTL / 2..TTL / 2 + Duration::from_secs(10)).contains(&took), "{took:?}");
    second.becomes_leader().await;
    assert_eq!(site.leader().await.as_deref(), Some("second"));
    assert_eq!(site.candidates().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_standby_withdraws_and_a_stuck_shutdown_is_detected() {
    let site = Site::new().await;
    let first = site.engine("first").await;
    first.becomes_leader().await;
    let second = site.engine("second").await;
    second.wait_for_standby(&site, 2).await;
    second.gate.freeze_main();
    second.stuck().await;
    assert_eq!((site.leader().await.as_deref(), site.candidates().await), (Some("first"), 1));

    // the loop gets stuck during shutdown: waiting for its end has a time limit
    first.gate.freeze_main();
    let heartbeat = first.handle.heartbeat();
    tokio::select! {
        () = first.handle.stop() => panic!("a stuck loop must not end by itself"),
        why = heartbeat.stuck() => assert!(why.contains("the lock was released"), "{why}"),
    }
    assert_eq!(site.candidates().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_standby_and_an_engine_that_shuts_down_are_not_stuck() {
    let site = Site::new().await;
    let first = site.engine("first").await;
    first.becomes_leader().await;
    let second = site.engine("second").await;
    second.wait_for_standby(&site, 2).await;
    second.beats(Duration::from_mins(5)).await;
    let heartbeat = second.handle.heartbeat();
    second.handle.stop().await;
    assert!(
        timeout(Duration::from_mins(10), heartbeat.stuck()).await.is_err(),
        "an engine that has shut down must not count as stuck"
    );
}

/// 20 s of latency cost no beat. While they are shorter than the lease, they do not cost the lock either.
#[tokio::test(start_paused = true)]
async fn slow_servers_do_not_count_as_a_stuck_main_loop() {
    let site = Site::new().await;
    let engine = site.engine("first").await;
    engine.becomes_leader().await;
    let lease = engine.handle.seen().borrow().snapshot.engine.lease;
    // answers come 20 s late
    for _ in 0..5 {
        for link in [&engine.links.etcd, &engine.links.kubernetes] {
            link.set_state(State::Silent);
        }
        engine.beats(Duration::from_secs(20)).await;
        for link in [&engine.links.etcd, &engine.links.kubernetes] {
            link.set_state(State::Open);
        }
        engine.beats(Duration::from_secs(25)).await;
    }
    assert_eq!(engine.handle.seen().borrow().snapshot.engine.lease, lease, "the lease must be kept alive");
    // permanently slow: the lease expires, the loop keeps running and leads again afterwards
    for link in [&engine.links.etcd, &engine.links.kubernetes] {
        link.slow(Some((Duration::from_secs(20), Duration::from_secs(20))), 1);
        link.interrupt();
    }
    engine.beats(Duration::from_mins(5)).await;
    assert!(engine.handle.seen().borrow().snapshot.engine.leading.is_none(), "the engine must lose its leadership");
    for link in [&engine.links.etcd, &engine.links.kubernetes] {
        link.slow(None, 0);
        link.interrupt();
    }
    engine.becomes_leader().await;
}

/// The loop does not block on the steps towards the lock: schema, identity, the live copy that shows the win.
#[tokio::test(start_paused = true)]
async fn the_main_loop_sends_heartbeats_while_etcd_delays_the_campaign() {
    let site = Site::new().await;
    for key in ["/cke/cketerm/schema", "/cke/cketerm/identity"] {
        site.stage.sandbox.etcd.delete(key);
    }
    let engine = site.engine("first").await;
    engine.links.etcd.slow(Some((Duration::from_millis(1900), Duration::from_millis(1900))), 1);
    engine.beats(Duration::from_mins(1)).await;
    engine.links.etcd.slow(None, 0);
    let proposed = || site.stage.sandbox.etcd.get("/cke/cketerm/schema").is_some();
    engine.beats(Duration::from_secs(30)).await;
    assert!(proposed(), "a task must write the schema");
    let operator = site.stage.operator("ann");
    operator.confirm_identity(None).await.expect("the identity is confirmed");
    // the engine is elected while its live copy of etcd is stalled
    site.stage.sandbox.etcd.stall_watches(true);
    engine.beats(Duration::from_mins(3)).await;
    site.stage.sandbox.etcd.stall_watches(false);
    engine.becomes_leader().await;
}

in_both_worlds! {
    Options { kcm: false, kwok: true, audit: false, etcd34: false, scheduler: false };
    a_daemon_with_a_stuck_main_loop_gives_up_the_lock_and_exits_with_1,
}

/// Environment variable that selects how the main loop of [`the_daemon_of_these_tests`] gets stuck.
const HOW: &str = "STUCK_TEST_HOW";
const CONFIG: &str = "STUCK_TEST_CONFIG";

fn start(config: &Path, dir: &Path, how: &str) -> Child {
    let log = File::create(dir.join(format!("{how}.log"))).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "engine::stuck::the_daemon_of_these_tests", "--nocapture"]);
    command.env(HOW, how).env(CONFIG, config).env("CKETERM_LEASE_TTL", "5").current_dir(dir);
    command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

fn a_daemon_with_a_stuck_main_loop_gives_up_the_lock_and_exits_with_1(world: &World) {
    let machines = machines(1, 2);
    world.add_nodes(&machines);
    world.set_up(&machines, &serde_json::json!({}));
    for how in ["waits", "busy", "busy-alone"] {
        let mut child = start(&world.config(), world.dir(), how);
        let becomes_leader = || leader::now(&world.etcd).filter(|(_, pid)| *pid == Some(child.id()));
        let (lease, _) = wait_for("the daemon leads", 60, becomes_leader);
        // the end of its standard input makes its main loop stuck
        drop(child.stdin.take());
        let next = world.daemon("next");
        wait_for("the other engine leads", 90, || leader::now(&world.etcd).filter(|(now, _)| *now != lease));
        let status = wait_for("the stuck daemon exits", 90, || child.try_wait().unwrap());
        let log_text = std::fs::read_to_string(world.dir().join(format!("{how}.log"))).unwrap();
        assert_eq!(status.code(), Some(1), "{how}: {status} {log_text}");
        assert!(log_text.contains("stuck"), "{how}: {log_text}");
        assert!(next.terminate().0.success());
    }
}

/// No test of its own, but the process that the test above lets get stuck: `daemon::run` as `main` calls it.
#[test]
fn the_daemon_of_these_tests() {
    let (Ok(how), Ok(config)) = (std::env::var(HOW), std::env::var(CONFIG)) else { return };
    let overrides = Overrides { config: Some(config.into()), ..Overrides::default() };
    let settings = Settings::load(&overrides).unwrap();
    let gate = Gate::default();
    let held = gate.clone();
    let threads = if how == "busy-alone" { 1 } else { 4 };
    std::thread::spawn(move || {
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        if how == "waits" { held.freeze_main() } else { held.block_main() }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
    let ended = runtime.block_on(gate.hold(cketerm::daemon::run(settings, None)));
    runtime.shutdown_timeout(Duration::from_secs(5));
    if let Err(e) = ended {
        eprintln!("cketerm: {e:#}");
        std::process::exit(1);
    }
}
