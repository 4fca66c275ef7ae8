//! Power with sushy-emulator as the BMC: an independent program, whose machines change 1 to 11 s after a request.

mod controller;
mod drivers;
mod emulator;
mod fencing;
mod foreign;
pub mod hosts;
mod ipmi;
mod out_of_service;
mod sandbox;
mod served;
mod shutdown;
mod ssh;

use std::{os::unix::fs::PermissionsExt, path::Path};

use emulator::Emulator;
use serde_json::json;

use crate::{
    commands::rig::{RunOutput, run},
    world::{Options, World, cluster::machines, program::Daemon, wait_for},
};

/// A configuration whose BMC file has this text.
fn config(dir: &Path, bmcs: &str) -> String {
    let (file, config) = (dir.join("bmcs.yaml"), dir.join("config.yaml"));
    std::fs::write(&file, bmcs).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&config, "power: {bmcs: bmcs.yaml}\n").unwrap();
    config.to_str().unwrap().to_owned()
}

fn power(config: &str, args: &[&str]) -> RunOutput {
    let mut all = vec!["--config", config, "power"];
    all.extend(args);
    let output = run(&all, "");
    assert!(!format!("{output:?}").contains("hunter2"), "{args:?} shows the password: {output:?}");
    output
}

#[test]
fn power_off_on_and_cycle_work_over_tls_with_a_password() {
    let Some(bmc) = Emulator::start(true) else { return };
    let url = &bmc.url;
    let dir = bmc.dir.path();
    std::fs::copy(&bmc.ca, dir.join("ca.crt")).unwrap();
    let text = format!(
        "defaults: {{username: admin, password: hunter2, ca-file: ca.crt, soft-seconds: 30}}\n\
         bmcs:\n\
         \x20 10.0.0.1: {{url: '{url}', system: one}}\n\
         \x20 10.0.0.2: {{url: '{url}/redfish/v1/Systems/{two}'}}\n\
         \x20 10.0.0.3: {{url: '{url}'}}\n\
         \x20 10.0.0.4: {{url: '{url}', system: one, password: wrong}}\n",
        two = emulator::TWO
    );
    let config = &config(dir, &text);
    let done = |args: &[&str]| {
        let output = power(config, args);
        assert_eq!(output.status, 0, "{args:?}: {output:?}");
        output
    };
    assert_eq!(done(&["status", "10.0.0.1"]).stdout, "on\n");
    assert_eq!(done(&["status", "10.0.0.2"]).stdout, "off\n");
    // `ComputerSystem.Reset` is accepted at once and done later: the command ends when the machine is off.
    assert!(done(&["off", "10.0.0.1"]).stderr.contains("its operating system shut down"));
    assert_eq!(done(&["status", "10.0.0.1"]).stdout, "off\n");
    assert!(done(&["off", "--hard", "10.0.0.1"]).stderr.contains("was off already"));
    assert!(done(&["on", "10.0.0.1"]).stderr.contains("the machine is on"));
    let cycled = done(&["cycle", "--hard", "10.0.0.1"]);
    assert!(cycled.stderr.contains("the machine is off") && cycled.stderr.contains("on again"), "{cycled:?}");
    assert_eq!(done(&["status", "10.0.0.1"]).stdout, "on\n");
    assert_eq!(bmc.resets(), ["GracefulShutdown", "On", "ForceOff", "On"], "each reset must be requested once");
    // The emulator has no LastResetTime, and no Kubernetes is configured.
    assert_eq!(done(&["booted", "10.0.0.1", "1700000000"]).stdout, "false\n");
    assert_eq!(done(&["booted", "--on-is-enough", "10.0.0.1", "1700000000"]).stdout, "true\n");
    assert_eq!(done(&["booted", "--on-is-enough", "10.0.0.2", "1700000000"]).stdout, "false\n");
    for (address, message) in [("10.0.0.3", "has 2 systems"), ("10.0.0.4", "refused the user name or password")] {
        let output = power(config, &["cycle", address]);
        assert!(output.status == 1 && output.stderr.contains(message), "{output:?}");
    }
    let output = power(config, &["cycle", "10.0.0.9"]);
    assert!(output.status == 2 && output.stderr.contains("has no BMC for 10.0.0.9"), "{output:?}");
    assert_eq!(bmc.resets().len(), 4, "a failed command must request no reset");
    // A certificate of another authority is not trusted: nothing is sent, not even the password.
    let strange = text.replace("ca-file: ca.crt, ", "");
    let output = power(&self::config(dir, &strange), &["status", "10.0.0.1"]);
    assert!(output.status == 1 && output.stderr.contains("certificate is not trusted"), "{output:?}");
}

