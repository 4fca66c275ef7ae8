//! The repair queue's entry (spec/repair.md, Entry JSON; seed `cke-repair.md`).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepairStatus {
    /// Waits for its turn.
    Queued,
    /// In work, as `step_status` says.
    Processing,
    /// Healthy; stays until deleted.
    Succeeded,
    /// Given up; stays until deleted.
    Failed,
}

impl fmt::Display for RepairStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        })
    }
}

/// Where the current step stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// Nothing of the step was done.
    #[default]
    Waiting,
    /// The node is being drained.
    Draining,
    /// The repair command was run; the health check decides.
    Watching,
}

impl fmt::Display for StepStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Waiting => "waiting",
            Self::Draining => "draining",
            Self::Watching => "watching",
        })
    }
}

/// `repairs/data/%016x`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepairEntry {
    /// Its index; a number in a JSON string.
    #[serde(with = "super::entry::text_number")]
    pub index: u64,
    /// The machine's address; any text in CKE.
    pub address: String,
    /// The node's name in the cluster definition; empty = not a member.
    #[serde(default)]
    pub nodename: String,
    /// The machine's serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Names the repair procedure.
    pub machine_type: String,
    /// Names the operation of that procedure.
    pub operation: String,
    /// Where it stands.
    pub status: RepairStatus,
    /// The current step, counted from 0.
    #[serde(default)]
    pub step: i64,
    /// Where that step stands.
    #[serde(default)]
    pub step_status: StepStatus,
    /// To be removed at once.
    #[serde(default)]
    pub deleted: bool,
    /// When the status last changed.
    #[serde(with = "super::time::go", default)]
    pub last_transition_time: Option<Timestamp>,
    /// How often its drain was backed off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drain_backoff_count: i64,
    /// Until when it is not drained again.
    #[serde(with = "super::time::go", default)]
    pub drain_backoff_expire: Option<Timestamp>,
    /// Fields that we do not know, kept as they are.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_zero(n: &i64) -> bool {
    *n == 0
}

impl RepairEntry {
    /// A fresh entry, as `ckecli repair-queue add` writes it: the node's name is the leader's to fill in.
    pub fn queued(index: u64, address: &str, machine_type: &str, operation: &str, serial: Option<&str>) -> Self {
        Self {
            index,
            address: address.to_owned(),
            nodename: String::new(),
            serial: serial.map(str::to_owned),
            machine_type: machine_type.to_owned(),
            operation: operation.to_owned(),
            status: RepairStatus::Queued,
            step: 0,
            step_status: StepStatus::Waiting,
            deleted: false,
            last_transition_time: None,
            drain_backoff_count: 0,
            drain_backoff_expire: None,
            unknown: Map::new(),
        }
    }

    /// Succeeded or failed: it stays until somebody deletes it.
    pub fn finished(&self) -> bool {
        matches!(self.status, RepairStatus::Succeeded | RepairStatus::Failed)
    }

    /// Neither succeeded, failed nor deleted.
    pub fn unfinished(&self) -> bool {
        !self.deleted && matches!(self.status, RepairStatus::Queued | RepairStatus::Processing)
    }

    /// The same entry elsewhere since `now`, cut to whole seconds.
    #[must_use]
    pub fn moved_to(&self, status: RepairStatus, step_status: StepStatus, now: Timestamp) -> Self {
        Self { status, step_status, last_transition_time: Some(super::time::whole_seconds(now)), ..self.clone() }
    }

    /// Whether it holds its machine now: draining, or watching after a command (spec/reboot.md, Decisions 6). One that
    /// is marked as deleted holds it until it is removed.
    pub fn claims_machine(&self) -> bool {
        self.status == RepairStatus::Processing
            && matches!(self.step_status, StepStatus::Draining | StepStatus::Watching)
    }
}
