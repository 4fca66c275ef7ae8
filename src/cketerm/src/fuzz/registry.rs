//! sabakan's answers, its query variables, and the definition and template that operators write.

use std::collections::BTreeSet;

use bytes::Bytes;
use cketerm_clients::{
    net::Http,
    sabakan::{Question, ask},
};
use cketerm_fuzz::{Fuzz, Took, Tried, one_line};
use cketerm_model::{
    cluster::{Cluster, check, check_template, parse, queue_faults},
    constraints::Constraints,
    policy::Strategy,
};
use cketerm_sabakan::{
    Input, Machine, Template,
    gotext::GoText,
    machine::{self, State},
    plan, variables,
};
use futures::FutureExt as _;
use http::{Response, StatusCode};
use serde_json::Map;

const TEMPLATE: &str = include_str!("../../../../docs/examples/sabakan/template.yml");
const CONSTRAINTS: &str = include_str!("../../../../docs/examples/sabakan/constraints.json");

const DEFINITION: &str = "\
name: test
nodes:
- {address: 10.0.0.1, hostname: cp1, user: root, control_plane: true, labels: {rack: \"1\"}, annotations: {a: b}}
- {address: 10.0.0.2, user: root, taints: [{key: k, value: v, effect: NoExecute}]}
service_subnet: 10.64.0.0/16
dns_servers: [8.8.8.8]
control_plane_tolerations: [k]
reboot:
  reboot_command: [sh, -c, 'ipmitool power cycle']
  boot_check_command: [check]
  max_concurrent_reboots: 2
  eviction_timeout_seconds: 300
  protected_namespaces: {matchLabels: {app: x}}
  protected_job_pods: {matchExpressions: [{key: a, operator: In, values: [b]}]}
repair:
  max_concurrent_repairs: 1
  repair_procedures:
  - machine_types: [QEMU]
    repair_operations:
    - operation: unreachable
      health_check_command: [health]
      success_command: [done]
      repair_steps: [{repair_command: [fix], watch_seconds: 60, need_drain: true, command_retries: 1}]
options: {kube-api: {extra_args: [a]}, kubelet: {cri_endpoint: /run/c.sock, config: {a: 1}}}
x-later: {a: [1]}
";

fn now() -> jiff::Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

/// Returns an answer of sabakan with four machines.
fn answer() -> String {
    let machine = |n: u8| {
        serde_json::json!({"spec": {"serial": format!("SN{n}"), "rack": n % 3, "indexInRack": n, "role": "compute",
            "ipv4": [format!("10.0.0.{n}")], "registerDate": "2025-01-01T00:00:00Z", "retireDate": "2029-01-01T00:00:00Z",
            "bmc": {"bmcType": "IPMI-2.0", "ipv4": "10.1.0.1"}, "labels": [{"name": "machine-type", "value": "r640"}]},
            "status": {"state": "HEALTHY", "timestamp": "2026-05-20T00:00:00Z", "duration": 10000.0}})
    };
    let all: Vec<_> = (1..5).map(machine).collect();
    serde_json::json!({"data": {"searchMachines": all}}).to_string()
}

/// Plans with both strategies. Whatever the machines contain, the result is a plan or an error.
fn check_plans(machines: &[Machine], template: &Template, constraints: &Constraints, current: Option<&Cluster>) {
    for strategy in [Strategy::Weighted, Strategy::AllHealthy] {
        let made = plan(&Input {
            machines,
            template,
            constraints,
            current,
            kubernetes_nodes: None,
            rebooting: &BTreeSet::new(),
            template_changed: true,
            wait_seconds: 300,
            strategy,
            now: now(),
        });
        if let Ok(plan) = made {
            let addresses: Vec<&str> = plan.cluster.iter().flat_map(|c| &c.nodes).map(|n| n.address.as_str()).collect();
            assert!(
                addresses.iter().all(|a| machines.iter().any(|m| m.address == *a) || current.is_some()),
                "only machines that exist"
            );
        }
    }
}

#[test]
fn fuzz_sabakan_answers() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let template = Template::read(TEMPLATE).unwrap();
    let constraints: Constraints =
        Constraints { control_plane_count: 1, minimum_workers: Some(2), ..serde_json::from_str(CONSTRAINTS).unwrap() };
    let refused = r#"{"errors":[{"message":"unknown field","path":["variable",0,"foo"]}],"data":null}"#;
    Fuzz::new("sabakan-answer", 400).seeds([answer(), answer(), refused.to_owned()]).run(|bytes| -> Tried {
        // The status is derived from the input, too.
        let status = if bytes.len().is_multiple_of(7) { 422 } else { 200 };
        let body = Bytes::copy_from_slice(bytes);
        let http = Http::by(move |_| {
            let mut response = Response::new(body.clone());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            std::future::ready(Ok(response)).boxed()
        });
        let asked = runtime.block_on(ask(&http, "http://user:pw@h:1/graphql", Question::Members, &Map::new()));
        match &asked {
            Err(why) => {
                let why = why.to_string();
                if !why.contains("sabakan at http://h:1/graphql") || why.contains("pw@") {
                    return Err(format!("the error lacks the URL of sabakan or shows its password: {why}"));
                }
            }
            Ok(machines) => check_plans(&machines.list, &template, &constraints, None),
        }
        Ok(Took::of(&asked))
    });
}

#[test]
fn fuzz_query_variables() {
    let seeds = [
        r#"{"having":{"labels":[{"name":"a","value":"b"}],"racks":[0,1],"roles":["cs"],"states":["HEALTHY"],"minDaysBeforeRetire":90},"notHaving":null}"#,
        r#"{"having":null}"#,
        "{}",
    ];
    Fuzz::new("sabakan-variables", 500).seeds(seeds).run(|bytes| {
        let read = variables::parse(&String::from_utf8_lossy(bytes));
        if let Ok(read) = &read {
            assert!(read.keys().all(|name| ["having", "notHaving"].contains(&name.as_str())));
        }
        Ok(Took::of(&read))
    });
}

#[test]
fn fuzz_cluster_definitions() {
    Fuzz::new("definition", 400).seeds([DEFINITION, DEFINITION, TEMPLATE]).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let value = match parse(&text) {
            Ok(value) => value,
            Err(why) if why.is_empty() => return Err("refused without a message".to_owned()),
            Err(_) => return Ok(Took::Refused),
        };
        let checked = check(&value, Some(&Constraints { control_plane_count: 1, ..Constraints::default() }));
        let read = serde_json::from_value::<Cluster>(value.clone());
        if read.is_err() && checked.faults.is_empty() {
            return Err("an unreadable definition has no fault".to_owned());
        }
        if checked.faults.iter().any(|fault| fault.to_string().is_empty()) {
            return Err("a fault without a text".to_owned());
        }
        if let Ok(cluster) = &read {
            drop(queue_faults(cluster));
            // Unknown fields survive. Otherwise a write by cketerm would lose fields of a newer CKE.
            let written = serde_json::to_value(cluster).unwrap();
            for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
                if written.get(name) != Some(value) {
                    return Err(format!("the unknown field {name} is lost"));
                }
            }
        }
        Ok(if checked.faults.is_empty() { Took::Accepted } else { Took::Refused })
    });
}

