//! Rules beyond the shape: addresses, names, positive numbers, selectors, procedures, number of control planes (CLU-34
//! to CLU-36).

use std::{collections::HashMap, net::IpAddr};

use serde_json::Value;

use super::{Checked, Cluster, Node, Operation, Repair, Step, written::has_options};
use crate::{constraints::Constraints, names::NodeName, selector::Selector};

pub(super) fn check(
    cluster: &Cluster,
    raw: &Value,
    template: bool,
    constraints: Option<&Constraints>,
    found: &mut Checked,
) {
    if cluster.name.is_empty() {
        found.fault("name", "must not be empty");
    }
    nodes(&cluster.nodes, template, found);
    let control_planes = cluster.nodes.iter().filter(|n| n.control_plane).count();
    if let Some(required) = constraints.map(|c| c.control_plane_count)
        && i64::try_from(control_planes) != Ok(required)
    {
        found.fault(
            "nodes",
            format!(
                "have {control_planes} control planes, the constraint control-plane-count is {required}: \
                 mark others with control_plane, or run `constraints set control-plane-count {control_planes}` first"
            ),
        );
    }
    network(cluster, found);
    for (i, key) in cluster.control_plane_tolerations.iter().flatten().enumerate() {
        qualified(key, &format!("control_plane_tolerations[{i}]"), found);
    }
    queues(cluster, raw, found);
    let endpoint = raw.pointer("/options/kubelet/cri_endpoint").and_then(Value::as_str).unwrap_or_default();
    if has_options(raw) && endpoint.is_empty() {
        found.fault("options.kubelet.cri_endpoint", "must not be empty where there are options");
    }
}

/// Checks the `reboot` and `repair` sections. The selectors are checked in `raw`, if it has them.
pub(super) fn queues(cluster: &Cluster, raw: &Value, found: &mut Checked) {
    reboot(cluster, raw, found);
    repair(&cluster.repair, raw, found);
}

fn nodes(nodes: &[Node], template: bool, found: &mut Checked) {
    if nodes.is_empty() {
        found.warn("nodes", "are empty: nothing can be queued");
    }
    let mut addresses: HashMap<IpAddr, usize> = HashMap::new();
    let mut names: HashMap<NodeName, usize> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        let at = format!("nodes[{i}]");
        if template {
            for (name, given) in [("address", node.address.as_str()), ("hostname", node.hostname.as_str())] {
                if !given.is_empty() {
                    let what = format!("must not be set in a template, is {given}: machines bring their own");
                    found.fault(format!("{at}.{name}"), what);
                }
            }
        } else if let Ok(address) = node.address.parse::<IpAddr>() {
            if let Some(first) = addresses.insert(address, i) {
                found.fault(format!("{at}.address"), format!("{} is also nodes[{first}]'s address", node.address));
            } else if let Some(first) = names.insert(node.node_name(), i) {
                found.fault(format!("{at}.hostname"), format!("{} is also nodes[{first}]'s name", node.node_name()));
            }
        } else {
            found.fault(format!("{at}.address"), format!("is an invalid IP address: {}", node.address));
        }
        if node.user.is_empty() {
            found.fault(format!("{at}.user"), "must not be empty");
        }
        for (key, value) in node.labels.iter().flatten() {
            qualified(key, &format!("{at}.labels"), found);
            // Values with Go's template syntax are checked after they are rendered.
            if !(template && value.contains("{{")) {
                label_value(value, &format!("{at}.labels[{key}]"), found);
            }
        }
        for key in node.annotations.iter().flat_map(|a| a.keys()) {
            qualified(key, &format!("{at}.annotations"), found);
        }
        for (j, taint) in node.taints.iter().flatten().enumerate() {
            let at = format!("{at}.taints[{j}]");
            qualified(&taint.key, &format!("{at}.key"), found);
            label_value(&taint.value, &format!("{at}.value"), found);
            if !matches!(taint.effect.as_str(), "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
                let what = format!("{:?} is not NoSchedule, PreferNoSchedule or NoExecute", taint.effect);
                found.fault(format!("{at}.effect"), what);
            }
        }
    }
}

