//! Subresources of pods: evictions under disruption budgets, bindings, logs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Api,
    call::{Call, Reply},
    delete::Options,
    path::RequestInfo,
    request_body,
    status_error::StatusError,
    write::check_namespace,
};
use crate::kubernetes::{ObjectError, resource::BUDGETS};

/// Number of evictions that a budget records until its controller has seen them.
const MAX_DISRUPTED_PODS: usize = 2000;
/// `message` of every refusal by a budget.
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

impl Api {
    /// Handles POST on a pod's `eviction`.
    pub(super) fn evict(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        let body = request_body::object(call.media(), &call.body, "Eviction", "policy")?;
        check_namespace(&body, info)?;
        self.check_namespace_active(info.kind, &info.namespace, &info.name)?;
        if body["metadata"]["name"] != info.name.as_str() {
            return Err(StatusError::bad("name in URL does not match name in Eviction object"));
        }
        let mut options = Options::read(call, &body["deleteOptions"])?;
        let pod = self
            .objects
            .get(info.kind, &info.namespace, &info.name)
            .ok_or_else(|| ObjectError::not_found(info.kind, &info.name))?;
        // Webhooks see the dry run in the query, but not the one in the body.
        self.admit_eviction(&pod, info, call.query.all("dryRun").iter().any(|v| v == "All"))?;
        if !is_exempt_from_budgets(&pod) && self.take_from_budget(&pod, info, options.dry)? {
            // The decision is based on this state of the pod, so only this state may be deleted.
            let seen = pod["metadata"]["resourceVersion"].as_str().map(str::to_owned);
            options.version = options.version.or(seen);
        }
        let now = self.objects.stamp();
        if options.dry {
            options.check(info.kind, &info.name, &pod)?;
        } else {
            self.change(info, false, |pod| {
                options.check(info.kind, &info.name, pod)?;
                set_disruption_target(pod, &now);
                Ok(())
            })?;
            options.version = None;
        }
        self.delete_one(info, &options)?;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Reply::Value(201, status))
    }

    /// Checks a pod's budget and takes one eviction from it. Returns true if the pod was judged by its readiness and
    /// nothing was taken.
    fn take_from_budget(&self, pod: &Value, info: &RequestInfo, dry: bool) -> Result<bool, StatusError> {
        let mut budgets = self.budgets_of(pod, &info.namespace);
        let Some(budget) = budgets.pop() else { return Ok(false) };
        if !budgets.is_empty() {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(StatusError::new(500, "", why));
        }
        let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
        if !ready(pod) {
            let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            let (healthy, needed) = (number("currentHealthy"), number("desiredHealthy"));
            if always || healthy >= needed && needed > 0 {
                return Ok(true);
            }
        }
        let name = budget["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let at = RequestInfo { kind: &BUDGETS, name, sub: "status".to_owned(), ..info.clone() };
        let (pod, now) = (info.name.clone(), self.objects.stamp());
        self.change(&at, dry, |budget| decrement_allowed(budget, &pod, &now))?;
        Ok(false)
    }

    /// Returns the budgets that select a pod.
    fn budgets_of(&self, pod: &Value, namespace: &str) -> Vec<Arc<Value>> {
        let labels = &pod["metadata"]["labels"];
        if labels.as_object().is_none_or(serde_json::Map::is_empty) {
            return Vec::new();
        }
        let (budgets, _) = self.objects.list(&BUDGETS, namespace);
        budgets.into_iter().filter(|b| selects(&b["spec"]["selector"], labels)).collect()
    }

    /// Handles POST on a pod's `binding`.
    pub(super) fn bind(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        let body = request_body::object(call.media(), &call.body, "Binding", "core")?;
        check_namespace(&body, info)?;
        self.check_namespace_active(info.kind, &info.namespace, &info.name)?;
        if body["metadata"]["name"] != info.name.as_str() {
            return Err(StatusError::bad("name in URL does not match name in Binding object"));
        }
        let dry = call.dry_run("CreateOptions", &Value::Null)?;
        let node = body["target"]["name"].as_str().unwrap_or_default().to_owned();
        let now = self.objects.stamp();
        self.change(info, dry, |pod| {
            let conflict = |why: String| {
                let message = format!("Operation cannot be fulfilled on pods/binding \"{}\": {why}", info.name);
                let mut status_error = StatusError::new(409, "Conflict", message);
                status_error.body["details"] = json!({"name": info.name, "kind": "pods/binding"});
                Err(status_error)
            };
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                return conflict(format!("pod {} is being deleted, cannot be assigned to a host", info.name));
            }
            if let Some(is) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
                return conflict(format!("pod {} is already assigned to node \"{is}\"", info.name));
            }
            if !pod["spec"].is_object() {
                pod["spec"] = json!({});
            }
            pod["spec"]["nodeName"] = json!(node);
            set_condition(pod, json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now}));
            Ok(())
        })?;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Reply::Value(201, status))
    }

    /// Handles GET of a pod's `log`. No container runs, so the log is generated.
    pub(super) fn log(&self, info: &RequestInfo) -> Result<Reply, StatusError> {
        let pod = self
            .objects
            .get(info.kind, &info.namespace, &info.name)
            .ok_or_else(|| ObjectError::not_found(info.kind, &info.name))?;
        let since = pod["status"]["startTime"].as_str().or(pod["metadata"]["creationTimestamp"].as_str());
        Ok(Reply::Text(200, format!("{} {} started\n", since.unwrap_or_default(), info.name)))
    }
}

