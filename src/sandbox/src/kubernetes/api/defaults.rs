//! Fields that the server adds to an object: defaults of its spec, and the initial status.

use serde_json::{Map, Value, json};

use crate::kubernetes::Resource;

/// Sets the defaults of a spec.
pub(super) fn defaults(kind: &'static Resource, object: &mut Value) {
    let spec = match kind.plural {
        "pods" => json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler", "priority": priority(&object["spec"]["priorityClassName"]),
            "preemptionPolicy": "PreemptLowerPriority"}),
        "namespaces" => json!({"finalizers": ["kubernetes"]}),
        "deployments" => json!({"replicas": 1, "strategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}, "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600}),
        "replicasets" => json!({"replicas": 1}),
        "statefulsets" => json!({"replicas": 1, "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate"}, "revisionHistoryLimit": 10}),
        "daemonsets" => json!({"updateStrategy": {"type": "RollingUpdate"}, "revisionHistoryLimit": 10}),
        "jobs" => json!({"parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "suspend": false, "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed"}),
        "services" => json!({"type": "ClusterIP", "sessionAffinity": "None"}),
        "nodes" => json!({}),
        _ => Value::Null,
    };
    if let Value::Object(defaults) = spec
        && let Value::Object(fields) = object
        && let Value::Object(spec) = fields.entry("spec").or_insert_with(|| json!({}))
    {
        for (field, value) in defaults {
            spec.entry(field).or_insert(value);
        }
    }
    protocols(kind, object);
}

/// Returns the priority of a built-in priority class; 0 for any other class or none.
fn priority(class: &Value) -> i64 {
    match class.as_str() {
        Some("system-node-critical") => 2_000_001_000,
        Some("system-cluster-critical") => 2_000_000_000,
        _ => 0,
    }
}

/// Sets the default protocol of ports: TCP.
fn name_protocols(ports: &mut Value) {
    for port in ports.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        port.entry("protocol").or_insert_with(|| json!("TCP"));
    }
}

/// Sets the default protocol of all ports in an object of this kind.
fn protocols(kind: &'static Resource, object: &mut Value) {
    match kind.plural {
        "endpoints" => {
            for subset in object.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten() {
                subset.get_mut("ports").map(name_protocols);
            }
        }
        "endpointslices" => drop(object.get_mut("ports").map(name_protocols)),
        "services" => drop(object.pointer_mut("/spec/ports").map(name_protocols)),
        "pods" => {
            for container in object.pointer_mut("/spec/containers").and_then(Value::as_array_mut).into_iter().flatten()
            {
                container.get_mut("ports").map(name_protocols);
            }
        }
        _ => {}
    }
}

/// Sets the server's fields of a new object. Most of the status from the client is ignored.
pub(super) fn fill(kind: &'static Resource, name: &str, object: &mut Value) {
    let status = match kind.plural {
        "pods" => json!({"phase": "Pending", "qosClass": "BestEffort"}),
        "namespaces" => json!({"phase": "Active"}),
        "poddisruptionbudgets" => {
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})
        }
        "daemonsets" => json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0,
            "numberReady": 0}),
        "replicasets" => json!({"replicas": 0}),
        "statefulsets" => json!({"replicas": 0, "availableReplicas": 0}),
        "deployments" | "jobs" => json!({}),
        "services" => json!({"loadBalancer": {}}),
        "volumeattachments" => json!({"attached": false}),
        _ => Value::Null,
    };
    defaults(kind, object);
    let Value::Object(fields) = object else { return };
    match kind.plural {
        "nodes" => fill_node(fields),
        _ if !status.is_null() => {
            fields.insert("status".to_owned(), status);
        }
        // A status with its own path is not written through the main one.
        _ if kind.status => {
            fields.shift_remove("status");
        }
        _ => {}
    }
    if kind.plural == "namespaces" {
        let labels = fields["metadata"].as_object_mut().map(|m| m.entry("labels").or_insert_with(|| json!({})));
        if let Some(Value::Object(labels)) = labels {
            labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
        }
    }
}

fn fill_node(fields: &mut Map<String, Value>) {
    let Value::Object(status) = fields.entry("status").or_insert_with(|| json!({})) else { return };
    status.entry("daemonEndpoints").or_insert_with(|| json!({"kubeletEndpoint": {"Port": 0}}));
    let Value::Object(info) = status.entry("nodeInfo").or_insert_with(|| json!({})) else { return };
    for field in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ] {
        info.entry(field).or_insert_with(|| json!(""));
    }
}
