//! A conversation with an API server, recorded as it goes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::super::target::Target;

/// Path of pods; `@` is the case's namespace.
pub const PODS: &str = "/api/v1/namespaces/@/pods";
/// Path of nodes, which have no namespace; the names of a case's nodes begin with `@`.
pub const NODES: &str = "/api/v1/nodes";
/// Path of pod disruption budgets.
pub const BUDGETS: &str = "/apis/policy/v1/namespaces/@/poddisruptionbudgets";

/// Content type of a merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// Content type of a strategic merge patch.
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Content type of a JSON patch.
pub const JSON: &str = "application/json-patch+json";

/// Answer of the server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// `Retry-After`.
    pub retry_after: Option<String>,
    /// JSON, or text.
    pub body: Value,
}

/// One conversation in a namespace of its own.
pub struct Session {
    /// The world that is asked.
    pub target: Arc<Target>,
    /// Client for requests without a method below.
    pub client: kube::Client,
    /// The namespace.
    pub ns: String,
    /// Number of looks, ten a second, before the case gives up waiting.
    pub max_polls: u32,
    aliases: Vec<(String, String)>,
    log: Vec<Value>,
}

impl Session {
    /// Begins a conversation in a fresh namespace.
    pub async fn new(target: Arc<Target>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let ns = format!("case{:04}", NEXT.fetch_add(1, Ordering::Relaxed));
        let client = target.client().await;
        let session = Self { target, client, ns, max_polls: 200, aliases: Vec::new(), log: Vec::new() };
        let made =
            session.post("/api/v1/namespaces", json!({"metadata": {"name": "@", "labels": {"team": "a"}}})).await;
        assert_eq!(made.code, 201, "the namespace must be created: {}", made.body);
        session
    }

    /// Returns all answers.
    pub fn end(self) -> Value {
        Value::Array(self.log)
    }

    /// Sets the name under which answers show something.
    pub fn alias(&mut self, name: &str, alias: &str) {
        self.aliases.push((name.to_owned(), alias.to_owned()));
    }

    /// Keeps an answer.
    pub fn note(&mut self, what: &str, answer: &Value) {
        let answer = self.plain(answer);
        self.log.push(json!({ what: answer }));
    }

    /// Sends one request.
    pub async fn call(&self, method: &str, path: &str, body: &Value, kind: &str) -> Answer {
        self.accepting(method, path, body, kind, "application/json").await
    }

