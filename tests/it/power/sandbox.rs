//! Misbehaving hosts in a sandbox on a paused clock: BMCs that are late, lie, refuse or are silent, and operators that
//! update the status late or remove cketerm's key early (`docs/spec/metal3.md`).

use std::{sync::Arc, time::Duration};

use cketerm_actions::{FencedNode, HostAction, Operator};
use cketerm_engine::run::Handle;
use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::EngineMode,
    host::{HostRow, Mode},
    names::NodeName,
    policy::FenceBy,
};
use cketerm_rules::seen::Seen;
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::{
    kubernetes::resource::{BARE_METAL_HOSTS, NODES},
    machines::{Behaviour, OnBmc, PowerEvent, State},
    metal3::NAMESPACE,
};
use cketerm_scenario::{Links, Options, Scenario, Stage, backends};
use serde_json::{Value, json};

pub struct Site {
    pub stage: Stage,
    pub engine: Handle,
    pub operator: Operator,
    /// Connections of the engine to the servers.
    pub links: Links,
}

impl Site {
    /// Three API servers, four workers, and their hosts under `operator`. The flag `policy` enables cketerm's
    /// controller. The engine is a console's, which watches hosts whether it leads or not.
    pub async fn new(operator: &str, policy: bool) -> Self {
        Self::of(EngineMode::Console, operator, policy).await
    }

    /// Same as [`Self::new`], with an engine of this mode.
    pub async fn of(mode: EngineMode, operator: &str, policy: bool) -> Self {
        let text = format!(
            "name: test\nabout: A test.\npopulation: {{nodes: 7, pods_per_node: 0, workloads: [], metal3: {{operator: \
             {operator}}}}}\npolicy: {{metal3_controller: {policy}}}\n"
        );
        let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
        let stage = Stage::set(Scenario::parse(&text).unwrap(), Options::default(), clock.clone()).await.unwrap();
        let links = Links::new("engine-host", &Gate::default(), 1);
        let engine = backends(&stage.sandbox, "engine-host", clock, &links).start(mode, true, None);
        let operator = stage.operator("ann");
        Self { stage, engine, operator, links }
    }

    /// Waits until the condition holds. The clock is paused, so this takes no time.
    pub async fn until(&self, what: &str, mut good: impl FnMut(&Seen) -> bool) -> Arc<Seen> {
        let mut seen = self.engine.seen();
        let found = tokio::time::timeout(Duration::from_mins(30), seen.wait_for(|s| good(s))).await;
        match found {
            Ok(Ok(seen)) => seen.clone(),
            _ => panic!("timed out: {what}; {:?}", self.engine.seen().borrow().snapshot.metal3),
        }
    }

    pub fn behave(&self, name: &str, behaviour: Behaviour) {
        let address = self.stage.sandbox.machines.address_of(name).unwrap();
        assert!(self.stage.sandbox.machines.behave(&address, behaviour));
    }

    pub fn annotate(&self, name: &str, key: &str, value: &str) {
        let changed = self.stage.sandbox.objects.update(&BARE_METAL_HOSTS, NAMESPACE, name, |host| {
            host["metadata"]["annotations"][key] = json!(value);
            Ok(())
        });
        changed.map_err(|e| e.message).unwrap();
    }

    pub fn unannotate(&self, name: &str, key: &str) {
        let changed = self.stage.sandbox.objects.update(&BARE_METAL_HOSTS, NAMESPACE, name, |host| {
            host["metadata"]["annotations"].as_object_mut().unwrap().remove(key);
            Ok(())
        });
        changed.map_err(|e| e.message).unwrap();
    }

    pub fn host(&self, name: &str) -> Arc<Value> {
        self.stage.sandbox.objects.get(&BARE_METAL_HOSTS, NAMESPACE, name).unwrap()
    }

    pub fn state(&self, name: &str) -> State {
        let machines = &self.stage.sandbox.machines;
        machines.machine_status(&machines.address_of(name).unwrap()).unwrap().state
    }

