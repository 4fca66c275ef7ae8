//! A controller that ends, resigns, is barred, dies or is switched off at any moment of a cycle. It ends the cycles
//! that it has begun, and begins no other (I44, MET-55 to MET-59, SAF-7).

use std::time::Duration;

use cketerm::{
    engine::{run::Handle, snapshot::Seen},
    model::{cketerm_records::Audit, entry::Stored},
    sandbox::{
        faults::State as LineState,
        kubernetes::resource::{BARE_METAL_HOSTS, LEASES},
        machines::{Behaviour, OnBmc, State, What},
        metal3::NAMESPACE,
    },
};
use serde_json::json;

use super::sandbox::{Place, cycled, row};

const HARD: &str = r#"{"mode":"hard"}"#;

/// A place where a cycle of `w1` was requested this long ago, and its BMC is slow.
async fn asked(mode: &'static str, ago: Duration) -> Place {
    let place = Place::of(mode, "none", true).await;
    let known = |name: &str| place.host(name)["status"]["poweredOn"] == true;
    let there = async {
        while !["w1", "w2", "w3"].into_iter().all(known) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(5), there).await.unwrap();
    place.behave("w1", Behaviour { bmc_seconds: 3.0, ..Behaviour::default() });
    place.annotate("w1", "reboot.metal3.io", HARD);
    tokio::time::sleep(ago).await;
    place
}

/// Moments from the request to the end of the cycle, in steps that fall between any two actions.
fn moments() -> impl Iterator<Item = Duration> {
    (0..20).map(|step| Duration::from_millis(730 * step))
}

impl Place {
    fn whats(&self, name: &str) -> Vec<What> {
        let machines = &self.stage.sandbox.machines;
        let address = machines.address_of(name).unwrap();
        machines.power_log().into_iter().filter(|p| p.address == address).map(|p| p.what).collect()
    }

    /// Asserts that `w1` went through a whole cycle or through none, and runs.
    fn is_whole(&self, when: &str) {
        let went = self.whats("w1");
        let whole = went.is_empty() || went == [What::Down, What::Up];
        assert!(whole && self.state("w1") != State::Off, "{when}: {went:?}, {:?}", self.host("w1")["status"]);
    }

    /// Asserts that no cycle begins for `w2`, which is requested after the shutdown.
    async fn begins_nothing(&self) {
        self.annotate("w2", "reboot.metal3.io", HARD);
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert!(self.whats("w2").is_empty(), "{:?}", self.whats("w2"));
    }

    async fn switch(&self, on: &str) {
        self.operator.set_policy("metal3_controller", on, None).await.unwrap();
    }

    fn standby(&self) -> Handle {
        self.stage.backends("standby-host").start("daemon", true, None)
    }
}

