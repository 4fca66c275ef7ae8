use super::*;

const SEED: &str = "\
name: cluster
nodes:
- user: cybozu
  control_plane: true
  labels: {cke.cybozu.com/role: compute}
- user: cybozu
  labels: {cke.cybozu.com/role: compute, cke.cybozu.com/weight: \"6.0\"}
- user: cybozu
  labels: {cke.cybozu.com/role: storage, cke.cybozu.com/weight: \"3.0\"}
  taints: [{key: cke.cybozu.com/role, value: storage, effect: NoExecute}]
- user: cybozu
  labels: {cke.cybozu.com/role: gpu, cke.cybozu.com/weight: \"1.0\"}
service_subnet: 10.68.0.0/16
pod_subnet: 10.64.0.0/14
";

fn nodes(list: &str) -> Result<Template, TemplateError> {
    Template::read(&format!("name: x\nnodes:\n{list}"))
}

#[track_caller]
fn refused(list: &str, words: &[&str]) {
    let text = nodes(list).unwrap_err().to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn the_example_template_is_parsed() {
    let t = Template::read(SEED).unwrap();
    assert_eq!(t.control_plane.role.as_deref(), Some("compute"));
    let kinds: Vec<_> = t.workers.iter().map(|k| (k.role.as_deref().unwrap(), k.weight)).collect();
    assert_eq!(kinds, [("compute", 6.0), ("storage", 3.0), ("gpu", 1.0)]);
    assert_eq!(t.cluster.unknown["pod_subnet"], "10.64.0.0/14");
}

/// SAB-15, SAB-16: "If a non-control plane node template lacks cke.cybozu.com/weight label, its weight becomes 1.0";
/// "If a node template lacks cke.cybozu.com/role label, any servers can match it".
#[test]
fn the_minimal_template_accepts_any_role_with_weight_one() {
    let t = nodes("- {user: cybozu, control_plane: true}\n- {user: cybozu, control_plane: false}\n").unwrap();
    assert_eq!(t.workers.len(), 1);
    assert!((t.workers[0].weight - 1.0).abs() < f64::EPSILON);
    assert!(t.workers[0].accepts_role("anything") && t.control_plane.accepts_role("anything"));
    assert_eq!(t.worker_kind("anything"), Some(0));
}

/// SAB-14: exactly one control-plane template and at least one worker template.
#[test]
fn a_template_needs_exactly_one_control_plane_and_at_least_one_worker() {
    refused("- {user: a, control_plane: true}\n", &["no template for workers"]);
    refused("- {user: a}\n", &["no template for control planes"]);
    let two = "- {user: a, control_plane: true}\n- {user: a}\n- {user: a, control_plane: true}\n";
    refused(two, &["2 templates for control planes", "nodes[0], nodes[2]"]);
}

/// SAB-15: "If there are more than two templates for non-control plane nodes, they must have cke.cybozu.com/role
/// label".
#[test]
fn several_worker_templates_need_distinct_roles() {
    let plane = "- {user: a, control_plane: true}\n";
    let worker = |role: &str| format!("- {{user: a, labels: {{cke.cybozu.com/role: {role}}}}}\n");
    refused(&format!("{plane}{}- {{user: a}}\n", worker("cs")), &["nodes[2].labels[cke.cybozu.com/role] is missing"]);
    refused(&format!("{plane}{}{}", worker("cs"), worker("cs")), &["nodes[2]", "is cs, and so is nodes[1]'s"]);
    refused(&format!("{plane}{}", worker("\"\"")), &["must be the name of a role"]);
    refused(&format!("{plane}{}", worker("\"{{ .Role }}\"")), &["must be the name of a role"]);
}

#[test]
fn a_weight_is_a_positive_number() {
    for weight in ["0", "-1", "NaN", "nan", "inf", "many", "", "0x10"] {
        let labels = format!(
            "- {{user: a, control_plane: true}}\n- {{user: a, labels: {{cke.cybozu.com/weight: \"{weight}\"}}}}\n"
        );
        refused(&labels, &["nodes[1].labels[cke.cybozu.com/weight] must be a positive number"]);
    }
}

#[test]
fn a_template_is_validated_like_a_definition() {
    let plane = "- {user: a, control_plane: true}\n";
    refused(&format!("{plane}- {{user: a, address: 10.0.0.1}}\n"), &["nodes[1].address must not be set"]);
    refused(&format!("{plane}- {{}}\n"), &["nodes[1].user must not be empty"]);
    refused(&format!("{plane}- {{user: a, weight: 3}}\n"), &["nodes[1].weight is not a known field"]);
    refused(&format!("{plane}- {{user: a, labels: {{a b: c}}}}\n"), &["nodes[1].labels \"a b\""]);
    refused(&format!("{plane}- {{user: a, labels: {{a: b c}}}}\n"), &["nodes[1].labels[a] \"b c\""]);
    let taint = "{key: cke.cybozu.com/state, value: x, effect: NoSchedule}";
    refused(&format!("{plane}- {{user: a, taints: [{taint}]}}\n"), &["nodes[1].taints[0].key cke.cybozu.com/state"]);
    assert!(Template::read("name: [").unwrap_err().to_string().contains("neither YAML nor JSON"));
    assert!(Template::read("3").is_err());
}

/// SAB-18, SAB-19: errors name the label, its text and the character.
#[test]
fn an_invalid_label_template_is_refused_with_its_position() {
    let with =
        |value: &str| format!("- {{user: a, control_plane: true}}\n- {{user: a, labels: {{zone: '{value}'}}}}\n");
    let t = nodes(&with("rack{{ .Rack }}")).unwrap();
    assert_eq!(t.workers[0].dynamic_labels[0].key, "zone");
    refused(&with("{{ .Rak }}"), &["nodes[1].labels[zone]", "{{ .Rak }}", "at character 4", "did you mean .Rack?"]);
    refused(&with("{{ .Rack"), &["nodes[1].labels[zone]", "does not end"]);
}
