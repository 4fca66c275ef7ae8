use super::*;
use crate::model::cluster::{parse, written};

const GOOD: &str = r#"
name: test
nodes:
- {address: 10.0.0.11, user: cke, control_plane: true}
- address: 10.0.0.12
  user: cke
  labels: {site/tier: a}
  taints: [{key: site/pool, value: x, effect: NoSchedule}]
- {address: 10.0.0.13, hostname: worker13, user: cke}
reboot:
  reboot_command: [/bin/true]
  boot_check_command: [/bin/echo, "true"]
  protected_namespaces: {matchLabels: {protected: "true"}}
repair:
  repair_procedures:
  - machine_types: [QEMU]
    repair_operations:
    - operation: unreachable
      health_check_command: [/bin/echo, "true"]
      repair_steps: [{repair_command: [/bin/true], need_drain: true, watch_seconds: 60}]
options:
  kubelet: {cri_endpoint: /run/containerd/containerd.sock}
"#;

/// Returns the faults of the good definition after `from` was replaced by `to`.
fn after(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let value = parse(&GOOD.replacen(from, to, 1)).unwrap();
    let found = check(&value, Some(&Constraints::default()));
    found.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_good_definition_has_no_faults_nor_has_its_written_form() {
    let value = parse(GOOD).unwrap();
    assert_eq!(check(&value, Some(&Constraints::default())), Checked::default());
    assert_eq!(check(&written(&value), Some(&Constraints::default())), Checked::default());
}

#[test]
fn an_unknown_field_is_a_fault_under_nodes_reboot_and_repair() {
    assert_eq!(
        after("control_plane: true", "control_plain: true"),
        "nodes[0].control_plain is not a known field; did you mean control_plane?"
    );
    assert!(
        after("  reboot_command", "  max_concurent_reboots: 1\n  reboot_command")
            .contains("did you mean max_concurrent_reboots?")
    );
    assert!(after("watch_seconds", "watch_second").contains("repair_steps[0].watch_second is not a known field"));
    assert!(after("matchLabels", "matchlabels").contains("reboot.protected_namespaces.matchlabels"));
}

#[test]
fn an_unknown_field_elsewhere_is_a_warning() {
    let value = parse(&GOOD.replace("name: test", "name: test\nservice_subnets: 10.0.0.0/8")).unwrap();
    let found = check(&value, None);
    assert_eq!(found.faults, []);
    assert!(found.warnings[0].to_string().contains("did you mean service_subnet?"));
}

#[test]
fn the_field_of_the_shipped_example_is_known() {
    let value = parse(&GOOD.replace("name: test", "name: test\npod_subnet: 10.64.0.0/14")).unwrap();
    let found = check(&value, None);
    assert_eq!((found.faults.len(), found.warnings.len()), (0, 0), "{found:?}");
}

#[test]
fn words_of_yaml_1_1_are_refused_with_the_field() {
    for word in ["yes", "on", "Off", "n"] {
        let said = after("control_plane: true", &format!("control_plane: {word}"));
        assert!(said.starts_with("nodes[0].control_plane must be true or false"), "{said}");
    }
}

#[test]
fn addresses_are_valid_and_given_once() {
    assert_eq!(after("10.0.0.13", "host13"), "nodes[2].address is an invalid IP address: host13");
    assert_eq!(after("10.0.0.13", "10.0.0.12"), "nodes[2].address 10.0.0.12 is also nodes[1]'s address");
    assert_eq!(after("worker13", "10.0.0.12"), "nodes[2].hostname 10.0.0.12 is also nodes[1]'s name");
    assert_eq!(after("address: 10.0.0.13, ", ""), "nodes[2].address is an invalid IP address: ");
}

#[test]
fn numbers_are_refused_with_their_fields() {
    for (section, field, number, said) in [
        ("reboot", "max_concurrent_reboots", 0, "must be positive, is 0"),
        ("reboot", "eviction_timeout_seconds", 0, "must be positive, is 0"),
        ("reboot", "command_timeout_seconds", -1, "must not be negative, is -1"),
        ("reboot", "command_retries", -1, "must not be negative, is -1"),
        ("reboot", "command_interval", -1, "must not be negative, is -1"),
        ("reboot", "evict_retries", -1, "must not be negative, is -1"),
        ("reboot", "evict_interval", -1, "must not be negative, is -1"),
        ("repair", "max_concurrent_repairs", 0, "must be positive, is 0"),
        ("repair", "evict_retries", -1, "must not be negative, is -1"),
        ("repair", "eviction_timeout_seconds", -5, "must be positive, is -5"),
    ] {
        let all = after(&format!("{section}:"), &format!("{section}:\n  {field}: {number}"));
        assert_eq!(all, format!("{section}.{field} {said}"));
    }
    assert!(
        after("watch_seconds: 60", "watch_seconds: -1")
            .ends_with("repair_steps[0].watch_seconds must not be negative, is -1")
    );
    assert!(after("watch_seconds: 60", "watch_seconds: 1.5").ends_with("must be a whole number, not 1.5"));
    assert!(after("watch_seconds: 60", "watch_seconds: \"60\"").ends_with("must be a whole number, not \"60\""));
}

#[test]
fn zero_is_no_timeout() {
    assert_eq!(after("reboot:", "reboot:\n  command_timeout_seconds: 0"), "");
}

#[test]
fn a_selector_that_does_not_parse_is_refused_with_its_place() {
    let bad = "{matchExpressions: [{key: a, operator: Within, values: [b]}]}";
    assert!(
        after("{matchLabels: {protected: \"true\"}}", bad)
            .starts_with("reboot.protected_namespaces is not a label selector")
    );
    let bad = "{matchExpressions: [{key: a, operator: In}]}";
    assert_eq!(
        after("{matchLabels: {protected: \"true\"}}", bad),
        "reboot.protected_namespaces.matchExpressions[0]: In needs values"
    );
    assert!(after("{protected: \"true\"}", "{protected: true}").contains("must be text, not true; put it in quotes"));
    assert!(after("protected: \"true\"", "\"a b\": x").contains("\"a b\" is not a valid key"));
}

#[test]
fn procedures_name_each_type_and_operation_once_and_have_steps() {
    assert!(
        after("[QEMU]", "[QEMU, QEMU]")
            .contains("machine_types[1] QEMU is already listed at repair.repair_procedures[0].machine_types[0]")
    );
    assert!(after("[QEMU]", "[]").contains("machine_types must not be empty"));
    assert!(
        after("[{repair_command: [/bin/true], need_drain: true, watch_seconds: 60}]", "[]")
            .contains("repair_steps must not be empty")
    );
    let twice = "    - {operation: o, health_check_command: [x], repair_steps: [{repair_command: [x]}]}\n";
    let said = after("    - operation: unreachable", &format!("{twice}{twice}    - operation: unreachable"));
    assert!(said.contains("repair_operations[1].operation o is also repair_operations[0]'s name"), "{said}");
}

#[test]
fn control_planes_are_as_many_as_the_constraint_says() {
    assert!(
        after("control_plane: true", "control_plane: false")
            .starts_with("nodes have 0 control planes, the constraint control-plane-count is 1")
    );
}

#[test]
fn options_need_the_endpoint_of_the_container_runtime() {
    assert_eq!(
        after("{cri_endpoint: /run/containerd/containerd.sock}", "{in_place_update: true}"),
        "options.kubelet.cri_endpoint must not be empty where there are options"
    );
    assert_eq!(after("  kubelet: {cri_endpoint: /run/containerd/containerd.sock}", "  kubelet: {}"), "");
}

#[test]
fn every_fault_is_told_not_only_the_first() {
    let value = parse(&GOOD.replace("10.0.0.13", "x").replace("name: test", "name: ''")).unwrap();
    assert_eq!(check(&value, None).faults.len(), 2);
}

#[test]
fn a_stored_definition_is_read_whatever_the_faults() {
    let text = r#"{"name":null,"nodes":[{"address":"x","control_plane":null,"odd":1}],"reboot":{"protected_namespaces":{"bad":1}},"repair":null}"#;
    let cluster: Cluster = serde_json::from_str(text).unwrap();
    assert_eq!(cluster.nodes.len(), 1);
    assert_eq!(cluster.reboot.protected_namespaces, None, "all are protected");
}
