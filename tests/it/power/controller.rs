//! Metal3's controller role on a real API server with the resource definition of docs/, an independent BMC
//! (sushy-emulator), and clients that write annotations as `kubectl annotate` does.

use serde_json::{Value, json};

use super::{
    emulator::{self, Emulator},
    hosts::{HOSTS, annotations, define_with},
};
use crate::world::{
    Options, World,
    cluster::machines,
    history::changes,
    program::{Daemon, cketerm, config},
    wait_for,
};

/// An API server, a BMC that requires TLS and a password, and an engine's configuration.
pub(super) struct Site {
    pub(super) world: World,
    pub(super) bmc: Emulator,
}

const HARD: &str = r#"{"mode": "hard"}"#;

impl Site {
    fn start() -> Option<Self> {
        Self::start_with(Options::default(), |_| {})
    }

    /// Starts a site with a changed resource definition.
    pub(super) fn start_with(options: Options, change: impl FnOnce(&mut Value)) -> Option<Self> {
        let bmc = Emulator::start(true)?;
        let world = World::start(options)?;
        define_with(&world, change);
        world.set_up(&machines(1, 0), &json!({}));
        world.run(&["policy", "set", "metal3_controller", "true"]);
        let dir = world.dir();
        std::fs::copy(&bmc.ca, dir.join("bmc-ca.crt")).unwrap();
        let text = "networks: [127.0.0.1]\ndefaults: {ca-file: bmc-ca.crt, soft-seconds: 40, poll-seconds: 1}\n";
        std::fs::write(dir.join("bmcs.yaml"), text).unwrap();
        // the engine has exactly the rights that docs/rbac.yaml grants for the controller
        let kubeconfig = world.granted("controller", &["cketerm", "cketerm-metal3-controller", "cketerm-bmc-secrets"]);
        let settings = config(dir, "engine.yaml", &world.etcd, Some(&kubeconfig), 5);
        let text = std::fs::read_to_string(&settings).unwrap() + "power: {bmcs: bmcs.yaml}\n";
        std::fs::write(settings, text).unwrap();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmc", "namespace": "default"},
            "stringData": {"username": "admin", "password": "hunter2"},
        });
        world.ok("POST", "/api/v1/namespaces/default/secrets", Some(&secret));
        Some(Self { world, bmc })
    }

    pub(super) fn engine(&self, name: &str) -> Daemon {
        Daemon::start(self.world.dir(), &self.world.dir().join("engine.yaml"), name)
    }

    /// Adds a host that another program has provisioned, on the emulator's machine `one`, which is on.
    pub(super) fn add(&self, name: &str) {
        let address = self.bmc.url.replace("https://", "redfish+https://");
        let host = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"online": true, "externallyProvisioned": true,
                "bmc": {"address": format!("{address}/redfish/v1/Systems/{}", emulator::ONE), "credentialsName": "bmc"}},
        });
        self.world.ok("POST", HOSTS, Some(&host));
    }

    /// `kubectl annotate baremetalhost NAME ANNOTATION=VALUE`, or `ANNOTATION-`.
    fn annotate(&self, name: &str, annotation: &str, value: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        self.world.ok("PATCH", &format!("{HOSTS}/{name}?fieldManager=kubectl-annotate"), Some(&patch));
    }

    fn status(&self, name: &str) -> Value {
        self.world.ok("GET", &format!("{HOSTS}/{name}"), None)["status"].clone()
    }

    pub(super) fn power_is(&self, name: &str, on: bool) {
        wait_for(&format!("{name} is {}", if on { "on" } else { "off" }), 60, || {
            (self.status(name)["poweredOn"] == on).then_some(())
        });
    }

    /// Times of the last request and of the last power-on.
    fn reboot_times(&self, name: &str) -> (String, String) {
        let provisioning = self.status(name)["provisioning"].clone();
        let text = |field: &str| provisioning[field].as_str().unwrap_or_default().to_owned();
        (text("pendingRebootSince"), text("lastPoweredOn"))
    }

    /// Actions on the host in the audit, oldest first: each is recorded before it is carried out.
    fn audited_actions(&self) -> Vec<String> {
        let begun = changes(&self.world.etcd, "/cke/cketerm/audit/").into_iter().map(|change| change.json());
        begun
            .filter(|r| r["on"] == "host default/h1" && r["result"] == "begun")
            .map(|r| r["what"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn a_plain_annotation_reboots_a_host_once_and_every_action_is_audited() {
    let Some(site) = Site::start() else { return };
    site.add("h1");
    let _engine = site.engine("engine");
    site.power_is("h1", true);
    assert_eq!(site.status("h1")["provisioning"]["state"], "externally provisioned");
    assert!(site.bmc.resets().is_empty(), "no reset may be requested");
    site.annotate("h1", "reboot.metal3.io", Some(""));
    wait_for("the host is on again", 90, || {
        let (asked, on) = site.reboot_times("h1");
        (on > asked && !asked.is_empty()).then_some(())
    });
    // Metal3's proposal: "the controller removes the annotation once it restores power to the Host"
    assert!(annotations(&site.world, "h1").get("reboot.metal3.io").is_none());
    assert_eq!(site.bmc.resets(), ["GracefulShutdown", "On"], "each reset must be requested once");
    assert_eq!(
        site.audited_actions(),
        [
            "host register",
            "host seen on",
            "host reboot asked",
            "host off (soft)",
            "host seen off",
            "host reboot request removed",
            "host on",
            "host seen on"
        ]
    );
}

#[test]
fn i44_two_clients_keep_a_host_off_until_both_release_it_and_hard_overrides_soft() {
    let Some(site) = Site::start() else { return };
    site.add("h1");
    let _engine = site.engine("engine");
    site.power_is("h1", true);
    // A soft shutdown takes this machine 1 to 11 s. The second client does not wait for it.
    site.annotate("h1", "reboot.metal3.io/a", Some(""));
    wait_for("the soft shutdown is requested", 30, || (site.bmc.resets() == ["GracefulShutdown"]).then_some(()));
    site.annotate("h1", "reboot.metal3.io/b", Some(HARD));
    site.power_is("h1", false);
    let overtaken = site.bmc.resets() == ["GracefulShutdown", "ForceOff"];
    assert!(overtaken || site.bmc.resets() == ["GracefulShutdown"], "{:?}", site.bmc.resets());
    // The basic annotation is removed; by Metal3's proposal "the {key} form will take priority".
    site.annotate("h1", "reboot.metal3.io", Some(""));
    wait_for("the basic annotation is removed", 30, || {
        annotations(&site.world, "h1").get("reboot.metal3.io").is_none().then_some(())
    });
    site.annotate("h1", "reboot.metal3.io/a", None);
    std::thread::sleep(std::time::Duration::from_secs(8));
    assert!(!site.bmc.resets().contains(&"On".to_owned()), "I44: must not be powered on while any key remains");
    assert_eq!(annotations(&site.world, "h1")["reboot.metal3.io/b"], HARD, "keys of other clients must not be removed");
    site.annotate("h1", "reboot.metal3.io/b", None);
    site.power_is("h1", true);
    let resets = site.bmc.resets();
    assert_eq!(resets.iter().filter(|r| *r == "On").count(), 1, "{resets:?}");
    let (asked, on) = site.reboot_times("h1");
    assert!(on > asked, "{asked} {on}");
    // If the first request is hard, the power is cut at once.
    site.annotate("h1", "reboot.metal3.io/a", Some(""));
    site.annotate("h1", "reboot.metal3.io/b", Some(HARD));
    site.power_is("h1", false);
    assert!(site.bmc.resets()[resets.len()..].contains(&"ForceOff".to_owned()), "{:?}", site.bmc.resets());
}

#[test]
fn a_controller_killed_at_any_step_neither_loses_nor_repeats_a_power_cycle() {
    let Some(site) = Site::start() else { return };
    site.add("h1");
    let mut engine = site.engine("engine-0");
    site.power_is("h1", true);
    let steps = ["host reboot asked", "host off (hard)", "host seen off", "host reboot request removed", "host on"];
    for (n, step) in steps.into_iter().enumerate() {
        let seen = |what: &str| site.audited_actions().iter().filter(|t| *t == what).count();
        let (before, resets, last) = (seen(step), site.bmc.resets().len(), site.reboot_times("h1").1);
        site.annotate("h1", "reboot.metal3.io", Some(HARD));
        wait_for(step, 60, || (seen(step) > before).then_some(()));
        engine.kill();
        engine = site.engine(&format!("engine-{}", n + 1));
        wait_for("the power cycle ends", 90, || {
            let (asked, on) = site.reboot_times("h1");
            (on > asked && on > last && !asked.is_empty()).then_some(())
        });
        assert!(annotations(&site.world, "h1").get("reboot.metal3.io").is_none(), "killed at {step}");
        let mut asked = site.bmc.resets()[resets..].to_vec();
        // The new controller may repeat a request of the killed one, although the machine is off or on already.
        asked.dedup();
        assert_eq!(asked, ["ForceOff", "On"], "killed at {step}");
    }
}

#[test]
fn if_the_crd_drops_the_timestamps_an_annotation_keeps_them() {
    let upstream = |crd: &mut Value| {
        let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
        let provisioning = schema["properties"]["provisioning"].as_object_mut().unwrap();
        provisioning.remove("x-kubernetes-preserve-unknown-fields");
        let fields = provisioning["properties"].as_object_mut().unwrap();
        fields.retain(|name, _| name == "state");
    };
    let Some(site) = Site::start_with(Options::default(), upstream) else { return };
    site.add("h1");
    let engine = site.engine("engine");
    site.power_is("h1", true);
    site.annotate("h1", "reboot.metal3.io", Some(HARD));
    let reboot_times = wait_for("the host is on again", 90, || {
        let annotations = annotations(&site.world, "h1");
        let reboot_times: Value = serde_json::from_str(annotations["cketerm.io/reboot-times"].as_str()?).ok()?;
        reboot_times.get("lastPoweredOn")?;
        (site.status("h1")["poweredOn"] == true).then_some(reboot_times)
    });
    assert!(reboot_times["lastPoweredOn"].as_str() > reboot_times["pendingRebootSince"].as_str(), "{reboot_times}");
    assert_eq!(site.reboot_times("h1"), (String::new(), String::new()), "the server must have dropped the timestamps");
    assert_eq!(site.bmc.resets(), ["ForceOff", "On"], "the host must be power-cycled exactly once");
    assert!(engine.logged().contains("drops timestamps"), "the log must name the dropped timestamps");
}

#[test]
fn power_finds_a_nodes_bmc_among_baremetalhosts() {
    let Some(site) = Site::start() else { return };
    site.add("h1");
    let address = json!([{"type": "InternalIP", "address": "10.0.0.50"}]);
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "h1"}, "status": {"addresses": address}});
    site.world.ok("POST", "/api/v1/nodes", Some(&node));
    let file = site.world.dir().join("engine.yaml");
    let output = cketerm(&file, &["-v", "power", "status", "10.0.0.50"]);
    assert!(output.code == 0 && output.stdout == "on\n", "{output:?}");
    assert!(
        output.stderr.contains("BareMetalHost default/h1") && !format!("{output:?}").contains("hunter2"),
        "{output:?}"
    );
    let output = cketerm(&file, &["power", "cycle", "10.0.0.51"]);
    let messages = ["has no BMC for 10.0.0.51", "none of 1 BareMetalHosts has 10.0.0.51", "sabakan's URL is not set"];
    assert!(output.code == 2 && messages.iter().all(|s| output.stderr.contains(s)), "{output:?}");
}

