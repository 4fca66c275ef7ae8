//! The controller: observe, decide, act.
//!
//! | module | contents |
//! | --- | --- |
//! | `snapshot` | everything known at one moment |
//! | `decide/` | the rules: pure functions from a snapshot to effects and reasons |
//! | `act/` | execution of effects, fenced, with compared revisions |
//! | `run/` | the main loop that connects these modules |
//! | `lead`, `preflight` | leader election, and the conditions for a campaign |
//! | `memory` | state kept between passes: observations only |
//! | `command` | the definition's commands as child processes |
//! | `results` | publishes outcomes of commands that this host ran for a leader that no longer leads |
//! | `probe` | probes of the API servers |
//! | `etcd_members` | queries of the Kubernetes etcd's members |
//! | `event_recorder` | Kubernetes Events on Nodes |
//! | `metal3/` | Metal3's controller role, with one task for each host |
//! | `notices/` | notifications to receivers, with one task for each receiver |
//! | `registry/` | sabakan's answers and the plan, computed outside the main loop |
//! | `counters` | counters for metrics |
//! | `state` | a snapshot exported without secrets, and read back |
//! | `publish` | progress and status for every observer |
//! | `explain` | reasons for commands that read etcd only |
//! | `trouble` | classification of entries that do not proceed |

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
mod preflight_fault;
pub use preflight_fault::PreflightFault;
pub mod probe;
pub(crate) mod publish;
pub mod registry;
mod results;
pub mod run;
pub mod snapshot;
pub mod state;
pub mod trouble;

pub use counters::{COUNTERS, Counters};
pub use explain::{decided_as_leader, explain};
