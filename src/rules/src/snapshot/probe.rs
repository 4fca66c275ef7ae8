//! Probes of the control planes.

use cketerm_model::boot_time::BootTime;
use serde::{Deserialize, Serialize};

/// Observed results of one control plane's probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Boot time of the last good answer.
    pub last_good: Option<BootTime>,
    /// Boot time since which every answer was good; none after a bad one.
    pub good_since: Option<BootTime>,
    /// The last bad answer, until another one.
    pub error: Option<String>,
    /// Reason why the last answer proves nothing about the server, until another answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// The URL probed.
    pub url: String,
}
