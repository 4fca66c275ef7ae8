//! JSON schema of the policy, as it is stored in etcd, for editors and for checks before a rollout. Tests compare it with
//! the types of the policy, with what `policy set` accepts, and with `docs/reference/policy.md`.

use cketerm_model::{hook_runs::HookPoint, reboot_signals::Preset, start_gates};
use cketerm_rules::reboot_needed::queue::MAX_PER_DAY;
use serde_json::{Map, Value, json};

use super::policy::MAX_TAINT_WAVES;

/// Type of a setting's value.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// One of these words.
    Words(&'static [&'static str]),
    /// Whole number from the first to the second; none = any larger one.
    Number(u64, Option<u64>),
    /// True or false.
    Flag,
    /// Text of a form that only cketerm checks.
    Text,
    /// Structured value.
    Document(fn() -> Value),
}

/// Setting: its name, the type of its value, its meaning.
type Setting = (&'static str, Form, &'static str);

/// All settings, in the order of `docs/reference/policy.md`.
const SETTINGS: &[Setting] = &[
    ("engine", Form::Words(&["cke", "cketerm", "always"]), "whether cketerm's engine campaigns"),
    ("console_leads", Form::Words(&["auto", "always", "never"]), "whether a console's engine campaigns"),
    ("api_server_order", Form::Words(&["last", "first"]), "order of API servers relative to other machines"),
    ("worker_order", Form::Words(&["queue", "budgets"]), "order of workers"),
    ("max_overtakes", Form::Number(0, None), "most entries that may overtake one that waits for a budget"),
    ("landing_check", Form::Words(&["advise", "require"]), "use of the check where pods can land"),
    ("unreachable_rule", Form::Words(&["outside-reboots", "all"]), "rule for unreachable nodes"),
    ("control_plane_probe", Form::Text, "check of control planes: node, or a URL with {address}"),
    ("settle_seconds", Form::Number(0, None), "seconds for which a rebooted API server must stay healthy"),
    ("etcd_members", Form::Words(&["check", "none"]), "whether the members of the Kubernetes etcd are checked"),
    ("allow_quorum_loss", Form::Flag, "whether a voting etcd member may be disrupted without quorum of the rest"),
    ("manage_endpoints", Form::Words(&["auto", "on", "off"]), "whether API servers in reboot leave the endpoints"),
    ("worker_completion", Form::Words(&["boot_check", "boot_id"]), "condition for the end of a worker's reboot"),
    ("command_cap_seconds", Form::Number(1, None), "time limit of a command whose timeout is 0"),
    ("stuck_seconds", Form::Number(1, None), "seconds after which an entry counts as stuck"),
    ("membership", Form::Words(&["auto", "manual", "sabakan", "nodes"]), "source of the members of the definition"),
    ("node_selector", Form::Text, "label selector of the Nodes that are members"),
    ("node_grace_seconds", Form::Number(0, None), "seconds after which a member without a Node leaves"),
    ("unreachable_percent", Form::Number(0, Some(100)), "percentage of the members that may be unreachable"),
    ("reboot_needed", Form::Words(&["off", "propose", "queue"]), "treatment of Nodes that need a reboot"),
    ("reboot_needed_signals", Form::Document(signals), "signals that a Node needs a reboot"),
    ("reboot_needed_at_once", Form::Number(1, None), "open entries that the leader may have queued by itself"),
    ("reboot_needed_per_day", Form::Number(0, Some(MAX_PER_DAY)), "entries that it queues in 24 hours; 0 = no limit"),
    ("strategy", Form::Words(&["weighted", "all-healthy"]), "strategy that generates the definition"),
    ("approval", Form::Words(&["gate", "never"]), "whether large changes of the members wait for an approval"),
    ("gate_percent", Form::Number(0, Some(100)), "percentage of the nodes above which they wait"),
    ("sabakan_poll_seconds", Form::Number(1, None), "seconds between requests to sabakan"),
    ("removal_wait_seconds", Form::Number(0, None), "seconds for which a machine must be retiring before it leaves"),
    ("metal3_controller", Form::Flag, "whether the leader runs the Metal3 controller"),
    ("fence", Form::Words(&["delete", "taint"]), "way to fence a Node"),
    ("windows", Form::Document(windows), "times in which drains may start"),
    ("freeze", Form::Document(freeze), "freeze of both queues"),
    ("groups", Form::Document(groups), "limit of racks or other groups in progress at once"),
    ("job_grace_seconds", Form::Number(0, None), "seconds in which a drain waits for protected Jobs"),
    ("hooks", Form::Document(hooks), "commands or requests of the site around drains"),
    ("uncordon_gates", Form::Document(uncordon_gates), "conditions for the uncordon of a rebooted worker"),
    ("breaker", Form::Document(breaker), "breaker after machines that ended badly"),
    ("canary", Form::Document(canary), "machines of a batch that are rebooted first"),
    ("start_gates", Form::Document(start_gates), "gates of the site for new reboots, by Prometheus"),
    ("node_conditions", Form::Flag, "whether Nodes get conditions that tell of cketerm's work"),
    ("planned_taint_waves", Form::Number(0, Some(MAX_TAINT_WAVES)), "waves whose Nodes get a taint; 0 = none"),
    ("pod_events", Form::Flag, "whether Events about evicted and blocking pods are written"),
    ("maintenance_requests", Form::Flag, "whether the leader queues what MaintenanceRequests ask for"),
];

