//! Parsing of objects, usual and odd ones.

use cketerm_model::placement::{
    Amount, NodeTest, PodPhase, Preemption, Priority, Protocol, ResourceName, SpreadPolicy, TaintEffect,
};
use serde_json::{Value, json};

use super::*;

fn pod(spec: &Value) -> PlacementPod {
    let object = json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "labels": {"app": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true}],
            "managedFields": [{"manager": "m"}]},
        "spec": spec, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}});
    convert::pod(serde_json::from_value(object).unwrap())
}

fn cpu(pod: &PlacementPod) -> Amount {
    pod.spec.requests.get(&ResourceName::new("cpu"))
}

#[test]
fn a_pod_with_everything() {
    let pod = pod(&json!({
        "nodeName": "a1", "schedulerName": "default-scheduler", "priority": 7, "preemptionPolicy": "Never",
        "schedulingGates": [{"name": "g"}], "resourceClaims": [{"name": "gpu"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "d", "operator": "Exists"}, {"key": "e", "value": "x", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["3"]}],
                     "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a1"]}]}]}},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}, "namespaceSelector": {}}]},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}},
                 "matchLabelKeys": ["pod-template-hash"]}]}},
        "topologySpreadConstraints": [
            {"topologyKey": "zone", "maxSkew": 2, "minDomains": 3, "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {}, "nodeTaintsPolicy": "Honor", "matchLabelKeys": ["v"]},
            {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
        "containers": [
            {"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "nonsense"}},
             "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]},
            {"resources": {"requests": {"cpu": 1}}}],
        "initContainers": [{"resources": {"requests": {"cpu": "100m"}}, "restartPolicy": "Always"},
            {"resources": {"requests": {"cpu": "5"}}}],
        "overhead": {"cpu": "10m"},
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}},
            {"name": "c", "configMap": {"name": "x"}}],
    }));
    assert_eq!(pod.unreadable, None);
    assert_eq!((pod.node.as_deref(), pod.phase, pod.gated), (Some("a1"), PodPhase::Pending, true));
    assert_eq!(cpu(&pod), Amount(5_110));
    let spec = &pod.spec;
    assert_eq!((spec.priority, spec.preemption, spec.dynamic_resources), (Priority(7), Preemption::Never, true));
    assert_eq!(spec.node_rules.selector.len(), 1);
    let term = &spec.node_rules.affinity.as_ref().unwrap().terms[0];
    assert_eq!((&term.labels[0].test, &term.names[0].test), (&NodeTest::Gt(3), &NodeTest::In(vec!["a1".to_owned()])));
    let tolerations = &spec.node_rules.tolerations;
    assert_eq!((&tolerations[0].value, &tolerations[1].value), (&None, &Some("x".to_owned())));
    assert_eq!((&tolerations[2].key, tolerations[2].effect), (&None, Some(TaintEffect::NoExecute)));
    assert!(spec.affinity[0].namespaces.is_empty());
    assert_eq!(spec.anti_affinity[0].namespaces, ["shop"]);
    let [spread] = spec.spread.as_slice() else { panic!("{:?}", spec.spread) };
    assert_eq!((spread.max_skew, spread.min_domains, spread.node_taints), (2, 3, SpreadPolicy::Honor));
    assert_eq!((spec.host_ports.len(), spec.host_ports[0].protocol), (1, Protocol::Tcp));
    let claims: Vec<(&str, bool)> = pod.claims.iter().map(|c| (c.name.as_str(), c.ephemeral)).collect();
    assert_eq!(claims, [("data", false), ("web-1-e", true)]);
    assert_eq!(&*pod.unscheduled.unwrap().message, "0/3 nodes");
    assert_eq!(pod.controller.unwrap().kind, "ReplicaSet");
}

