//! The definition's `repair` section, and the machines outside the cluster.

use cketerm_actions::NewRepair;
use cketerm_model::names::Address;
use cketerm_sandbox::machines::Machine;
use serde_json::{Value, json};

use super::data::RepairRequest;

/// Returns the definition's `repair` section for servers and switches. The type of a server is its BMC type, as in a
/// registry. `command` builds a command line from a verb. The protection settings are those of the `reboot` section.
pub(super) fn section(command: &dyn Fn(&str) -> Vec<String>, reboot: &Value) -> Value {
    let step = |verb: &str, drain: bool, watch: u32| {
        json!({
            "repair_command": command(verb), "command_timeout_seconds": 60, "command_retries": 1, "command_interval": 3,
            "need_drain": drain, "watch_seconds": watch,
        })
    };
    let operation = |name: &str, steps: Vec<Value>| {
        json!({
            "operation": name, "repair_steps": steps,
            "health_check_command": command("health"), "command_timeout_seconds": 10,
        })
    };
    let reinstall = || step("reinstall", true, 90);
    json!({
        "repair_procedures": [
            {"machine_types": ["IPMI-2.0", "Redfish"], "repair_operations": [
                operation("unhealthy", vec![step("repair", false, 15), reinstall()]),
                operation("unreachable", vec![step("reboot", false, 40), reinstall()]),
                operation("reinstall", vec![reinstall()]),
            ]},
            {"machine_types": ["switch"], "repair_operations": [
                operation("unreachable", vec![step("repair", false, 20)]),
            ]},
        ],
        "max_concurrent_repairs": 2,
        "eviction_timeout_seconds": reboot["eviction_timeout_seconds"],
        "evict_retries": reboot["evict_retries"],
        "evict_interval": reboot["evict_interval"],
        "protected_job_pods": reboot["protected_job_pods"],
        "protected_namespaces": reboot["protected_namespaces"],
    })
}

/// Returns the machine outside the cluster with this number, counted from 1.
pub(super) fn outside(number: u8) -> Machine {
    let (name, address) = (format!("switch{number}"), format!("10.250.0.{}", 10 + u16::from(number)));
    Machine { name, address, apart: true, ..Machine::default() }
}

/// Converts a scene's repair to the action's type.
pub(super) fn wanted(repair: &RepairRequest, address: String) -> NewRepair {
    let RepairRequest { machine_type, operation, .. } = repair.clone();
    NewRepair { operation, machine_type, address: Address::new(address), serial: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::cluster::{check, parse};

    #[test]
    fn the_repair_section_of_the_sandbox_is_valid() {
        let command = |verb: &str| vec!["m".to_owned(), verb.to_owned()];
        let reboot = json!({"eviction_timeout_seconds": 120, "evict_retries": 1, "evict_interval": 3,
            "protected_job_pods": null, "protected_namespaces": {"matchLabels": {"a": "b"}}});
        let definition = json!({"name": "x", "nodes": [], "repair": section(&command, &reboot)});
        let found = check(&parse(&definition.to_string()).unwrap(), None);
        assert_eq!(found.faults, []);
    }
}
