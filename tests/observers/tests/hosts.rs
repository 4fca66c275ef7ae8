//! I44: permitted actions of an engine on a host; each test breaks one rule.

use serde_json::{Value, json};

use super::{
    super::record::{Power, What},
    scene::Scene,
    sees,
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
        site.power(What::Up, "");
        site.s.pass(10.0);
        site
    }

    fn change(&mut self, how: impl FnOnce(&mut Value)) {
        how(&mut self.host);
        self.s.object("baremetalhosts", "m", "h", Some(self.host.clone()));
    }

    fn annotate(&mut self, name: &str) {
        self.change(|h| h["metadata"]["annotations"][name] = json!(""));
        self.s.pass(1.0);
    }

    fn release(&mut self, name: &str) {
        self.change(|h| drop(h["metadata"]["annotations"].as_object_mut().unwrap().remove(name)));
    }

    fn power(&mut self, what: What, kind: &str) {
        let argv = ["redfish", kind, "10.5.0.1"].map(str::to_owned).to_vec();
        let (address, entry, attempt) = ("10.5.0.1".to_owned(), String::new(), String::new());
        self.s.record.power.push(Power { at: self.s.now, what, address, entry, attempt, argv });
    }

    fn patch(&mut self, annotations: Value) {
        let body = json!({"metadata": {"resourceVersion": "1", "uid": "uid-h", "annotations": annotations}});
        self.s.tells("engine-0", "host reboot request removed", "host m/h", "it is off");
        self.s.ask("engine-0", "PATCH", PATH, body, 200);
    }

    fn time(&mut self, field: &str) {
        let now = self.s.now.to_string();
        self.change(|h| h["status"]["provisioning"][field] = json!(now));
        self.s.pass(2.0);
    }

    fn powered(&mut self, on: bool) {
        self.change(|h| h["status"]["poweredOn"] = json!(on));
        self.s.pass(1.0);
    }

    /// Requests a power cycle, turns the machine off and records that it is off.
    fn off(&mut self, annotation: &str) {
        self.annotate(annotation);
        self.time("pendingRebootSince");
        self.power(What::Down, "ForceOff");
        self.s.pass(2.0);
        self.powered(false);
    }

    fn on(&mut self) {
        self.s.tells("engine-0", "host on", "host m/h", "asked");
        self.s.pass(2.0);
        self.power(What::Up, "On");
        self.change(|h| h["status"]["poweredOn"] = json!(true));
        self.time("lastPoweredOn");
    }
}

#[test]
fn i44_a_whole_cycle_breaks_nothing_and_one_that_is_never_finished_does() {
    let mut site = Site::new();
    site.off("reboot.metal3.io");
    site.patch(json!({"reboot.metal3.io": null}));
    site.release("reboot.metal3.io");
    site.s.pass(1.0);
    let mut never = Site { s: site.s.clone(), host: site.host.clone() };
    site.on();
    site.s.record.calm_since = Some(site.s.now);
    site.s.pass(1000.0);
    sees(&site.s, &[]);
    never.s.record.calm_since = Some(never.s.now);
    never.s.pass(1000.0);
    sees(&never.s, &["I44"]);
}

#[test]
fn i44_with_the_policy_off_a_cycle_that_was_begun_is_finished_and_none_is_begun() {
    let mut site = Site::new();
    site.off("reboot.metal3.io");
    site.s.write("console", &[("cketerm/policy", json!({"metal3_controller": false}))], &[]);
    site.patch(json!({"reboot.metal3.io": null}));
    site.release("reboot.metal3.io");
    site.s.pass(1.0);
    let mut left = Site { s: site.s.clone(), host: site.host.clone() };
    left.s.record.calm_since = Some(left.s.now);
    left.s.pass(1000.0);
    sees(&left.s, &["I44"]);
    site.on();
    // a request from now on waits
    site.annotate("reboot.metal3.io");
    site.s.record.calm_since = Some(site.s.now);
    site.s.pass(1000.0);
    sees(&site.s, &[]);
    site.s.tells("engine-0", "host reboot asked", "host m/h", "asked by reboot.metal3.io");
    sees(&site.s, &["I44"]);
}

#[test]
fn i44_a_host_that_is_held_is_not_turned_on() {
    let mut site = Site::new();
    site.off("reboot.metal3.io/a");
    site.s.pass(300.0);
    let mut early = Site { s: site.s.clone(), host: site.host.clone() };
    early.on();
    sees(&early.s, &["I44"]);
    site.release("reboot.metal3.io/a");
    site.s.pass(1.0);
    site.on();
    sees(&site.s, &[]);
}

#[test]
fn i44_an_engine_touches_no_annotation_but_the_basic_one() {
    for annotations in
        [json!({"reboot.metal3.io/a": null}), json!({"reboot.metal3.io/cketerm": ""}), json!({"reboot.metal3.io": ""})]
    {
        let mut site = Site::new();
        site.patch(annotations);
        sees(&site.s, &["I44"]);
    }
    let mut site = Site::new();
    site.s.tells("engine-0", "host seen on", "host m/h", "x");
    site.s.ask("engine-0", "PATCH", &format!("{PATH}/status"), json!({"status": {"poweredOn": true}}), 200);
    sees(&site.s, &["I44"]);
}

#[test]
fn i44_the_basic_annotation_goes_only_while_the_host_is_off() {
    let mut site = Site::new();
    site.annotate("reboot.metal3.io");
    site.release("reboot.metal3.io");
    sees(&site.s, &["I44"]);
}

#[test]
fn i44_nobody_is_turned_off_who_was_not_asked_and_off_is_what_is_off() {
    let mut site = Site::new();
    site.power(What::Down, "ForceOff");
    sees(&site.s, &["I44"]);
    let mut site = Site::new();
    site.annotate("reboot.metal3.io/a");
    site.time("pendingRebootSince");
    site.powered(false);
    sees(&site.s, &["I44"]);
}

#[test]
fn i44_the_times_are_in_their_order_and_set_for_a_reason() {
    let mut site = Site::new();
    site.time("pendingRebootSince");
    sees(&site.s, &["I44"]);
    let mut site = Site::new();
    site.annotate("reboot.metal3.io/a");
    site.time("pendingRebootSince");
    let pending = site.host["status"]["provisioning"]["pendingRebootSince"].clone();
    site.change(|h| h["status"]["provisioning"]["lastPoweredOn"] = pending);
    sees(&site.s, &["I44"]);
}

#[test]
fn i44_a_machine_that_stays_off_is_seen_unless_its_bmc_obeyed_when_nobody_looked_any_more() {
    let ends = |mut site: Site| {
        site.s.record.calm_since = Some(site.s.now);
        site.s.pass(1000.0);
        site.s
    };
    let mut site = Site::new();
    site.off("reboot.metal3.io/a");
    site.release("reboot.metal3.io/a");
    sees(&ends(Site { s: site.s.clone(), host: site.host.clone() }), &["I44"]);
    site.s.write("console", &[("cketerm/policy", json!({"metal3_controller": false}))], &[]);
    sees(&ends(Site { s: site.s.clone(), host: site.host.clone() }), &["I44"]);
    site.s.tells("engine-0", "host off (hard)", "host m/h", "asked by a");
    site.s.pass(1.0);
    site.on();
    let mut late = Site { s: site.s.clone(), host: site.host.clone() };
    sees(&ends(site), &[]);
    late.s.pass(2.0);
    late.power(What::Down, "ForceOff");
    sees(&ends(late), &[]);
}
