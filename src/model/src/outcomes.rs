//! Outcomes of reboots (policies `breaker` and `canary`; STO-74, REB-60 to REB-62): a record for each machine whose reboot
//! command was run, from which a new leader comes to the same conclusions as the last one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{batch::BatchId, cketerm_records::Who, cluster, entry::EntryId, names::Address};

/// Maximum of `of`, and of `first`: fewer than the outcomes that the leader keeps.
pub const MAX_COUNTED: u64 = 100;
/// Maximum of `soak_seconds`: a week.
const MAX_SOAK_SECONDS: u64 = 7 * 86_400;

/// Policy `breaker`: after `failures` of the last `of` machines ended badly, no drain of the reboot queue starts until an
/// operator resets the breaker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Number of machines that ended badly from which the breaker is open.
    pub failures: u64,
    /// Number of machines that are looked at: the last ones that ended, and those that are stuck.
    pub of: u64,
    /// Fields of a newer cketerm.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Breaker {
    /// Reads a document that a user wrote: YAML or JSON.
    pub fn read(text: &str) -> Result<Self, String> {
        let value = cluster::parse(text).map_err(|e| format!("breaker: {e}"))?;
        let found: Self = serde_json::from_value(value).map_err(|e| format!("breaker: {e}"))?;
        if let Some(field) = found.unknown.keys().next() {
            return Err(format!("breaker: unknown field {field}; known: failures, of"));
        }
        if found.failures == 0 || found.of < found.failures || found.of > MAX_COUNTED {
            return Err(format!(
                "breaker: failures ({}) must be at least 1 and at most of ({}), and that at most {MAX_COUNTED}",
                found.failures, found.of
            ));
        }
        Ok(found)
    }
}

/// Policy `canary`: the first machines of a batch are rebooted alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// Number of machines that must have booted before others of their batch start.
    pub first: u64,
    /// Seconds since the last of them ended in which no other machine of the batch starts.
    #[serde(default)]
    pub soak_seconds: u64,
    /// Fields of a newer cketerm.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Canary {
    /// Reads a document that a user wrote: YAML or JSON.
    pub fn read(text: &str) -> Result<Self, String> {
        let value = cluster::parse(text).map_err(|e| format!("canary: {e}"))?;
        let found: Self = serde_json::from_value(value).map_err(|e| format!("canary: {e}"))?;
        if let Some(field) = found.unknown.keys().next() {
            return Err(format!("canary: unknown field {field}; known: first, soak_seconds"));
        }
        if found.first == 0 || found.first > MAX_COUNTED {
            return Err(format!("canary: first must be from 1 to {MAX_COUNTED}, not {}", found.first));
        }
        if found.soak_seconds > MAX_SOAK_SECONDS {
            return Err(format!("canary: soak_seconds must be at most {MAX_SOAK_SECONDS}, a week"));
        }
        Ok(found)
    }
}

/// The ways a reboot ends badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadEnd {
    /// It was cancelled, or its machine left the definition, after its reboot command had been run.
    Withdrawn,
    /// Its machine came back only after it had counted as stuck.
    Late,
}

/// Value of `cketerm/outcomes/<%016x>`: outcome of a reboot entry whose reboot command was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Address of the machine.
    pub address: Address,
    /// Time of the end.
    pub at: Timestamp,
    /// The way it ended badly; none = it ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<BadEnd>,
    /// Time at which it counted as stuck, if that was before its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_at: Option<Timestamp>,
    /// Its batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
}

impl Outcome {
    /// Returns the time from which the breaker counts it: its end, or the earlier time at which it counted as stuck. So its
    /// place among the others does not change when it ends.
    pub fn counts_from(&self) -> Timestamp {
        self.stuck_at.map_or(self.at, |stuck| stuck.min(self.at))
    }
}

/// Value of `cketerm/breaker-reset`: the last reset of the breaker. Outcomes that were written before it do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerReset {
    /// The operator.
    pub who: Who,
    /// Time of the reset.
    pub at: Timestamp,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Entries that were in reboot then: however they end, they do not count, because the operator knew them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forgiven: Vec<EntryId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_checked_and_the_error_names_the_field() {
        let breaker = Breaker::read("{failures: 2, of: 10}").unwrap();
        assert_eq!((breaker.failures, breaker.of), (2, 10));
        assert_eq!(Canary::read("first: 1").unwrap().soak_seconds, 0);
        for text in ["{failures: 0, of: 3}", "{failures: 4, of: 3}", "{failures: 1, of: 101}", "{failures: 1}", "7"] {
            assert!(Breaker::read(text).unwrap_err().starts_with("breaker: "), "{text}");
        }
        assert!(Breaker::read("{failures: 1, of: 3, per: day}").unwrap_err().contains("unknown field per"));
        for text in ["{first: 0}", "{first: 101}", "{first: 1, soak_seconds: 604801}", "{soak_seconds: 5}", "[]"] {
            assert!(Canary::read(text).unwrap_err().starts_with("canary: "), "{text}");
        }
        assert!(Canary::read("{first: 1, soak: 5}").unwrap_err().contains("unknown field soak"));
    }

    #[test]
    fn a_good_outcome_has_no_field_for_its_fault() {
        let text = r#"{"address":"10.0.0.1","at":"2026-11-27T12:00:00Z"}"#;
        let outcome: Outcome = serde_json::from_str(text).unwrap();
        assert_eq!((outcome.bad, serde_json::to_string(&outcome).unwrap().as_str()), (None, text));
    }
}
