//! Kubernetes: reads, guarded writes, and the live copy that the engine and the console use.
//!
//! This module hides how the API server really answers. HTTP, JSON and status codes come in; only typed rows of
//! [`cketerm_model::kube`] go out. Objects become rows while they are parsed, so no `managedFields` are kept. Nothing in
//! this module makes a decision. Every write of the engine demands a [`cketerm_model::fence::Permit`] and carries a
//! resourceVersion or a UID (SAF-11, I17, I23, I24).
//!
//! | file | content |
//! | --- | --- |
//! | `connect` | choice of the API server |
//! | `error` | failures of requests, with their remedy |
//! | `transport` | the client's TCP and TLS connections |
//! | `call` | one request and its timeout |
//! | `list` | whole lists, page by page |
//! | `protobuf_list` | whole lists in protobuf, of which a few fields are read |
//! | `node_fields` | these fields of Nodes |
//! | `wire` | the fields of objects that cketerm reads |
//! | `read` | fresh reads |
//! | `placement/` | fresh read of all objects that the placement of pods depends on |
//! | `rights` | the account's permissions |
//! | `nodes` | cordons and their owner annotation |
//! | `own_node` | one Node with the annotations of its agent |
//! | `evict` | evictions, deletions, and the meaning of each answer |
//! | `eviction_admission` | the webhooks and policies that see evictions |
//! | `events` | Events on Nodes, for operators |
//! | `probe` | health probe of one API server at its own address |
//! | `probe_clients` | clients for these probes |
//! | `endpoints` | the addresses behind the API server's service |
//! | `custom_resource` | whether the cluster has a custom resource |
//! | `maintenance_requests` | `MaintenanceRequest`s, their finalizer and status |
//! | `hosts` | BareMetalHosts and the annotations of the reboot interface |
//! | `host_power` | writes of the Metal3 controller to BareMetalHosts, BMC passwords, the upstream operator |
//! | `live` | the live copy |
//! | `watches` | the watches that keep the live copy |
//! | `follow` | one list-and-watch of the live copy |
//! | `sources` | the kinds that the live copy watches |
//! | `links` | the state of each watch |
//! | `heartbeat` | liveness of the API server, cluster identity, rights |
//! | `publish_throttle` | the rate at which the live copy is published |

mod budget_pods;
mod call;
mod connect;
mod custom_resource;
mod endpoints;
mod error;
mod events;
mod evict;
mod eviction_admission;
mod follow;
#[cfg(test)]
mod fuzz;
mod heartbeat;
mod host_power;
mod hosts;
mod links;
mod list;
mod live;
mod maintenance_requests;
mod node_fields;
mod node_signs;
mod nodes;
mod own_node;
mod placement;
mod probe;
mod probe_clients;
mod protobuf_list;
mod publish_throttle;
mod read;
mod rights;
mod sources;
mod transport;
mod watches;
mod wire;

pub(crate) use call::percent_encode;
pub use connect::{Kube, KubeSettings};
pub use error::KubeError;
pub use events::ObjectEvent;
pub use host_power::Credentials;
pub use live::Streaming;
pub use nodes::{Release, WriteError};
pub use own_node::{Carry, Watched, agent_annotations};
pub use probe::ProbeResult;
pub use watches::Live;
