//! Nodes and pods: writes of objects, and an engine's requests to the API server.

use serde_json::{Value, json};

use super::{ApiRequest, LEASE, ObjectChange, Scene, address};

impl Scene {
    /// Writes an object, or deletes it.
    pub fn object(&mut self, resource: &str, namespace: &str, name: &str, after: Option<Value>) {
        self.version += 1;
        let place = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        let before = self.objects.remove(&place);
        let after = after.map(|mut object| {
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            object
        });
        if let Some(object) = &after {
            self.objects.insert(place, object.clone());
        }
        self.record.objects.push(ObjectChange {
            at: self.now,
            revision: self.version,
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            before,
            after,
        });
    }

    /// Changes a Node without a request.
    pub fn node(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = self.objects[&("nodes".to_owned(), String::new(), name.to_owned())].clone();
        change(&mut node);
        self.object("nodes", "", name, Some(node));
    }

    pub fn not_ready(&mut self, name: &str) {
        self.node(name, |n| n["status"]["conditions"][0]["status"] = json!("False"));
    }

    /// Patches a Node in its present state.
    pub fn patch(&mut self, by: &str, name: &str, mut body: Value) {
        let node = self.objects[&("nodes".to_owned(), String::new(), name.to_owned())].clone();
        if by.starts_with("engine") && body["metadata"]["resourceVersion"].is_null() {
            body["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"].clone();
        }
        if by.starts_with("engine") {
            self.records_action(by, "stamp", &format!("node {name}"), "");
        }
        let path = format!("/api/v1/nodes/{name}");
        self.ask(by, "PATCH", &path, body.clone(), 200);
        self.node(name, |n| merge(n, &body));
    }

    /// Patches the status of a Node in its present state.
    pub fn patch_status(&mut self, by: &str, name: &str, mut body: Value) {
        let node = &self.objects[&("nodes".to_owned(), String::new(), name.to_owned())];
        body["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"].clone();
        self.records_action(by, "conditions", &format!("node {name}"), "");
        self.ask(by, "PATCH", &format!("/api/v1/nodes/{name}/status"), body.clone(), 200);
        self.node(name, |n| merge(n, &body));
    }

    /// Records in the audit what an engine is about to do in Kubernetes.
    pub fn records_action(&mut self, by: &str, what: &str, on: &str, reason: &str) {
        let lease = self.leases.get(by).copied().unwrap_or(LEASE);
        // A former leader can write no audit record.
        if !self.keys.contains_key(&format!("leader//{lease:x}")) {
            return;
        }
        let place = format!("cketerm/audit/{:020}-{lease:x}-{}", self.now.as_nanosecond(), self.revision);
        let audit = json!({"at": self.now.to_string(), "who": {"user": "engine", "host": "h"}, "what": what, "on": on,
            "reason": reason, "result": "begun"});
        self.txn(by, vec![(format!("leader//{lease:x}"), "create")], &[(&place, audit)], &[]);
    }

    pub fn ask(&mut self, by: &str, method: &str, path: &str, body: Value, code: u16) {
        let (by, method, path) = (by.to_owned(), method.to_owned(), path.to_owned());
        // message of kube-apiserver for an eviction with this code
        let message = match code {
            429 => "Cannot evict pod as it would violate the pod's disruption budget.",
            500 => "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            _ => "",
        };
        let message = message.to_owned();
        self.record.api_requests.push(ApiRequest {
            at: self.now,
            by,
            method,
            path,
            query: String::new(),
            body,
            code,
            message,
        });
    }

    /// Sets the message of the last answer.
    pub fn set_message(&mut self, message: &str) {
        self.record.api_requests.last_mut().unwrap().message = message.to_owned();
    }

    pub fn owner(&self, index: u64, name: &str, schedulable_before: bool) -> Value {
        let node = &self.objects[&("nodes".to_owned(), String::new(), name.to_owned())];
        json!({"lease": LEASE, "entry": format!("reboots/{index}"), "schedulable_before": schedulable_before,
            "uid": node["metadata"]["uid"], "boot_id": node["status"]["nodeInfo"]["bootID"]})
    }

    /// Cordons a Node for an entry, by the engine.
    pub fn cordon(&mut self, index: u64, name: &str) {
        let owner = self.owner(index, name, true).to_string();
        let annotations = json!({"cketerm.io/owner": owner, "cke.cybozu.com/reboot": "true"});
        self.patch(
            "engine-0",
            name,
            json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": true}}),
        );
    }

    /// Uncordons a Node, by the engine.
    pub fn uncordon(&mut self, name: &str) {
        let annotations = json!({"cketerm.io/owner": null, "cke.cybozu.com/reboot": null});
        self.patch(
            "engine-0",
            name,
            json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": null}}),
        );
    }

    /// Creates a pod on a Node; `kind` is its controller's.
    pub fn pod(&mut self, namespace: &str, name: &str, node: &str, kind: &str, labels: Value) {
        let pod = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "labels": labels,
                "ownerReferences": [{"kind": kind, "name": "o", "uid": format!("uid-{kind}"), "controller": true}]},
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.object("pods", namespace, name, Some(pod));
    }

    pub fn pod_changes(&mut self, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut pod = self.objects[&("pods".to_owned(), namespace.to_owned(), name.to_owned())].clone();
        change(&mut pod);
        self.object("pods", namespace, name, Some(pod));
    }

    pub fn evict(&mut self, namespace: &str, name: &str, dry_run: bool, code: u16) {
        let mut options = json!({"preconditions": {"uid": format!("uid-{name}")}});
        if dry_run {
            options["dryRun"] = json!(["All"]);
        }
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        if !dry_run {
            self.records_action("engine-0", "evict", "node n", &format!("{namespace}/{name}"));
        }
        self.ask("engine-0", "POST", &path, json!({"deleteOptions": options}), code);
        if dry_run {
            self.record.api_requests.last_mut().unwrap().query = "dryRun=All".to_owned();
        }
    }

    pub fn deletes(&mut self, namespace: &str, name: &str) {
        self.records_action("engine-0", "evict", "node n", &format!("{namespace}/{name} (deleted)"));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        self.ask("engine-0", "DELETE", &path, json!({"preconditions": {"uid": format!("uid-{name}")}}), 200);
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in fields {
        if name == "resourceVersion" {
            continue;
        }
        if value.is_null() {
            into.as_object_mut().unwrap().shift_remove(name);
        } else {
            merge(&mut into[name], value);
        }
    }
}
