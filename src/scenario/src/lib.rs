//! Scenarios: a sandbox, a cluster definition, and a script of operators' actions and failures. A scenario is data. The
//! director plays it with the same actions that operators use.

mod backends;
mod cke;
mod data;
mod hosts;
mod play;
mod registry;
mod repairs;

pub use backends::{
    Commands, Links, PROMETHEUS, ResultStore, SABAKAN, backends, bmcs, kube, probes, prometheus, registry,
};
pub use cke::CkeService;
pub use data::{DEFAULT, Scenario, ScriptStep};
pub use play::{Options, Stage};
