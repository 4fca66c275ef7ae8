//! Gates of the site for new reboots (policy `start_gates`; REB-63 to REB-66): alerts and queries of Prometheus, and its last
//! answers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    boot_time::{BootTime, Seconds},
    cluster, secret,
};

/// Maximum number of queries.
const MAX_QUERIES: usize = 16;
/// Maximum length of an expression, in bytes.
const MAX_EXPRESSION: usize = 4096;
/// Maximum number of label matchers.
const MAX_LABELS: usize = 16;
/// Longest interval between two rounds of requests, in seconds.
const MAX_INTERVAL: u64 = 3600;
/// Longest timeout of a request, in seconds.
pub const MAX_TIMEOUT: u64 = 60;
/// Name of the gate of the alerts.
pub const ALERTS: &str = "alerts";
/// Name in place of a gate for what concerns all of them.
pub const ALL_GATES: &str = "prometheus";
/// Alerts that never close a gate: cketerm's own, which fire because a gate is closed.
const OWN_ALERTS: &str = "Cketerm.*";

/// Policy `start_gates`: while Prometheus reports certain alerts, or a query has a result, no drain of the reboot queue
/// starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartGates {
    /// Base URL of Prometheus, without `/api/v1`.
    pub prometheus: String,
    /// Alerts that close the gate; none = alerts do not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alerts: Option<AlertGate>,
    /// Queries that close the gate while they have a result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<QueryGate>,
    /// Seconds between two rounds of requests.
    #[serde(default = "thirty")]
    pub interval_seconds: u64,
    /// Seconds after which a request has failed.
    #[serde(default = "ten")]
    pub timeout_seconds: u64,
    /// File on the leader's host with headers, one `NAME: VALUE` per line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header_file: Option<String>,
    /// File on the leader's host with a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer_token_file: Option<String>,
    /// File on the leader's host with the only authorities that are trusted, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// Fields of a newer cketerm.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// Alerts that close the gate. Without a filter every firing alert does, except cketerm's own. The filters are those of
/// Prometheus: regular expressions that match the whole value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertGate {
    /// Names of the alerts that count; none = all.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Names of alerts that do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Labels that an alert must have to count, each with a regular expression of its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether pending alerts count too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
    /// Fields of a newer cketerm.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A query that closes the gate while it has a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryGate {
    /// Its name, for messages.
    pub name: String,
    /// Expression in `PromQL` with an instant vector as its result.
    pub query: String,
    /// Fields of a newer cketerm.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

fn thirty() -> u64 {
    30
}

fn ten() -> u64 {
    10
}

impl StartGates {
    /// Reads a document that a user wrote: YAML or JSON.
    pub fn read(text: &str) -> Result<Self, String> {
        let value = cluster::parse(text).map_err(|e| format!("start_gates: {e}"))?;
        let gates: Self = serde_json::from_value(value).map_err(|e| format!("start_gates: {e}"))?;
        if let Some(field) = gates.unknown_fields().first() {
            return Err(format!("start_gates: unknown field {field}"));
        }
        gates.check().map_err(|why| format!("start_gates: {why}"))?;
        Ok(gates)
    }

    fn check(&self) -> Result<(), String> {
        if !is_base_url(&self.prometheus) {
            return Err(
                "prometheus is not a URL such as https://host:9090, without user, password and query".to_owned()
            );
        }
        if self.alerts.is_none() && self.queries.is_empty() {
            return Err("give alerts or queries, or both".to_owned());
        }
        if !(1..=MAX_INTERVAL).contains(&self.interval_seconds) {
            return Err(format!("interval_seconds must be 1 to {MAX_INTERVAL}"));
        }
        if !(1..=MAX_TIMEOUT).contains(&self.timeout_seconds) {
            return Err(format!("timeout_seconds must be 1 to {MAX_TIMEOUT}"));
        }
        if self.header_file.is_some() && self.bearer_token_file.is_some() {
            return Err("give either header_file or bearer_token_file".to_owned());
        }
        let files = [&self.header_file, &self.bearer_token_file, &self.ca_file];
        if let Some(file) = files.into_iter().flatten().find(|file| !file.starts_with('/')) {
            return Err(format!("{file:?} is not an absolute path"));
        }
        if let Some(alerts) = &self.alerts {
            alerts.check().map_err(|why| format!("alerts: {why}"))?;
        }
        if self.queries.len() > MAX_QUERIES {
            return Err(format!("{} queries; at most {MAX_QUERIES}", self.queries.len()));
        }
        let mut names = BTreeSet::from([ALERTS, ALL_GATES]);
        for query in &self.queries {
            query.check()?;
            if !names.insert(&query.name) {
                return Err(format!("queries: the name {} is taken", query.name));
            }
        }
        Ok(())
    }

