//! Actions of an operator: check, write, leave an audit record. The console and the subcommands call the same
//! functions.
//!
//! An action checks before it writes. A refusal names the object, the reason and what to do instead. An action never
//! makes a decision of the engine. Nothing in this crate draws, parses arguments or prints.

mod accept;
mod added;
mod batches;
mod bmcs;
mod breaker;
mod choose;
mod confirm;
mod definition;
mod error;
pub mod estimate;
mod guard_rails;
mod host;
mod host_actions;
pub mod landing;
mod maintenance;
mod manual_drain;
mod node;
mod operator;
pub mod plan;
mod policy;
pub mod policy_schema;
mod power_off_proof;
pub mod preview;
mod queue;
mod registry;
mod repair;
mod rights;
mod stop;
mod switch;
mod unreadable;
mod who;

pub use accept::{note, refusal, refusal_naming};
pub use added::Added;
pub use batches::BatchRow;
pub use bmcs::{BmcLookup, Registered};
pub use breaker::BreakerContent;
pub use choose::{NodeSelection, machine_address, resolve};
pub use confirm::{CONFIRM_TIMEOUT, Confirmation};
pub use definition::{ClusterIdentities, SetCluster};
pub use error::{ActionError, Kind};
pub use guard_rails::AddCheck;
pub use host::{HostRequest, Hosts, own_key};
pub use host_actions::{FencedNode, HostAction};
pub use node::Turned;
pub use operator::Operator;
pub use policy::{CONSTRAINTS, DOCUMENTS, constraint, unknown_constraint};
pub use queue::not_members;
pub use repair::{NewRepair, state as repair_state};
pub use rights::rights;
pub use stop::{resumed, stopped};
pub use unreadable::LEFT;
