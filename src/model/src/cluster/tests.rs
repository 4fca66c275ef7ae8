use super::*;
use crate::cluster::{parse, written};

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
fn faults_after_change(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let value = parse(&GOOD.replacen(from, to, 1)).unwrap();
    let found = check(&value, Some(&Constraints::default()));
    found.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_valid_definition_and_its_normalized_form_have_no_faults() {
    let value = parse(GOOD).unwrap();
    assert_eq!(check(&value, Some(&Constraints::default())), Checked::default());
    assert_eq!(check(&written(&value), Some(&Constraints::default())), Checked::default());
}

#[test]
fn an_unknown_field_is_a_fault_under_nodes_reboot_and_repair() {
    assert_eq!(
        faults_after_change("control_plane: true", "control_plain: true"),
        "nodes[0].control_plain is not a known field; did you mean control_plane?"
    );
    assert!(
        faults_after_change("  reboot_command", "  max_concurent_reboots: 1\n  reboot_command")
            .contains("did you mean max_concurrent_reboots?")
    );
    assert!(
        faults_after_change("watch_seconds", "watch_second")
            .contains("repair_steps[0].watch_second is not a known field")
    );
    assert!(faults_after_change("matchLabels", "matchlabels").contains("reboot.protected_namespaces.matchlabels"));
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
fn yaml_1_1_booleans_are_refused_with_the_field() {
    for word in ["yes", "on", "Off", "n"] {
        let expected = faults_after_change("control_plane: true", &format!("control_plane: {word}"));
        assert!(expected.starts_with("nodes[0].control_plane must be true or false"), "{expected}");
    }
}

#[test]
fn addresses_must_be_valid_and_unique() {
    assert_eq!(faults_after_change("10.0.0.13", "host13"), "nodes[2].address is an invalid IP address: host13");
    assert_eq!(faults_after_change("10.0.0.13", "10.0.0.12"), "nodes[2].address 10.0.0.12 is also nodes[1]'s address");
    assert_eq!(faults_after_change("worker13", "10.0.0.12"), "nodes[2].hostname 10.0.0.12 is also nodes[1]'s name");
    assert_eq!(faults_after_change("address: 10.0.0.13, ", ""), "nodes[2].address is an invalid IP address: ");
}

#[test]
fn invalid_numbers_are_refused_with_their_fields() {
    for (section, field, number, expected) in [
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
        let all = faults_after_change(&format!("{section}:"), &format!("{section}:\n  {field}: {number}"));
        assert_eq!(all, format!("{section}.{field} {expected}"));
    }
    assert!(
        faults_after_change("watch_seconds: 60", "watch_seconds: -1")
            .ends_with("repair_steps[0].watch_seconds must not be negative, is -1")
    );
    assert!(
        faults_after_change("watch_seconds: 60", "watch_seconds: 1.5").ends_with("must be a whole number, not 1.5")
    );
    assert!(
        faults_after_change("watch_seconds: 60", "watch_seconds: \"60\"")
            .ends_with("must be a whole number, not \"60\"")
    );
}

#[test]
fn a_command_timeout_of_zero_is_valid() {
    assert_eq!(faults_after_change("reboot:", "reboot:\n  command_timeout_seconds: 0"), "");
}

#[test]
fn an_invalid_selector_is_refused_with_its_path() {
    let bad = "{matchExpressions: [{key: a, operator: Within, values: [b]}]}";
    assert!(
        faults_after_change("{matchLabels: {protected: \"true\"}}", bad)
            .starts_with("reboot.protected_namespaces is not a label selector")
    );
    let bad = "{matchExpressions: [{key: a, operator: In}]}";
    assert_eq!(
        faults_after_change("{matchLabels: {protected: \"true\"}}", bad),
        "reboot.protected_namespaces.matchExpressions[0]: In needs values"
    );
    assert!(
        faults_after_change("{protected: \"true\"}", "{protected: true}")
            .contains("must be text, not true; put it in quotes")
    );
    assert!(faults_after_change("protected: \"true\"", "\"a b\": x").contains("\"a b\" is not a valid key"));
}

#[test]
fn repair_procedures_have_unique_types_and_operations_with_steps() {
    assert!(
        faults_after_change("[QEMU]", "[QEMU, QEMU]")
            .contains("machine_types[1] QEMU is already listed at repair.repair_procedures[0].machine_types[0]")
    );
    assert!(faults_after_change("[QEMU]", "[]").contains("machine_types must not be empty"));
    assert!(
        faults_after_change("[{repair_command: [/bin/true], need_drain: true, watch_seconds: 60}]", "[]")
            .contains("repair_steps must not be empty")
    );
    let twice = "    - {operation: o, health_check_command: [x], repair_steps: [{repair_command: [x]}]}\n";
    let expected =
        faults_after_change("    - operation: unreachable", &format!("{twice}{twice}    - operation: unreachable"));
    assert!(expected.contains("repair_operations[1].operation o is also repair_operations[0]'s name"), "{expected}");
}

#[test]
fn the_number_of_control_planes_must_match_the_constraint() {
    assert!(
        faults_after_change("control_plane: true", "control_plane: false")
            .starts_with("nodes have 0 control planes, the constraint control-plane-count is 1")
    );
}

#[test]
fn options_require_a_cri_endpoint() {
    assert_eq!(
        faults_after_change("{cri_endpoint: /run/containerd/containerd.sock}", "{in_place_update: true}"),
        "options.kubelet.cri_endpoint must not be empty where there are options"
    );
    assert_eq!(faults_after_change("  kubelet: {cri_endpoint: /run/containerd/containerd.sock}", "  kubelet: {}"), "");
}

#[test]
fn all_faults_are_reported_not_only_the_first() {
    let value = parse(&GOOD.replace("10.0.0.13", "x").replace("name: test", "name: ''")).unwrap();
    assert_eq!(check(&value, None).faults.len(), 2);
}

#[test]
fn a_stored_definition_with_faults_is_still_readable() {
    let text = r#"{"name":null,"nodes":[{"address":"x","control_plane":null,"odd":1}],"reboot":{"protected_namespaces":{"bad":1}},"repair":null}"#;
    let cluster: Cluster = serde_json::from_str(text).unwrap();
    assert_eq!(cluster.nodes.len(), 1);
    assert_eq!(cluster.reboot.protected_namespaces, None, "all namespaces are protected");
}
