//! Kubelets: pods that start, stop, run to completion, and restart after a boot.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::boot_time::Seconds;
use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Manager, Work,
    index::{Name, Phase, Pod},
    object_fields::{self, text},
};
use crate::{durations::duration_from_secs, kubernetes::resource::PODS, machines::State};

/// Next step of a kubelet with a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Its containers become Ready.
    Start,
    /// It completes by itself.
    Succeed,
    /// It is stopped, with this grace period in seconds.
    Stop(u64),
}

/// State of all kubelets.
pub(super) struct Kubelets {
    /// Whether the kubelet runs, by the machine's address.
    pub(super) running: BTreeMap<String, bool>,
    /// Steps in progress, with the pod's UID.
    steps: BTreeMap<Name, (String, Step)>,
    starts: Rng,
    stops: Rng,
    pub(super) boots: Rng,
}

impl Kubelets {
    pub(super) fn new(seeds: &mut Rng) -> Self {
        let (running, steps) = (BTreeMap::new(), BTreeMap::new());
        Self { running, steps, starts: seeds.fork(), stops: seeds.fork(), boots: seeds.fork() }
    }
}

impl Manager {
    /// Marks the kubelets of machines that are up as running.
    pub(super) fn init_kubelets(&mut self) {
        for machine in self.machines.list() {
            let up = self.machines.machine_status(&machine.address).is_some_and(|seen| seen.state == State::Up);
            self.kubelets.running.insert(machine.address, up);
        }
    }

    /// Drops the steps of pods that no longer exist, after a relist.
    pub(super) fn prune_kubelet_steps(&mut self) {
        let pods = &self.index.pods;
        self.kubelets.steps.retain(|name, _| pods.contains_key(name));
    }

    fn kubelet_runs(&self, node: &str) -> bool {
        self.address_of(node).is_some_and(|address| self.kubelets.running.get(&address) == Some(&true))
    }

    fn step_of(&self, pod: &Pod) -> Option<Step> {
        if pod.node.is_empty() || !self.kubelet_runs(&pod.node) {
            return None;
        }
        match (pod.terminating, pod.phase) {
            (Some(_), _) if pod.held => None,
            (Some(grace), _) => Some(Step::Stop(grace)),
            (None, Phase::Pending) => Some(Step::Start),
            (None, Phase::Running) if !pod.ready && !pod.never_ready => Some(Step::Start),
            (None, Phase::Running) if pod.runs => Some(Step::Succeed),
            (None, _) => None,
        }
    }

    pub(super) fn kubelet_on_pod(&mut self, name: &Name, before: Option<&Pod>) {
        let Some(pod) = self.index.pods.get(name) else {
            self.kubelets.steps.remove(name);
            self.work_queue.cancel(&Work::Pod(Arc::clone(name)));
            if let Some(before) = before.filter(|pod| pod.mirror) {
                self.recreate_mirror_pod(before);
            }
            return;
        };
        let step = self.step_of(pod);
        let known = self.kubelets.steps.get(name).filter(|(uid, _)| *uid == pod.uid).map(|(_, step)| *step);
        if step == known {
            return;
        }
        let Some(step) = step else {
            self.kubelets.steps.remove(name);
            self.work_queue.cancel(&Work::Pod(Arc::clone(name)));
            return;
        };
        let duration = match step {
            Step::Start => self.durations.pod_start.draw(&mut self.kubelets.starts),
            Step::Stop(grace) => {
                let stop_time = object_fields::annotation(&pod.object, object_fields::STOPS).parse().ok();
                let stop_time = stop_time.map(|seconds| duration_from_secs(Seconds::new(seconds)));
                let stop_time = stop_time.unwrap_or_else(|| self.durations.pod_stop.draw(&mut self.kubelets.stops));
                stop_time.min(std::time::Duration::from_secs(grace))
            }
            Step::Succeed => {
                let runs = object_fields::annotation(&pod.object, object_fields::RUNS).parse().unwrap_or(0.0);
                let started = &pod.object["status"]["containerStatuses"][0]["state"]["running"]["startedAt"];
                let now = self.objects.clock().wall();
                let started = text(started).parse().unwrap_or(now);
                duration_from_secs(Seconds::new(runs) - now.duration_since(started).into())
            }
        };
        self.kubelets.steps.insert(Arc::clone(name), (pod.uid.clone(), step));
        self.work_queue.set_at(Work::Pod(Arc::clone(name)), Instant::now() + duration);
    }

    /// Executes the next step of a pod, which is due.
    pub(super) fn pod_step(&mut self, name: &Name) {
        let Some((uid, step)) = self.kubelets.steps.remove(name) else { return };
        let Some(pod) = self.index.pods.get(name) else { return };
        if pod.uid != uid || self.step_of(pod) != Some(step) {
            return self.kubelet_on_pod(name, None);
        }
        let now = self.objects.clock().wall();
        match step {
            Step::Start => {
                let host = self.address_of(&pod.node).unwrap_or_default();
                self.write_pod(name, &uid, |pod| run(pod, now, &host));
            }
            Step::Succeed => self.write_pod(name, &uid, |pod| end(pod, now, "Succeeded")),
            Step::Stop(_) => self.remove_pod(name, &uid),
        }
    }

