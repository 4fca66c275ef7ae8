//! I44: permitted actions of an engine on a host; each test breaks one rule.

use serde_json::{Value, json};

use super::{
    super::record::{Power, PowerEvent},
    assert_breaches,
    scene::Scene,
};

const PATH: &str = "/apis/metal3.io/v1alpha1/namespaces/m/baremetalhosts/h";

/// A host that is on, with its machine.
struct Site {
    s: Scene,
    host: Value,
}

impl Site {
    fn new() -> Self {
        let host = json!({
            "metadata": {"name": "h", "namespace": "m", "uid": "uid-h", "annotations": {}}, "spec": {"online": true},
            "status": {"poweredOn": true, "provisioning": {"state": "provisioned"}, "hardware": {"nics": [{"ip": "10.5.0.1"}]}},
        });
        let mut site = Self { s: Scene::new(), host };
        site.change(|_| {});
        site.power(PowerEvent::Up, "");
        site.s.advance(10.0);
        site
    }

    fn change(&mut self, how: impl FnOnce(&mut Value)) {
        how(&mut self.host);
        self.s.object("baremetalhosts", "m", "h", Some(self.host.clone()));
    }

    fn annotate(&mut self, name: &str) {
        self.change(|h| h["metadata"]["annotations"][name] = json!(""));
        self.s.advance(1.0);
    }

    fn release(&mut self, name: &str) {
        self.change(|h| drop(h["metadata"]["annotations"].as_object_mut().unwrap().remove(name)));
    }

    fn power(&mut self, what: PowerEvent, kind: &str) {
        let argv = ["redfish", kind, "10.5.0.1"].map(str::to_owned).to_vec();
        let (address, entry, attempt) = ("10.5.0.1".to_owned(), String::new(), String::new());
        self.s.record.power.push(Power { at: self.s.now, what, address, entry, attempt, argv });
    }

    fn patch(&mut self, annotations: Value) {
        let body = json!({"metadata": {"resourceVersion": "1", "uid": "uid-h", "annotations": annotations}});
        self.s.records_action("engine-0", "host reboot request removed", "host m/h", "it is off");
        self.s.ask("engine-0", "PATCH", PATH, body, 200);
    }

    fn time(&mut self, field: &str) {
        let now = self.s.now.to_string();
        self.change(|h| h["status"]["provisioning"][field] = json!(now));
        self.s.advance(2.0);
    }

    fn powered(&mut self, on: bool) {
        self.change(|h| h["status"]["poweredOn"] = json!(on));
        self.s.advance(1.0);
    }

    /// Requests a power cycle, turns the machine off and records that it is off.
    fn off(&mut self, annotation: &str) {
        self.annotate(annotation);
        self.time("pendingRebootSince");
        self.power(PowerEvent::Down, "ForceOff");
        self.s.advance(2.0);
        self.powered(false);
    }

    fn on(&mut self) {
        self.s.records_action("engine-0", "host on", "host m/h", "asked");
        self.s.advance(2.0);
        self.power(PowerEvent::Up, "On");
        self.change(|h| h["status"]["poweredOn"] = json!(true));
        self.time("lastPoweredOn");
    }
}

#[test]
fn i44_an_unfinished_power_cycle_is_reported_and_a_complete_one_is_not() {
    let mut site = Site::new();
    site.off("reboot.metal3.io");
    site.patch(json!({"reboot.metal3.io": null}));
    site.release("reboot.metal3.io");
    site.s.advance(1.0);
    let mut never = Site { s: site.s.clone(), host: site.host.clone() };
    site.on();
    site.s.record.calm_since = Some(site.s.now);
    site.s.advance(1000.0);
    assert_breaches(&site.s, &[]);
    never.s.record.calm_since = Some(never.s.now);
    never.s.advance(1000.0);
    assert_breaches(&never.s, &["I44"]);
}

