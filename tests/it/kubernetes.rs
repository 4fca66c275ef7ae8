//! The module `kubernetes` with real API servers. One runs on the etcd version in the servers' `go.mod`, one on
//! Debian's etcd 3.4, which cannot stream lists.
//!
//! Both are started once and shared. Every test has a namespace and nodes of its own. Only the tests write budgets'
//! status here, and nothing removes a terminating namespace.

mod connections;
mod cordons;
mod eviction_results;
mod live;
mod manifests;
mod probes;
mod protobuf_lists;
mod servers;
