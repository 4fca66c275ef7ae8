//! The words of `sabakan` and `auto-repair` that touch only etcd: what is set is what is stored, bad input is told and
//! stores nothing.

use super::rig::Rig;

const TEMPLATE: &str = "\
name: cluster
nodes:
- user: cybozu
  control_plane: true
  labels: {cke.cybozu.com/role: compute}
- user: cybozu
  labels: {cke.cybozu.com/role: compute, cke.cybozu.com/weight: \"6.0\", place: 'r{{ .Rack }}'}
- user: cybozu
  labels: {cke.cybozu.com/role: storage, cke.cybozu.com/weight: \"3.0\"}
service_subnet: 10.68.0.0/16
";

#[tokio::test]
async fn what_was_set_is_printed_and_lies_where_cke_reads_it() {
    let Some(rig) = Rig::start().await else { return };
    assert_eq!(rig.run(&["sabakan", "set-template", &rig.file("t.yml", TEMPLATE)]).status, 0);
    let stored: serde_json::Value = serde_json::from_str(&rig.get("/cke/sabakan/template").await.unwrap()).unwrap();
    assert_eq!((&stored["nodes"][0]["address"], &stored["nodes"][0]["taints"]), (&"".into(), &serde_json::Value::Null));
    let shown = rig.run(&["sabakan", "get-template"]).stdout;
    assert!(shown.contains("name: cluster\n") && shown.contains("r{{ .Rack }}"), "{shown}");
    let variables = "{\"notHaving\": {\"states\": [\"RETIRED\"]}}\n";
    let file = rig.file("v.json", variables);
    for noun in ["sabakan", "auto-repair"] {
        assert_eq!(rig.run(&[noun, "set-variables", &file]).status, 0);
        assert_eq!(rig.get(&format!("/cke/{noun}/query-variables")).await.unwrap(), variables);
        assert_eq!(rig.run(&[noun, "get-variables"]).stdout, variables);
    }
}

#[tokio::test]
async fn a_template_that_cannot_be_used_is_refused_with_the_reason() {
    let Some(rig) = Rig::start().await else { return };
    for (from, to, words) in [
        ("  control_plane: true\n", "", "no template for control planes"),
        (
            "labels: {cke.cybozu.com/role: storage",
            "control_plane: true\n  labels: {x: y",
            "2 templates for control planes",
        ),
        ("role: storage", "role: compute", "is compute, and so is nodes[1]'s"),
        ("cke.cybozu.com/role: storage, ", "", "nodes[2].labels[cke.cybozu.com/role] is missing"),
        (
            "- user: cybozu\n  control",
            "- user: cybozu\n  address: 10.0.0.1\n  control",
            "must be left out of a template",
        ),
        ("weight: \"3.0\"", "weight: \"0\"", "must be a positive number"),
        ("{{ .Rack }}", "{{ .Rak }}", "did you mean .Rack?"),
        ("user: cybozu\n  control", "usr: cybozu\n  control", "did you mean user?"),
    ] {
        let text = TEMPLATE.replacen(from, to, 1);
        assert_ne!(text, TEMPLATE);
        let ran = rig.run(&["sabakan", "set-template", &rig.file("bad.yml", &text)]);
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(ran.stderr.contains("bad.yml") && ran.stderr.contains(words), "{words}: {}", ran.stderr);
        assert_eq!(rig.get("/cke/sabakan/template").await, None);
    }
    let ran = rig.run(&["auto-repair", "set-variables", &rig.file("v", r#"{"having": {"states": ["BAD"]}}"#)]);
    assert!(ran.status == 1 && ran.stderr.contains("\"BAD\""), "{ran:?}");
    assert_eq!(rig.get("/cke/auto-repair/query-variables").await, None);
}
