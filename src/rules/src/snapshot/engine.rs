//! This engine: its identity, its leadership, and the faults of its host.

use cketerm_model::{boot_time::BootTime, names::NodeName};
use serde::{Deserialize, Serialize};

use super::bmc_access::BmcAccess;
use crate::{console_leads::NotCampaigning, preflight_fault::PreflightFault};

/// Identity and state of this engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// Host name.
    pub host: String,
    /// Lease of this engine; 0 = none yet.
    pub lease: i64,
    /// The Node on which it runs, if it runs in a pod that knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Set while this engine leads.
    pub leading: Option<Leading>,
    /// Faults for which this engine only observes; empty = fit to lead.
    pub observing: Vec<PreflightFault>,
    /// Text of the reason why a fit engine does not campaign now.
    pub standing_back: Option<String>,
    /// Reason why a console's engine does not campaign although it is fit. `None` in every other engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_campaigning: Option<NotCampaigning>,
    /// Set while the engine holds the lock but decides nothing, because records of an older version are not migrated
    /// yet. Holds the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrating: Option<String>,
    /// Reason why this host cannot start any program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    /// Programs of the definition that this host lacks. They block only the entries that need them.
    pub missing_programs: Vec<String>,
    /// BMCs that the commands of the definition may log in to.
    #[serde(default)]
    pub bmcs: BmcAccess,
    /// Reason why the engine resigns as soon as nothing is in progress. Until then nothing new starts.
    pub resigning: Option<String>,
    /// TTL of the lease in seconds.
    pub ttl: u64,
    /// Seed of this leadership's jitter.
    pub seed: u64,
}

/// Leadership of this engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leading {
    /// The key below `leader/`.
    pub key: String,
    /// Create revision of the key, which fences every write.
    pub create_revision: i64,
    /// Boot time of the win. The wait for attempts of dead leaders counts from here (SAF-16).
    pub since: BootTime,
    /// Boot time at which the last acknowledged keep-alive was sent. This engine led at that time.
    #[serde(default)]
    pub acknowledged: BootTime,
}