#[test]
fn odd_fields_are_named() {
    let requests = |requests: Value| json!({"containers": [{"resources": {"requests": requests}}]});
    for (spec, field) in [
        (requests(json!({"cpu": "NaN"})), "containers.resources.requests.cpu: \"NaN\" is not a quantity"),
        (requests(json!({"memory": "-1Gi"})), "containers.resources.requests.memory: -1Gi is negative"),
        (requests(json!([1, 2])), "spec"),
        (requests(json!({"cpu": {"x": 1}})), "spec"),
        (json!({"tolerations": "all"}), "spec"),
        (json!([]), "containers"),
        (json!(7), "spec"),
        (json!({"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]}), "toleration operator \"Gt\""),
        (
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Lt", "values": ["x"]}]}]}}}}),
            "node affinity a: \"x\" is no integer",
        ),
    ] {
        assert_eq!(pod(&spec).unreadable.as_deref(), Some(field), "{spec}");
    }
    for huge in ["1e999999", "99999999999999999999999Ei"] {
        assert_eq!(cpu(&pod(&requests(json!({"cpu": huge})))), Amount(i64::MAX));
    }
}

#[test]
fn pods_of_a_daemonset_share_their_specification() {
    let on = |node: &str| {
        let object = json!({"metadata": {"name": node, "namespace": "kube-system",
                "ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]},
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}}},
            "status": {"phase": "Running"}});
        serde_json::from_value::<wire::Pod>(object).unwrap()
    };
    let mut pods = Pods::default();
    pods.add(on("a"));
    pods.add(on("b"));
    assert!(Arc::ptr_eq(&pods.rows[0].spec, &pods.rows[1].spec));
    assert!(Arc::ptr_eq(&pods.rows[0].labels, &pods.rows[1].labels));
    assert_eq!(cpu(&pods.rows[0]), Amount(1_000));
}

#[test]
fn nodes_claims_and_volumes() {
    let node = |spec: Value, status: Value| {
        let object = json!({"metadata": {"name": "a1", "labels": {"zone": "a"}}, "spec": spec, "status": status});
        convert::node(serde_json::from_value(object).unwrap())
    };
    let usual = node(
        json!({"unschedulable": true, "taints": [{"key": "d", "effect": "NoSchedule"}, {"key": "x", "effect": "New"}]}),
        json!({"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "3920m", "pods": "110"}}),
    );
    assert_eq!((usual.unreadable, usual.unschedulable, usual.ready, usual.taints.len()), (None, true, true, 1));
    assert_eq!(usual.allocatable.get(&ResourceName::new("cpu")), Amount(3_920));
    let odd = node(json!({}), json!({"allocatable": {"cpu": "many"}}));
    assert_eq!(odd.unreadable.as_deref(), Some("status.allocatable.cpu: \"many\" is not a quantity"));
    assert_eq!(node(json!({"taints": 3}), json!({})).unreadable.as_deref(), Some("spec"));

    let claim = |phase: &str| {
        let object = json!({"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv"},
            "status": {"phase": phase}});
        convert::claim(serde_json::from_value(object).unwrap()).1.volume
    };
    assert_eq!((claim("Bound").as_deref(), claim("Pending")), (Some("pv"), None));

    let volume = |spec: Value| {
        let object = json!({"metadata": {"name": "pv"}, "spec": spec});
        convert::volume(serde_json::from_value(object).unwrap()).1
    };
    let affinity = |key: &str, values: Value| {
        json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}})
    };
    let host = "kubernetes.io/hostname";
    for (spec, local) in [
        (json!({"local": {"path": "/x"}, "nodeAffinity": affinity("zone", json!(["a"]))}), true),
        (json!({"hostPath": {"path": "/x"}}), true),
        (json!({"csi": {}, "nodeAffinity": affinity(host, json!(["a1"]))}), true),
        (json!({"csi": {}, "nodeAffinity": affinity(host, json!(["a1", "a2"]))}), false),
        (json!({"csi": {}}), false),
    ] {
        let row = volume(spec.clone());
        assert_eq!((row.local, row.unreadable), (local, None), "{spec}");
    }
    assert_eq!(volume(json!({"nodeAffinity": 3})).unreadable.as_deref(), Some("spec"));
}
