//! State of Metal3's controller role, as screens show it.

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

/// State of this engine's controller role; empty if it does not run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metal3 {
    /// Whether the role runs now.
    pub runs: bool,
    /// Reason why it does not run although the policy enables it.
    pub barred: Option<String>,
    /// Whether the server drops the two timestamps, so that cketerm's annotation keeps them (MET-51).
    pub drops_times: bool,
    /// Hosts by `namespace/name`.
    pub hosts: OrdMap<String, HostSeen>,
}

/// State of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSeen {
    /// Power state reported by the BMC; none = no answer yet.
    pub power: Option<String>,
    /// The current step, or the reason why nothing is done.
    pub doing: String,
    /// The last error, until a step succeeds.
    pub error: Option<String>,
}
