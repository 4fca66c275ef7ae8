//! The rules: everything that cketerm decides, as pure functions of a snapshot and the time.
//!
//! Nothing here does I/O, reads a clock or knows a client. The engine carries out what [`decide`] returns; consoles and
//! subcommands ask the same functions why something waits and what comes next.
//!
//! | module | contents |
//! | --- | --- |
//! | `snapshot` | everything known at one moment |
//! | `doctor/` | checks of a whole site, with the remedy of each failure |
//! | `decide/` | the rules of both queues: from a snapshot to effects and reasons |
//! | `seen` | inputs and results of one pass, for observers |
//! | `memory` | state kept between passes: observations only |
//! | `publish` | progress and status for every observer |
//! | `assumptions` | facts that a hypothetical decision takes for granted |
//! | `add_warnings` | warnings before machines are added to a queue |
//! | `agent` | judgement of a node's agent about an order to reboot |
//! | `beside_cke/` | reading of CKE's rules while CKE leads |
//! | `cancels` | cancels that CKE's write has overwritten |
//! | `eta/` | estimated end of a queue or of a part of it |
//! | `explain`, `forecast`, `start` | hypothetical questions: why, when, in what order |
//! | `handover` | checks before the queues are handed over between CKE and cketerm |
//! | `landing/` | whether the pods that leave nodes find a place on others |
//! | `manual_drain` | drain of one node by an operator |
//! | `usual/` | usual durations of each phase, and the judgement of running ones |
//! | `trouble` | classification of entries that do not proceed |
//! | `transition/` | transitions of entries as transactions |
//! | `console_leads` | whether a console's engine campaigns |
//! | `preflight_fault` | faults for which an engine only observes |
//! | `state` | a snapshot exported without secrets, and read back |
//! | `membership/` | the definition that follows the Nodes of Kubernetes |
//! | `reboot_needed/` | Nodes that need a reboot |
//! | `registry/` | the plan made from sabakan's answers |
//! | `metal3/` | Metal3's controller role: the state machine of one host |
//! | `notices/` | notices that are due |

// a new effect, outcome or reason is decided at each place
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod add_warnings;
pub mod agent;
pub mod assumptions;
pub mod batch_state;
pub mod batches;
pub mod beside_cke;
pub mod budget_cause;
pub mod cancels;
pub mod console_leads;
pub mod decide;
pub mod doctor;
pub mod eta;
pub mod explain;
pub mod forecast;
pub mod handover;
pub mod landing;
pub mod limits;
pub mod maintenance_requests;
pub mod manual_drain;
pub mod membership;
pub mod memory;
pub mod metal3;
pub mod notices;
pub mod outcomes;
pub mod preflight_fault;
pub mod publish;
pub mod reboot_needed;
pub mod registry;
pub mod seen;
pub mod snapshot;
pub mod start;
#[cfg(any(test, feature = "state"))]
pub mod state;
pub mod transition;
pub mod trouble;
pub mod usual;