#[test]
fn missing_or_world_readable_bmc_settings_are_usage_errors() {
    let dir = tempfile::TempDir::new().unwrap();
    let output = run(&["power", "status", "10.0.0.1"], "");
    assert!(output.status == 2 && output.stderr.contains("power.bmcs"), "{output:?}");
    let text = "bmcs: {10.0.0.1: {url: 'https://127.0.0.1:1', username: admin, password: hunter2}}";
    let config = config(dir.path(), text);
    std::fs::set_permissions(dir.path().join("bmcs.yaml"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = power(&config, &["off", "10.0.0.1"]);
    assert!(output.status == 2 && output.stderr.contains("everyone can read it; chmod 600"), "{output:?}");
}

#[test]
fn the_reboot_queue_works_with_power_cycle_and_power_booted() {
    let Some(bmc) = Emulator::start(false) else { return };
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let machines = machines(1, 1);
    let worker = &machines[1];
    let program = crate::binary::cketerm();
    world.set_up(
        &machines,
        &json!({
            "reboot_command": [program, "power", "cycle", "--hard"],
            "boot_check_command": [program, "power", "booted"],
            "command_timeout_seconds": 120,
        }),
    );
    world.add_nodes(&machines);
    let dir = world.dir();
    let text = format!("bmcs: {{{}: {{url: '{}', system: one}}}}\n", worker.address, bmc.url);
    std::fs::write(dir.join("bmcs.yaml"), text).unwrap();
    // the commands use the engine's configuration file
    let file = dir.join("engine.yaml");
    let text = std::fs::read_to_string(world.config()).unwrap() + "power: {bmcs: bmcs.yaml}\n";
    std::fs::write(&file, text).unwrap();
    let before = world.boot_id(&worker.name);
    world.queue(&[worker]);
    let _engine = Daemon::start(dir, &file, "engine");
    world.wait_or_explain(0, "the machine was turned on again", 90, || {
        (bmc.resets() == ["ForceOff", "On"]).then_some(())
    });
    world.wait_for_entry_status(0, "rebooting", 1);
    // The machine boots: until then `power booted` finds the boot id that was recorded before the drain.
    let boot = json!({"status": {"nodeInfo": {"bootID": format!("{before}-next")}}});
    world.ok("PATCH", &format!("/api/v1/nodes/{}/status", worker.name), Some(&boot));
    world.wait_for_empty_queue(120);
    assert_eq!(bmc.resets(), ["ForceOff", "On"], "the machine must be power-cycled exactly once");
    wait_for("the worker is uncordoned", 30, || world.cordoned().is_empty().then_some(()));
}

#[test]
fn the_reboot_queue_works_with_hosts_reboot_and_cketerms_controller() {
    let Some(bmc) = Emulator::start(false) else { return };
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    hosts::define(&world);
    let machines = machines(1, 1);
    let worker = &machines[1];
    let program = crate::binary::cketerm();
    let config = world.dir().join("engine.yaml");
    std::fs::write(world.dir().join("bmcs.yaml"), "networks: [{cidr: 127.0.0.1, http: true}]\n").unwrap();
    let text = std::fs::read_to_string(world.config()).unwrap() + "power: {bmcs: bmcs.yaml}\n";
    std::fs::write(&config, text).unwrap();
    let kubeconfig = world.kubeconfig.to_str().unwrap();
    world.set_up(
        &machines,
        &json!({
            "reboot_command": [program, "--kubeconfig", kubeconfig, "hosts", "reboot", "--hard", "--wait", "100"],
            "boot_check_command": [program, "--kubeconfig", kubeconfig, "power", "booted"],
            "command_timeout_seconds": 120,
        }),
    );
    world.add_nodes(&machines);
    world.run(&["policy", "set", "metal3_controller", "true"]);
    let address = bmc.url.replace("http://", "redfish+http://");
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": worker.name, "namespace": "default"},
        "spec": {"online": true, "externallyProvisioned": true,
            "bmc": {"address": format!("{address}/redfish/v1/Systems/{}", emulator::ONE), "credentialsName": ""}},
    });
    world.ok("POST", hosts::HOSTS, Some(&host));
    let before = world.boot_id(&worker.name);
    let _engine = Daemon::start(world.dir(), &config, "engine");
    let place = format!("{}/{}", hosts::HOSTS, worker.name);
    wait_for("the host is known to be on", 60, || {
        (world.ok("GET", &place, None)["status"]["poweredOn"] == true).then_some(())
    });
    // Another client holds the host off: the entry's reason names that client.
    let hold = |value: Option<&str>| {
        let patch = json!({"metadata": {"annotations": {"reboot.metal3.io/backup": value}}});
        world.ok("PATCH", &place, Some(&patch));
    };
    world.queue(&[worker]);
    // the machine needs some seconds to power off
    world.wait_or_explain(0, "the reboot is requested", 60, || {
        hosts::annotations(&world, &worker.name).get("reboot.metal3.io").map(|_| hold(Some("")))
    });
    world.wait_or_explain(0, "the reason names the other client's hold", 60, || {
        world.run(&["rq", "why", "0"]).contains("held off by backup").then_some(())
    });
    hold(None);
    world.wait_or_explain(0, "the machine was turned on again", 120, || {
        (bmc.resets() == ["ForceOff", "On"]).then_some(())
    });
    let boot = json!({"status": {"nodeInfo": {"bootID": format!("{before}-next")}}});
    world.ok("PATCH", &format!("/api/v1/nodes/{}/status", worker.name), Some(&boot));
    world.wait_for_empty_queue(120);
    assert_eq!(bmc.resets(), ["ForceOff", "On"], "the machine must be power-cycled exactly once");
    wait_for("the worker is uncordoned", 30, || world.cordoned().is_empty().then_some(()));
}
