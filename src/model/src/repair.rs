//! Entries of the repair queue (REP-1 to REP-6, STO-19).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names::{Address, NodeName};

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepairStatus {
    /// Waits for its turn.
    Queued,
    /// In progress, as `step_status` shows.
    Processing,
    /// The machine is healthy. The entry stays until deleted.
    Succeeded,
    /// Given up. The entry stays until deleted.
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

/// State of the current step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// Nothing of the step has begun.
    #[default]
    Waiting,
    /// The node is being drained.
    Draining,
    /// The repair command ran; the health check decides.
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

/// Value of `repairs/data/%016x`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepairEntry {
    /// Its index; a number in a JSON string.
    #[serde(with = "super::entry::text_number")]
    pub index: u64,
    /// Address of the machine; any text in CKE.
    pub address: Address,
    /// Name of the node in the cluster definition; empty = not a member.
    #[serde(default)]
    pub nodename: NodeName,
    /// The machine's serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Machine type, which selects the repair procedure.
    pub machine_type: String,
    /// Operation of that procedure.
    pub operation: String,
    /// Its state.
    pub status: RepairStatus,
    /// The current step, counted from 0.
    #[serde(default)]
    pub step: i64,
    /// State of that step.
    #[serde(default)]
    pub step_status: StepStatus,
    /// Whether it is to be removed at once.
    #[serde(default)]
    pub deleted: bool,
    /// Last change of the state.
    #[serde(with = "super::time::go", default)]
    pub last_transition_time: Option<Timestamp>,
    /// Number of drains that backed off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drain_backoff_count: i64,
    /// End of the backoff.
    #[serde(with = "super::time::go", default)]
    pub drain_backoff_expire: Option<Timestamp>,
    /// Fields that cketerm does not know; kept as they are.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_zero(n: &i64) -> bool {
    *n == 0
}

impl RepairEntry {
    /// Returns a fresh entry, as `ckecli repair-queue add` writes it. The leader fills in the node's name.
    pub fn queued(index: u64, address: &Address, machine_type: &str, operation: &str, serial: Option<&str>) -> Self {
        Self {
            index,
            address: address.clone(),
            nodename: NodeName::default(),
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

    /// Returns true if the repair succeeded or failed. The entry stays until somebody deletes it.
    pub fn finished(&self) -> bool {
        matches!(self.status, RepairStatus::Succeeded | RepairStatus::Failed)
    }

    /// Returns true if the entry has neither succeeded nor failed nor been deleted.
    pub fn unfinished(&self) -> bool {
        !self.deleted && matches!(self.status, RepairStatus::Queued | RepairStatus::Processing)
    }

    /// Returns the entry in another state since `now`, in whole seconds.
    #[must_use]
    pub fn moved_to(&self, status: RepairStatus, step_status: StepStatus, now: Timestamp) -> Self {
        Self { status, step_status, last_transition_time: Some(super::time::whole_seconds(now)), ..self.clone() }
    }

    /// Returns true while the entry claims its machine: draining, or watching after a command (REP-4). A deleted entry
    /// claims it until it is removed.
    pub fn claims_machine(&self) -> bool {
        self.status == RepairStatus::Processing
            && matches!(self.step_status, StepStatus::Draining | StepStatus::Watching)
    }
}
