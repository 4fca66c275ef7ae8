//! Reasons for the end of an entry, and what its records say of them.

use cketerm_model::{
    cketerm_records::{EndKind, Order},
    maintenance::Released,
};
use serde::Serialize;

/// Reason for the end of an entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum End {
    /// An operator cancelled it.
    Cancelled,
    /// Its node is no longer in the definition.
    NotMember,
    /// The machine has booted and meets REB-39 or REB-40.
    Booted,
    /// Another machine replaced it: a Node with the same address, another UID and Ready.
    Replaced,
    /// An operator marked it as done.
    DoneBy(Order),
    /// A repair that is marked as deleted.
    Deleted,
    /// A repair whose machine is healthy.
    Healthy,
    /// A repair that was given up, with the cause.
    Failed(String),
    /// A maintenance that somebody ended.
    Released(Released),
    /// A maintenance whose time is over.
    Expired,
}

impl End {
    /// Returns the reason of the Kubernetes Event for this end.
    pub fn event(&self) -> &'static str {
        match self {
            Self::Cancelled => "Cancelled",
            Self::NotMember => "Dequeued",
            Self::Booted | Self::Replaced => "Rebooted",
            Self::DoneBy(_) => "MarkedDone",
            Self::Deleted => "RepairDeleted",
            Self::Healthy => "RepairSucceeded",
            Self::Failed(_) => "RepairFailed",
            Self::Released(_) | Self::Expired => "MaintenanceEnded",
        }
    }

    /// Returns the kind of end that the history record stores.
    pub fn kind(&self) -> EndKind {
        match self {
            Self::Cancelled => EndKind::Cancelled,
            Self::NotMember => EndKind::Dequeued,
            Self::Booted | Self::Replaced => EndKind::Booted,
            Self::DoneBy(_) | Self::Released(_) | Self::Expired => EndKind::Done,
            Self::Deleted => EndKind::Deleted,
            Self::Healthy => EndKind::Succeeded,
            Self::Failed(_) => EndKind::Failed,
        }
    }

    /// Returns the outcome as text for the history record.
    pub fn outcome(&self) -> String {
        match self {
            Self::Cancelled => "cancelled".to_owned(),
            Self::NotMember => "dequeued: no longer in the cluster definition".to_owned(),
            Self::Booted => "booted".to_owned(),
            Self::Replaced => "booted: the Node was registered anew".to_owned(),
            Self::DoneBy(order) => format!("done by {}", order.who),
            Self::Deleted => "deleted".to_owned(),
            Self::Healthy => "succeeded".to_owned(),
            Self::Failed(why) => format!("failed: {why}"),
            Self::Released(released) => format!("released by {}", released.who),
            Self::Expired => "expired".to_owned(),
        }
    }
}
