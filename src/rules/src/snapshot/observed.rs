//! Observations of work that another program does and does not record. They are lost with the process.

use cketerm_model::reason::Reason;
use serde::{Deserialize, Serialize};

/// Observations of one entry while CKE works on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Largest number of pods that a drain had to remove, in the present drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_at_start: Option<u32>,
    /// Whether the drain had begun some time before this process first saw its pods.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joined_late: bool,
    /// The Node's boot id when this process first saw the entry in work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Whether that boot id is known to be the one from before the command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub boot_id_is_old: bool,
    /// Last hold seen while the entry was draining: the likely cause of its backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Reason>,
}
