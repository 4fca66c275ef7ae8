//! Maintenance windows: times in which drains may start and power commands may run (policy `windows`; REB-53, I8).
//!
//! | module | content |
//! | --- | --- |
//! | `expression` | five cron-like fields |
//! | `calendar` | opening times of a union of expressions, in a time zone |
//! | `human` | moments and spans for display |
//! | this one | written form, and the machines of each window |

mod calendar;
mod expression;
mod human;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    cluster::parse,
    entry::QueueKind,
    labels::{Labels, attribute},
    selector::Selector,
};
pub use calendar::{Window, WindowState, zone};
pub use expression::Expression;
pub use human::{clock, length};

/// Number of openings that are examined when windows are checked.
const MAX_OPENINGS: usize = 100;

/// The policy's windows, parsed and checked. There is a general window, and others for machines that labels select. The
/// first one that selects a machine is the machine's. A minute that the general window denies is denied to all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Windows {
    written: Written,
    all: Vec<Window>,
    selectors: Vec<Option<Selector>>,
}

/// Written form of the windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Written {
    time_zone: String,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
    #[serde(default = "margin")]
    margin_seconds: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queues: Vec<QueueKind>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    machines: Vec<WrittenFor>,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// Returns the default margin: seconds before a window's end in which no drain starts. Most drains end within it.
fn margin() -> u32 {
    300
}

/// A window for some machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WrittenFor {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rack: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    selector: Option<String>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

impl WrittenFor {
    fn rack(&self) -> Option<String> {
        self.rack.as_ref().map(|rack| rack.as_str().map_or_else(|| rack.to_string(), str::to_owned))
    }
}

impl Windows {
    /// Reads a document of a user, YAML or JSON. Fields that this version does not know are refused.
    pub fn read(text: &str) -> Result<Self, String> {
        let value = parse(text).map_err(|e| format!("windows: {e}"))?;
        if !value.is_object() {
            return Err("windows: expected a map with time_zone, and with allow, deny or machines".to_owned());
        }
        let written: Written = serde_json::from_value(value).map_err(|e| format!("windows: {e}"))?;
        let found = Self::try_from(written)?;
        match found.unknown_fields().as_slice() {
            [] => Ok(found),
            [field, ..] => Err(format!(
                "windows: unknown field {field}; known fields: time_zone, allow, deny, margin_seconds, queues and \
                 machines (with name, role, rack, selector, allow, deny)"
            )),
        }
    }

    /// Returns the fields of a newer cketerm, by place.
    pub fn unknown_fields(&self) -> Vec<String> {
        let general = self.written.unknown.keys().cloned();
        let of = |(i, spec): (usize, &WrittenFor)| -> Vec<String> {
            spec.unknown.keys().map(|key| format!("machines[{i}].{key}")).collect()
        };
        general.chain(self.written.machines.iter().enumerate().flat_map(of)).collect()
    }

    /// Reports whether the windows bind this queue. Without `queues` they bind both.
    pub fn bind(&self, queue: QueueKind) -> bool {
        self.written.queues.is_empty() || self.written.queues.contains(&queue)
    }

    /// Returns the seconds before a window's end in which no drain starts, because it would unwind.
    pub fn margin_seconds(&self) -> u32 {
        self.written.margin_seconds
    }

    /// Returns the reason if nothing would ever start: no opening from `now` on is longer than the margin.
    pub fn unusable_reason(&self, now: Timestamp) -> Option<String> {
        let margin = i64::from(self.margin_seconds());
        self.all().find_map(|(name, window)| {
            let of = name.map_or_else(String::new, |name| format!(" of {name}"));
            let mut openings = window.openings(now).take(MAX_OPENINGS).peekable();
            if openings.peek().is_none() {
                return Some(format!("windows: the window{of} never opens: deny covers everything that allow permits"));
            }
            let enough = |(opens, closes): (Timestamp, Option<Timestamp>)| {
                closes.is_none_or(|closes| closes.duration_since(opens).as_secs() > margin)
            };
            (!openings.any(enough)).then(|| {
                format!(
                    "windows: no opening{of} is longer than margin_seconds ({margin}), so no drain would ever start: \
                     make it longer, or lower margin_seconds"
                )
            })
        })
    }

    /// Returns the name of their time zone.
    pub fn time_zone(&self) -> &str {
        &self.written.time_zone
    }

    /// Returns a moment as a clock in their zone shows it: `22:00 JST`, `Mon 22:00 JST` on another day of this week,
    /// else with the date.
    pub fn clock(&self, at: Timestamp, now: Timestamp) -> String {
        self.all.first().map_or_else(|| at.to_string(), |window| clock(&window.zone, at, now))
    }

    /// Returns all windows with their names: the general one first, then those for selected machines.
    pub fn all(&self) -> impl Iterator<Item = (Option<&str>, &Window)> {
        let names = std::iter::once(None).chain(self.written.machines.iter().map(|m| Some(m.name.as_str())));
        names.zip(&self.all)
    }

    /// Returns true if some machines have windows of their own.
    pub fn by_machine(&self) -> bool {
        !self.written.machines.is_empty()
    }

    /// Returns the position in [`Self::all`] of the window for a machine with these labels.
    pub fn index_for(&self, labels: &Labels) -> usize {
        let selects = |(spec, selector): (&WrittenFor, &Option<Selector>)| {
            spec.role.as_ref().is_none_or(|role| attribute(labels, "role") == Some(role))
                && spec.rack().is_none_or(|rack| attribute(labels, "rack") == Some(&rack))
                && selector.as_ref().is_none_or(|selector| selector.matches(labels))
        };
        self.written.machines.iter().zip(&self.selectors).position(selects).map_or(0, |place| place + 1)
    }
}

impl TryFrom<Written> for Windows {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let zone = zone(&written.time_zone).map_err(|why| format!("windows: time_zone: {why}"))?;
        let read = |field: &str, all: &[String]| -> Result<Vec<Expression>, String> {
            let each = all.iter().enumerate();
            each.map(|(i, text)| Expression::parse(text).map_err(|why| format!("windows: {field}[{i}] {why}")))
                .collect()
        };
        let deny = read("deny", &written.deny)?;
        let mut all = vec![Window { zone: zone.clone(), allow: read("allow", &written.allow)?, deny: deny.clone() }];
        let mut selectors = Vec::new();
        for (i, spec) in written.machines.iter().enumerate() {
            let at = format!("machines[{i}] ({})", spec.name);
            if spec.role.is_none() && spec.rack.is_none() && spec.selector.is_none() {
                return Err(format!("windows: {at} selects no machines: give role, rack or selector"));
            }
            let selector = spec.selector.as_ref().map(|text| text.parse::<Selector>()).transpose();
            selectors.push(selector.map_err(|why| format!("windows: {at}.selector: {why}"))?);
            let mut denied = deny.clone();
            denied.extend(read(&format!("{at}.deny"), &spec.deny)?);
            let allow = read(&format!("{at}.allow"), &spec.allow)?;
            all.push(Window { zone: zone.clone(), allow, deny: denied });
        }
        Ok(Self { written, all, selectors })
    }
}

impl From<Windows> for Written {
    fn from(windows: Windows) -> Self {
        windows.written
    }
}
