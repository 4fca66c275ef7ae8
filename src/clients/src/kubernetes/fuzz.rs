//! Fuzz targets: objects as the watches receive them, and answers of the API server, with any content that a pod, a
//! Node or a host may report.

use cketerm_fuzz::{Fuzz, Took, Tried};
use cketerm_model::{
    host::HostRow,
    kube::{BudgetRow, DaemonSetRow, KubeView, NamespaceRow, NodeRow, PodRow},
};
use kube::core::{Status, WatchEvent};
use serde_json::{Value, json};

use super::{
    hosts::Host,
    wire::{Budget, DaemonSet, Namespace, Node, Pod},
};

fn meta(name: &str) -> Value {
    json!({"name": name, "namespace": "shop", "uid": "u", "resourceVersion": "5", "labels": {"app": "web", "rack": "1"},
        "annotations": {"cketerm.io/owner": "{\"lease\":7,\"entry\":\"reboots/1\",\"schedulable_before\":true,\"uid\":\"u\",\"boot_id\":\"b\"}",
            "cke.cybozu.com/reboot": "true"},
        "deletionTimestamp": "2026-08-01T12:00:00Z", "deletionGracePeriodSeconds": 30,
        "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "x", "controller": true}],
        "managedFields": [{"manager": "m", "time": "2026-08-01T12:00:00Z", "fieldsV1": {"f:status": {"f:poweredOn": {}}}}]})
}

/// Parses an event of a watch with this object. The parser of plain objects gets the same bytes.
fn event<W: serde::de::DeserializeOwned, R: From<W>>(bytes: &[u8]) -> Option<R> {
    match serde_json::from_slice::<WatchEvent<W>>(bytes) {
        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) => {
            Some(object.into())
        }
        _ => serde_json::from_slice::<W>(bytes).ok().map(Into::into),
    }
}

fn seeds(object: &Value) -> Vec<String> {
    let event = |kind: &str| json!({"type": kind, "object": object}).to_string();
    vec![object.to_string(), event("ADDED"), event("DELETED")]
}

#[allow(clippy::unnecessary_wraps)] // same form as all targets
fn took<R>(row: Option<&R>) -> Tried {
    Ok(if row.is_some() { Took::Accepted } else { Took::Refused })
}

#[test]
fn nodes() {
    let node = json!({"metadata": meta("w1"), "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoExecute"}]},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "volumesInUse": ["v"],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-08-01T12:00:00Z"}],
            "nodeInfo": {"bootID": "b", "kubeletVersion": "v1.35.0"}}});
    Fuzz::new("kube-node", 400).seeds(seeds(&node)).run(|bytes| {
        let row = event::<Node, NodeRow>(bytes);
        if let Some(row) = &row {
            let mut view = KubeView::default();
            view.put_node(row.clone());
            serde_json::to_string(&view).map_err(|e| e.to_string())?;
        }
        took(row.as_ref())
    });
}

/// A kubelet writes its own Node's status. No time that it may write there stops the other objects from being read.
#[test]
fn an_out_of_range_time_does_not_end_a_watch() {
    for time in ["9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z"] {
        let condition = json!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]);
        let node = json!({"metadata": {"name": "w1", "deletionTimestamp": time}, "status": {"conditions": condition}});
        let row = event::<Node, NodeRow>(node.to_string().as_bytes());
        assert!(row.is_some_and(|row| row.ready), "{time}");
        let pod = json!({"metadata": {"name": "p", "deletionTimestamp": time, "deletionGracePeriodSeconds": i64::MAX},
            "status": {"phase": "Running", "conditions": condition}});
        let row = event::<Pod, PodRow>(pod.to_string().as_bytes());
        assert!(row.is_some_and(|row| row.terminating_since.is_some()), "{time}: the pod still counts as terminating");
        let host = json!({"metadata": {"name": "h", "managedFields": [{"manager": "m", "time": time}]},
            "status": {"provisioning": {"lastPoweredOn": time, "pendingRebootSince": time}}});
        assert!(event::<Host, HostRow>(host.to_string().as_bytes()).is_some(), "{time}");
    }
}