#[tokio::test(start_paused = true)]
async fn i44_a_cycle_that_was_begun_is_finished_when_the_policy_is_switched_off_and_no_other_begins() {
    for mode in ["console", "daemon"] {
        for ago in moments() {
            let place = asked(mode, ago).await;
            place.switch("false").await;
            tokio::time::sleep(Duration::from_secs(90)).await;
            place.is_whole(&format!("{mode}, switched off after {ago:?}"));
        }
        let place = asked(mode, Duration::from_secs(3)).await;
        place.switch("false").await;
        place.until("the cycle is over", |s| cycled(s, "w1")).await;
        place.begins_nothing().await;
        assert!(place.engine.seen().borrow().snapshot.metal3.hosts.is_empty(), "it minds none any more");
        place.switch("true").await;
        place.until("the other begins", |s| cycled(s, "w2")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn i44_with_the_policy_off_the_next_leader_finishes_what_a_dead_one_has_begun() {
    for ago in moments() {
        let place = asked("daemon", ago).await;
        let _standby = place.standby();
        place.switch("false").await;
        // without a resignation: its tasks are dropped where they are, and its lease expires
        let Place { stage, engine, operator, lines } = place;
        drop(engine);
        tokio::time::sleep(Duration::from_mins(3)).await;
        let place = Place { engine: stage.backends("idle-host").start("console", false, None), stage, operator, lines };
        place.is_whole(&format!("killed after {ago:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn i44_a_sole_engine_that_ends_at_any_moment_leaves_no_machine_between_off_and_on() {
    for ago in moments() {
        let place = asked("daemon", ago).await;
        let Place { stage, engine, operator, lines } = place;
        let mut seen = engine.seen();
        let beats = tokio::spawn(async move {
            let (mut last, mut longest) = (seen.borrow().now.boot, Duration::ZERO);
            while seen.changed().await.is_ok() {
                let now = seen.borrow().now.boot;
                longest = longest.max(now.saturating_sub(last));
                last = now;
            }
            longest
        });
        engine.stop().await;
        let longest = beats.await.unwrap();
        assert!(longest < Duration::from_secs(5), "it seemed dead for {longest:?} while it ended");
        // a request that it had sent is carried out by now
        tokio::time::sleep(Duration::from_mins(2)).await;
        let place = Place { engine: stage.backends("idle-host").start("console", false, None), stage, operator, lines };
        place.is_whole(&format!("ended after {ago:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_graceful_end_without_a_successor_says_loudly_which_machines_stay_off() {
    let place = asked("daemon", Duration::from_secs(3)).await;
    place.annotate("w2", "reboot.metal3.io/x", HARD);
    while place.host("w2")["status"]["poweredOn"] != false {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let Place { stage, engine, operator, lines: _lines } = place;
    engine.stop().await;
    let at = |name: &str| {
        let address = stage.sandbox.machines.address_of(name).unwrap();
        stage.sandbox.machines.look(&address).unwrap().state
    };
    assert_ne!(at("w1"), State::Off, "a machine between off and on must not stay off");
    assert_eq!(at("w2"), State::Off, "I44: a key remains");
    let store = &operator.store;
    let audit = store.newest::<Audit>(&store.keys().audit_prefix(), 200).await.unwrap();
    let left = audit.iter().filter_map(Stored::get).filter(|r| r.what == "host left off").collect::<Vec<_>>();
    assert_eq!(left.len(), 1, "it is said loudly: {audit:?}");
    assert!(left[0].on == "host metal3/w2" && left[0].reason.as_ref().unwrap().contains("held off by x"), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn i44_an_engine_that_makes_room_for_cke_finishes_first_and_begins_nothing() {
    for ago in moments() {
        let place = asked("daemon", ago).await;
        place.operator.set_policy("engine", "cke", None).await.unwrap();
        place.annotate("w2", "reboot.metal3.io", HARD);
        place.until("it resigns", |s| s.snapshot.engine.leading.is_none()).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        place.is_whole(&format!("made room after {ago:?}"));
        assert!(place.whats("w2").is_empty(), "after {ago:?}: {:?}", place.whats("w2"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_resignation_names_the_host_it_waits_for_and_does_not_wait_for_ever() {
    let place = asked("daemon", Duration::from_secs(1)).await;
    while place.host("w1")["status"]["poweredOn"] != false {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    place.behave("w1", Behaviour { bmc: OnBmc::Mute, ..Behaviour::default() });
    place.operator.set_policy("engine", "cke", None).await.unwrap();
    let named = |s: &Seen| {
        let why = s.snapshot.engine.resigning.as_ref();
        why.is_some_and(|why| why.contains("waits for the power cycle of metal3/w1"))
    };
    place.until("it says what it waits for", named).await;
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert!(place.engine.seen().borrow().snapshot.engine.leading.is_some(), "a machine is worth ten minutes");
    tokio::time::timeout(Duration::from_mins(3), place.until("it resigns", |s| s.snapshot.engine.leading.is_none()))
        .await
        .unwrap();
    let store = &place.operator.store;
    let audit = store.newest::<Audit>(&store.keys().audit_prefix(), 200).await.unwrap();
    let left = audit.iter().filter_map(Stored::get).filter(|r| r.what == "host left off").collect::<Vec<_>>();
    assert!(left.len() == 1 && left[0].on == "host metal3/w1", "it is said loudly: {audit:?}");
}

#[tokio::test(start_paused = true)]
async fn i44_what_was_begun_is_finished_through_a_look_that_fails_and_beside_an_operator_that_appears() {
    for ago in moments() {
        // Kubernetes does not answer for longer than the interval of the looks for the operator
        let place = asked("daemon", ago).await;
        place.lines.kubernetes.turn(LineState::Cut);
        place.switch("false").await;
        tokio::time::sleep(Duration::from_secs(25)).await;
        place.lines.kubernetes.turn(LineState::Open);
        tokio::time::sleep(Duration::from_secs(90)).await;
        place.is_whole(&format!("cut off after {ago:?}"));
        let place = asked("daemon", ago).await;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "baremetal-operator", "namespace": "kube-system"},
            "spec": {"holderIdentity": "bmo", "leaseDurationSeconds": 36000, "renewTime": place.stage.sandbox.objects.stamp()},
        });
        place.stage.sandbox.objects.create(&LEASES, "kube-system", lease).map_err(|e| e.message).unwrap();
        tokio::time::sleep(Duration::from_secs(90)).await;
        place.is_whole(&format!("barred after {ago:?}"));
        let seen = place.until("it is barred", |s| s.snapshot.metal3.barred.is_some()).await;
        assert!(seen.snapshot.metal3.hosts.is_empty(), "it minds none any more: {:?}", seen.snapshot.metal3);
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_policy_off_the_cycles_of_another_controller_are_none_of_ours() {
    // one that writes the same timestamps, as the proposal describes them
    let place = Place::of("daemon", "upstream", false).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let changed = place.stage.sandbox.objects.update(&BARE_METAL_HOSTS, NAMESPACE, "w1", |host| {
        host["metadata"]["annotations"]["reboot.metal3.io/other"] = json!(HARD);
        host["status"]["poweredOn"] = json!(false);
        host["status"]["provisioning"]["pendingRebootSince"] = json!(place.stage.sandbox.objects.stamp());
        Ok(())
    });
    changed.map_err(|e| e.message).unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
    let writes = place.stage.sandbox.api.audit().into_iter().filter(|asked| asked.path.contains("baremetalhosts"));
    let ours: Vec<_> = writes.filter(|asked| asked.user == "engine-host" && asked.verb == "patch").collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[tokio::test(start_paused = true)]
async fn i44_a_leader_that_dies_at_any_moment_is_followed_by_one_that_ends_the_cycle() {
    // from the request to the end of the cycle, every half second
    for step in 0..24 {
        let place = Place::new("none", true).await;
        place.until("w1 is on", |s| s.snapshot.kube.hosts.len() == 7 && row(s, "w1").powered_on == Some(true)).await;
        let standby = place.stage.backends("standby-host").start("console", true, None);
        place.annotate("w1", "reboot.metal3.io", r#"{"mode":"hard"}"#);
        place.annotate("w2", "reboot.metal3.io/x", r#"{"mode":"hard"}"#);
        tokio::time::sleep(Duration::from_millis(500 * step)).await;
        // without a resignation: its tasks are dropped where they are, and its lease expires
        drop(place.engine);
        let mut seen = standby.seen();
        let ends = seen.wait_for(|s| s.snapshot.kube.hosts.len() == 7 && cycled(s, "w1"));
        let ended = tokio::time::timeout(Duration::from_mins(20), ends).await.is_ok_and(|ended| ended.is_ok());
        assert!(ended, "after {step} half seconds: {:?}", standby.seen().borrow().snapshot.metal3);
        tokio::time::sleep(Duration::from_mins(10)).await;
        let went = |name: &str| {
            let machines = &place.stage.sandbox.machines;
            let address = machines.address_of(name).unwrap();
            let log = machines.power_log().into_iter().filter(|p| p.address == address);
            log.map(|p| p.what).collect::<Vec<_>>()
        };
        assert_eq!(went("w1"), [What::Down, What::Up], "after {step} half seconds");
        assert_eq!(went("w2"), [What::Down], "after {step} half seconds: a key remains");
    }
}