fn network(cluster: &Cluster, found: &mut Checked) {
    let subnet = &cluster.service_subnet;
    let cidr = |text: &str| {
        let (address, bits) = text.split_once('/')?;
        let max_bits = if address.parse::<IpAddr>().ok()?.is_ipv4() { 32 } else { 128 };
        bits.parse::<u8>().ok().filter(|bits| *bits <= max_bits)
    };
    if !subnet.is_empty() && cidr(subnet).is_none() {
        found.fault("service_subnet", format!("{subnet:?} is not a CIDR such as 10.68.0.0/16"));
    }
    for (i, server) in cluster.dns_servers.iter().flatten().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            found.fault(format!("dns_servers[{i}]"), format!("is an invalid IP address: {server}"));
        }
    }
    let service = &cluster.dns_service;
    let is_qualified =
        service.split_once('/').is_some_and(|(ns, name)| !ns.is_empty() && !name.is_empty() && !name.contains('/'));
    if !service.is_empty() && !is_qualified {
        found.fault("dns_service", format!("{service:?} is not NAMESPACE/NAME"));
    }
}

fn reboot(cluster: &Cluster, raw: &Value, found: &mut Checked) {
    let r = &cluster.reboot;
    command(r.reboot_command.as_deref(), "reboot.reboot_command", found);
    command(r.boot_check_command.as_deref(), "reboot.boot_check_command", found);
    for (name, given) in [("reboot_command", &r.reboot_command), ("boot_check_command", &r.boot_check_command)] {
        if given.as_ref().is_none_or(Vec::is_empty) {
            found.warn(format!("reboot.{name}"), "is not set: entries of the reboot queue will wait");
        }
    }
    positive(r.max_concurrent_reboots, "reboot.max_concurrent_reboots", found);
    positive(r.eviction_timeout_seconds, "reboot.eviction_timeout_seconds", found);
    not_negative(r.command_timeout_seconds, "reboot.command_timeout_seconds", found);
    not_negative(r.command_retries, "reboot.command_retries", found);
    not_negative(r.command_interval, "reboot.command_interval", found);
    not_negative(r.evict_retries, "reboot.evict_retries", found);
    not_negative(r.evict_interval, "reboot.evict_interval", found);
    selectors(raw, "reboot", found);
}

fn repair(r: &Repair, raw: &Value, found: &mut Checked) {
    positive(r.max_concurrent_repairs, "repair.max_concurrent_repairs", found);
    positive(r.eviction_timeout_seconds, "repair.eviction_timeout_seconds", found);
    not_negative(r.evict_retries, "repair.evict_retries", found);
    not_negative(r.evict_interval, "repair.evict_interval", found);
    selectors(raw, "repair", found);
    let mut types: HashMap<&str, String> = HashMap::new();
    for (i, procedure) in r.repair_procedures.iter().flatten().enumerate() {
        let at = format!("repair.repair_procedures[{i}]");
        let machine_types = procedure.machine_types.as_deref().unwrap_or_default();
        if machine_types.is_empty() {
            found.fault(format!("{at}.machine_types"), "must not be empty");
        }
        for (j, machine_type) in machine_types.iter().enumerate() {
            let here = format!("{at}.machine_types[{j}]");
            if let Some(first) = types.get(machine_type.as_str()) {
                found.fault(here, format!("{machine_type} is already listed at {first}"));
            } else {
                types.insert(machine_type, here);
            }
        }
        let mut names: HashMap<&str, usize> = HashMap::new();
        let operations = procedure.repair_operations.as_deref().unwrap_or_default();
        if operations.is_empty() {
            found.fault(format!("{at}.repair_operations"), "must not be empty");
        }
        for (j, operation) in operations.iter().enumerate() {
            let at = format!("{at}.repair_operations[{j}]");
            if let Some(first) = names.insert(&operation.operation, j) {
                let what = format!("{} is also repair_operations[{first}]'s name", operation.operation);
                found.fault(format!("{at}.operation"), what);
            }
            check_operation(operation, &at, found);
        }
    }
}

fn check_operation(operation: &Operation, at: &str, found: &mut Checked) {
    if operation.operation.is_empty() {
        found.fault(format!("{at}.operation"), "must not be empty");
    }
    let health = operation.health_check_command.as_deref().unwrap_or_default();
    if health.is_empty() {
        found.fault(format!("{at}.health_check_command"), "must not be empty: nothing else ends a repair");
    }
    command(Some(health), &format!("{at}.health_check_command"), found);
    command(operation.success_command.as_deref(), &format!("{at}.success_command"), found);
    not_negative(operation.command_timeout_seconds, &format!("{at}.command_timeout_seconds"), found);
    not_negative(operation.success_command_timeout, &format!("{at}.success_command_timeout"), found);
    let steps = operation.repair_steps.as_deref().unwrap_or_default();
    if steps.is_empty() {
        found.fault(format!("{at}.repair_steps"), "must not be empty");
    }
    for (k, step) in steps.iter().enumerate() {
        check_step(step, &format!("{at}.repair_steps[{k}]"), found);
    }
}

