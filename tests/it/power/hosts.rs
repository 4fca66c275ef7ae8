//! `hosts …` on a real API server with the resource definition of docs/. The test acts as the operator.

use serde_json::{Value, json};

use crate::{
    commands::rig::{RunOutput, run},
    world::{Options, World, wait_for},
};

pub const HOSTS: &str = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts";

pub fn define(world: &World) {
    define_with(world, |_| {});
}

/// Applies the resource definition of docs/ with a change.
pub fn define_with(world: &World, change: impl FnOnce(&mut Value)) {
    let crd = include_str!("../../../docs/baremetalhost-crd.yaml");
    let mut crd: Value = serde_yaml::from_str(crd).unwrap();
    change(&mut crd);
    world.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Some(&crd));
    wait_for("the API server serves the resource", 30, || (world.call("GET", HOSTS, None).0 == 200).then_some(()));
}

fn add(world: &World, name: &str, state: &str, annotations: &Value) {
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"online": true, "bmc": {"address": "redfish://bmc", "credentialsName": "c"}},
    });
    world.ok("POST", HOSTS, Some(&host));
    status(world, name, &json!({"poweredOn": true, "provisioning": {"state": state}}));
}

fn status(world: &World, name: &str, status: &Value) {
    world.ok("PATCH", &format!("{HOSTS}/{name}/status"), Some(&json!({"status": status})));
}

pub fn annotations(world: &World, name: &str) -> Value {
    world.ok("GET", &format!("{HOSTS}/{name}"), None)["metadata"]["annotations"].clone()
}

fn mode(world: &World, name: &str, annotation: &str) -> String {
    let value = annotations(world, name)[annotation].as_str().expect("the annotation").to_owned();
    serde_json::from_str::<Value>(&value).unwrap()["mode"].as_str().unwrap().to_owned()
}

fn hosts(world: &World, args: &[&str]) -> RunOutput {
    let mut all = vec!["--kubeconfig", world.kubeconfig.to_str().unwrap(), "hosts"];
    all.extend(args);
    run(&all, "")
}

#[test]
fn i44_a_client_changes_only_its_own_key_and_trusts_only_observed_power_changes() {
    let Some(world) = World::start(Options::default()) else { return };
    let output = hosts(&world, &["list"]);
    assert!(output.status == 1 && output.stderr.contains("it has no BareMetalHosts"), "{output:?}");
    define(&world);
    add(&world, "h1", "provisioned", &json!({"reboot.metal3.io/other": "uid-7", "x": "y"}));
    add(&world, "h2", "available", &json!({}));
    add(&world, "h3", "provisioned", &json!({"baremetalhost.metal3.io/paused": ""}));
    let listed: Value = serde_json::from_str(&hosts(&world, &["list", "-o", "json"]).stdout).unwrap();
    assert_eq!(listed[0]["name"], "h1");
    assert_eq!(listed[0]["powered_on"], true);
    assert_eq!(listed[0]["asked"], json!(["held by other (soft)"]));
    assert!(listed[2]["hindrance"].as_str().unwrap().contains("paused"), "{listed}");

    // The command is refused with a reason and does not wait.
    for (args, message) in [
        (&["hold", "h2"][..], "the host is available"),
        (&["reboot", "default/h3"], "paused"),
        (&["release", "h1"], "not held under the key cketerm; held by other"),
    ] {
        let output = hosts(&world, args);
        assert!(output.status == 3 && output.stderr.contains(message), "{args:?}: {output:?}");
    }
    assert_eq!(hosts(&world, &["hold", "nobody"]).status, 1);

    // cketerm's key is added to the other one. Soft may become hard, but not the reverse.
    for (args, expected) in
        [(&["hold", "h1"][..], "soft"), (&["hold", "--hard", "h1"], "hard"), (&["hold", "h1"], "hard")]
    {
        assert_eq!(hosts(&world, args).status, 0, "{args:?}");
        assert_eq!(mode(&world, "h1", "reboot.metal3.io/cketerm"), expected, "{args:?}");
    }
    assert_eq!(
        annotations(&world, "h1")["reboot.metal3.io/other"],
        "uid-7",
        "the content of another key must be preserved"
    );

    // A change to off after cketerm has set its key is a proof.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for("the second key is set", 30, || {
                annotations(&world, "h1").get("reboot.metal3.io/cketerm-fence").cloned()
            });
            status(&world, "h1", &json!({"poweredOn": false}));
        });
        let output = hosts(&world, &["hold", "--hard", "--as", "fence", "--wait", "60", "h1"]);
        assert!(output.status == 0 && output.stderr.contains("went off, and is held off"), "{output:?}");
    });
    // The same state is no proof for a later key.
    let output = hosts(&world, &["hold", "--as", "late", "--wait", "2", "h1"]);
    assert!(output.status == 1 && output.stderr.contains("not proven off after 2 s"), "{output:?}");

    for (args, held) in [
        (&["release", "h1"][..], "still held by cketerm-fence, cketerm-late, other"),
        (&["release", "--as", "fence", "h1"], "still held by cketerm-late, other"),
        (&["release", "--as", "late", "h1"], "still held by other"),
    ] {
        let output = hosts(&world, args);
        assert!(output.status == 0 && output.stderr.contains(held), "{args:?}: {output:?}");
    }
    assert_eq!(annotations(&world, "h1"), json!({"reboot.metal3.io/other": "uid-7", "x": "y"}));
}

#[test]
fn a_reboot_is_confirmed_by_observed_power_never_by_the_annotations_removal() {
    let Some(world) = World::start(Options::default()) else { return };
    define(&world);
    add(&world, "h1", "externally provisioned", &json!({}));
    assert_eq!(hosts(&world, &["reboot", "h1"]).status, 0);
    assert_eq!(mode(&world, "h1", "reboot.metal3.io"), "soft");
    let output = hosts(&world, &["reboot", "h1"]);
    assert!(output.status == 0 && output.stderr.contains("requested already"), "{output:?}");
    let output = hosts(&world, &["reboot", "--hard", "h1"]);
    assert!(output.status == 3 && output.stderr.contains("already requested and is left as it is"), "{output:?}");
    assert_eq!(mode(&world, "h1", "reboot.metal3.io"), "soft");

    let gone = json!({"metadata": {"annotations": {"reboot.metal3.io": null}}});
    let remove_annotation = || world.ok("PATCH", &format!("{HOSTS}/h1"), Some(&gone));
    remove_annotation();
    let asked =
        || wait_for("the reboot is requested", 30, || annotations(&world, "h1").get("reboot.metal3.io").cloned());
    std::thread::scope(|scope| {
        scope.spawn(|| (asked(), remove_annotation()));
        let output = hosts(&world, &["reboot", "--wait", "3", "h1"]);
        assert!(output.status == 1 && output.stderr.contains("was not seen off after 3 s"), "{output:?}");
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            asked();
            status(&world, "h1", &json!({"poweredOn": false}));
            remove_annotation();
            // long enough for the command, which polls once a second
            std::thread::sleep(std::time::Duration::from_secs(4));
            status(&world, "h1", &json!({"poweredOn": true}));
        });
        let output = hosts(&world, &["reboot", "--wait", "60", "h1"]);
        assert!(output.status == 0 && output.stderr.contains("was off and is on again"), "{output:?}");
    });
}
