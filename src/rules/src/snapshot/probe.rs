//! Probes of the control planes.

use serde::{Deserialize, Serialize};

/// Observed results of one control plane's probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Boot-time seconds of the last good answer.
    pub last_good: Option<f64>,
    /// Boot-time seconds since which every answer was good; none after a bad one.
    pub good_since: Option<f64>,
    /// The last bad answer, until another one.
    pub error: Option<String>,
    /// Reason why the last answer proves nothing about the server, until another answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// The URL probed.
    pub url: String,
}
