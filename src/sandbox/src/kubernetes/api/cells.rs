//! Cells of tables, formatted like kube-apiserver's printers.

use jiff::Timestamp;
use serde_json::{Value, json};

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn str(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a value as text, or the given text if it is missing or empty.
pub(super) fn or(value: &Value, none: &str) -> Value {
    match value {
        Value::Null => json!(none),
        Value::String(text) if text.is_empty() => json!(none),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    }
}

/// Returns a number; 0 if it is missing.
pub(super) fn count(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or(0))
}

/// Formats a duration as `kubectl` does: coarser the longer it is.
pub(super) fn span(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |big: i64, sign: char, small: i64, second: char| {
        if small == 0 { format!("{big}{sign}") } else { format!("{big}{sign}{small}{second}") }
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, 'd', hours % 24, 'h'),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, 'y', days % 365, 'd'),
        () => format!("{years}y"),
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn ago(value: &Value, now: Timestamp) -> String {
    time(value).map_or_else(|| "<unknown>".to_owned(), |from| span(now.duration_since(from).as_secs()))
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    json!(ago(&object["metadata"]["creationTimestamp"], now))
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    list(&object["status"]["conditions"]).iter().find(|c| c["type"] == kind).map(|c| str(&c["status"]))
}

/// Formats labels: `a=b,c=d`.
pub(super) fn labels(value: &Value) -> Value {
    let mut output: Vec<String> =
        value.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", str(value))).collect();
    output.sort();
    json!(if output.is_empty() { "<none>".to_owned() } else { output.join(",") })
}