#[test]
fn the_controller_refuses_to_run_beside_the_baremetal_operator() {
    let Some(site) = Site::start() else { return };
    let now = jiff::Timestamp::now().to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "baremetal-operator", "namespace": "kube-system"},
        "spec": {"holderIdentity": "bmo-7d9f", "leaseDurationSeconds": 3600, "renewTime": format!("{}.000000Z", &now[..19])},
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    site.world.ok("POST", leases, Some(&lease));
    site.add("h1");
    let engine = site.engine("engine");
    let refused = |what: &str| {
        wait_for(what, 60, || engine.logged().contains(what).then_some(()));
        assert!(
            site.status("h1").is_null() || site.status("h1")["provisioning"]["state"].is_null(),
            "the controller must not register the host"
        );
    };
    refused("the baremetal-operator runs (bmo-7d9f holds Lease kube-system/baremetal-operator)");
    // Its Lease is gone, but another program has just written the power state.
    let status = json!({"status": {"poweredOn": true}});
    site.world.ok("PATCH", &format!("{HOSTS}/h1/status?fieldManager=manager"), Some(&status));
    site.world.ok("DELETE", &format!("{leases}/baremetal-operator"), None);
    refused("manager wrote status.poweredOn at");
}

#[test]
fn i44_fencing_deletes_the_node_only_after_proof_of_power_off() {
    let Some(site) = Site::start() else { return };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "h1"}});
    let first = site.world.ok("POST", "/api/v1/nodes", Some(&node))["metadata"]["uid"].clone();
    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w9"}});
    site.world.ok("POST", "/api/v1/nodes", Some(&other));
    site.add("h1");
    let _engine = site.engine("engine");
    site.power_is("h1", true);
    let output = cketerm(&site.world.config(), &["hosts", "fence", "h1", "w9"]);
    assert!(output.code == 3 && output.stderr.contains("is node h1 by its own name alone, not w9"), "{output:?}");
    assert!(annotations(&site.world, "h1").is_null(), "a refused command must not annotate the host");
    let output = cketerm(&site.world.config(), &["hosts", "fence", "h1", "h1"]);
    assert!(
        output.code == 0 && output.stderr.contains("was off, node h1 is deleted, the host is released"),
        "{output:?}"
    );
    assert_eq!(site.world.call("GET", "/api/v1/nodes/h1", None).0, 404, "{first}");
    site.power_is("h1", true);
    assert_eq!(site.bmc.resets(), ["ForceOff", "On"]);
    // Another program removes cketerm's key before the machine is off: no proof, and the Node stays.
    site.world.ok("POST", "/api/v1/nodes", Some(&node));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let key = "reboot.metal3.io/cketerm-fence";
            wait_for("cketerm's key is set", 30, || annotations(&site.world, "h1").get(key).cloned());
            site.annotate("h1", key, None);
        });
        let output = cketerm(&site.world.config(), &["hosts", "fence", "h1", "h1"]);
        assert!(output.code == 1 && output.stderr.contains("node h1 was NOT deleted"), "{output:?}");
    });
    assert_eq!(site.world.call("GET", "/api/v1/nodes/h1", None).0, 200);
}
