//! The room `kubernetes` against real API servers: one on the etcd that the servers' `go.mod` names, one on Debian's
//! etcd 3.4, which cannot stream lists (spec/kubernetes.md).
//!
//! Both are started once and shared; every test has a namespace and nodes of its own. Nobody writes a budget's status
//! here but the tests, and nobody removes a terminating namespace.

mod answers;
mod cordons;
mod live;
mod places;
mod probes;
mod servers;