    /// History of the machine: `down` and `up`, with the reset that caused each.
    pub fn power_events(&self, name: &str) -> Vec<String> {
        let address = self.stage.sandbox.machines.address_of(name).unwrap();
        let log = self.stage.sandbox.machines.power_log().into_iter().filter(|p| p.address == address);
        log.map(|p| format!("{:?} by {}", p.what, p.argv.get(1).map_or("", String::as_str))).collect()
    }

    async fn fence(&self, name: &str) -> Result<String, String> {
        let uid = self.host(name)["metadata"]["uid"].as_str().unwrap().to_owned();
        let node = self.stage.sandbox.objects.get(&NODES, "", name).unwrap();
        let node_uid = node["metadata"]["uid"].as_str().unwrap().to_owned();
        let node = FencedNode { name: NodeName::new(name), uid: node_uid, by: FenceBy::Delete };
        let action = HostAction::Fence(node);
        let done = self.operator.host(&format!("{NAMESPACE}/{name}"), &uid, action, Some("dead")).await;
        done.map_err(|e| e.text)
    }

    /// Fences, and returns the result with the machine's state at that moment, if the Node is gone. Nothing moves
    /// before the next wait.
    pub async fn fence_and_look(&self, name: &str) -> (Result<String, String>, Option<State>) {
        let done = self.fence(name).await;
        let gone = self.stage.sandbox.objects.get(&NODES, "", name).is_none();
        (done, gone.then(|| self.state(name)))
    }
}

pub fn row<'a>(seen: &'a Seen, name: &str) -> &'a HostRow {
    &seen.snapshot.kube.hosts[&(NAMESPACE.to_owned(), name.to_owned())]
}

/// Reports whether a cycle was requested and is over.
pub fn cycled(seen: &Seen, name: &str) -> bool {
    let host = row(seen, name);
    let asked = host.pending_reboot_since.is_some() && !host.pending();
    asked && host.asked.is_empty() && host.powered_on == Some(true)
}

