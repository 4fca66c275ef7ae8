//! Inputs and results of one pass.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{boot_time::BootTime, clock::Now, entry::EntryId, names::NodeName, reason::Reason};
use jiff::Timestamp;

use super::{
    decide::{ApplyState, AutoRepair},
    notices::Receivers,
    snapshot::Snapshot,
};

/// Inputs and results of a pass, for screens, commands and metrics. The loop publishes it after every pass, whether it
/// leads or not.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Snapshot that the pass used.
    pub snapshot: Snapshot,
    /// Time of the snapshot.
    pub now: Now,
    /// Reason why each unfinished entry does not move, or `Ready`. If another engine leads, its published progress is
    /// merged in.
    pub reasons: Arc<BTreeMap<EntryId, Reason>>,
    /// Nodes that stay cordoned after their entry is gone, by Node name.
    pub orphans: Arc<BTreeMap<NodeName, Reason>>,
    /// State of applying the definition that is generated from the registry.
    pub applying: Arc<ApplyState>,
    /// State of automatic repair.
    pub auto_repair: Arc<AutoRepair>,
    /// The leader's state of the receivers of notices.
    pub notices: Arc<Receivers>,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            snapshot: Snapshot::default(),
            now: Now { boot: BootTime::ZERO, wall: Timestamp::UNIX_EPOCH },
            reasons: Arc::default(),
            orphans: Arc::default(),
            applying: Arc::default(),
            auto_repair: Arc::default(),
            notices: Arc::default(),
        }
    }
}
