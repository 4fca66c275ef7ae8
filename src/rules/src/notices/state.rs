//! State of the receivers of notices, as screens show it.

use std::collections::BTreeMap;

use cketerm_model::notice::Trouble;

/// The leader's state of its receivers, by name; empty if this engine does not lead.
pub type Receivers = BTreeMap<String, ReceiverSeen>;

/// State of one receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverSeen {
    /// Number of notices that are not known to be received.
    pub pending: u64,
    /// Reason why it receives nothing.
    pub trouble: Option<Trouble>,
}
