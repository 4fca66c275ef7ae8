//! Jobs: pods that run and finish. Lost pods are replaced.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Manager, Work,
    index::{Name, Phase},
    owners::count,
    shape::{self, text},
};
use crate::sandbox::{durations::length, kubernetes::resource::JOBS};

/// UIDs of the pods that each Job has already counted. A pod that is deleted afterwards stays counted.
#[derive(Default)]
pub(super) struct Jobs {
    counted: BTreeMap<String, BTreeSet<String>>,
}

impl Jobs {
    pub(super) fn forget(&mut self, uid: &str) {
        self.counted.remove(uid);
    }
}

fn ended(job: &Value) -> bool {
    shape::says(job, "Complete") == "True" || shape::says(job, "Failed") == "True"
}

impl Manager {
    pub(super) fn job(&mut self, uid: &str, name: &Name, job: &Value) {
        // Another controller is responsible, according to `spec.managedBy`.
        if job["spec"]["managedBy"].as_str().is_some_and(|by| by != "kubernetes.io/job-controller") {
            return;
        }
        if ended(job) {
            return self.job_after_end(uid, job);
        }
        let number = |field: &str| job["status"][field].as_u64().unwrap_or(0);
        let pods = self.index.of(uid).into_iter().filter_map(|name| self.index.pods.get(&name));
        let finished: Vec<_> = pods.filter(|pod| pod.finished()).map(|pod| (pod.uid.clone(), pod.phase)).collect();
        let first = !self.jobs.counted.contains_key(uid);
        let counted = self.jobs.counted.entry(uid.to_owned()).or_default();
        if first && number("succeeded") + number("failed") > 0 {
            counted.extend(finished.iter().map(|(pod, _)| pod.clone()));
        }
        let (mut succeeded, mut failed) = (number("succeeded"), number("failed"));
        for (pod, phase) in finished {
            if counted.insert(pod) {
                succeeded += u64::from(phase == Phase::Succeeded);
                failed += u64::from(phase == Phase::Failed);
            }
        }
        let spec = &job["spec"];
        let completions = count(&spec["completions"]) as u64;
        let complete = succeeded >= completions;
        let lost = failed > spec["backoffLimit"].as_u64().unwrap_or(6);
        let left = usize::try_from(completions.saturating_sub(succeeded)).unwrap_or(0);
        let stopped = complete || lost || spec["suspend"] == true;
        let wanted = if stopped { 0 } else { count(&spec["parallelism"]).min(left) };
        let (active, _) = self.index.counts(uid);
        for _ in active..wanted {
            let mut pod = shape::from_template(job, &format!("{}-", name.1));
            for (label, value) in [("job-name", &job["metadata"]["name"]), ("controller-uid", &job["metadata"]["uid"])]
            {
                pod["metadata"]["labels"][format!("batch.kubernetes.io/{label}")] = value.clone();
                pod["metadata"]["labels"][label] = value.clone();
            }
            self.create_pod(&name.0, pod);
        }
        if active > wanted {
            self.delete_some(uid, active - wanted);
        }
        self.catch_up();
        let ((active, ready), stamp) = (self.index.counts(uid), self.objects.stamp());
        self.write_status(uid, |status, _| {
            if status["startTime"].is_null() {
                status["startTime"] = json!(stamp);
            }
            status["active"] = json!(active);
            status["ready"] = json!(ready);
            status["succeeded"] = json!(succeeded);
            status["failed"] = json!(failed);
            let mut holder = json!({"status": status.take()});
            if complete {
                holder["status"]["completionTime"] = json!(stamp);
                for kind in ["SuccessCriteriaMet", "Complete"] {
                    shape::set_condition(&mut holder, &stamp, kind, "True", "CompletionsReached", "");
                }
            } else if lost {
                let why = "Job has reached the specified backoff limit";
                shape::set_condition(&mut holder, &stamp, "Failed", "True", "BackoffLimitExceeded", why);
            }
            *status = holder["status"].take();
        });
        if complete || lost {
            self.soon(Work::Owner(uid.to_owned()));
        }
    }

    /// Deletes a finished Job after its TTL, if it has one.
    fn job_after_end(&mut self, uid: &str, job: &Value) {
        let Some(live) = job["spec"]["ttlSecondsAfterFinished"].as_f64() else { return };
        let end = ["Complete", "Failed"].into_iter().find_map(|kind| shape::condition(job, kind));
        let end: Option<Timestamp> = end.and_then(|c| text(&c["lastTransitionTime"]).parse().ok());
        let now = self.objects.clock().wall();
        let age = end.map_or(0.0, |end| now.duration_since(end).as_secs_f64());
        if age < live {
            return self.after(length(live - age), Work::Owner(uid.to_owned()));
        }
        let (namespace, name) = (text(&job["metadata"]["namespace"]), text(&job["metadata"]["name"]));
        super::expected(self.objects.remove(&JOBS, namespace, name, |job| super::the_one(job, uid)));
    }
}
