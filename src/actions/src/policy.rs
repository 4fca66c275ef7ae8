//! Actions on the settings that decisions use: policy and constraints.

use cketerm_clients::store::operator::AuditNote;
use cketerm_model::{
    acceptance::OperatorCommand,
    cketerm_records::Who,
    cluster,
    constraints::Constraints,
    freeze::{Freeze, Groups},
    hook::Hooks,
    outcomes::{Breaker, Canary},
    policy::{ControlPlaneProbe, Policy},
    reboot_signals::Signals,
    start_gates::StartGates,
    text::nearest,
    uncordon_gates::UncordonGates,
    window::Windows,
};
use cketerm_rules::reboot_needed::queue::MAX_PER_DAY;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{accept::accept_policy_change, error::ActionError, operator::Operator};

/// Policy fields that are written as YAML or JSON, or as `none`.
pub const DOCUMENTS: [&str; 9] = [
    "windows",
    "freeze",
    "groups",
    "reboot_needed_signals",
    "hooks",
    "uncordon_gates",
    "breaker",
    "canary",
    "start_gates",
];

/// Maximum number of waves whose Nodes get a taint.
pub(super) const MAX_TAINT_WAVES: u64 = 5;

/// Names of the constraints.
pub const CONSTRAINTS: [&str; 7] = [
    "control-plane-count",
    "minimum-workers-rate",
    "maximum-unreachable-nodes-for-reboot",
    "maximum-repair-queue-entries",
    "wait-seconds-to-repair-rebooting",
    "minimum-workers",
    "maximum-workers",
];

impl Operator {
    /// Sets one field of the policy, validated by its type. The fields of [`DOCUMENTS`]
    /// take YAML or JSON, or `none`.
    pub async fn set_policy(&self, name: &str, value: &str, reason: Option<&str>) -> Result<Policy, ActionError> {
        let set_by = SetBy { who: self.who(), now: self.store.clock().wall() };
        with_field(&Policy::default(), name, value, set_by).map_err(ActionError::misused)?;
        let on = audit_target(name, value);
        let note = AuditNote::new(&self.person, "policy set", &on, reason);
        let command = OperatorCommand::of_policy(name, value);
        let set = self.store.update_policy_if(
            note,
            |led| accept_policy_change(command, led, self.handover),
            |policy| {
                *policy = with_field(policy, name, value, set_by)?;
                Ok(())
            },
        );
        Ok(set.await?)
    }

    /// Freezes both queues until this time, so that nothing new starts. Never queries Kubernetes. Returns the freeze
    /// that was in force before.
    pub async fn freeze(&self, until: Timestamp, reason: &str) -> Result<Option<Freeze>, ActionError> {
        let now = self.store.clock().wall();
        let reason = one_line(reason).map_err(ActionError::misused)?;
        let freeze = Freeze { until, reason: reason.clone(), who: self.who().clone(), unknown: Map::new() };
        let mut before = None;
        let on = format!("both queues until {until}");
        let note = AuditNote::new(&self.person, "freeze", &on, Some(&reason));
        let set = self.store.update_policy_if(
            note,
            |led| accept_policy_change(OperatorCommand::Freeze, led, self.handover),
            |policy| {
                before = policy.freeze.replace(freeze.clone()).filter(|freeze| freeze.holds(now));
                Ok(())
            },
        );
        set.await?;
        Ok(before)
    }

    /// Ends a freeze early and returns it, if there was one in force.
    pub async fn unfreeze(&self, reason: Option<&str>) -> Result<Option<Freeze>, ActionError> {
        let now = self.store.clock().wall();
        let mut before = None;
        let note = AuditNote::new(&self.person, "unfreeze", "both queues", reason);
        let set = self.store.update_policy(note, |policy| {
            before = policy.freeze.take().filter(|freeze| freeze.holds(now));
            Ok(())
        });
        set.await?;
        Ok(before)
    }

    /// Sets one constraint.
    pub async fn set_constraint(
        &self,
        name: &str,
        value: &str,
        reason: Option<&str>,
    ) -> Result<Constraints, ActionError> {
        self.replace_constraint(name, value, reason).await.map(|set| set.now)
    }

    /// Sets one constraint and returns the value that it replaced.
    pub async fn replace_constraint(
        &self,
        name: &str,
        value: &str,
        reason: Option<&str>,
    ) -> Result<ConstraintSet, ActionError> {
        let mut before = None;
        let number = constraint(name, value).map_err(ActionError::misused)?;
        let set = self.store.update_constraints(&self.person, reason, |c| {
            before = value_of(c, name);
            set_value(c, name, number);
            match (c.minimum_workers, c.maximum_workers) {
                (Some(least), Some(most)) if most > 0 && least > most => {
                    Err(format!("constraint minimum-workers ({least}) would be above maximum-workers ({most})"))
                }
                _ => Ok(()),
            }
        });
        let (now, revision) = set.await?;
        Ok(ConstraintSet { now, before, revision })
    }
}

