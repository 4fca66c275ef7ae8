//! A controller that ends, resigns, is barred, dies or is switched off at any moment of a cycle. It ends the cycles
//! that it has begun, and begins no other (I44, MET-55 to MET-59, SAF-7).

use std::time::Duration;

use cketerm_engine::run::Handle;
use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::{Audit, EngineMode},
    entry::Stored,
};
use cketerm_rules::seen::Seen;
use cketerm_sandbox::{
    faults::State as LineState,
    kubernetes::resource::{BARE_METAL_HOSTS, LEASES},
    machines::{Behaviour, OnBmc, PowerEvent, State},
    metal3::NAMESPACE,
};
use serde_json::json;

use super::sandbox::{Site, cycled, row};

const HARD: &str = r#"{"mode":"hard"}"#;

/// A place where a cycle of `w1` was requested this long ago, and its BMC is slow.
async fn requested(mode: EngineMode, elapsed: Duration) -> Site {
    let site = Site::of(mode, "none", true).await;
    let known = |name: &str| site.host(name)["status"]["poweredOn"] == true;
    let ready = async {
        while !["w1", "w2", "w3"].into_iter().all(known) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(5), ready).await.unwrap();
    site.behave("w1", Behaviour { bmc_seconds: Seconds::new(3.0), ..Behaviour::default() });
    site.annotate("w1", "reboot.metal3.io", HARD);
    tokio::time::sleep(elapsed).await;
    site
}

/// Moments from the request to the end of the cycle, in steps that fall between any two actions.
fn moments() -> impl Iterator<Item = Duration> {
    (0..20).map(|step| Duration::from_millis(730 * step))
}

impl Site {
    fn power_changes(&self, name: &str) -> Vec<PowerEvent> {
        let machines = &self.stage.sandbox.machines;
        let address = machines.address_of(name).unwrap();
        machines.power_log().into_iter().filter(|p| p.address == address).map(|p| p.what).collect()
    }

    /// Asserts that `w1` went through a whole cycle or through none, and runs.
    fn assert_cycle_complete(&self, when: &str) {
        let events = self.power_changes("w1");
        let complete = events.is_empty() || events == [PowerEvent::Down, PowerEvent::Up];
        assert!(complete && self.state("w1") != State::Off, "{when}: {events:?}, {:?}", self.host("w1")["status"]);
    }

    /// Asserts that no cycle begins for `w2`, which is requested after the shutdown.
    async fn assert_no_new_cycle(&self) {
        self.annotate("w2", "reboot.metal3.io", HARD);
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert!(self.power_changes("w2").is_empty(), "{:?}", self.power_changes("w2"));
    }

    async fn set_controller_enabled(&self, on: &str) {
        self.operator.set_policy("metal3_controller", on, None).await.unwrap();
    }

    fn standby(&self) -> Handle {
        self.stage.backends("standby-host").start(EngineMode::Daemon, true, None)
    }
}

