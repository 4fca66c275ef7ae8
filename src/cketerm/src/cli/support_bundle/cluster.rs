//! Definition, policy and constraints of a bundle. Commands are reduced to their program: their arguments may hold
//! logins.

use cketerm_model::{
    cluster::{Cluster, Operation, Procedure, Reboot, Repair},
    constraints::Constraints,
    hook::{Hook, Hooks},
    policy::Policy,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::safe::{Document, Mask, Text};

/// A command line without its arguments.
#[derive(Serialize)]
pub(super) struct Program {
    program: Text,
    arguments: usize,
}

/// Returns the program of a command line.
pub(super) fn program(argv: &[String], mask: &Mask) -> Option<Program> {
    let (program, arguments) = argv.split_first()?;
    Some(Program { program: mask.text(program_of_text(program)), arguments: arguments.len() })
}

/// Returns the program of a command line in one text. A word such as `NAME=VALUE` is no name of a program.
pub(super) fn program_of_text(text: &str) -> &str {
    text.split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or_default()
}

#[derive(Serialize)]
struct Member {
    address: Text,
    hostname: Text,
    control_plane: bool,
}

#[derive(Serialize)]
struct RebootRules {
    reboot_command: Option<Program>,
    boot_check_command: Option<Program>,
    eviction_timeout_seconds: Option<i64>,
    command_timeout_seconds: Option<i64>,
    max_concurrent_reboots: Option<i64>,
    command_retries: Option<i64>,
    command_interval: Option<i64>,
    evict_retries: Option<i64>,
    evict_interval: Option<i64>,
    protected_namespaces: bool,
    protected_job_pods: bool,
}

#[derive(Serialize)]
struct RepairRules {
    procedures: Vec<RepairProcedure>,
    max_concurrent_repairs: Option<i64>,
    eviction_timeout_seconds: Option<i64>,
    evict_retries: Option<i64>,
    evict_interval: Option<i64>,
    protected_namespaces: bool,
    protected_job_pods: bool,
}

#[derive(Serialize)]
struct RepairProcedure {
    machine_types: Vec<Text>,
    operations: Vec<RepairOperation>,
}

#[derive(Serialize)]
struct RepairOperation {
    operation: Text,
    health_check_command: Option<Program>,
    success_command: Option<Program>,
    steps: Vec<Option<Program>>,
}

/// The definition: names, addresses, roles, limits and programs.
#[derive(Serialize)]
pub(super) struct Definition {
    name: Text,
    nodes: Vec<Member>,
    reboot: RebootRules,
    repair: RepairRules,
}

/// Returns the definition for a bundle.
pub(super) fn definition(cluster: &Cluster, mask: &Mask) -> Definition {
    let nodes = cluster.nodes.iter().map(|node| Member {
        address: mask.text(&node.address),
        hostname: mask.text(&node.hostname),
        control_plane: node.control_plane,
    });
    Definition {
        name: mask.text(&cluster.name),
        nodes: nodes.collect(),
        reboot: reboot_rules(&cluster.reboot, mask),
        repair: repair_rules(&cluster.repair, mask),
    }
}

fn reboot_rules(rules: &Reboot, mask: &Mask) -> RebootRules {
    RebootRules {
        reboot_command: optional(rules.reboot_command.as_ref(), mask),
        boot_check_command: optional(rules.boot_check_command.as_ref(), mask),
        eviction_timeout_seconds: rules.eviction_timeout_seconds,
        command_timeout_seconds: rules.command_timeout_seconds,
        max_concurrent_reboots: rules.max_concurrent_reboots,
        command_retries: rules.command_retries,
        command_interval: rules.command_interval,
        evict_retries: rules.evict_retries,
        evict_interval: rules.evict_interval,
        protected_namespaces: rules.protected_namespaces.is_some(),
        protected_job_pods: rules.protected_job_pods.is_some(),
    }
}

fn repair_rules(rules: &Repair, mask: &Mask) -> RepairRules {
    let procedures = rules.repair_procedures.iter().flatten().map(|procedure| repair_procedure(procedure, mask));
    RepairRules {
        procedures: procedures.collect(),
        max_concurrent_repairs: rules.max_concurrent_repairs,
        eviction_timeout_seconds: rules.eviction_timeout_seconds,
        evict_retries: rules.evict_retries,
        evict_interval: rules.evict_interval,
        protected_namespaces: rules.protected_namespaces.is_some(),
        protected_job_pods: rules.protected_job_pods.is_some(),
    }
}

fn repair_procedure(procedure: &Procedure, mask: &Mask) -> RepairProcedure {
    let operation = |operation: &Operation| RepairOperation {
        operation: mask.text(&operation.operation),
        health_check_command: optional(operation.health_check_command.as_ref(), mask),
        success_command: optional(operation.success_command.as_ref(), mask),
        steps: operation.repair_steps.iter().flatten().map(|s| optional(s.repair_command.as_ref(), mask)).collect(),
    };
    RepairProcedure {
        machine_types: procedure.machine_types.iter().flatten().map(|name| mask.text(name)).collect(),
        operations: procedure.repair_operations.iter().flatten().map(operation).collect(),
    }
}

fn optional(argv: Option<&Vec<String>>, mask: &Mask) -> Option<Program> {
    program(argv?, mask)
}

/// The constraints. Members that cketerm does not know are left out.
#[derive(Serialize)]
pub(super) struct Limits {
    #[serde(flatten)]
    known: Constraints,
}

/// Returns the constraints for a bundle.
pub(super) fn limits(constraints: &Constraints) -> Limits {
    Limits { known: Constraints { unknown: Map::new(), ..constraints.clone() } }
}

/// Settings of the policy that a bundle holds as they are: their values are numbers, switches and words.
const POLICY_FIELDS: [&str; 45] = [
    "engine",
    "console_leads",
    "api_server_order",
    "worker_order",
    "max_overtakes",
    "landing_check",
    "unreachable_rule",
    "control_plane_probe",
    "settle_seconds",
    "etcd_members",
    "allow_quorum_loss",
    "manage_endpoints",
    "worker_completion",
    "command_cap_seconds",
    "stuck_seconds",
    "strategy",
    "membership",
    "node_selector",
    "node_grace_seconds",
    "unreachable_percent",
    "reboot_needed",
    "reboot_needed_signals",
    "reboot_needed_at_once",
    "reboot_needed_per_day",
    "job_grace_seconds",
    "uncordon_gates",
    "node_conditions",
    "planned_taint_waves",
    "pod_events",
    "maintenance_requests",
    "approval",
    "gate_percent",
    "sabakan_poll_seconds",
    "removal_wait_seconds",
    "metal3_controller",
    "fence",
    "windows",
    "freeze",
    "groups",
    "breaker",
    "canary",
    // the last four are made below
    HOOKS,
    START_GATES,
    UNKNOWN,
    STORED,
];
const HOOKS: &str = "hooks";
const START_GATES: &str = "start_gates";
const UNKNOWN: &str = "unknown_fields";
const STORED: &str = "is_stored";

#[derive(Serialize)]
struct HookSummary {
    name: Text,
    at: &'static str,
    target: Text,
    timeout_seconds: u64,
    retries: u32,
    holds_slot: bool,
}

/// The policy: [`POLICY_FIELDS`] as they are, hooks and gates without headers, paths and arguments.
pub(super) fn policy(policy: &Policy, is_stored: bool, mask: &Mask) -> Result<Document, serde_json::Error> {
    let unknown = policy.unknown_fields();
    // a structured setting with a field of a newer version could hold anything
    let is_known = |name: &&&str| {
        matches!(**name, HOOKS | START_GATES) || !unknown.iter().any(|field| field.split('.').next() == Some(**name))
    };
    let written = serde_json::to_value(policy)?;
    let mut fields = Map::new();
    for name in POLICY_FIELDS.iter().filter(is_known) {
        let value = match *name {
            HOOKS => Some(serde_json::to_value(hooks(&policy.hooks, mask))?),
            START_GATES => policy.start_gates.as_ref().map(|gates| {
                serde_json::json!({
                    "prometheus": mask.text(&gates.prometheus),
                    "gates": gates.gates().iter().map(|(gate, _)| mask.text(gate)).collect::<Vec<_>>(),
                    "interval_seconds": gates.interval_seconds,
                    "timeout_seconds": gates.timeout_seconds,
                })
            }),
            UNKNOWN => Some(serde_json::to_value(unknown.iter().map(|name| mask.text(name)).collect::<Vec<_>>())?),
            STORED => Some(Value::Bool(is_stored)),
            name => written.get(name).cloned(),
        };
        fields.extend(value.map(|value| ((*name).to_owned(), value)));
    }
    Ok(mask.document(Value::Object(fields)))
}

fn hooks(hooks: &Hooks, mask: &Mask) -> Vec<HookSummary> {
    let summary = |hook: &Hook| HookSummary {
        name: mask.text(&hook.name),
        at: hook.at.as_str(),
        target: match hook.program() {
            Some(program) => mask.text(program),
            None => mask.text(&hook.target()),
        },
        timeout_seconds: hook.timeout_seconds,
        retries: hook.retries,
        holds_slot: hook.holds_slot,
    };
    hooks.iter().map(summary).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "zzz";

    fn text(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn a_definition_has_names_and_programs_but_no_arguments_labels_or_options() {
        let cluster: Cluster = serde_json::from_value(json!({
            "name": "test",
            "nodes": [{
                "address": "10.0.0.11", "hostname": "cp1", "control_plane": true, "user": SECRET,
                "labels": {"a": SECRET}, "annotations": {"b": SECRET}, "odd": SECRET,
                "taints": [{"key": "k", "value": SECRET, "effect": "NoSchedule"}],
            }],
            "reboot": {
                "reboot_command": ["ipmitool", SECRET], "boot_check_command": [format!("PASSWORD={SECRET}")],
                "max_concurrent_reboots": 2, "protected_namespaces": {"matchLabels": {"a": SECRET}}, "odd": SECRET,
            },
            "repair": {"repair_procedures": [{"machine_types": ["R640"], "repair_operations": [{
                "operation": "unreachable", "health_check_command": ["check", SECRET],
                "success_command": ["done", SECRET], "repair_steps": [{"repair_command": ["reset", SECRET]}],
            }]}]},
            "sabakan": {"token": SECRET}, "options": {"kubelet": {"extra_env": SECRET}}, "odd": SECRET,
        }))
        .unwrap();
        let written = text(&definition(&cluster, &Mask::default()));
        assert!(!written.contains(SECRET), "{written}");
        for known in ["10.0.0.11", "cp1", "ipmitool", "PASSWORD", "\"max_concurrent_reboots\":2", "R640", "reset"] {
            assert!(written.contains(known), "{known}: {written}");
        }
    }

    #[test]
    fn every_setting_of_the_policy_is_listed() {
        let mut known: Vec<String> =
            serde_json::to_value(Policy::default()).unwrap().as_object().unwrap().keys().cloned().collect();
        // these are left out of the stored form by default
        let optional = ["hooks", "uncordon_gates", "windows", "freeze", "groups", "breaker", "canary", "start_gates"];
        known.extend(optional.map(str::to_owned));
        known.extend([UNKNOWN, STORED].map(str::to_owned));
        known.sort();
        let mut listed = POLICY_FIELDS.map(str::to_owned).to_vec();
        listed.sort();
        assert_eq!(listed, known, "decide for a new setting whether its values may be in a bundle");
    }

    #[test]
    fn a_policy_has_no_headers_paths_arguments_or_unknown_values() {
        let stored: Policy = serde_json::from_value(json!({
            "engine": "always", "of_tomorrow": SECRET, "settle_seconds": 61,
            "control_plane_probe": format!("https://u:{SECRET}@{{address}}:6443/readyz?token={SECRET}"),
            "hooks": [
                {"name": "silence", "at": "before_drain", "url": format!("https://chat.example/{SECRET}?k={SECRET}"),
                 "header_file": format!("/etc/{SECRET}")},
                {"name": "ceph", "at": "after_uncordon", "command": ["/usr/bin/ceph", "--key", SECRET]},
            ],
            "start_gates": {
                "prometheus": format!("https://prom.example/{SECRET}"), "queries": [{"name": "ceph", "query": SECRET}],
                "header_file": format!("/etc/{SECRET}"),
            },
            "freeze": {"until": "2026-12-28T00:00:00Z", "reason": "holidays", "of_tomorrow": SECRET},
        }))
        .unwrap();
        let written = text(&policy(&stored, true, &Mask::default()).unwrap());
        assert!(!written.contains(SECRET), "{written}");
        for known in ["\"engine\":\"always\"", "silence", "chat.example", "/usr/bin/ceph", "prom.example", ":61"] {
            assert!(written.contains(known), "{known}: {written}");
        }
        assert!(written.contains("of_tomorrow") && !written.contains("holidays"), "{written}");
    }

    #[test]
    fn constraints_have_no_unknown_members() {
        let stored: Constraints =
            serde_json::from_value(json!({"control-plane-count": 3, "of-tomorrow": SECRET})).unwrap();
        let written = text(&limits(&stored));
        assert!(written.contains("\"control-plane-count\":3") && !written.contains(SECRET), "{written}");
    }
}