/// Result of setting a constraint.
#[derive(Clone, Debug)]
pub struct ConstraintSet {
    /// All constraints after the write.
    pub now: Constraints,
    /// Previous value of the constraint, or `None` if it was not set.
    pub before: Option<i64>,
    /// Revision of the write.
    pub revision: i64,
}

/// Returns a constraint's value, or `None` if it is not set.
fn value_of(constraints: &Constraints, name: &str) -> Option<i64> {
    serde_json::to_value(constraints).ok()?.get(name)?.as_i64()
}

/// Returns `settle_seconds to 5`, for the audit record. Of a document it keeps the first words.
fn audit_target(name: &str, value: &str) -> String {
    const MAX_CHARS: usize = 60;
    let words = value.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(MAX_CHARS) {
        Some((cut, _)) => format!("{name} to {}~", &words[..cut]),
        None => format!("{name} to {words}"),
    }
}

/// Parses a constraint's number. The error says what is wrong with the name or the value.
pub fn constraint(name: &str, value: &str) -> Result<i64, String> {
    if !CONSTRAINTS.contains(&name) {
        return Err(unknown_constraint(name));
    }
    let number = value.parse::<i64>();
    let number = number.map_err(|_| format!("constraint {name} must be a whole number, not {value:?}"))?;
    if number < 0 {
        return Err(format!("constraint {name} must not be negative, is {number}"));
    }
    if name == "minimum-workers-rate" && number > 100 {
        return Err(format!("constraint {name} is a percentage of at most 100, not {number}"));
    }
    Ok(number)
}

/// Returns the message that there is no constraint of this name, with the closest known name.
pub fn unknown_constraint(name: &str) -> String {
    unknown("constraint", name, CONSTRAINTS)
}

fn set_value(c: &mut Constraints, name: &str, number: i64) {
    match name {
        "control-plane-count" => c.control_plane_count = number,
        "minimum-workers-rate" => c.minimum_workers_rate = number,
        "maximum-unreachable-nodes-for-reboot" => c.maximum_unreachable_nodes_for_reboot = number,
        "maximum-repair-queue-entries" => c.maximum_repair_queue_entries = number,
        "wait-seconds-to-repair-rebooting" => c.wait_seconds_to_repair_rebooting = number,
        "minimum-workers" => c.minimum_workers = Some(number),
        "maximum-workers" => c.maximum_workers = Some(number),
        _ => {} // `constraint` accepts no other name
    }
}

fn unknown(what: &str, name: &str, known: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let known: Vec<String> = known.into_iter().map(|k| k.as_ref().to_owned()).collect();
    match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("no such {what}: {name}; did you mean {near}?"),
        None => format!("no such {what}: {name}; known: {}", known.join(", ")),
    }
}

/// Operator who sets a field, and the time.
#[derive(Clone, Copy)]
pub(super) struct SetBy<'a> {
    pub(super) who: &'a Who,
    pub(super) now: Timestamp,
}

/// Normalizes a reason for the header: not empty, and on one line.
fn one_line(reason: &str) -> Result<String, String> {
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.chars().count() {
        0 => Err("a freeze needs a reason: every header shows it".to_owned()),
        1..=200 => Ok(line),
        long => Err(format!("the reason has {long} characters; use at most 200, such as a ticket")),
    }
}

/// Sets one of [`DOCUMENTS`].
fn with_document(policy: &Policy, name: &str, text: &str, set_by: SetBy<'_>) -> Result<Policy, String> {
    let none = text.trim() == "none";
    let mut policy = policy.clone();
    match name {
        "windows" => {
            let windows = if none { None } else { Some(Windows::read(text)?) };
            if let Some(why) = windows.as_ref().and_then(|windows| windows.unusable_reason(set_by.now)) {
                return Err(why);
            }
            policy.windows = windows;
        }
        "reboot_needed_signals" => policy.reboot_needed_signals = Signals::read(text)?,
        "hooks" => policy.hooks = Hooks::read(text)?,
        "uncordon_gates" => policy.uncordon_gates = UncordonGates::read(text)?,
        "breaker" => policy.breaker = if none { None } else { Some(Breaker::read(text)?) },
        "canary" => policy.canary = if none { None } else { Some(Canary::read(text)?) },
        "start_gates" => policy.start_gates = if none { None } else { Some(Box::new(StartGates::read(text)?)) },
        "groups" => policy.groups = if none { None } else { Some(Groups::read(text)?) },
        "freeze" if none => policy.freeze = None,
        "freeze" => {
            let value = cluster::parse(text).map_err(|e| format!("freeze: {e}"))?;
            let until = value.get("until").and_then(Value::as_str);
            if until.is_none_or(|until| until.parse::<Timestamp>().is_err()) {
                return Err("freeze: until: expected a time such as 2026-11-21T10:00:00Z".to_owned());
            }
            let freeze: Freeze = serde_json::from_value(value).map_err(|e| format!("freeze: {e}"))?;
            if let Some(field) = freeze.unknown.keys().next() {
                return Err(format!("freeze: unknown field {field}; known: until, reason"));
            }
            if !freeze.holds(set_by.now) {
                return Err(format!("freeze: until {} is in the past", freeze.until));
            }
            let reason = one_line(&freeze.reason)?;
            policy.freeze = Some(Freeze { who: set_by.who.clone(), reason, ..freeze });
        }
        _ => return Err(unknown("document of the policy", name, DOCUMENTS)),
    }
    Ok(policy)
}

