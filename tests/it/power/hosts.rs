//! `hosts …` on a real API server with the resource definition of docs/. The test acts as the operator.

use serde_json::{Value, json};

use crate::{
    commands::rig::{Ran, run},
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
    wait_for("the resource to be served", 30, || (world.call("GET", HOSTS, None).0 == 200).then_some(()));
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

fn hosts(world: &World, words: &[&str]) -> Ran {
    let mut all = vec!["--kubeconfig", world.kubeconfig.to_str().unwrap(), "hosts"];
    all.extend(words);
    run(&all, "")
}

#[test]
fn i44_a_client_sets_and_removes_its_own_key_only_and_believes_what_it_saw() {
    let Some(world) = World::start(Options::default()) else { return };
    let ran = hosts(&world, &["list"]);
    assert!(ran.status == 1 && ran.stderr.contains("it has no BareMetalHosts"), "{ran:?}");
    define(&world);
    add(&world, "h1", "provisioned", &json!({"reboot.metal3.io/other": "uid-7", "x": "y"}));
    add(&world, "h2", "available", &json!({}));
    add(&world, "h3", "provisioned", &json!({"baremetalhost.metal3.io/paused": ""}));
    let listed: Value = serde_json::from_str(&hosts(&world, &["list", "-o", "json"]).stdout).unwrap();
    assert_eq!(listed[0]["name"], "h1");
    assert_eq!(listed[0]["powered_on"], true);
    assert_eq!(listed[0]["asked"], json!(["held by other (soft)"]));
    assert!(listed[2]["hindrance"].as_str().unwrap().contains("paused"), "{listed}");

    // A refusal with its reason, not a wait.
    for (words, said) in [
        (&["hold", "h2"][..], "the host is available"),
        (&["reboot", "default/h3"], "paused"),
        (&["release", "h1"], "not held under the key cketerm; held by other"),
    ] {
        let ran = hosts(&world, words);
        assert!(ran.status == 3 && ran.stderr.contains(said), "{words:?}: {ran:?}");
    }
    assert_eq!(hosts(&world, &["hold", "nobody"]).status, 1);

    // cketerm's key is added to the other one. Soft becomes hard, never the other way.
    for (words, expected) in
        [(&["hold", "h1"][..], "soft"), (&["hold", "--hard", "h1"], "hard"), (&["hold", "h1"], "hard")]
    {
        assert_eq!(hosts(&world, words).status, 0, "{words:?}");
        assert_eq!(mode(&world, "h1", "reboot.metal3.io/cketerm"), expected, "{words:?}");
    }
    assert_eq!(annotations(&world, "h1")["reboot.metal3.io/other"], "uid-7", "content is preserved");

    // A change to off after cketerm's key was there is a proof.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for("the second key", 30, || annotations(&world, "h1").get("reboot.metal3.io/cketerm-fence").cloned());
            status(&world, "h1", &json!({"poweredOn": false}));
        });
        let ran = hosts(&world, &["hold", "--hard", "--as", "fence", "--wait", "60", "h1"]);
        assert!(ran.status == 0 && ran.stderr.contains("went off, and is held off"), "{ran:?}");
    });
    // The same state is no proof for a later key.
    let ran = hosts(&world, &["hold", "--as", "late", "--wait", "2", "h1"]);
    assert!(ran.status == 1 && ran.stderr.contains("not proven off after 2 s"), "{ran:?}");

    for (words, held) in [
        (&["release", "h1"][..], "still held by cketerm-fence, cketerm-late, other"),
        (&["release", "--as", "fence", "h1"], "still held by cketerm-late, other"),
        (&["release", "--as", "late", "h1"], "still held by other"),
    ] {
        let ran = hosts(&world, words);
        assert!(ran.status == 0 && ran.stderr.contains(held), "{words:?}: {ran:?}");
    }
    assert_eq!(annotations(&world, "h1"), json!({"reboot.metal3.io/other": "uid-7", "x": "y"}));
}

#[test]
fn a_reboot_is_confirmed_by_what_was_seen_and_never_by_the_annotations_going() {
    let Some(world) = World::start(Options::default()) else { return };
    define(&world);
    add(&world, "h1", "externally provisioned", &json!({}));
    assert_eq!(hosts(&world, &["reboot", "h1"]).status, 0);
    assert_eq!(mode(&world, "h1", "reboot.metal3.io"), "soft");
    let ran = hosts(&world, &["reboot", "h1"]);
    assert!(ran.status == 0 && ran.stderr.contains("requested already"), "{ran:?}");
    let ran = hosts(&world, &["reboot", "--hard", "h1"]);
    assert!(ran.status == 3 && ran.stderr.contains("already requested and is left as it is"), "{ran:?}");
    assert_eq!(mode(&world, "h1", "reboot.metal3.io"), "soft");

    let gone = json!({"metadata": {"annotations": {"reboot.metal3.io": null}}});
    let take_off = || world.ok("PATCH", &format!("{HOSTS}/h1"), Some(&gone));
    take_off();
    let asked = || wait_for("the request", 30, || annotations(&world, "h1").get("reboot.metal3.io").cloned());
    std::thread::scope(|scope| {
        scope.spawn(|| (asked(), take_off()));
        let ran = hosts(&world, &["reboot", "--wait", "3", "h1"]);
        assert!(ran.status == 1 && ran.stderr.contains("was not seen off after 3 s"), "{ran:?}");
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            asked();
            status(&world, "h1", &json!({"poweredOn": false}));
            take_off();
            // long enough for one look a second
            std::thread::sleep(std::time::Duration::from_secs(4));
            status(&world, "h1", &json!({"poweredOn": true}));
        });
        let ran = hosts(&world, &["reboot", "--wait", "60", "h1"]);
        assert!(ran.status == 0 && ran.stderr.contains("was off and is on again"), "{ran:?}");
    });
}
