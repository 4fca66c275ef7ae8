//! History of Kubernetes: objects as timelines, and the requests that changed them.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::Value;

use super::super::record::ApiRequest;
use super::{
    Means, Node, PodState, View, is_engine,
    kube::{labels, text},
    shift,
};

/// A patch of a Node that was carried out.
#[derive(Clone, Debug)]
pub struct NodeWrite<'a> {
    /// The request.
    pub request: &'a ApiRequest,
    /// Name of the Node.
    pub name: String,
    /// Whether an engine of cketerm sent it.
    pub engine: bool,
    /// Objects before and after.
    pub raw: (&'a Value, &'a Value),
    /// The Node before.
    pub before: Node,
    /// The Node after.
    pub after: Node,
}

/// An eviction or deletion of a pod that an engine requested.
#[derive(Clone, Debug)]
pub struct PodWrite<'a> {
    /// The request.
    pub request: &'a ApiRequest,
    /// `namespace/name` of the pod.
    pub pod: String,
    /// UID of the precondition; none if there was none.
    pub uid: Option<String>,
    /// Whether it went through the Eviction API, and not as a DELETE.
    pub eviction: bool,
    /// Whether it was a dry run.
    pub dry_run: bool,
    /// Node of the pod at the time of the request, if the pod existed.
    pub node: Option<String>,
    /// Meaning of the answer.
    pub means: Means,
}

impl<'a> View<'a> {
    pub(super) fn objects(&mut self) {
        for change in &self.record.objects {
            let (at, revision) = (change.at, i64::try_from(change.revision).unwrap_or(i64::MAX));
            let after = change.after.as_ref();
            let Some(any) = after.or(change.before.as_ref()) else { continue };
            let uid = || text(&any["metadata"]["uid"]);
            match change.resource.as_str() {
                "nodes" => self.nodes.entry(change.name.clone()).or_default().push(at, revision, after.map(Node::of)),
                "pods" => {
                    let pod = self.pods.entry(uid()).or_default();
                    if pod.uid.is_empty() {
                        (pod.uid, pod.name, pod.namespace) = (uid(), change.name.clone(), change.namespace.clone());
                    }
                    let state = after.map(PodState::of);
                    if let Some(state) = &state
                        && !state.node.is_empty()
                        && pod.states.last().is_none_or(|s| s.node != state.node)
                    {
                        self.pods_on.entry(state.node.clone()).or_default().push(pod.uid.clone());
                    }
                    pod.states.push(at, revision, state);
                }
                "namespaces" => {
                    let labels = after.map(|o| labels(&o["metadata"]["labels"]));
                    self.namespaces.entry(change.name.clone()).or_default().push(at, revision, labels);
                }
                "daemonsets" => {
                    let on_delete = after.map(|o| o["spec"]["updateStrategy"]["type"] == "OnDelete");
                    self.on_delete.entry(uid()).or_default().push(at, revision, on_delete);
                }
                _ => {}
            }
        }
    }

    pub(super) fn writes(&mut self) {
        let record = self.record;
        // Each resourceVersion of a Node is unique, so the version that a patch started from identifies its result.
        let mut made: HashMap<(&str, &str), usize> = HashMap::new();
        for (i, change) in record.objects.iter().enumerate().filter(|(_, c)| c.resource == "nodes") {
            if let Some(before) = change.before.as_ref().and_then(|b| b["metadata"]["resourceVersion"].as_str()) {
                made.insert((&change.name, before), i);
            }
        }
        for request in record.api_requests.iter().filter(|a| a.method != "GET") {
            if let Some(name) = request.path.strip_prefix("/api/v1/nodes/").filter(|n| !n.contains('/')) {
                if request.method == "DELETE" || !(200..300).contains(&request.code) {
                    continue;
                }
                let from = request.body["metadata"]["resourceVersion"].as_str();
                let found = match from {
                    Some(from) => made.get(&(name, from)).copied(),
                    None => self.made_at(name, request.at),
                };
                let Some(change) = found.map(|i| &record.objects[i]) else { continue };
                if let (Some(before), Some(after)) = (&change.before, &change.after) {
                    if is_engine(&request.by) {
                        let revision = i64::try_from(change.revision).unwrap_or(i64::MAX);
                        self.made_by_engines.insert((name.to_owned(), revision));
                    }
                    self.node_writes.push(NodeWrite {
                        request,
                        name: name.to_owned(),
                        engine: is_engine(&request.by),
                        raw: (before, after),
                        before: Node::of(before),
                        after: Node::of(after),
                    });
                }
            } else if is_engine(&request.by) {
                self.pod_write(request);
            }
        }
    }

    /// First change of a Node's cordon or records at this moment: the result of an unconditional patch.
    fn made_at(&self, name: &str, at: Timestamp) -> Option<usize> {
        let objects = &self.record.objects;
        let from = objects.partition_point(|c| c.at < at);
        let until = shift(at, 1.0);
        let mut near = objects[from..].iter().enumerate().take_while(|(_, c)| c.at <= until);
        let found = near.find(|(_, c)| {
            let (Some(before), Some(after)) = (&c.before, &c.after) else { return false };
            c.resource == "nodes"
                && c.name == name
                && (before["spec"] != after["spec"]
                    || before["metadata"]["annotations"] != after["metadata"]["annotations"])
        });
        found.map(|(i, _)| from + i)
    }

    fn pod_write(&mut self, request: &'a ApiRequest) {
        let Some(rest) = request.path.strip_prefix("/api/v1/namespaces/") else { return };
        let Some((namespace, rest)) = rest.split_once("/pods/") else { return };
        let (name, eviction) = match rest.split_once('/') {
            None if request.method == "DELETE" => (rest, false),
            Some((name, "eviction")) if request.method == "POST" => (name, true),
            _ => return,
        };
        let options = if eviction { &request.body["deleteOptions"] } else { &request.body };
        let uid = options["preconditions"]["uid"].as_str().map(str::to_owned);
        let dry_run = options["dryRun"].as_array().is_some_and(|d| !d.is_empty()) || request.query.contains("dryRun");
        let seen = uid.as_ref().and_then(|uid| self.pods.get(uid));
        // A pod never leaves its Node once it is bound.
        let states = seen.map_or(&[][..], |pod| pod.states.steps()).iter();
        let node = states.rev().filter_map(|s| s.value.as_ref()).map(|s| s.node.clone()).find(|n| !n.is_empty());
        let pod = format!("{namespace}/{name}");
        let means = Means::of(request);
        self.pod_writes.push(PodWrite { request, pod, uid, eviction, dry_run, node, means });
    }
}