/// Returns `policy` with one field set from text. The error says what is wrong.
pub(super) fn with_field(policy: &Policy, name: &str, text: &str, set_by: SetBy<'_>) -> Result<Policy, String> {
    if DOCUMENTS.contains(&name) {
        return with_document(policy, name, text, set_by);
    }
    let defaults = fields(&Policy::default())?;
    let Some(default) = defaults.get(name) else {
        return Err(unknown("policy field", name, defaults.keys().map(String::as_str).chain(DOCUMENTS)));
    };
    let value = match default {
        Value::Number(_) => {
            let number = text.parse::<u64>();
            number.map_err(|_| format!("policy {name} must be a whole number from 0, not {text:?}"))?.into()
        }
        Value::Bool(_) => {
            let flag = text.parse::<bool>();
            flag.map_err(|_| format!("policy {name} must be true or false, not {text:?}"))?.into()
        }
        _ => Value::String(text.to_owned()),
    };
    check_range(name, &value)?;
    let mut all = fields(policy)?;
    all.insert(name.to_owned(), value);
    // only words of an enumeration can still be wrong; serde's error lists the known ones
    serde_json::from_value(Value::Object(all)).map_err(|e| format!("policy {name}: {e}"))
}

fn check_range(name: &str, value: &Value) -> Result<(), String> {
    let number = value.as_u64().unwrap_or_default();
    match name {
        "gate_percent" | "unreachable_percent" if number > 100 => {
            Err(format!("policy {name} is a percentage of at most 100, not {number}"))
        }
        "planned_taint_waves" if number > MAX_TAINT_WAVES => {
            Err(format!("policy {name} must be at most {MAX_TAINT_WAVES}, not {number}; 0 = no taint"))
        }
        "reboot_needed_per_day" if number > MAX_PER_DAY => {
            Err(format!("policy {name} must be at most {MAX_PER_DAY}, not {number}; 0 = no limit"))
        }
        "command_cap_seconds" | "sabakan_poll_seconds" | "stuck_seconds" | "reboot_needed_at_once" if number == 0 => {
            Err(format!("policy {name} must be positive"))
        }
        "control_plane_probe" => {
            let probe = ControlPlaneProbe::from(value.as_str().unwrap_or_default().to_owned());
            probe.check().map_err(|why| format!("policy {name} {why}"))
        }
        _ => Ok(()),
    }
}