#[tokio::test(start_paused = true)]
async fn each_bmc_behaviour_ends_in_one_power_cycle() {
    let site = Site::new("none", true).await;
    site.until("hosts are on", |s| s.snapshot.kube.hosts.values().filter(|h| h.powered_on == Some(true)).count() == 7)
        .await;
    for (case, behaviour, value, expected) in [
        ("none", Behaviour::default(), "", ["Down by GracefulShutdown", "Up by On"]),
        (
            "late",
            Behaviour { bmc_seconds: Seconds::new(40.0), ..Behaviour::default() },
            "",
            ["Down by GracefulShutdown", "Up by On"],
        ),
        (
            "late, hard",
            Behaviour { bmc_seconds: Seconds::new(40.0), ..Behaviour::default() },
            r#"{"mode":"hard"}"#,
            ["Down by ForceOff", "Up by On"],
        ),
        ("deaf", Behaviour { bmc: OnBmc::Deaf, ..Behaviour::default() }, "", ["Down by ForceOff", "Up by On"]),
        ("refuses", Behaviour { bmc: OnBmc::Refuses, ..Behaviour::default() }, "", ["Down by ForceOff", "Up by On"]),
        (
            "busy",
            Behaviour { fails: 3, ..Behaviour::default() },
            r#"{"mode":"hard"}"#,
            ["Down by ForceOff", "Up by On"],
        ),
    ] {
        let before = site.power_events("w1").len();
        let last = row(&site.engine.seen().borrow(), "w1").last_powered_on;
        site.behave("w1", behaviour);
        site.annotate("w1", "reboot.metal3.io", value);
        site.until(case, |s| cycled(s, "w1") && row(s, "w1").last_powered_on > last).await;
        site.behave("w1", Behaviour::default());
        // wait for the boot, which ends after the power-on
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(site.power_events("w1")[before..], expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn i44_a_silent_bmc_sets_the_hosts_error_and_a_false_report_is_not_trusted() {
    let site = Site::new("none", true).await;
    site.until("hosts are on", |s| s.snapshot.kube.hosts.values().filter(|h| h.powered_on == Some(true)).count() == 7)
        .await;
    site.behave("w1", Behaviour { bmc: OnBmc::Mute, ..Behaviour::default() });
    site.behave("w2", Behaviour { bmc: OnBmc::Lies, ..Behaviour::default() });
    for name in ["w1", "w2"] {
        site.annotate(name, "reboot.metal3.io/x", r#"{"mode":"hard"}"#);
    }
    let seen = site.until("the host reports an error", |s| row(s, "w1").error_type == "power management error").await;
    assert!(row(&seen, "w1").error.contains("does not answer"), "{:?}", row(&seen, "w1"));
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(site.host("w2")["status"]["poweredOn"], true, "an accepted request must not count as done");
    assert_eq!((site.state("w1"), site.state("w2")), (State::Up, State::Up));
    site.behave("w1", Behaviour::default());
    site.behave("w2", Behaviour::default());
    site.until("both are off", |s| ["w1", "w2"].iter().all(|n| row(s, n).powered_on == Some(false))).await;
    site.until("the host reports no error", |s| row(s, "w1").error_type.is_empty()).await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(
        (site.state("w1"), site.state("w2")),
        (State::Off, State::Off),
        "I44: must stay off while a key remains"
    );
    for name in ["w1", "w2"] {
        assert_eq!(site.power_events(name), ["Down by ForceOff"], "I44: must not be powered on while any key remains");
    }
}

#[tokio::test(start_paused = true)]
async fn beside_the_upstream_operator_the_controller_is_barred_but_fencing_works() {
    let site = Site::new("upstream", true).await;
    let seen = site.until("the controller is barred", |s| s.snapshot.metal3.barred.is_some()).await;
    let why = seen.snapshot.metal3.barred.clone().unwrap();
    assert!(why.contains("Lease baremetal-operator-system/baremetal-operator"), "{why}");
    let (done, state) = site.fence_and_look("w1").await;
    assert!(
        done.as_ref().is_ok_and(|message| message.contains("node w1 is deleted, the host is released")),
        "{done:?}"
    );
    assert_eq!(state, Some(State::Off), "the Node must be deleted while the machine is off");
    assert!(site.host("w1")["metadata"]["annotations"]["reboot.metal3.io/cketerm-fence"].is_null());
}

#[tokio::test(start_paused = true)]
async fn i44_powered_off_from_before_cketerms_key_is_no_proof() {
    let site = Site::new("upstream", false).await;
    site.annotate("w1", "reboot.metal3.io", r#"{"mode":"hard"}"#);
    // The operator has sent `On`, the machine runs, and `poweredOn` is still false.
    let running = || site.host("w1")["status"]["poweredOn"] == false && site.state("w1") != State::Off;
    while !running() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (done, state) = site.fence_and_look("w1").await;
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(state, Some(State::Off), "the Node must be deleted while the machine is off");
    let downs =
        site.power_events("w1").iter().filter(|line| line.starts_with(&format!("{:?}", PowerEvent::Down))).count();
    assert_eq!(downs, 2, "expected one power-off for the reboot and one for cketerm's key");
}

#[tokio::test(start_paused = true)]
async fn i44_an_old_operator_that_clears_cketerms_key_early_gives_no_proof() {
    let site = Site::new("old", false).await;
    let (done, gone) = site.fence_and_look("w1").await;
    let why = done.unwrap_err();
    assert!(why.contains("node w1 was NOT deleted") && why.contains("removed the key cketerm-fence"), "{why}");
    assert_eq!(gone, None);
    let uid = site.host("w2")["metadata"]["uid"].as_str().unwrap().to_owned();
    let name = format!("{NAMESPACE}/w2");
    let held = site.operator.host(&name, &uid, HostAction::Hold(Mode::Soft), None).await;
    assert!(held.is_ok());
    let other = site.operator.host(&name, "another", HostAction::Hold(Mode::Soft), None).await.unwrap_err();
    assert!(other.text.contains("replaced by another host"), "{}", other.text);
}
