//! The controller: observe, decide, act.
//!
//! | file | |
//! | --- | --- |
//! | `snapshot` | what is known at one moment |
//! | `decide/` | the rules: pure, from a snapshot to effects and reasons |
//! | `act/` | carrying effects out, fenced and compared |
//! | `run` | the loop that ties them together |
//! | `lead`, `preflight` | who leads, and what must be so before |
//! | `memory` | what is remembered between passes: observations only |
//! | `command` | the definition's commands as child processes |
//! | `results` | publishes how commands ended that this host ran for a leader that is gone |
//! | `probe` | is each API server alive |
//! | `recorder` | says on Nodes, by Kubernetes Events, what is done to them |
//! | `metal3/` | Metal3's controller role: a task for each host |
//! | `notices/` | what happens is told to receivers, a task each |
//! | `registry/` | sabakan's answers and the plan, gathered off the loop |
//! | `counters` | what was done, counted for metrics |
//! | `state` | a snapshot written out, without secrets, and read back |
//! | `publish` | progress and status for everybody who looks on |

mod act;
pub mod command;
mod counters;
pub mod decide;
mod etcd_members;
mod event_recorder;
pub mod explain;
mod lead;
pub(crate) mod memory;
pub mod metal3;
pub mod notices;
mod preflight;
pub mod probe;
pub(crate) mod publish;
pub mod registry;
mod results;
pub mod run;
pub mod snapshot;
pub mod state;
pub mod trouble;

pub use counters::{COUNTERS, Counters};
pub use explain::{explain, would};
