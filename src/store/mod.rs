//! etcd: keys, typed reads, compare-and-swap writes, election, and one watch that keeps a live copy.
//!
//! Knows `model` and etcd's client; knows nothing of Kubernetes, of decisions, or of screens.

pub mod view;
