//! Nodes, pods, budgets and drains on the `kube` crate.