    /// Same as [`Self::call`], with an `Accept` header.
    pub async fn accepting(&self, method: &str, path: &str, body: &Value, kind: &str, accept: &str) -> Answer {
        let text = match body {
            Value::Null => String::new(),
            Value::String(raw) => raw.clone(),
            other => other.to_string(),
        };
        let request = http::Request::builder().method(method).uri(path.replace('@', &self.ns));
        let request = request.header("content-type", kind).header("accept", accept);
        let body = text.replace('@', &self.ns).into_bytes();
        let request = request.body(kube::client::Body::from(body)).expect("a request");
        let answer = self.client.send(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let retry_after = answer.headers().get("retry-after").and_then(|v| v.to_str().ok()).map(str::to_owned);
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        let text = || json!(String::from_utf8_lossy(&bytes));
        Answer { code, retry_after, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()) }
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &Value::Null, "application/json").await
    }

    /// POST.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, &body, "application/json").await
    }

    /// PUT.
    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.call("PUT", path, &body, "application/json").await
    }

    /// A merge patch.
    pub async fn merge(&self, path: &str, body: Value) -> Answer {
        self.call("PATCH", path, &body, MERGE).await
    }

    /// DELETE with options.
    pub async fn delete(&self, path: &str, options: Value) -> Answer {
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        for (key, value) in options.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        self.call("DELETE", path, &body, "application/json").await
    }

    /// Keeps the code; of a refusal also the whole body, of an object the named fields.
    pub fn note_answer(&mut self, what: &str, answer: &Answer, fields: &[&str]) {
        let mut kept = json!({"code": answer.code});
        if let Some(seconds) = &answer.retry_after {
            kept["retry-after"] = json!(seconds);
        }
        if answer.body["kind"] == "Status" || answer.body.is_string() {
            kept["answer"] = answer.body.clone();
        }
        for field in fields {
            kept[field] = answer.body.pointer(field).cloned().unwrap_or_default();
        }
        self.note(what, &kept);
    }

    /// Reads an object and keeps the named fields.
    pub async fn note_object(&mut self, what: &str, path: &str, fields: &[&str]) {
        let answer = self.get(path).await;
        self.note_answer(what, &answer, fields);
    }

    /// Sends a request that must succeed and is not part of the case.
    pub async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let kind = if method == "PATCH" { MERGE } else { "application/json" };
        let answer = self.call(method, path, &body, kind).await;
        assert!((200..300).contains(&answer.code), "{method} {path}: {} {}", answer.code, answer.body);
        answer.body
    }

    /// Creates a Ready node `@-name`.
    pub async fn node(&self, name: &str) -> String {
        let path = format!("{NODES}/@-{name}");
        let labels = json!({"kubernetes.io/hostname": format!("@-{name}"), "case": "@"});
        self.ok("POST", NODES, json!({"metadata": {"name": format!("@-{name}"), "labels": labels}})).await;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "10.1.0.1"}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}],
            "nodeInfo": {"bootID": "boot-1", "kubeletVersion": "v1.35.4", "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.0.2", "kernelVersion": "6.6.74", "kubeProxyVersion": "",
                "machineID": "", "operatingSystem": "linux", "osImage": "Flatcar", "systemUUID": ""}}});
        self.ok("PATCH", &format!("{path}/status"), status).await;
        path
    }

    /// Creates a running, ready pod of `app: a` on the node `@-n`.
    pub async fn pod(&self, name: &str) -> String {
        self.pod_as(name, "Running", true).await
    }

    /// Same as [`Self::pod`], in another phase.
    pub async fn pod_as(&self, name: &str, phase: &str, ready: bool) -> String {
        let path = format!("{PODS}/{name}");
        self.ok("POST", PODS, pod(name)).await;
        let ready = if ready { "True" } else { "False" };
        let status = json!({"status": {"phase": phase, "conditions":
            [{"type": "Ready", "status": ready, "lastTransitionTime": "2025-01-01T00:00:00Z"}]}});
        self.ok("PATCH", &format!("{path}/status"), status).await;
        path
    }

    /// Creates a budget over `app: a` that by its spec allows one of three to be disrupted; it has no status yet.
    pub async fn budget(&self, name: &str, more: Value) -> String {
        let mut spec = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "a"}}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        if more.get("maxUnavailable").is_some() {
            spec.as_object_mut().expect("a spec").remove("minAvailable");
        }
        self.ok("POST", BUDGETS, json!({"metadata": {"name": name}, "spec": spec})).await;
        format!("{BUDGETS}/{name}")
    }

    /// Writes the status that the disruption controller would write for the present spec.
    pub async fn budget_status(&self, path: &str, allowed: i64, healthy: i64, desired: i64) {
        let generation = self.ok("GET", path, Value::Null).await["metadata"]["generation"].clone();
        let status = json!({"status": {"observedGeneration": generation, "disruptionsAllowed": allowed,
            "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": 3}});
        self.ok("PATCH", &format!("{path}/status"), status).await;
    }

    /// Waits until the server's cache, which answers for "any" version, knows all writes to a collection.
    pub async fn cached(&self, path: &str) {
        let now = self.get(path).await.body["metadata"]["resourceVersion"].clone();
        let now = now.as_str().expect("a version");
        self.ok("GET", &format!("{path}?resourceVersion={now}&resourceVersionMatch=NotOlderThan"), Value::Null).await;
    }

    /// Opens a watch.
    pub async fn watch(&self, path: &str) -> Watch {
        let request = http::Request::builder().uri(path.replace('@', &self.ns)).header("accept", "application/json");
        let request = request.body(kube::client::Body::empty()).expect("a request");
        let answer = self.client.send(request).await.expect("an answer");
        Watch { code: answer.status().as_u16(), marks: true, body: answer.into_body(), read: Vec::new() }
    }

    /// Keeps the next `count` events: kind, name and the named fields of the object.
    pub async fn events(&mut self, what: &str, watch: &mut Watch, count: usize, fields: &[&str]) {
        let mut events = vec![json!({"code": watch.code})];
        for _ in 0..count {
            let event = watch.next().await;
            let Some(event) = event else {
                events.push(json!("the end"));
                break;
            };
            let object = &event["object"];
            if object["kind"] == "Status" {
                events.push(event);
                continue;
            }
            let mut kept = json!({"type": event["type"], "kind": object["kind"], "name": object["metadata"]["name"]});
            for field in fields {
                kept[field] = object.pointer(field).cloned().unwrap_or_default();
            }
            events.push(kept);
        }
        self.note(what, &Value::Array(events));
    }

    /// An answer without the parts that differ in each run: uids, times, versions, the namespace's name.
    pub fn plain(&self, value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let one = |(key, value): (&String, &Value)| match key.as_str() {
                    // a client reads null as an absent field
                    _ if value.is_null() && !key.starts_with('/') => None,
                    "managedFields" => None,
                    "resourceVersion" if value.as_str().is_some_and(|v| !v.is_empty() && v != "0") => {
                        Some((key.clone(), json!("<version>")))
                    }
                    "continue" | "/metadata/continue" if value.as_str().is_some_and(|v| !v.is_empty()) => {
                        Some((key.clone(), json!("<token>")))
                    }
                    _ => Some((self.text(key), self.plain(value))),
                };
                Value::Object(members.iter().filter_map(one).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(|v| self.plain(v)).collect()),
            Value::String(text) => json!(self.text(text)),
            other => other.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        if text.parse::<jiff::Timestamp>().is_ok() {
            return "<time>".to_owned();
        }
        let mut text = without_uids(&text.replace(&self.ns, "@"));
        for (name, alias) in &self.aliases {
            text = text.replace(name, alias);
        }
        if text.contains("resource version") {
            let numbers: Vec<&str> = text.split(|c: char| !c.is_ascii_digit()).filter(|n| n.len() > 1).collect();
            let numbers: Vec<String> = numbers.into_iter().map(str::to_owned).collect();
            for number in numbers {
                text = text.replace(&number, "#");
            }
        }
        text
    }
}