#[test]
fn i44_with_the_policy_off_a_begun_cycle_must_finish_and_a_new_one_is_reported() {
    let mut site = Site::new();
    site.off("reboot.metal3.io");
    site.s.write("console", &[("cketerm/policy", json!({"metal3_controller": false}))], &[]);
    site.patch(json!({"reboot.metal3.io": null}));
    site.release("reboot.metal3.io");
    site.s.advance(1.0);
    let mut left = Site { s: site.s.clone(), host: site.host.clone() };
    left.s.record.calm_since = Some(left.s.now);
    left.s.advance(1000.0);
    assert_breaches(&left.s, &["I44"]);
    site.on();
    // requests from now on wait
    site.annotate("reboot.metal3.io");
    site.s.record.calm_since = Some(site.s.now);
    site.s.advance(1000.0);
    assert_breaches(&site.s, &[]);
    site.s.records_action("engine-0", "host reboot asked", "host m/h", "asked by reboot.metal3.io");
    assert_breaches(&site.s, &["I44"]);
}

#[test]
fn i44_turning_on_a_host_that_a_client_holds_off_is_reported() {
    let mut site = Site::new();
    site.off("reboot.metal3.io/a");
    site.s.advance(300.0);
    let mut early = Site { s: site.s.clone(), host: site.host.clone() };
    early.on();
    assert_breaches(&early.s, &["I44"]);
    site.release("reboot.metal3.io/a");
    site.s.advance(1.0);
    site.on();
    assert_breaches(&site.s, &[]);
}

#[test]
fn i44_an_engine_that_changes_a_clients_annotation_is_reported() {
    for annotations in
        [json!({"reboot.metal3.io/a": null}), json!({"reboot.metal3.io/cketerm": ""}), json!({"reboot.metal3.io": ""})]
    {
        let mut site = Site::new();
        site.patch(annotations);
        assert_breaches(&site.s, &["I44"]);
    }
    let mut site = Site::new();
    site.s.records_action("engine-0", "host seen on", "host m/h", "x");
    site.s.ask("engine-0", "PATCH", &format!("{PATH}/status"), json!({"status": {"poweredOn": true}}), 200);
    assert_breaches(&site.s, &["I44"]);
}

#[test]
fn i44_removing_the_basic_annotation_while_the_host_is_on_is_reported() {
    let mut site = Site::new();
    site.annotate("reboot.metal3.io");
    site.release("reboot.metal3.io");
    assert_breaches(&site.s, &["I44"]);
}

#[test]
fn i44_an_unrequested_power_off_and_a_false_powered_off_status_are_reported() {
    let mut site = Site::new();
    site.power(PowerEvent::Down, "ForceOff");
    assert_breaches(&site.s, &["I44"]);
    let mut site = Site::new();
    site.annotate("reboot.metal3.io/a");
    site.time("pendingRebootSince");
    site.powered(false);
    assert_breaches(&site.s, &["I44"]);
}

#[test]
fn i44_wrong_or_unordered_reboot_times_are_reported() {
    let mut site = Site::new();
    site.time("pendingRebootSince");
    assert_breaches(&site.s, &["I44"]);
    let mut site = Site::new();
    site.annotate("reboot.metal3.io/a");
    site.time("pendingRebootSince");
    let pending = site.host["status"]["provisioning"]["pendingRebootSince"].clone();
    site.change(|h| h["status"]["provisioning"]["lastPoweredOn"] = pending);
    assert_breaches(&site.s, &["I44"]);
}

#[test]
fn i44_a_machine_that_stays_off_is_reported_unless_its_bmc_obeyed_too_late() {
    let ends = |mut site: Site| {
        site.s.record.calm_since = Some(site.s.now);
        site.s.advance(1000.0);
        site.s
    };
    let mut site = Site::new();
    site.off("reboot.metal3.io/a");
    site.release("reboot.metal3.io/a");
    assert_breaches(&ends(Site { s: site.s.clone(), host: site.host.clone() }), &["I44"]);
    site.s.write("console", &[("cketerm/policy", json!({"metal3_controller": false}))], &[]);
    assert_breaches(&ends(Site { s: site.s.clone(), host: site.host.clone() }), &["I44"]);
    site.s.records_action("engine-0", "host off (hard)", "host m/h", "asked by a");
    site.s.advance(1.0);
    site.on();
    let mut late = Site { s: site.s.clone(), host: site.host.clone() };
    assert_breaches(&ends(site), &[]);
    late.s.advance(2.0);
    late.power(PowerEvent::Down, "ForceOff");
    assert_breaches(&ends(late), &[]);
}