/// A write with an unreadable time counts as just now, so it never looks old enough to be ignored (MET-30).
#[test]
fn a_power_writer_with_an_unreadable_time_counts_as_recent() {
    for (time, kept) in
        [("some day", jiff::Timestamp::MAX), ("2026-08-01T12:00:00Z", jiff::Timestamp::constant(1_785_585_600, 0))]
    {
        let written = json!({"manager": "ironic", "time": time, "fieldsV1": {"f:status": {"f:poweredOn": {}}}});
        let host = json!({"metadata": {"name": "h", "managedFields": [written]}});
        let row = event::<Host, HostRow>(host.to_string().as_bytes());
        assert_eq!(row.map(|row| row.power_writers), Some(vec![("ironic".to_owned(), kept)]), "{time}");
    }
}

#[test]
fn pods() {
    let pod = json!({"metadata": meta("web-1"), "spec": {"nodeName": "w1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}]}});
    Fuzz::new("kube-pod", 400).seeds(seeds(&pod)).run(|bytes| took(event::<Pod, PodRow>(bytes).as_ref()));
}

#[test]
fn budgets_namespaces_and_daemon_sets() {
    let budget = json!({"metadata": meta("web"), "spec": {"selector": {"matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}});
    let labels = [("app".to_owned(), "web".to_owned())].into();
    Fuzz::new("kube-budget", 300).seeds(seeds(&budget)).run(|bytes| {
        let row = event::<Budget, BudgetRow>(bytes);
        if let Some(row) = &row {
            let _ = row.selector.as_ref().is_some_and(|s| s.matches(&labels));
        }
        took(row.as_ref())
    });
    let namespace = json!({"metadata": meta("shop"), "status": {"phase": "Active"}});
    Fuzz::new("kube-namespace", 150)
        .seeds(seeds(&namespace))
        .run(|bytes| took(event::<Namespace, NamespaceRow>(bytes).as_ref()));
    let daemons = json!({"metadata": meta("agent"), "spec": {"updateStrategy": {"type": "OnDelete"}}});
    Fuzz::new("kube-daemonset", 150)
        .seeds(seeds(&daemons))
        .run(|bytes| took(event::<DaemonSet, DaemonSetRow>(bytes).as_ref()));
}

#[test]
fn bare_metal_hosts() {
    let mut metadata = meta("h1");
    metadata["annotations"]["reboot.metal3.io"] = json!("{\"mode\":\"hard\"}");
    metadata["annotations"]["reboot.metal3.io/k"] = json!("");
    if let Value::Object(map) = &mut metadata {
        map.remove("deletionTimestamp");
    }
    let host = json!({"metadata": metadata, "spec": {"online": true, "externallyProvisioned": false,
        "bmc": {"address": "redfish://bmc/redfish/v1/Systems/1", "credentialsName": "s"}, "consumerRef": {"name": "w1"}},
        "status": {"poweredOn": true, "provisioning": {"state": "provisioned", "lastPoweredOn": "2026-08-01T11:00:00Z",
            "pendingRebootSince": "2026-08-01T11:30:00Z"}, "errorType": "", "errorMessage": "",
            "hardware": {"hostname": "w1", "nics": [{"ip": "10.0.0.1"}]}}});
    Fuzz::new("kube-host", 500).seeds(seeds(&host)).run(|bytes| {
        let row = event::<Host, HostRow>(bytes);
        if let Some(row) = &row {
            let _ = (row.hindrance(), row.times(), row.pending(), row.full_name());
            serde_json::to_string(row).map_err(|e| e.to_string())?;
        }
        took(row.as_ref())
    });
}

#[test]
fn refusals_of_evictions() {
    let refused = json!({"status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "Cannot evict pod",
        "details": {"retryAfterSeconds": 10, "name": "web", "kind": "poddisruptionbudgets", "causes": [{"reason": "DisruptionBudget",
            "message": "The disruption budget web needs 2 healthy pods and has 1 currently"}]}});
    let others = [
        refused.to_string(),
        refused.to_string().replace("429", "500").replace("Cannot evict pod", "more than one PodDisruptionBudget"),
        refused.to_string().replace("429", "409").replace("Cannot evict pod", "UID in precondition: a"),
    ];
    Fuzz::new("kube-eviction", 500).seeds(others).run(|bytes| {
        let read = serde_json::from_slice::<Status>(bytes);
        if let Ok(status) = &read {
            let _ =
                super::evict::classify_answer(status, &PodRow::default(), &[&BudgetRow::default()], ("delete", "pods"));
        }
        Ok(Took::of(&read))
    });
}