#[tokio::test(start_paused = true)]
async fn i44_disabling_the_policy_finishes_the_running_power_cycle_and_starts_no_other() {
    for mode in [EngineMode::Console, EngineMode::Daemon] {
        for elapsed in moments() {
            let site = requested(mode.clone(), elapsed).await;
            site.set_controller_enabled("false").await;
            tokio::time::sleep(Duration::from_secs(90)).await;
            site.assert_cycle_complete(&format!("{mode}, switched off after {elapsed:?}"));
        }
        let site = requested(mode, Duration::from_secs(3)).await;
        site.set_controller_enabled("false").await;
        site.until("the power cycle is over", |s| cycled(s, "w1")).await;
        site.assert_no_new_cycle().await;
        assert!(site.engine.seen().borrow().snapshot.metal3.hosts.is_empty(), "the controller must manage no hosts");
        site.set_controller_enabled("true").await;
        site.until("the other power cycle is complete", |s| cycled(s, "w2")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn i44_with_the_policy_off_the_next_leader_finishes_a_dead_leaders_power_cycle() {
    for elapsed in moments() {
        let site = requested(EngineMode::Daemon, elapsed).await;
        let _standby = site.standby();
        site.set_controller_enabled("false").await;
        // the engine dies without resigning: its tasks are dropped, and its lease expires
        let Site { stage, engine, operator, links } = site;
        drop(engine);
        tokio::time::sleep(Duration::from_mins(3)).await;
        let site = Site {
            engine: stage.backends("idle-host").start(EngineMode::Console, false, None),
            stage,
            operator,
            links,
        };
        site.assert_cycle_complete(&format!("killed after {elapsed:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn i44_a_sole_engine_that_shuts_down_at_any_moment_leaves_no_machine_off() {
    for elapsed in moments() {
        let site = requested(EngineMode::Daemon, elapsed).await;
        let Site { stage, engine, operator, links } = site;
        let mut seen = engine.seen();
        let beats = tokio::spawn(async move {
            let (mut last, mut longest) = (seen.borrow().now.boot, Duration::ZERO);
            while seen.changed().await.is_ok() {
                let now = seen.borrow().now.boot;
                longest = longest.max(now.saturating_duration_since(last));
                last = now;
            }
            longest
        });
        engine.stop().await;
        let longest = beats.await.unwrap();
        assert!(longest < Duration::from_secs(5), "no heartbeat for {longest:?} during the shutdown");
        // by now every request that it sent has been carried out
        tokio::time::sleep(Duration::from_mins(2)).await;
        let site = Site {
            engine: stage.backends("idle-host").start(EngineMode::Console, false, None),
            stage,
            operator,
            links,
        };
        site.assert_cycle_complete(&format!("ended after {elapsed:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_without_a_successor_reports_machines_that_stay_off() {
    let site = requested(EngineMode::Daemon, Duration::from_secs(3)).await;
    site.annotate("w2", "reboot.metal3.io/x", HARD);
    while site.host("w2")["status"]["poweredOn"] != false {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let Site { stage, engine, operator, links: _links } = site;
    engine.stop().await;
    let at = |name: &str| {
        let address = stage.sandbox.machines.address_of(name).unwrap();
        stage.sandbox.machines.machine_status(&address).unwrap().state
    };
    assert_ne!(at("w1"), State::Off, "a machine between off and on must not stay off");
    assert_eq!(at("w2"), State::Off, "I44: must stay off while a key remains");
    let store = &operator.store;
    let audit = store.newest::<Audit>(&store.keys().audit_prefix(), 200).await.unwrap();
    let left = audit.iter().filter_map(Stored::get).filter(|r| r.what == "host left off").collect::<Vec<_>>();
    assert_eq!(left.len(), 1, "the audit log must name the host left off: {audit:?}");
    assert!(left[0].on == "host metal3/w2" && left[0].reason.as_ref().unwrap().contains("held off by x"), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn i44_an_engine_that_resigns_for_cke_finishes_its_cycles_and_starts_none() {
    for elapsed in moments() {
        let site = requested(EngineMode::Daemon, elapsed).await;
        site.operator.set_policy("engine", "cke", None).await.unwrap();
        site.annotate("w2", "reboot.metal3.io", HARD);
        site.until("the engine resigns", |s| s.snapshot.engine.leading.is_none()).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        site.assert_cycle_complete(&format!("resigned after {elapsed:?}"));
        assert!(site.power_changes("w2").is_empty(), "after {elapsed:?}: {:?}", site.power_changes("w2"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_resignation_names_the_host_it_waits_for_and_has_a_time_limit() {
    let site = requested(EngineMode::Daemon, Duration::from_secs(1)).await;
    while site.host("w1")["status"]["poweredOn"] != false {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    site.behave("w1", Behaviour { bmc: OnBmc::Mute, ..Behaviour::default() });
    site.operator.set_policy("engine", "cke", None).await.unwrap();
    let named = |s: &Seen| {
        let why = s.snapshot.engine.resigning.as_ref();
        why.is_some_and(|why| why.contains("waits for the power cycle of metal3/w1"))
    };
    site.until("the resignation names the host it waits for", named).await;
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert!(
        site.engine.seen().borrow().snapshot.engine.leading.is_some(),
        "the engine must wait ten minutes for a machine"
    );
    tokio::time::timeout(
        Duration::from_mins(3),
        site.until("the engine resigns", |s| s.snapshot.engine.leading.is_none()),
    )
    .await
    .unwrap();
    let store = &site.operator.store;
    let audit = store.newest::<Audit>(&store.keys().audit_prefix(), 200).await.unwrap();
    let left = audit.iter().filter_map(Stored::get).filter(|r| r.what == "host left off").collect::<Vec<_>>();
    assert!(left.len() == 1 && left[0].on == "host metal3/w1", "the audit log must name the host left off: {audit:?}");
}

#[tokio::test(start_paused = true)]
async fn i44_running_cycles_finish_despite_a_failed_check_or_a_new_operator() {
    for elapsed in moments() {
        // Kubernetes does not answer for longer than the interval of the checks for another operator
        let site = requested(EngineMode::Daemon, elapsed).await;
        site.links.kubernetes.set_state(LineState::Cut);
        site.set_controller_enabled("false").await;
        tokio::time::sleep(Duration::from_secs(25)).await;
        site.links.kubernetes.set_state(LineState::Open);
        tokio::time::sleep(Duration::from_secs(90)).await;
        site.assert_cycle_complete(&format!("cut off after {elapsed:?}"));
        let site = requested(EngineMode::Daemon, elapsed).await;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "baremetal-operator", "namespace": "kube-system"},
            "spec": {"holderIdentity": "bmo", "leaseDurationSeconds": 36000, "renewTime": site.stage.sandbox.objects.stamp()},
        });
        site.stage.sandbox.objects.create(&LEASES, "kube-system", lease).map_err(|e| e.message).unwrap();
        tokio::time::sleep(Duration::from_secs(90)).await;
        site.assert_cycle_complete(&format!("barred after {elapsed:?}"));
        let seen = site.until("the controller is barred", |s| s.snapshot.metal3.barred.is_some()).await;
        assert!(
            seen.snapshot.metal3.hosts.is_empty(),
            "the controller must manage no hosts: {:?}",
            seen.snapshot.metal3
        );
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_policy_off_another_controllers_cycles_are_left_alone() {
    // another controller that writes the same timestamps, as the proposal describes them
    let site = Site::of(EngineMode::Daemon, "upstream", false).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let changed = site.stage.sandbox.objects.update(&BARE_METAL_HOSTS, NAMESPACE, "w1", |host| {
        host["metadata"]["annotations"]["reboot.metal3.io/other"] = json!(HARD);
        host["status"]["poweredOn"] = json!(false);
        host["status"]["provisioning"]["pendingRebootSince"] = json!(site.stage.sandbox.objects.stamp());
        Ok(())
    });
    changed.map_err(|e| e.message).unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
    let writes =
        site.stage.sandbox.api.audit().into_iter().filter(|requested| requested.path.contains("baremetalhosts"));
    let patches: Vec<_> =
        writes.filter(|requested| requested.user == "engine-host" && requested.verb == "patch").collect();
    assert!(patches.is_empty(), "{patches:?}");
}

#[tokio::test(start_paused = true)]
async fn i44_after_a_leaders_death_at_any_moment_the_next_finishes_the_cycle() {
    // kill the leader at every half second from the request to the end of the cycle
    for step in 0..24 {
        let site = Site::new("none", true).await;
        site.until("w1 is on", |s| s.snapshot.kube.hosts.len() == 7 && row(s, "w1").powered_on == Some(true)).await;
        let standby = site.stage.backends("standby-host").start(EngineMode::Console, true, None);
        site.annotate("w1", "reboot.metal3.io", r#"{"mode":"hard"}"#);
        site.annotate("w2", "reboot.metal3.io/x", r#"{"mode":"hard"}"#);
        tokio::time::sleep(Duration::from_millis(500 * step)).await;
        // the engine dies without resigning: its tasks are dropped, and its lease expires
        drop(site.engine);
        let mut seen = standby.seen();
        let ends = seen.wait_for(|s| s.snapshot.kube.hosts.len() == 7 && cycled(s, "w1"));
        let ended = tokio::time::timeout(Duration::from_mins(20), ends).await.is_ok_and(|ended| ended.is_ok());
        assert!(ended, "after {step} half seconds: {:?}", standby.seen().borrow().snapshot.metal3);
        tokio::time::sleep(Duration::from_mins(10)).await;
        let events = |name: &str| {
            let machines = &site.stage.sandbox.machines;
            let address = machines.address_of(name).unwrap();
            let log = machines.power_log().into_iter().filter(|p| p.address == address);
            log.map(|p| p.what).collect::<Vec<_>>()
        };
        assert_eq!(events("w1"), [PowerEvent::Down, PowerEvent::Up], "after {step} half seconds");
        assert_eq!(events("w2"), [PowerEvent::Down], "after {step} half seconds: must stay off while a key remains");
    }
}
