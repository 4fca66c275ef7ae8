//! `power …` on a served sandbox, whose BMCs are one Redfish service, and on BMCs that a registry names.

use serde_json::{Value, json};

use super::emulator::Emulator;
use crate::world::{
    program::{Daemon, cketerm},
    sandbox::{Served, http},
    wait_for,
};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Machines of the sandbox that are no API servers.
fn workers(served: &Served) -> Vec<(String, String)> {
    let all = served.get("/machines").into_iter().filter(|m| m["control_plane"] == false);
    all.map(|m| (text(&m["name"]).to_owned(), text(&m["address"]).to_owned())).collect()
}

#[test]
fn a_served_sandboxs_bmcs_are_controlled_by_redfish_and_by_power_commands() {
    let served = Served::start(&["--nodes", "5"]);
    let config = served.dir.join("config.yaml");
    let redfish = text(&served.facts["redfish"]);
    let (name, address) = workers(&served).remove(0);
    let status = |expected: &str| {
        wait_for(&format!("{name} is {expected}"), 30, || {
            let output = cketerm(&config, &["power", "status", &address]);
            (output.code == 0 && output.stdout.trim() == expected).then_some(())
        });
    };
    status("on");
    let system = format!("{redfish}/redfish/v1/Systems/{name}");
    let get = |url: &str| -> Value {
        let (code, body) = http("GET", url, &[], "");
        assert_eq!(code, 200, "{url}: {body}");
        serde_json::from_str(&body).unwrap()
    };
    let systems = get(&format!("{redfish}{}", text(&get(&format!("{redfish}/redfish/v1/"))["Systems"]["@odata.id"])));
    assert_eq!(systems["Members"].as_array().unwrap().len(), 5);
    let target = get(&system)["Actions"]["#ComputerSystem.Reset"]["target"].clone();
    let headers = [("Content-Type", "application/json")];
    let off = http("POST", &format!("{redfish}{}", text(&target)), &headers, r#"{"ResetType": "ForceOff"}"#);
    assert_eq!(off.0, 204, "{off:?}");
    status("off");
    assert_eq!(get(&system)["PowerState"], "Off");
    let output = cketerm(&config, &["power", "on", &address]);
    assert!(output.code == 0, "{output:?}");
    assert_eq!(get(&system)["PowerState"], "On");
    assert_eq!(http("GET", &format!("{redfish}/redfish/v1/Systems/nobody"), &[], "").0, 404);
}

#[test]
fn a_served_sandboxs_queue_reboots_by_power_cycle_and_its_hosts_by_the_controller() {
    let served = Served::start(&["--nodes", "5"]);
    let config = served.dir.join("config.yaml");
    let run_ok = |words: &[&str]| {
        let output = cketerm(&config, words);
        assert_eq!(output.code, 0, "{words:?}: {output:?}");
        output.stdout
    };
    let program = crate::binary::cketerm();
    let mut cluster: Value = serde_yaml::from_str(&run_ok(&["cluster", "get"])).unwrap();
    cluster["reboot"]["reboot_command"] = json!([program, "power", "cycle", "--hard"]);
    cluster["reboot"]["boot_check_command"] = json!([program, "power", "booted"]);
    cluster["reboot"]["command_timeout_seconds"] = json!(60);
    let file = served.dir.join("cluster.yaml");
    std::fs::write(&file, cluster.to_string()).unwrap();
    run_ok(&["cluster", "set", file.to_str().unwrap()]);
    let mut workers = workers(&served);
    let (_, address) = workers.remove(0);
    let nodes = served.dir.join("nodes");
    std::fs::write(&nodes, format!("{address}\n")).unwrap();
    let _engine = Daemon::start(&served.dir, &config, "engine");
    run_ok(&["rq", "add", nodes.to_str().unwrap()]);
    wait_for("the queue is empty", 120, || run_ok(&["rq", "list", "-o", "json"]).trim().eq("[]").then_some(()));
    let log = served.get("/machines/log");
    let events: Vec<&str> = log.iter().filter(|l| l["address"] == *address).map(|l| text(&l["what"])).collect();
    assert_eq!(events, ["down", "up"], "the machine must be power-cycled exactly once");
    // The same sandbox through the reboot annotation: its configuration permits the controller.
    let (name, address) = workers.remove(0);
    // sabakan reports a powered-off machine as unreachable, and no queue entry explains it
    run_ok(&["auto-repair", "disable"]);
    run_ok(&["policy", "set", "metal3_controller", "true"]);
    wait_for("the host is known to be on", 60, || {
        let hosts: Vec<Value> = serde_json::from_str(&run_ok(&["hosts", "list", "-o", "json"])).unwrap();
        hosts.iter().any(|h| h["name"] == *name && h["powered_on"] == true).then_some(())
    });
    run_ok(&["hosts", "reboot", "--hard", "--wait", "60", &name]);
    let log = served.get("/machines/log");
    let events: Vec<&str> = log.iter().filter(|l| l["address"] == *address).map(|l| text(&l["what"])).collect();
    assert_eq!(events, ["down", "up"], "the machine must be power-cycled exactly once");
}

#[test]
fn power_finds_a_machines_bmc_in_sabakan() {
    let Some(bmc) = Emulator::start(true) else { return };
    let served = Served::start(&["--nodes", "5"]);
    let machine = |serial: &str, address: &str, kind: &str, bmc: &str| {
        let record = json!({
            "serial": serial, "rack": 9, "index_in_rack": 1, "role": "compute", "ipv4": [address],
            "register_date": "2026-01-01T00:00:00Z", "retire_date": "2031-01-01T00:00:00Z",
            "bmc_type": kind, "bmc_ipv4": bmc, "state": "HEALTHY", "since": "2026-01-01T00:00:00Z",
        });
        served.send("PUT", "/sabakan/machines", &record);
    };
    machine("r1", "10.9.0.1", "iDRAC-9", "127.0.0.1");
    machine("r2", "10.9.0.2", "IPMI-2.0", "127.0.0.1");
    let (port, dir) = (bmc.url.rsplit(':').next().unwrap(), &served.dir);
    std::fs::copy(&bmc.ca, dir.join("ca.crt")).unwrap();
    std::fs::write(dir.join("password"), "hunter2\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(dir.join("password"), mode).unwrap();
    let write_bmcs = |system: &str| {
        let text = format!(
            "networks: [127.0.0.0/8]\ndefaults: {{username: admin, password-file: password, ca-file: ca.crt, registry-port: {port}{system}}}\n"
        );
        std::fs::write(dir.join("bmcs.yaml"), text).unwrap();
    };
    let config = dir.join("config.yaml");
    let ask = |address: &str| {
        let output = cketerm(&config, &["-v", "power", "status", address]);
        assert!(!format!("{output:?}").contains("hunter2"), "{output:?}");
        output
    };
    write_bmcs("");
    // The emulator has two systems, and the registry does not name one: cketerm does not guess.
    let output = ask("10.9.0.1");
    assert!(output.code == 1 && output.stderr.contains("has 2 systems"), "{output:?}");
    write_bmcs(", system: two");
    let output = ask("10.9.0.1");
    assert!(output.code == 0 && output.stdout == "off\n", "{output:?}");
    assert!(output.stderr.contains("using the BMC of r1 from sabakan"), "{output:?}");
    let output = ask("10.9.0.2");
    assert!(output.code == 2 && output.stderr.contains("machine r2: its BMC is of type IPMI-2.0"), "{output:?}");
    let output = ask("10.9.0.3");
    assert!(output.code == 2 && output.stderr.contains("machines has that address"), "{output:?}");
    // An incomplete answer of the registry is an error.
    served.send("POST", "/sabakan/behave", &json!("half"));
    let output = ask("10.9.0.1");
    assert!(output.code == 1 && output.stderr.contains("sabakan at"), "{output:?}");
}