/// Reports whether a pod is not subject to budgets, because it has finished, has not started, or is being deleted.
fn is_exempt_from_budgets(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str();
    matches!(phase, Some("Succeeded" | "Failed" | "Pending")) || !pod["metadata"]["deletionTimestamp"].is_null()
}

fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Sets the condition `DisruptionTarget` on an evicted pod.
fn set_disruption_target(pod: &mut Value, now: &str) {
    set_condition(
        pod,
        json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": now}),
    );
}

/// Sets a condition. Its transition time changes only with its status.
fn set_condition(object: &mut Value, mut condition: Value) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let status = &mut object["status"];
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(found) if found["status"] == condition["status"] => {
            condition["lastTransitionTime"] = found["lastTransitionTime"].clone();
            *found = condition;
        }
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

/// Takes one eviction from a budget's allowance.
fn decrement_allowed(budget: &mut Value, pod: &str, now: &str) -> Result<(), StatusError> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let refused = |retry_after: Option<u64>, why: String| {
        let mut status_error = StatusError::new(429, "TooManyRequests", REFUSED);
        status_error.body["details"] = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
        if let Some(seconds) = retry_after {
            status_error.body["details"]["retryAfterSeconds"] = json!(seconds);
        }
        // Same field order as the server's.
        if let Some(body) = status_error.body.as_object_mut()
            && let Some(code) = body.shift_remove("code")
        {
            body.insert("code".to_owned(), code);
        }
        Err(StatusError { retry_after, ..status_error })
    };
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return refused(Some(10), format!("The disruption budget {name} is still being processed by the server."));
    }
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return Err(StatusError::forbidden(&BUDGETS, &name, "pdb disruptions allowed is negative"));
    }
    if budget["status"]["disruptedPods"].as_object().map_or(0, serde_json::Map::len) > MAX_DISRUPTED_PODS {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(StatusError::forbidden(&BUDGETS, &name, why));
    }
    if allowed == 0 {
        let (healthy, needed) = (number("currentHealthy"), number("desiredHealthy"));
        return refused(
            None,
            if healthy <= needed {
                format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently")
            } else {
                format!("The disruption budget {name} does not allow evicting pods currently")
            },
        );
    }
    budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
    if allowed == 1 {
        set_condition(
            budget,
            json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "lastTransitionTime": now, "observedGeneration": budget["metadata"]["generation"]}),
        );
    }
    if !budget["status"]["disruptedPods"].is_object() {
        budget["status"]["disruptedPods"] = json!({});
    }
    budget["status"]["disruptedPods"][pod] = json!(now);
    Ok(())
}

/// Reports whether a budget's selector matches these labels. A missing selector matches nothing, an empty one
/// everything.
fn selects(selector: &Value, labels: &Value) -> bool {
    let Value::Object(selector) = selector else { return false };
    let value = |key: &str| labels.get(key).and_then(Value::as_str);
    let exact = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    exact.into_iter().flatten().all(|(key, expected)| value(key) == expected.as_str())
        && expressions.into_iter().flatten().all(|e| {
            let is = value(e["key"].as_str().unwrap_or_default());
            let listed = || e["values"].as_array().is_some_and(|all| all.iter().any(|v| v.as_str() == is));
            match e["operator"].as_str() {
                Some("In") => is.is_some() && listed(),
                Some("NotIn") => is.is_none() || !listed(),
                Some("Exists") => is.is_some(),
                Some("DoesNotExist") => is.is_none(),
                _ => false,
            }
        })
}