    /// Handles the pods of a machine that booted. Their containers are gone; pods that were terminating have ended.
    pub(super) fn pods_after_boot(&mut self, node: &str) {
        let now = self.objects.clock().wall();
        for name in self.index.on(node) {
            let Some(pod) = self.index.pods.get(&name) else { continue };
            let uid = pod.uid.clone();
            if pod.terminating.is_none() && pod.phase == Phase::Running {
                self.write_pod(&name, &uid, |pod| restart(pod, now));
            }
            self.kubelet_on_pod(&name, None);
        }
    }

    /// Stops all pod steps of a machine that is down.
    pub(super) fn cancel_pod_steps(&mut self, node: &str) {
        for name in self.index.on(node) {
            self.kubelet_on_pod(&name, None);
        }
    }

    /// Recreates the mirror of a static pod, while its Node exists.
    fn recreate_mirror_pod(&self, before: &Pod) {
        if !self.index.nodes.contains_key(&before.node) || !self.kubelet_runs(&before.node) {
            return;
        }
        let mut pod = Value::clone(&before.object);
        if let Some(meta) = pod["metadata"].as_object_mut() {
            for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "uid"] {
                meta.shift_remove(field);
            }
        }
        let namespace = text(&pod["metadata"]["namespace"]).to_owned();
        super::expected(self.objects.create(&PODS, &namespace, pod));
    }
}

fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes the status of a pod that runs on the machine with this address.
pub(crate) fn run(pod: &mut Value, now: Timestamp, host: &str) {
    let (now, never) = (stamp(now), object_fields::annotation(pod, object_fields::NEVER_READY) == "true");
    let ready = if never { "False" } else { "True" };
    let ip = address_of_pod(text(&pod["metadata"]["uid"]));
    let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0);
    let containers: Vec<Value> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            json!({
                "name": c["name"], "image": c["image"], "imageID": "", "ready": !never, "started": true,
                "restartCount": restarts, "state": {"running": {"startedAt": now}}, "lastState": {},
            })
        })
        .collect();
    let why = if never { "ContainersNotReady" } else { "" };
    for (kind, status, reason) in [
        ("PodReadyToStartContainers", "True", ""),
        ("Initialized", "True", ""),
        ("Ready", ready, why),
        ("ContainersReady", ready, why),
        ("PodScheduled", "True", ""),
    ] {
        object_fields::set_condition(pod, &now, kind, status, reason, "");
    }
    let status = &mut pod["status"];
    if status["startTime"].is_null() {
        status["startTime"] = json!(now);
    }
    status["phase"] = json!("Running");
    status["hostIP"] = json!(host);
    status["hostIPs"] = json!([{"ip": host}]);
    status["podIP"] = json!(ip);
    status["podIPs"] = json!([{"ip": ip}]);
    status["containerStatuses"] = json!(containers);
}

/// Returns an address for each pod, derived from the number in its UID.
fn address_of_pod(uid: &str) -> String {
    let number = uid.rsplit('-').next().and_then(|n| u32::from_str_radix(n.get(n.len().saturating_sub(6)..)?, 16).ok());
    let number = number.unwrap_or(0) % 0x3f_ffff;
    format!("10.{}.{}.{}", 64 + (number >> 16), (number >> 8) & 0xff, number & 0xff)
}

fn end(pod: &mut Value, now: Timestamp, phase: &str) {
    let now = stamp(now);
    let (code, reason) = if phase == "Succeeded" { (0, "PodCompleted") } else { (137, "PodFailed") };
    object_fields::set_condition(pod, &now, "Ready", "False", reason, "");
    object_fields::set_condition(pod, &now, "ContainersReady", "False", reason, "");
    pod["status"]["phase"] = json!(phase);
    for container in pod["status"]["containerStatuses"].as_array_mut().into_iter().flatten() {
        let why = if code == 0 { "Completed" } else { "Error" };
        container["state"] = json!({"terminated": {"exitCode": code, "reason": why, "finishedAt": now}});
        container["ready"] = json!(false);
        container["started"] = json!(false);
    }
}

/// Restarts the containers after a boot. The pod has failed if its restart policy is `Never`.
fn restart(pod: &mut Value, now: Timestamp) {
    if pod["spec"]["restartPolicy"] == "Never" {
        return end(pod, now, "Failed");
    }
    let now = stamp(now);
    object_fields::set_condition(pod, &now, "Ready", "False", "ContainersNotReady", "");
    object_fields::set_condition(pod, &now, "ContainersReady", "False", "ContainersNotReady", "");
    for container in pod["status"]["containerStatuses"].as_array_mut().into_iter().flatten() {
        container["restartCount"] = json!(container["restartCount"].as_u64().unwrap_or(0) + 1);
        container["lastState"] = json!({"terminated": {"exitCode": 255, "reason": "Unknown", "finishedAt": now}});
        container["state"] = json!({"waiting": {"reason": "ContainerCreating"}});
        container["ready"] = json!(false);
        container["started"] = json!(false);
    }
}