#[test]
fn fuzz_cluster_templates() {
    let machines: Vec<Machine> = machine::read(&answer()).unwrap().list;
    let constraints =
        Constraints { control_plane_count: 1, minimum_workers: Some(2), ..serde_json::from_str(CONSTRAINTS).unwrap() };
    let small = "name: t\nnodes:\n- {user: u, control_plane: true, labels: {cke.cybozu.com/role: compute}}\n\
                 - user: u\n  labels: {cke.cybozu.com/weight: \"0.5\", rack: \"{{ .Rack }}\"}\n\
                 \x20 annotations: {a: '{{ if eq .Role \"cs\" }}x{{ else }}{{ .Serial | printf \"%05s\" }}{{ end }}'}\n";
    Fuzz::new("template", 400).seeds([small, small, TEMPLATE]).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let read = Template::read(&text);
        if let Ok(value) = parse(&text) {
            drop(check_template(&value));
        }
        match &read {
            Ok(template) => check_plans(&machines, template, &constraints, None),
            Err(why) if why.to_string().is_empty() => return Err("refused without a message".to_owned()),
            Err(_) => {}
        }
        Ok(Took::of(&read))
    });
}

#[test]
fn fuzz_template_expressions() {
    let mut machines: Vec<Machine> = machine::read(&answer()).unwrap().list;
    machines[0].rack = i64::MIN;
    machines[0].serial = "\u{0}{{ }}\u{202e}".to_owned();
    machines[1].state = State::ALL[3];
    let seeds = [
        "{{ .Rack }}-{{ .IndexInRack | printf \"%03d\" }}",
        "{{ if eq .Role \"cs\" }}a{{ else if ne .Rack 3 }}b{{ else }}c{{ end }}",
        "{{- /* a word */ -}} {{ .RegisterDate.Format \"2006-01-02\" }}",
        "{{ index .Labels \"machine-type\" }}{{ `raw` }}{{ \"q\\n\\u00e9\" }}",
        "{{ printf \"%-10s|%05d|%q|%x|%v\" .Serial .Rack .Role 255 .BMC.Type }}",
        "{{ index .IPv4 0 }}{{ and true (or false (not true)) }}",
    ];
    Fuzz::new("go-text", 1500).seeds(seeds).run(|bytes| {
        let read = GoText::parse(&String::from_utf8_lossy(bytes));
        if let Ok(text) = &read {
            for machine in &machines {
                let _ = text.render(machine);
            }
        }
        if let Err(fault) = &read {
            one_line(&fault.to_string()).ok();
        }
        Ok(Took::of(&read))
    });
}
