//! The controller: observe, decide, act. The rules are in `cketerm-rules`.
//!
//! | module | contents |
//! | --- | --- |
//! | `backends` | connections of an engine |
//! | `run/` | the main loop: it makes the snapshot, decides, and starts effects |
//! | `act/` | execution of effects, fenced, with compared revisions |
//! | `lead`, `preflight` | leader election, and the conditions for a campaign |
//! | `command` | the definition's commands as child processes |
//! | `results` | publishes outcomes of commands that this host ran for a leader that no longer leads |
//! | `probe` | probes of the API servers |
//! | `etcd_members` | queries of the Kubernetes etcd's members |
//! | `start_gates` | requests to Prometheus about the site's gates |
//! | `cancels` | repeats cancels that CKE's write has overwritten |
//! | `event_recorder` | Kubernetes Events on Nodes |
//! | `inventory_poller` | queries of sabakan and planning, outside the main loop |
//! | `metal3/` | Metal3's controller role, with one task for each host |
//! | `notices/` | delivery of notices, with one task for each receiver |
//! | `counters` | counters for metrics |

mod act;
pub mod backends;
mod cancels;
pub mod command;
mod counters;
mod etcd_members;
mod event_recorder;
pub mod inventory_poller;
mod lead;
pub mod metal3;
mod node_membership;
pub mod notices;
mod preflight;
pub mod probe;
mod results;
pub mod run;
mod start_gates;
#[cfg(test)]
mod tests;

pub use counters::{COUNTERS, Counters};
