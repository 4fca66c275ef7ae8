//! State of the machine registry, as an engine or a console knows it: sabakan's last good answers with their age, and
//! the plan made from them. The engine collects it outside the main loop; `decide/registry` decides on it.

pub mod descriptions;
pub mod propose;
pub mod sync;

use std::sync::Arc;

use cketerm_model::{boot_time::BootTime, policy::Membership, stored::view::StoreView};
use cketerm_sabakan::Machines;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::propose::{Basis, Proposal, Proposed, propose, with_input};

/// Reports whether the integration of sabakan is enabled and has a template.
pub fn in_use(store: &StoreView) -> bool {
    let generates = matches!(store.policy().membership, Membership::Auto | Membership::Sabakan);
    generates && store.sabakan.enabled() && store.registry.template.is_some()
}

/// State of the machine registry.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Registry {
    /// Machines that a definition is generated from.
    pub members: QueryState,
    /// Machines that automatic repair considers.
    pub broken: QueryState,
    /// Whole seconds that the last answer about the members took, for display.
    #[serde(skip)]
    pub took: u64,
    /// Result of the plan, if there are an answer and a template.
    pub proposal: Option<Arc<Proposal>>,
}

/// State of one query to sabakan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QueryState {
    /// The last good answer.
    pub good: Option<GoodAnswer>,
    /// Error of the last query; none after a good answer.
    pub error: Option<String>,
    /// Boot time of the end of the last query; none = never sent.
    pub at: Option<BootTime>,
}

/// A good answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GoodAnswer {
    /// The machines.
    pub machines: Arc<Machines>,
    /// Boot time of the answer.
    pub at: BootTime,
    /// Wall time of the answer.
    pub wall: Timestamp,
    /// Wall time of the request. Earlier changes are in the answer.
    pub asked: Timestamp,
    /// Revisions of the URL and the variables of the query.
    pub with: (i64, i64),
}
