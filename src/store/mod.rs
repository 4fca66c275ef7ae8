//! etcd: keys, typed reads, compare-and-swap writes, election, and one watch that keeps a live copy.
//!
//! Depends on `model`, `clock`, `fence` and etcd's client, but not on Kubernetes, decisions or screens.

mod answer;
pub mod apply;
pub mod commit;
pub mod connect;
pub mod election;
pub mod error;
pub mod folders;
pub mod keys;
pub mod kind;
pub mod leadership;
pub mod limits;
pub mod live;
pub mod members;
pub mod migrate;
pub mod notices;
pub mod operator;
pub mod orders;
pub mod pages;
pub mod queue;
pub mod read;
pub mod recent;
pub mod registry;
pub mod registry_settings;
pub mod repairs;
pub mod results;
pub mod rights;
pub mod settings;
pub mod stop;
pub mod tail;
pub mod transaction;
pub mod unreadable;
pub mod view;

pub use connect::{EtcdSettings, Store};
pub use error::StoreError;