/// Formats a label selector.
pub(super) fn selector(value: &Value) -> Value {
    let mut output: Vec<String> = Vec::new();
    for (key, value) in value["matchLabels"].as_object().into_iter().flatten() {
        output.push(format!("{key}={}", str(value)));
    }
    for one in list(&value["matchExpressions"]) {
        let (key, values): (_, Vec<&str>) = (str(&one["key"]), list(&one["values"]).iter().map(str).collect());
        let values = values.join(",");
        output.push(match str(&one["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    output.sort();
    json!(if output.is_empty() { "<none>".to_owned() } else { output.join(",") })
}

/// Lists one field of all containers of a template.
pub(super) fn containers(object: &Value, field: &str) -> Value {
    let all = list(&object["spec"]["template"]["spec"]["containers"]);
    json!(all.iter().map(|c| str(&c[field])).collect::<Vec<_>>().join(","))
}

pub(super) fn ready_replicas(object: &Value) -> Value {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    json!(format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"])))
}

pub(super) fn node_status(node: &Value) -> Value {
    let ready = match condition(node, "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = node["spec"]["unschedulable"] == true;
    json!(if cordoned { format!("{ready},SchedulingDisabled") } else { ready.to_owned() })
}

pub(super) fn node_roles(node: &Value) -> Value {
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => Some(str(value).to_owned()),
        None => None,
    };
    let labels = node["metadata"]["labels"].as_object();
    let mut roles: Vec<String> = labels.into_iter().flatten().filter_map(role).filter(|r| !r.is_empty()).collect();
    roles.sort();
    json!(if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") })
}

pub(super) fn node_address(node: &Value, kind: &str) -> Value {
    let found = list(&node["status"]["addresses"]).iter().find(|a| a["type"] == kind);
    or(found.map_or(&Value::Null, |a| &a["address"]), "<none>")
}

pub(super) fn pod_ready(pod: &Value) -> Value {
    let (all, statuses) = (list(&pod["spec"]["containers"]).len(), list(&pod["status"]["containerStatuses"]));
    let ready = statuses.iter().filter(|c| c["ready"] == true && c["state"]["running"].is_object()).count();
    json!(format!("{ready}/{all}"))
}

fn termination_reason(state: &Value) -> String {
    let signal = state["signal"].as_i64().unwrap_or(0);
    match str(&state["reason"]) {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", state["exitCode"].as_i64().unwrap_or(0)),
        reason => reason.to_owned(),
    }
}

/// Returns the state of the first init container that has not succeeded, if any.
fn init_state(pod: &Value) -> Option<String> {
    let all = list(&pod["status"]["initContainerStatuses"]);
    for (i, container) in all.iter().enumerate() {
        let state = &container["state"];
        let waiting_reason = str(&state["waiting"]["reason"]);
        if state["terminated"].is_object() {
            if state["terminated"]["exitCode"] == 0 {
                continue;
            }
            return Some(format!("Init:{}", termination_reason(&state["terminated"])));
        }
        if !waiting_reason.is_empty() && waiting_reason != "PodInitializing" {
            return Some(format!("Init:{waiting_reason}"));
        }
        return Some(format!("Init:{i}/{}", list(&pod["spec"]["initContainers"]).len()));
    }
    None
}

pub(super) fn pod_status(pod: &Value) -> Value {
    let (phase, why) = (str(&pod["status"]["phase"]), str(&pod["status"]["reason"]));
    let mut output = if why.is_empty() { phase.to_owned() } else { why.to_owned() };
    if let Some(init) = init_state(pod) {
        output = init;
    } else {
        let mut running = false;
        for container in list(&pod["status"]["containerStatuses"]).iter().rev() {
            let state = &container["state"];
            let waiting_reason = str(&state["waiting"]["reason"]);
            if !waiting_reason.is_empty() {
                waiting_reason.clone_into(&mut output);
            } else if state["terminated"].is_object() {
                output = termination_reason(&state["terminated"]);
            } else if container["ready"] == true && state["running"].is_object() {
                running = true;
            }
        }
        if output == "Completed" && running {
            let ready = condition(pod, "Ready") == Some("True");
            (if ready { "Running" } else { "NotReady" }).clone_into(&mut output);
        }
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        if why == "NodeLost" {
            "Unknown".clone_into(&mut output);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut output);
        }
    }
    json!(output)
}

pub(super) fn pod_restarts(pod: &Value, now: Timestamp) -> Value {
    let all = list(&pod["status"]["containerStatuses"]);
    let restarts: i64 = all.iter().filter_map(|c| c["restartCount"].as_i64()).sum();
    let last = all.iter().filter_map(|c| time(&c["lastState"]["terminated"]["finishedAt"])).max();
    json!(match last {
        Some(last) if restarts > 0 => format!("{restarts} ({} ago)", span(now.duration_since(last).as_secs())),
        _ => restarts.to_string(),
    })
}

pub(super) fn job_status(job: &Value) -> Value {
    let is = |kind| condition(job, kind) == Some("True");
    json!(match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if !job["metadata"]["deletionTimestamp"].is_null() => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    })
}

pub(super) fn job_completions(job: &Value) -> Value {
    let done = job["status"]["succeeded"].as_i64().unwrap_or(0);
    let at_once = job["spec"]["parallelism"].as_i64().unwrap_or(0);
    json!(match job["spec"]["completions"].as_i64() {
        Some(completions) => format!("{done}/{completions}"),
        None if at_once > 1 => format!("{done}/1 of {at_once}"),
        None => format!("{done}/1"),
    })
}

pub(super) fn job_duration(job: &Value, now: Timestamp) -> Value {
    let status = &job["status"];
    let Some(from) = time(&status["startTime"]) else { return json!("") };
    let until = time(&status["completionTime"]).unwrap_or(now);
    json!(span(until.duration_since(from).as_secs()))
}

/// Returns a field of an event under either group's name.
pub(super) fn event<'a>(object: &'a Value, core: &str, new: &str) -> &'a Value {
    let found = object.get(core).filter(|v| !v.is_null());
    found.unwrap_or(&object[new])
}

pub(super) fn event_object(object: &Value) -> Value {
    let about = event(object, "involvedObject", "regarding");
    let (kind, name) = (str(&about["kind"]).to_lowercase(), str(&about["name"]));
    json!(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

pub(super) fn event_message(object: &Value) -> Value {
    json!(str(event(object, "message", "note")).trim())
}

pub(super) fn event_source(object: &Value) -> Value {
    let source = event(object, "source", "deprecatedSource");
    let (component, host) = (str(&source["component"]), str(&source["host"]));
    let reporter = str(event(object, "reportingComponent", "reportingController"));
    let component = if component.is_empty() { reporter } else { component };
    json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
}

fn event_time<'a>(object: &'a Value, core: &str, new: &str) -> &'a Value {
    let found = event(object, core, new);
    if found.is_null() { &object["eventTime"] } else { found }
}

pub(super) fn event_first(object: &Value, now: Timestamp) -> Value {
    json!(ago(event_time(object, "firstTimestamp", "deprecatedFirstTimestamp"), now))
}

pub(super) fn event_last(object: &Value, now: Timestamp) -> Value {
    let series = &object["series"]["lastObservedTime"];
    let last = if series.is_null() { event_time(object, "lastTimestamp", "deprecatedLastTimestamp") } else { series };
    json!(ago(last, now))
}

pub(super) fn event_count(object: &Value) -> Value {
    let series = object["series"]["count"].as_i64();
    json!(series.or(event(object, "count", "deprecatedCount").as_i64()).unwrap_or(1).max(1))
}

/// Formats the first three elements and the number of the others.
fn first_three(all: &[String]) -> Value {
    json!(match all.len() {
        0 => "<none>".to_owned(),
        1..=3 => all.join(","),
        more => format!("{} + {} more...", all[..3].join(","), more - 3),
    })
}

pub(super) fn endpoints(object: &Value) -> Value {
    let mut all = Vec::new();
    for subset in list(&object["subsets"]) {
        let ips = list(&subset["addresses"]).iter().map(|a| str(&a["ip"]));
        let ports = list(&subset["ports"]);
        for ip in ips {
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|p| format!("{ip}:{}", p["port"])));
        }
    }
    first_three(&all)
}