    /// Returns each gate by its name, with the expression that it asks for. The alerts come first.
    pub fn gates(&self) -> Vec<(&str, String)> {
        let alerts = self.alerts.iter().map(|alerts| (ALERTS, alerts.expression()));
        alerts.chain(self.queries.iter().map(|query| (query.name.as_str(), query.query.clone()))).collect()
    }

    /// Returns the time for which an answer counts, from its request on: two further rounds, of which one may fail to be
    /// answered in time.
    pub fn max_age(&self) -> Seconds {
        Seconds::from(self.interval_seconds.saturating_mul(2).saturating_add(self.timeout_seconds))
    }

    /// Returns the URL for messages.
    pub fn shown_url(&self) -> String {
        secret::url(&self.prometheus)
    }

    /// Returns the fields of a newer cketerm, by place.
    pub fn unknown_fields(&self) -> Vec<String> {
        let mut all: Vec<String> = self.unknown.keys().cloned().collect();
        let alerts = self.alerts.iter().flat_map(|alerts| alerts.unknown.keys());
        all.extend(alerts.map(|field| format!("alerts.{field}")));
        for query in &self.queries {
            all.extend(query.unknown.keys().map(|field| format!("queries.{}.{field}", query.name)));
        }
        all
    }
}

/// Reports whether the text looks like the base URL of a server. The request parses it again.
fn is_base_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split('/').next());
    host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        && !text.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#'))
}

impl AlertGate {
    fn check(&self) -> Result<(), String> {
        if self.labels.len() > MAX_LABELS {
            return Err(format!("{} labels; at most {MAX_LABELS}", self.labels.len()));
        }
        let is_name = |name: &str| {
            let mut chars = name.chars();
            chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !matches!(name, "__name__" | "alertname" | "alertstate")
        };
        if let Some(name) = self.labels.keys().find(|name| !is_name(name)) {
            return Err(format!("labels: {name:?} cannot be matched; for the name of an alert use match or ignore"));
        }
        let values = self.labels.values().chain(&self.only).chain(&self.ignore);
        if values.clone().any(String::is_empty) {
            return Err("an empty expression matches alerts without the label; leave it out".to_owned());
        }
        if values.map(String::len).sum::<usize>() > MAX_EXPRESSION {
            return Err(format!("the filters are longer than {MAX_EXPRESSION} bytes"));
        }
        Ok(())
    }

    /// Returns the expression whose result is the alerts that count.
    pub fn expression(&self) -> String {
        let state = if self.pending { r#"alertstate=~"firing|pending""# } else { r#"alertstate="firing""# };
        let mut matchers = vec![state.to_owned(), format!(r#"alertname!~"{OWN_ALERTS}""#)];
        matchers.extend(self.only.iter().map(|names| format!("alertname=~{}", quoted(names))));
        matchers.extend(self.ignore.iter().map(|names| format!("alertname!~{}", quoted(names))));
        matchers.extend(self.labels.iter().map(|(label, value)| format!("{label}=~{}", quoted(value))));
        format!("ALERTS{{{}}}", matchers.join(","))
    }
}

/// Returns a string literal of `PromQL`.
fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => literal.extend(['\\', c]),
            '\n' => literal.push_str("\\n"),
            c => literal.push(c),
        }
    }
    literal.push('"');
    literal
}

impl QueryGate {
    fn check(&self) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 40 || !self.name.chars().all(plain) {
            return Err(format!("queries: {:?} is no name: use up to 40 lower-case letters, digits and -", self.name));
        }
        if self.query.trim().is_empty() || self.query.len() > MAX_EXPRESSION {
            return Err(format!("queries: {}: the query must have 1 to {MAX_EXPRESSION} bytes", self.name));
        }
        Ok(())
    }
}

