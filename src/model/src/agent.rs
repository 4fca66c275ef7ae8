//! Annotations by which a node's agent, and the power driver that gives it orders, talk to each other. They are on the
//! Node of the agent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::reboot_signals::REBOOT_NEEDED_ANNOTATION;

/// JSON of [`Report`]; the agent writes it.
pub const REPORT_ANNOTATION: &str = "cketerm.io/agent";
/// JSON of [`Order`]; the driver writes and removes it.
pub const ORDER_ANNOTATION: &str = "cketerm.io/reboot-order";
/// JSON of [`Answer`]; the agent writes it.
pub const ANSWER_ANNOTATION: &str = "cketerm.io/reboot-answer";
/// Beginning of the agent's own values of [`REBOOT_NEEDED_ANNOTATION`], which it writes while its sentinel is there. It
/// never changes or removes a value of others.
pub const NEEDED_PREFIX: &str = "sentinel ";

/// Longest cause, in characters. A Node's annotation of 512 bytes or more is not kept.
const MAX_CAUSE: usize = 200;

/// Facts about the agent and its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Boot id of the machine, from the kernel.
    pub boot_id: String,
    /// Version of the agent.
    pub version: String,
}

/// Order to reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Id of this order. No other order has it. Empty: an earlier version of the driver gave it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Id of the attempt, which is obeyed at most once in one boot. A new queue gives the same ids again.
    pub attempt: String,
    /// Boot id that the reboot ends. With another one the machine has rebooted already.
    pub boot_id: String,
    /// Time after which the order must not be obeyed.
    pub deadline: Timestamp,
}

/// Answer of the agent to one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Id of the order. Empty: the order had none, or an earlier version of the agent answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub order_id: String,
    /// Id of the attempt. Empty: the order could not be read.
    pub attempt: String,
    /// Boot id of the machine at that time.
    pub boot_id: String,
    /// Time of the answer, by the agent's clock.
    pub at: Timestamp,
    /// Whether the agent reboots the machine.
    pub obeyed: bool,
    /// Reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Answer {
    /// Reports whether the answer is to this order. Where one of the two has no id, it must be of one of these boots: in
    /// another boot, an attempt of an earlier queue had the same id.
    pub fn is_to(&self, order: &Order, boot_ids: &[&str]) -> bool {
        let same = if self.order_id.is_empty() || order.id.is_empty() {
            boot_ids.contains(&self.boot_id.as_str())
        } else {
            self.order_id == order.id
        };
        same && self.attempt == order.attempt
    }
}

/// Annotation that should be there: its JSON, or the reason why it cannot be read.
pub type Read<T> = Option<Result<T, String>>;

/// Annotations of an agent on its Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentAnnotations {
    /// Text of the order.
    pub order: Option<String>,
    /// Text of the answer.
    pub answer: Option<String>,
    /// Text of the report.
    pub report: Option<String>,
    /// Reason why the node needs a reboot.
    pub needed: Option<String>,
}

impl AgentAnnotations {
    /// Returns the agent's annotations among those of a Node.
    pub fn of<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let get = |name| get(name).map(str::to_owned);
        Self {
            order: get(ORDER_ANNOTATION),
            answer: get(ANSWER_ANNOTATION),
            report: get(REPORT_ANNOTATION),
            needed: get(REBOOT_NEEDED_ANNOTATION),
        }
    }

    /// Returns the order.
    pub fn order(&self) -> Read<Order> {
        read(self.order.as_ref())
    }

    /// Returns the answer, if there is a readable one.
    pub fn answer(&self) -> Option<Answer> {
        read(self.answer.as_ref())?.ok()
    }

    /// Returns the report, if there is a readable one.
    pub fn report(&self) -> Option<Report> {
        read(self.report.as_ref())?.ok()
    }
}

fn read<T: DeserializeOwned>(text: Option<&String>) -> Read<T> {
    text.map(|text| serde_json::from_str(text).map_err(|e| e.to_string()))
}

/// Returns the JSON of a form. These forms can always be written.
pub fn json(form: &impl Serialize) -> String {
    serde_json::to_string(form).unwrap_or_default()
}

/// Returns the agent's value of [`REBOOT_NEEDED_ANNOTATION`]: the cause, shortened and on one line.
pub fn needed_value(cause: &str) -> String {
    let words = cause.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = words.chars().filter(|c| !c.is_control()).take(MAX_CAUSE).collect();
    format!("{NEEDED_PREFIX}{shown}")
}