/// An open watch.
pub struct Watch {
    /// HTTP status.
    pub code: u16,
    /// Whether bookmarks are returned; a server sends additional ones at any time.
    pub marks: bool,
    body: kube::client::Body,
    read: Vec<u8>,
}

impl Watch {
    /// The next event; none at the end, or if nothing comes for ten seconds.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).expect("an event");
                if self.marks || event["type"] != "BOOKMARK" {
                    return Some(event);
                }
                continue;
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.body.frame()).await;
            match frame {
                Ok(Some(Ok(frame))) => self.read.extend(frame.into_data().unwrap_or_default()),
                _ if self.read.is_empty() => return None,
                _ => self.read.push(b'\n'),
            }
        }
    }
}

/// A pod of `app: a` on `@-n`, with one second of grace.
pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}}, "spec": {
        "nodeName": "@-n", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "registry.invalid/pause:1"}]}})
}

/// A uid that no object has.
pub const UNKNOWN_UID: &str = "00000000-0000-0000-0000-000000000000";

/// Text with `<uid>` for every uid.
fn without_uids(text: &str) -> String {
    let is_uid = |bytes: &[u8]| {
        bytes
            .iter()
            .enumerate()
            .all(|(i, b)| if [8, 13, 18, 23].contains(&i) { *b == b'-' } else { b.is_ascii_hexdigit() })
    };
    let mut text = text.to_owned();
    let mut at = 0;
    while at + 36 <= text.len() {
        let uid = text.is_char_boundary(at) && text.is_char_boundary(at + 36) && is_uid(&text.as_bytes()[at..at + 36]);
        if uid && &text[at..at + 36] != UNKNOWN_UID {
            text.replace_range(at..at + 36, "<uid>");
        }
        at += 1;
    }
    text
}
