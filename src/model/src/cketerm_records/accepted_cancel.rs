//! Records of cancels that were accepted while a program other than cketerm led.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{EndKind, Who};
use crate::{entry::QueueKind, names::Address};

/// Value of `cketerm/cancels/<queue>/<index>`: an operator's cancel of a reboot, or deletion of a repair. The transaction
/// that withdraws the entry writes it, unless cketerm leads. CKE writes entries without a comparison, so its write may overwrite the cancel; every cketerm
/// process then repeats it. The record is removed once the entry is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedCancel {
    /// The user.
    pub who: Who,
    /// Time of the cancel.
    pub at: Timestamp,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Address of the entry's machine.
    pub address: Address,
    /// CreateRevision of the entry's key. An entry with another one is another entry, which this cancel never touches.
    pub created: i64,
    /// End of the entry once it is removed: a repair that had finished keeps that end. `None` in a record of an older
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<EndKind>,
}

/// Action of the audit record of a repeated cancel of a reboot.
pub const REPEATED_CANCEL: &str = "reboot cancel repeated";

/// Action of the audit record of a repeated deletion of a repair.
pub const REPEATED_DELETION: &str = "repair delete repeated";

/// Returns the action of the audit record of a repeat in this queue.
pub fn repeated(queue: QueueKind) -> &'static str {
    match queue {
        QueueKind::Reboot => REPEATED_CANCEL,
        QueueKind::Repair | QueueKind::Maintenance => REPEATED_DELETION,
    }
}