fn fields(policy: &Policy) -> Result<Map<String, Value>, String> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("the policy is not an object".to_owned()),
        Err(e) => Err(format!("the policy cannot be written: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::policy::{ApiServerOrder, RebootNeeded};

    fn on(policy: &Policy, name: &str, text: &str) -> Result<Policy, String> {
        let who = Who { user: "ann".to_owned(), ..Who::default() };
        with_field(policy, name, text, SetBy { who: &who, now: "2026-08-01T12:00:00Z".parse().unwrap() })
    }

    fn set(name: &str, text: &str) -> Result<Policy, String> {
        on(&Policy::default(), name, text)
    }

    #[test]
    fn none_removes_each_document() {
        let documents = [
            ("windows", "{time_zone: Asia/Tokyo, allow: ['* 22-23 * * 1-5']}"),
            ("breaker", "{failures: 2, of: 5}"),
            ("canary", "{first: 1}"),
            ("groups", "{by: rack, limit: 2}"),
            ("freeze", "{until: '2026-08-02T10:00:00Z', reason: audit}"),
        ];
        for (name, text) in documents {
            let with = set(name, text).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_ne!(with, Policy::default(), "{name}");
            assert_eq!(on(&with, name, " none ").unwrap(), Policy::default(), "{name}");
        }
    }

    #[test]
    fn a_field_is_validated_by_its_type() {
        assert_eq!(set("api_server_order", "first").unwrap().api_server_order, ApiServerOrder::First);
        assert_eq!(set("settle_seconds", "5").unwrap().settle_seconds, 5);
        assert!(set("metal3_controller", "true").unwrap().metal3_controller);
        assert!(set("settle_seconds", "-5").unwrap_err().contains("settle_seconds"));
        assert!(set("metal3_controller", "yes").unwrap_err().contains("true or false"));
        assert!(set("api_server_order", "middle").unwrap_err().contains("`last` or `first`"));
        assert!(set("control_plane_probe", "https://x/readyz").unwrap_err().contains("{address}"));
        assert!(set("control_plane_probe", "node").is_ok());
        assert!(set("gate_percent", "101").is_err());
        assert!(set("unreachable_percent", "101").is_err());
        assert_eq!(set("reboot_needed", "queue").unwrap().reboot_needed, RebootNeeded::Queue);
        assert!(set("reboot_needed", "always").unwrap_err().contains("`off`, `propose`, `queue`"));
        assert!(set("reboot_needed_at_once", "0").unwrap_err().contains("must be positive"));
        assert!(set("reboot_needed_per_day", "0").is_ok() && set("reboot_needed_per_day", "1001").is_err());
        assert!(set("node_conditions", "true").unwrap().node_conditions);
        assert!(set("planned_taint_waves", "5").is_ok() && set("planned_taint_waves", "6").is_err());
        let policy = set("reboot_needed_signals", "[flatcar]").unwrap();
        assert_eq!(policy.reboot_needed_signals.0.len(), 1);
        assert!(on(&policy, "reboot_needed_signals", "none").unwrap().reboot_needed_signals.0.is_empty());
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_nearest_known_name() {
        assert_eq!(
            set("setle_seconds", "1").unwrap_err(),
            "no such policy field: setle_seconds; did you mean settle_seconds?"
        );
        assert!(set("colour", "1").unwrap_err().contains("known: engine, "));
    }

    #[test]
    fn unknown_fields_of_a_newer_version_are_kept() {
        let newer: Policy = serde_json::from_str(r#"{"later": {"a": 1}}"#).unwrap();
        assert_eq!(on(&newer, "settle_seconds", "7").unwrap().unknown["later"]["a"], 1);
        let deep = r#"{"windows": {"time_zone": "UTC", "moon": "full"}, "groups": {"by": "rack", "most": 2}}"#;
        let newer: Policy = serde_json::from_str(deep).unwrap();
        assert_eq!(newer.unknown_fields(), ["windows.moon", "groups.most"]);
        let back = serde_json::to_value(on(&newer, "settle_seconds", "7").unwrap()).unwrap();
        assert_eq!((&back["windows"]["moon"], &back["groups"]["most"]), (&"full".into(), &2.into()));
    }

    #[test]
    fn windows_freeze_and_groups_take_a_document_or_none() {
        let policy = set("windows", "time_zone: Asia/Tokyo\nallow: ['* 22-23 * * 1-5']\n").unwrap();
        assert_eq!(policy.windows.as_ref().unwrap().time_zone(), "Asia/Tokyo");
        let policy = on(&policy, "groups", r#"{"by": "rack", "limit": 2}"#).unwrap();
        assert!(policy.windows.is_some() && policy.groups.as_ref().unwrap().limit == 2);
        let policy = on(&policy, "windows", " none\n").unwrap();
        assert!(policy.windows.is_none() && policy.groups.is_some());
        let frozen = set("freeze", r#"{"until": "2026-08-02T00:00:00Z", "reason": "quarter\n end"}"#).unwrap();
        let freeze = frozen.freeze.as_ref().unwrap();
        assert_eq!((freeze.reason.as_str(), freeze.who.user.as_str()), ("quarter end", "ann"));
        assert!(on(&frozen, "freeze", "none").unwrap().freeze.is_none());
        for (name, text, message) in [
            ("windows", "time_zone: UTC\nallow: ['61 * * * *']", "allow[0] \"61 * * * *\": 61 is not in 0-59"),
            ("windows", "time_zone: UTC\nallow: ['0 2 * * *']", "longer than margin_seconds"),
            ("windows", "true", "windows: expected a map with time_zone"),
            ("windows", "[]", "windows: expected a map with time_zone"),
            ("freeze", "{until: foo, reason: x}", "freeze: until: expected a time"),
            ("freeze", "{reason: x}", "freeze: until: expected a time"),
            ("freeze", "{until: 2026-08-01T00:00:00Z, reason: x}", "is in the past"),
            ("freeze", "{until: 2026-08-02T00:00:00Z, reason: ' '}", "needs a reason"),
            ("groups", "rack", "groups: "),
            ("start_gates", "{prometheus: 'https://p'}", "start_gates: give alerts or queries"),
            ("reboot_needed_signals", "[kurd]", "no such preset: kurd"),
        ] {
            let why = set(name, text).unwrap_err();
            assert!(why.contains(message), "{name} {text}: {why}");
        }
    }
}