/// Returns the changes of the agent's report that are due: names with values, `None` = remove. Empty: nothing changes.
/// `cause`: reason for which the sentinel asks for a reboot.
pub fn report_changes(
    seen: &AgentAnnotations,
    report: &Report,
    cause: Option<&str>,
) -> BTreeMap<&'static str, Option<String>> {
    let mut changes = BTreeMap::new();
    if seen.report().as_ref() != Some(report) {
        changes.insert(REPORT_ANNOTATION, Some(json(report)));
    }
    let own = seen.needed.as_ref().is_none_or(|value| value.starts_with(NEEDED_PREFIX));
    let wanted = cause.map(needed_value);
    if own && seen.needed != wanted {
        changes.insert(REBOOT_NEEDED_ANNOTATION, wanted);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report { boot_id: "b1".to_owned(), version: "0.2.0".to_owned() }
    }

    #[test]
    fn a_report_is_written_only_on_a_change() {
        let with = |needed: Option<&str>| AgentAnnotations {
            report: Some(json(&report())),
            needed: needed.map(str::to_owned),
            ..AgentAnnotations::default()
        };
        let none = AgentAnnotations::default();
        let needed = |value: Option<&str>| BTreeMap::from([(REBOOT_NEEDED_ANNOTATION, value.map(str::to_owned))]);
        assert_eq!(report_changes(&none, &report(), None).keys().collect::<Vec<_>>(), [&REPORT_ANNOTATION]);
        for (seen, cause, expected) in [
            (None, None, BTreeMap::new()),
            (None, Some("/run/reboot-required: libc6"), needed(Some("sentinel /run/reboot-required: libc6"))),
            (Some("sentinel x"), Some("x"), BTreeMap::new()),
            (Some("sentinel x"), None, needed(None)),
            // Somebody else's request is not the agent's to change.
            (Some("new firmware"), Some("x"), BTreeMap::new()),
            (Some("new firmware"), None, BTreeMap::new()),
        ] {
            assert_eq!(report_changes(&with(seen), &report(), cause), expected, "{seen:?} {cause:?}");
        }
        let rebooted = Report { boot_id: "b2".to_owned(), ..report() };
        assert_eq!(report_changes(&with(None), &rebooted, None).len(), 1);
    }

    #[test]
    fn a_cause_is_short_and_on_one_line() {
        let value = needed_value(&format!("a\nb\u{1b} {}", "x".repeat(1000)));
        assert!(value.starts_with("sentinel a b ") && value.chars().count() < 220, "{value}");
    }

    #[test]
    fn annotations_are_read_and_a_broken_one_is_an_error() {
        let order = Order { id: "o".into(), attempt: "a".into(), boot_id: "b".into(), deadline: Timestamp::UNIX_EPOCH };
        let text = json(&order);
        assert_eq!(text, r#"{"id":"o","attempt":"a","boot_id":"b","deadline":"1970-01-01T00:00:00Z"}"#);
        let seen = AgentAnnotations::of(|name| (name == ORDER_ANNOTATION).then_some(text.as_str()));
        assert_eq!(seen.order(), Some(Ok(order)));
        assert_eq!((seen.answer(), seen.report()), (None, None));
        let broken = AgentAnnotations { order: Some("{".into()), answer: Some("x".into()), ..seen };
        assert!(broken.order().is_some_and(|order| order.is_err()) && broken.answer().is_none());
    }

    /// Forms of earlier versions have no id of the order.
    #[test]
    fn forms_without_an_order_id_are_read_and_matched_by_attempt_and_boot() {
        let order: Order =
            serde_json::from_str(r#"{"attempt":"a","boot_id":"b1","deadline":"1970-01-01T00:00:00Z"}"#).unwrap();
        let text = r#"{"attempt":"a","boot_id":"b1","at":"1970-01-01T00:00:00Z","obeyed":true}"#;
        let answer: Answer = serde_json::from_str(text).unwrap();
        assert_eq!((json(&answer).as_str(), order.id.as_str()), (text, ""));
        let with_id = Order { id: "o1".into(), ..order.clone() };
        let answered = |id: &str| Answer { order_id: id.into(), ..answer.clone() };
        for (what, answer, order, boot_ids, expected) in [
            ("neither has an id", answered(""), &order, ["b1"], true),
            ("neither has an id, another boot", answered(""), &order, ["b2"], false),
            ("only the order has an id", answered(""), &with_id, ["b1"], true),
            ("only the answer has an id", answered("o1"), &order, ["b1"], true),
            ("the same id", answered("o1"), &with_id, ["b1"], true),
            ("the same id, another boot", answered("o1"), &with_id, ["b2"], true),
            ("another id in the same boot", answered("o0"), &with_id, ["b1"], false),
        ] {
            assert_eq!(answer.is_to(order, &boot_ids), expected, "{what}");
            let other = Order { attempt: "a2".into(), ..order.clone() };
            assert!(!answer.is_to(&other, &boot_ids), "another attempt: {what}");
        }
    }
}
