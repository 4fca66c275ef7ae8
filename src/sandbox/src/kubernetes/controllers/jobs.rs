//! Jobs: pods that run and finish. Lost pods are replaced.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::boot_time::Seconds;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Manager, Work,
    index::{Name, Phase},
    object_fields::{self, text},
    owners::count,
};
use crate::{durations::duration_from_secs, kubernetes::resource::JOBS};

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

fn is_finished(job: &Value) -> bool {
    object_fields::condition_status(job, "Complete") == "True"
        || object_fields::condition_status(job, "Failed") == "True"
}

impl Manager {
    pub(super) fn job(&mut self, uid: &str, name: &Name, job: &Value) {
        // Another controller is responsible, according to `spec.managedBy`.
        if job["spec"]["managedBy"].as_str().is_some_and(|by| by != "kubernetes.io/job-controller") {
            return;
        }
        if is_finished(job) {
            return self.delete_expired_job(uid, job);
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
        let backoff_limit_exceeded = failed > spec["backoffLimit"].as_u64().unwrap_or(6);
        let left = usize::try_from(completions.saturating_sub(succeeded)).unwrap_or(0);
        let stopped = complete || backoff_limit_exceeded || spec["suspend"] == true;
        let desired = if stopped { 0 } else { count(&spec["parallelism"]).min(left) };
        let (active, _) = self.index.counts(uid);
        for _ in active..desired {
            let mut pod = object_fields::from_template(job, &format!("{}-", name.1));
            for (label, value) in [("job-name", &job["metadata"]["name"]), ("controller-uid", &job["metadata"]["uid"])]
            {
                pod["metadata"]["labels"][format!("batch.kubernetes.io/{label}")] = value.clone();
                pod["metadata"]["labels"][label] = value.clone();
            }
            self.create_pod(&name.0, pod);
        }
        if active > desired {
            self.scale_down(uid, active - desired);
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
                    object_fields::set_condition(&mut holder, &stamp, kind, "True", "CompletionsReached", "");
                }
            } else if backoff_limit_exceeded {
                let why = "Job has reached the specified backoff limit";
                object_fields::set_condition(&mut holder, &stamp, "Failed", "True", "BackoffLimitExceeded", why);
            }
            *status = holder["status"].take();
        });
        if complete || backoff_limit_exceeded {
            self.enqueue(Work::Owner(uid.to_owned()));
        }
    }

    /// Deletes a finished Job after its TTL, if it has one.
    fn delete_expired_job(&mut self, uid: &str, job: &Value) {
        let ttl = job["spec"]["ttlSecondsAfterFinished"].as_f64().map(Seconds::new);
        let Some(ttl) = ttl else { return };
        let end = ["Complete", "Failed"].into_iter().find_map(|kind| object_fields::condition(job, kind));
        let end: Option<Timestamp> = end.and_then(|c| text(&c["lastTransitionTime"]).parse().ok());
        let now = self.objects.clock().wall();
        let age = end.map_or(Seconds::ZERO, |end| now.duration_since(end).into());
        if age < ttl {
            return self.enqueue_after(duration_from_secs(ttl - age), Work::Owner(uid.to_owned()));
        }
        let (namespace, name) = (text(&job["metadata"]["namespace"]), text(&job["metadata"]["name"]));
        super::expected(self.objects.remove(&JOBS, namespace, name, |job| super::check_uid(job, uid)));
    }
}
