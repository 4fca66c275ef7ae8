//! Kubernetes: reads, guarded writes and the live copy of what the engine and the screens need.
//!
//! The room exists so that nobody else has to know how the API server really answers (spec/kubernetes.md). What may
//! enter: HTTP, JSON, status codes. What may not leave: objects. Answers become the typed rows of
//! [`crate::model::kube`] while they are parsed, so that no `managedFields` is ever kept. Nothing here decides; every
//! write of the engine demands a [`crate::fence::Permit`] and carries a resourceVersion or a UID (I17, I23, I24).
//!
//! | file | idea |
//! | --- | --- |
//! | `connect` | which API server, and errors that say what to do |
//! | `call` | one request, its time limit, and what became of it |
//! | `wire` | the fields of objects that we read |
//! | `read` | fresh reads |
//! | `rights` | what the account may do |
//! | `nodes` | cordons and their record |
//! | `evict` | evictions, deletions, and what each answer means |
//! | `events` | Events on Nodes, for people |
//! | `probe` | one API server, asked by its own address |
//! | `endpoints` | the addresses behind the API server's service |
//! | `hosts` | BareMetalHosts and the annotations of the reboot interface |
//! | `host_power` | what the controller role writes to them, BMC passwords, the upstream operator |
//! | `live` | the live copy; `links` how its watches are doing, `follow` one watch of it, `pulse` its liveness, `sources` what is watched, `news` who is woken |

mod call;
mod connect;
mod endpoints;
mod events;
mod evict;
mod follow;
#[cfg(test)]
mod fuzz;
mod heartbeat;
mod host_power;
mod hosts;
mod links;
mod live;
mod nodes;
mod probe;
mod publish_throttle;
mod read;
mod rights;
mod sources;
mod transport;
mod wire;

pub use connect::{Kube, KubeError, KubeSettings};
pub use events::{NodeEvent, event_name};
pub use host_power::Credentials;
pub use live::{Live, Streaming};
pub use nodes::{Release, WriteError};
pub use probe::Asked;
