//! Records of Nodes that need a reboot.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// User in whose name the leader queues reboots that Nodes need (policy `reboot_needed`).
pub const REBOOT_NEEDED_USER: &str = "reboot needed";

/// Value of `cketerm/needed/<node>`: the signals of a Node that needs a reboot, written by the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needed {
    /// The signals that are set.
    pub signals: Vec<NeededSignal>,
    /// The entry that the leader queued for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<NeededEntry>,
    /// The reboot since which signals of an earlier boot are still set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebooted: Option<NeededReboot>,
}

/// One signal. It asks for at most one reboot, however long it is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeededSignal {
    /// Cause, for people.
    pub cause: String,
    /// Its value, if another one means another reboot.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Time at which the leader first saw it.
    pub since: Timestamp,
    /// Boot id of the machine at that time.
    pub boot_id: String,
}

/// Entry that the leader queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeededEntry {
    /// Its index in the reboot queue.
    pub index: u64,
    /// Boot id of the machine when it was queued. No second entry is queued for it.
    pub boot_id: String,
    /// Time of the enqueue.
    pub at: Timestamp,
}

/// A boot of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeededReboot {
    /// Its boot id.
    pub boot_id: String,
    /// Time at which the leader first saw it.
    pub at: Timestamp,
}

/// Value of `cketerm/needed-log`: when the leader queued reboots that Nodes need, for the limit a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeededLog {
    /// Time of each entry, oldest first.
    pub queued: Vec<Timestamp>,
}
