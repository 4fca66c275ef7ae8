//! A Node that is fenced by a taint: the real kube-controller-manager frees its pods and volumes, and the leader removes
//! the taint after the next boot.

use serde_json::{Value, json};

use super::controller::Site;
use crate::world::{Options, World, program::cketerm, wait_for};

const NODE: &str = "/api/v1/nodes/h1";
const POD: &str = "/api/v1/namespaces/default/pods/db";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const TAINT: &str = "node.kubernetes.io/out-of-service";

/// Creates the Node with a pod that uses a volume of a CSI driver, and waits until the volume is attached. The test acts
/// as the driver's attacher and as the kubelet.
fn add_node_with_volume(world: &World) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "h1", "annotations": {
        "volumes.kubernetes.io/controller-managed-attach-detach": "true"}}});
    world.ok("POST", "/api/v1/nodes", Some(&node));
    boots(world, "boot-1");
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.test"},
        "spec": {"attachRequired": true}});
    world.ok("POST", "/apis/storage.k8s.io/v1/csidrivers", Some(&driver));
    let on_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "h1"},
        "spec": {"drivers": [{"name": "csi.test", "nodeID": "h1", "topologyKeys": []}]}});
    world.ok("POST", "/apis/storage.k8s.io/v1/csinodes", Some(&on_node));
    let size = json!({"storage": "1Gi"});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
        "capacity": size, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "csi.test", "volumeHandle": "v"},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c"}}});
    world.ok("POST", "/api/v1/persistentvolumes", Some(&volume));
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "annotations": {
        "pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v",
        "storageClassName": "", "resources": {"requests": size}}});
    world.ok("POST", "/api/v1/namespaces/default/persistentvolumeclaims", Some(&claim));
    let bound = json!({"status": {"phase": "Bound"}});
    let uid = world.ok("GET", "/api/v1/namespaces/default/persistentvolumeclaims/c", None)["metadata"]["uid"].clone();
    world.ok("PATCH", "/api/v1/persistentvolumes/v", Some(&json!({"spec": {"claimRef": {"uid": uid}}})));
    world.ok("PATCH", "/api/v1/persistentvolumes/v/status", Some(&bound));
    world.ok("PATCH", "/api/v1/namespaces/default/persistentvolumeclaims/c/status", Some(&bound));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"}, "spec": {"nodeName": "h1",
        "containers": [{"name": "c", "image": "registry.invalid/pause:1"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}});
    world.ok("POST", "/api/v1/namespaces/default/pods", Some(&pod));
    let attachment = wait_for("the volume is to be attached", 60, || {
        let name = world.ok("GET", ATTACHMENTS, None)["items"][0]["metadata"]["name"].clone();
        name.as_str().map(str::to_owned)
    });
    let attached = json!({"status": {"attached": true}});
    world.ok("PATCH", &format!("{ATTACHMENTS}/{attachment}/status"), Some(&attached));
    let volume = wait_for("the volume is attached", 60, || {
        world.ok("GET", NODE, None)["status"]["volumesAttached"][0]["name"].as_str().map(str::to_owned)
    });
    // in use: kube-controller-manager would wait six minutes for the kubelet before it detaches
    world.ok("PATCH", &format!("{NODE}/status"), Some(&json!({"status": {"volumesInUse": [volume]}})));
    world.ok("PATCH", &format!("{POD}/status"), Some(&json!({"status": {"phase": "Running"}})));
}

/// The kubelet reports this boot.
fn boots(world: &World, boot: &str) {
    let status = json!({"status": {"nodeInfo": {"bootID": boot}}});
    world.ok("PATCH", &format!("{NODE}/status"), Some(&status));
}

fn taints(world: &World) -> Vec<String> {
    let node = world.ok("GET", NODE, None);
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    all.iter().filter_map(|taint| taint["key"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_node_out_of_service_frees_pods_and_volumes_and_returns_after_its_next_boot() {
    let Some(site) = Site::start_with(Options { kcm: true, ..Options::default() }, |_| {}) else { return };
    let world = &site.world;
    add_node_with_volume(world);
    world.ok("PATCH", NODE, Some(&json!({"spec": {"taints": [{"key": "x/other", "effect": "NoSchedule"}]}})));
    site.add("h1");
    let engine = site.engine("engine");
    site.power_is("h1", true);
    world.run(&["policy", "set", "fence", "taint"]);

    let output = cketerm(&world.config(), &["hosts", "fence", "h1", "h1"]);
    assert!(
        output.code == 0 && output.stderr.contains("was off, node h1 is out of service, the host is released"),
        "{output:?}"
    );
    let node = world.ok("GET", NODE, None);
    let record: Value =
        serde_json::from_str(node["metadata"]["annotations"]["cketerm.io/out-of-service"].as_str().unwrap()).unwrap();
    assert_eq!((&record["boot_id"], &record["host"]), (&json!("boot-1"), &json!("default/h1")), "{record}");
    assert_eq!(taints(world), ["x/other", TAINT]);
    // no kubelet answers: only the taint lets Kubernetes go on
    wait_for("the pod is gone", 60, || (world.call("GET", POD, None).0 == 404).then_some(()));
    wait_for("the volume is detached", 60, || {
        world.ok("GET", ATTACHMENTS, None)["items"].as_array().is_some_and(Vec::is_empty).then_some(())
    });

    // the kubelet reports the same boot, for example a late status: the Node stays out of service, also for a new leader
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    world.ok("PATCH", &format!("{NODE}/status"), Some(&ready));
    drop(engine);
    let engine = site.engine("second");
    wait_for("the second engine leads", 60, || engine.logged().contains("became the leader").then_some(()));
    assert_eq!(taints(world), ["x/other", TAINT]);

    boots(world, "boot-2");
    wait_for("the Node is back in service", 60, || (taints(world) == ["x/other"]).then_some(()));
    let node = world.ok("GET", NODE, None);
    assert!(node["metadata"]["annotations"]["cketerm.io/out-of-service"].is_null(), "{node}");
    let audit = cketerm(&world.config(), &["audit", "-o", "json"]).stdout;
    assert!(audit.contains("return to service"), "{audit}");
    wait_for("the Node has an Event of its return", 20, || {
        let events = world.ok("GET", "/apis/events.k8s.io/v1/namespaces/default/events", None);
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let is_return = |event: &&Value| event["reason"] == "ReturnedToService" && event["regarding"]["name"] == "h1";
        events.iter().find(is_return).map(|event| assert_eq!(event["type"], "Normal", "{event}"))
    });

    // the taint of somebody else stays
    let foreign = json!({"spec": {"taints": [{"key": TAINT, "value": "nodeshutdown", "effect": "NoExecute"}]}});
    world.ok("PATCH", NODE, Some(&foreign));
    boots(world, "boot-3");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(taints(world), [TAINT]);
}