impl Form {
    fn schema(self, about: &str) -> Value {
        let mut value = match self {
            Self::Words(words) => json!({"enum": words}),
            Self::Number(least, None) => number(least),
            Self::Number(least, Some(most)) => json!({"type": "integer", "minimum": least, "maximum": most}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Text => text(),
            Self::Document(schema) => schema(),
        };
        value["description"] = json!(about);
        value
    }
}

fn text() -> Value {
    json!({"type": "string"})
}

fn number(least: u64) -> Value {
    json!({"type": "integer", "minimum": least})
}

fn texts() -> Value {
    json!({"type": "array", "items": text()})
}

fn object(properties: &Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "additionalProperties": false, "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Status of a condition.
fn status() -> Value {
    json!({"enum": ["True", "False", "Unknown"]})
}

fn signals() -> Value {
    let presets = json!({"enum": Preset::ALL.map(Preset::name)});
    let one = |name: &str, more: Option<(&str, Value)>| {
        let properties: Map<String, Value> =
            [(name, text())].into_iter().chain(more).map(|(name, schema)| (name.to_owned(), schema)).collect();
        object(&Value::Object(properties), &[name])
    };
    let forms = json!([
        presets,
        one("condition", Some(("status", status()))),
        one("annotation", Some(("value", text()))),
        one("label", Some(("value", text()))),
        one("kernel", None),
        one("os_image", None),
    ]);
    json!({"type": "array", "items": {"anyOf": forms}})
}

fn queues() -> Value {
    json!({"enum": ["reboot", "repair", "maintenance"]})
}

/// Value of a label, which may look like a number.
fn label_value() -> Value {
    json!({"type": ["string", "number"]})
}

fn windows() -> Value {
    let machines = object(
        &json!({
            "name": text(), "role": text(), "rack": label_value(), "selector": text(), "allow": texts(), "deny": texts(),
        }),
        &["name"],
    );
    let properties = json!({
        "time_zone": text(), "allow": texts(), "deny": texts(), "margin_seconds": number(0),
        "queues": {"type": "array", "items": queues()}, "machines": {"type": "array", "items": machines},
    });
    object(&properties, &["time_zone"])
}

fn freeze() -> Value {
    let who = object(&json!({"user": text(), "host": text(), "ssh_client": text()}), &["user", "host"]);
    object(
        &json!({"until": {"type": "string", "format": "date-time"}, "reason": text(), "who": who}),
        &["until", "reason"],
    )
}

fn groups() -> Value {
    object(&json!({"by": text(), "limit": number(1)}), &["by"])
}

fn hooks() -> Value {
    let points = [HookPoint::BeforeDrain, HookPoint::AfterDrain, HookPoint::BeforeUncordon, HookPoint::AfterUncordon];
    let properties = json!({
        "name": {"type": "string", "pattern": "^[a-z0-9-]{1,40}$"}, "at": {"enum": points.map(HookPoint::as_str)},
        "queue": queues(), "role": text(), "rack": label_value(), "selector": text(),
        "command": texts(), "url": text(), "header_file": text(),
        "timeout_seconds": number(1), "retries": number(0), "retry_interval_seconds": number(0),
        "holds_slot": {"type": "boolean"},
    });
    json!({"type": "array", "items": object(&properties, &["name", "at"])})
}

fn uncordon_gates() -> Value {
    let conditions = json!({"type": "object", "additionalProperties": status()});
    let properties = json!({
        "conditions": conditions, "taints_gone": texts(), "daemon_sets": {"type": "boolean"},
        "overdue_seconds": number(1),
    });
    object(&properties, &[])
}

fn breaker() -> Value {
    object(&json!({"failures": number(1), "of": number(1)}), &["failures", "of"])
}

fn canary() -> Value {
    object(&json!({"first": number(1), "soak_seconds": number(0)}), &["first"])
}

fn start_gates() -> Value {
    let labels = json!({"type": "object", "additionalProperties": text()});
    let alerts =
        object(&json!({"match": text(), "ignore": text(), "labels": labels, "pending": {"type": "boolean"}}), &[]);
    let query = object(&json!({"name": text(), "query": text()}), &["name", "query"]);
    let properties = json!({
        "prometheus": text(), "alerts": alerts, "queries": {"type": "array", "items": query},
        "interval_seconds": number(1),
        "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": start_gates::MAX_TIMEOUT},
        "header_file": text(), "bearer_token_file": text(), "ca_file": text(),
    });
    object(&properties, &["prometheus"])
}

/// Returns the JSON schema of the policy. It refuses settings of a newer cketerm, as engines do.
pub fn schema() -> Value {
    let settings = SETTINGS.iter().map(|(name, form, about)| ((*name).to_owned(), form.schema(about)));
    let mut policy = object(&Value::Object(settings.collect()), &[]);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cketerm's policy",
        "description": "Generated by `cketerm policy schema`; `cketerm policy set` checks more than the schema.",
    });
    if let (Some(schema), Some(policy)) = (schema.as_object_mut(), policy.as_object_mut()) {
        schema.append(policy);
    }
    schema
}

/// Returns the schema as it is printed and published.
pub fn to_json_text() -> String {
    format!("{:#}\n", schema())
}

#[cfg(test)]
mod tests;
