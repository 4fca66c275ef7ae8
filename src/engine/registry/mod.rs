//! The registry of machines, as an engine or a console knows it: sabakan's last good answers with their age, and what a
//! plan makes of them. Gathered off the loop by a [`InventoryPoller`]; decided on in `decide/registry`.

mod poller;
pub mod propose;
pub mod sync;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    poller::{InventoryPoller, Plans},
    propose::{Basis, Proposal, Proposed, propose, with_input},
};
use crate::sabakan::Machines;

/// What is known of the machines.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Registry {
    /// The machines that a definition is made of.
    pub members: Asked,
    /// The machines that automatic repair looks at.
    pub broken: Asked,
    /// Whole seconds that the last answer about the members took, for people.
    #[serde(skip)]
    pub took: u64,
    /// What the plan says, where there is an answer and a template.
    pub proposal: Option<Arc<Proposal>>,
}

/// One question to sabakan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Asked {
    /// The last good answer.
    pub good: Option<Good>,
    /// Why the last question was not answered; none after a good one.
    pub error: Option<String>,
    /// Boot-time seconds of the end of the last question; none = never asked.
    pub at: Option<f64>,
}

/// A good answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Good {
    /// The machines.
    pub machines: Arc<Machines>,
    /// Boot-time seconds at which it came.
    pub at: f64,
    /// The same in wall time.
    pub wall: Timestamp,
    /// Wall time at which it was asked for: what was changed before is in it.
    pub asked: Timestamp,
    /// Revisions of the URL and the variables that it was asked with.
    pub with: (i64, i64),
}