fn check_step(step: &Step, at: &str, found: &mut Checked) {
    let argv = step.repair_command.as_deref().unwrap_or_default();
    if argv.is_empty() {
        found.fault(format!("{at}.repair_command"), "must not be empty");
    }
    command(Some(argv), &format!("{at}.repair_command"), found);
    not_negative(step.command_timeout_seconds, &format!("{at}.command_timeout_seconds"), found);
    not_negative(step.command_retries, &format!("{at}.command_retries"), found);
    not_negative(step.command_interval, &format!("{at}.command_interval"), found);
    not_negative(step.watch_seconds, &format!("{at}.watch_seconds"), found);
}

/// Checks that a given command line names a program.
fn command(argv: Option<&[String]>, at: &str, found: &mut Checked) {
    if argv.and_then(<[String]>::first).is_some_and(String::is_empty) {
        found.fault(format!("{at}[0]"), "must name a program");
    }
    for (i, word) in argv.unwrap_or_default().iter().enumerate() {
        if word.contains('\0') {
            found.fault(format!("{at}[{i}]"), "must not contain a NUL byte");
        }
    }
}

fn positive(number: Option<i64>, at: &str, found: &mut Checked) {
    if let Some(n) = number.filter(|n| *n <= 0) {
        found.fault(at, format!("must be positive, is {n}"));
    }
}

fn not_negative(number: Option<i64>, at: &str, found: &mut Checked) {
    if let Some(n) = number.filter(|n| *n < 0) {
        found.fault(at, format!("must not be negative, is {n}"));
    }
}

/// Checks the selectors in the raw text, because reading a stored definition turns an invalid selector into "all".
fn selectors(raw: &Value, section: &str, found: &mut Checked) {
    for name in ["protected_namespaces", "protected_job_pods"] {
        let at = format!("{section}.{name}");
        let Some(given) = raw.get(section).and_then(|s| s.get(name)).filter(|v| !v.is_null()) else { continue };
        match serde_json::from_value::<Selector>(given.clone()) {
            Ok(selector) => {
                if let Some(fault) = selector.fault(&at) {
                    found.fault("", fault);
                }
                for (key, value) in selector.match_labels.iter().flatten() {
                    qualified(key, &format!("{at}.matchLabels"), found);
                    label_value(value, &format!("{at}.matchLabels[{key}]"), found);
                }
                for (i, r) in selector.match_expressions.iter().flatten().enumerate() {
                    if !r.key.is_empty() {
                        qualified(&r.key, &format!("{at}.matchExpressions[{i}].key"), found);
                    }
                    for value in r.values.iter().flatten() {
                        label_value(value, &format!("{at}.matchExpressions[{i}].values"), found);
                    }
                }
            }
            Err(e) => found.fault(at, format!("is not a label selector: {e}")),
        }
    }
}

/// Checks a key of a label, annotation or taint: `[DNS-SUBDOMAIN/]NAME`, as Kubernetes requires.
fn qualified(key: &str, at: &str, found: &mut Checked) {
    if !is_label_key(key) {
        found.fault(at, format!("{key:?} is not a valid key: [DNS name/]letters, digits, '-', '_', '.'; at most 63"));
    }
}

/// Reports whether Kubernetes accepts this as the key of a label, an annotation or a taint.
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(p, n)| (Some(p), n));
    let prefix_good = prefix.is_none_or(|p| {
        p.len() <= 253
            && p.split('.').all(|part| {
                has_valid_edges(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), |c| c == '-')
                    && part.len() <= 63
            })
    });
    prefix_good && name_like(name)
}

/// Reports whether Kubernetes accepts this as the value of a label.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || name_like(value)
}

fn label_value(value: &str, at: &str, found: &mut Checked) {
    if !is_label_value(value) {
        found.fault(at, format!("{value:?} is not a valid value: letters, digits, '-', '_', '.'; at most 63"));
    }
}

fn name_like(text: &str) -> bool {
    text.len() <= 63 && has_valid_edges(text, |c| c.is_ascii_alphanumeric(), |c| matches!(c, '-' | '_' | '.'))
}

/// Reports whether the text begins and ends with `edge` characters, and has only these and `inner` ones.
fn has_valid_edges(text: &str, edge: impl Fn(char) -> bool, inner: impl Fn(char) -> bool) -> bool {
    text.starts_with(&edge) && text.ends_with(&edge) && text.chars().all(|c| edge(c) || inner(c))
}