/// Last answers of Prometheus, as one leader saw them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StartGateView {
    /// Settings by which it was asked; none = it was not asked yet.
    pub settings: Option<StartGates>,
    /// The newest answer of each gate, by the gate's name.
    pub answers: BTreeMap<String, GateAnswer>,
}

/// Answer of one gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateAnswer {
    /// Boot time of the request.
    pub asked: BootTime,
    /// State by the answer.
    pub state: GateState,
}

/// State of one gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// No alert counts, or the query has no result.
    Open,
    /// The alerts, or the result.
    Closed(String),
    /// There is no usable answer, with the error.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_and_written_in_the_same_form() {
        let text = "prometheus: https://prometheus.example/\n\
                    alerts: {ignore: 'Watchdog|InfoInhibitor', labels: {severity: critical}}\n\
                    queries: [{name: ceph, query: ceph_health_status > 0}]\n";
        let gates = StartGates::read(text).unwrap();
        assert_eq!((gates.interval_seconds, gates.timeout_seconds), (30, 10));
        assert_eq!(gates.max_age(), Seconds::new(70.0));
        let json = serde_json::to_string(&gates).unwrap();
        assert_eq!(StartGates::read(&json).unwrap(), gates);
        let alerts = r#"ALERTS{alertstate="firing",alertname!~"Cketerm.*",alertname!~"Watchdog|InfoInhibitor",severity=~"critical"}"#;
        assert_eq!(gates.gates(), [("alerts", alerts.to_owned()), ("ceph", "ceph_health_status > 0".to_owned())]);
        let newer: StartGates = serde_json::from_str(&json.replace("\"ignore\":", "\"moon\":")).unwrap();
        assert_eq!(newer.unknown_fields(), ["alerts.moon"]);
    }

    #[test]
    fn a_filter_cannot_leave_its_literal() {
        let gates = StartGates::read(
            r#"{"prometheus": "http://p:9090", "alerts": {"match": "a\"} or vector(0) #\\d\n", "pending": true}}"#,
        );
        let expression = gates.unwrap().alerts.unwrap().expression();
        assert!(expression.ends_with(r#"alertname=~"a\"} or vector(0) #\\d\n"}"#), "{expression}");
        assert!(expression.starts_with(r#"ALERTS{alertstate=~"firing|pending","#), "{expression}");
    }

    #[test]
    fn a_wrong_document_is_refused_with_its_place() {
        let with = |fields: &str| format!("{{prometheus: 'https://p', {fields}}}");
        for (text, expected) in [
            ("{alerts: {}}".to_owned(), "missing field `prometheus`"),
            ("{prometheus: 'https://p'}".to_owned(), "give alerts or queries"),
            ("{prometheus: p, alerts: {}}".to_owned(), "prometheus is not a URL"),
            ("{prometheus: 'https://anna:pw@p', alerts: {}}".to_owned(), "prometheus is not a URL"),
            ("{prometheus: 'https://p/?a=b', alerts: {}}".to_owned(), "prometheus is not a URL"),
            ("none such".to_owned(), "start_gates: "),
            (with("alerts: {only: a}"), "unknown field alerts.only"),
            (with("alerts: {}, moon: full"), "unknown field moon"),
            (with("queries: [{name: a, query: up, for: 5m}]"), "unknown field queries.a.for"),
            (with("alerts: {labels: {'a-b': c}}"), "labels: \"a-b\" cannot be matched"),
            (with("alerts: {labels: {alertname: c}}"), "use match or ignore"),
            (with("alerts: {ignore: ''}"), "an empty expression"),
            (with("queries: [{name: 'A b', query: up}]"), "is no name"),
            (with("queries: [{name: a, query: ' '}]"), "a: the query must have"),
            (with("queries: [{name: a, query: x}, {name: a, query: y}]"), "the name a is taken"),
            (with("queries: [{name: alerts, query: x}]"), "the name alerts is taken"),
            (with("alerts: {}, interval_seconds: 0"), "interval_seconds must be"),
            (with("alerts: {}, timeout_seconds: 61"), "timeout_seconds must be"),
            (with("alerts: {}, ca_file: ca.pem"), "is not an absolute path"),
            (with("alerts: {}, header_file: /a, bearer_token_file: /b"), "give either"),
        ] {
            let why = StartGates::read(&text).unwrap_err();
            assert!(why.starts_with("start_gates: ") && why.contains(expected), "{text}: {why}");
        }
    }
}
