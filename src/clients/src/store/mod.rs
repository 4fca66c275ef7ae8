//! etcd: keys, typed reads, compare-and-swap writes, election, and one watch that keeps a live copy.
//!
//! Depends on `model`, `clock`, `fence` and etcd's client, but not on Kubernetes, decisions or screens.

mod answer;
pub mod batches;
mod breaker;
pub mod cancels;
pub mod commit;
pub mod connect;
pub mod election;
mod ended;
pub mod enqueue;
pub mod error;
pub mod exposure;
mod failure;
mod folder_keys;
pub mod folders;
mod key_pages;
mod key_runs;
pub mod leadership;
pub mod live;
pub mod maintenance;
pub mod members;
pub mod migrate;
pub mod notices;
pub mod operator;
pub mod orders;
pub mod pages;
pub mod queue;
pub mod read;
pub mod registry;
pub mod repairs;
pub mod results;
pub mod rights;
pub mod settings;
pub mod stop;
pub mod tail;
pub mod unreadable;

pub use connect::{EtcdSettings, Store};
pub use error::StoreError;