pub(super) fn slice_endpoints(object: &Value) -> Value {
    let all = list(&object["endpoints"]).iter().flat_map(|e| list(&e["addresses"])).map(|a| str(a).to_owned());
    let all: Vec<String> = all.collect();
    if all.is_empty() { json!("<unset>") } else { first_three(&all) }
}

pub(super) fn slice_ports(object: &Value) -> Value {
    let all: Vec<String> = list(&object["ports"]).iter().map(|p| p["port"].to_string()).collect();
    if all.is_empty() { json!("<unset>") } else { first_three(&all) }
}

pub(super) fn service_ports(object: &Value) -> Value {
    let port = |p: &Value| {
        let protocol = p["protocol"].as_str().unwrap_or("TCP");
        match p["nodePort"].as_i64() {
            Some(node) if node > 0 => format!("{}:{node}/{protocol}", p["port"]),
            _ => format!("{}/{protocol}", p["port"]),
        }
    };
    let all: Vec<String> = list(&object["spec"]["ports"]).iter().map(port).collect();
    json!(if all.is_empty() { "<none>".to_owned() } else { all.join(",") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_durations_are_formatted_coarsely() {
        let output = [-5, 0, 119, 120, 588, 1199, 10_799, 10_800, 10_860, 172_799, 172_800, 86_400 * 8, 86_400 * 800];
        let output = output.map(span);
        let expected =
            ["<invalid>", "0s", "119s", "2m", "9m48s", "19m", "179m", "3h", "3h1m", "47h", "2d", "8d", "2y70d"];
        assert_eq!(output, expected);
    }

    #[test]
    fn the_status_cell_of_a_pod_reflects_its_containers() {
        let status = |pod: Value| pod_status(&pod);
        assert_eq!(status(json!({"status": {"phase": "Running"}})), "Running");
        assert_eq!(
            status(json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}})),
            "Terminating"
        );
        let waiting_reason = json!({"status": {"phase": "Running",
            "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
        assert_eq!(status(waiting_reason), "CrashLoopBackOff");
        let done = json!({"status": {"phase": "Succeeded",
            "containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}});
        assert_eq!(status(done), "Completed");
        let init = json!({"spec": {"initContainers": [1, 2]}, "status": {"phase": "Pending",
            "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}]}});
        assert_eq!(status(init), "Init:1/2");
    }
}
