//! Integration tests: real etcd, real kube-apiserver, the sandbox in their place, recorded runs of ckecli, a real
//! terminal.
//!
//! All are in one binary, so that it links once. `tests/servers/` builds and starts the servers. Tests whose servers
//! are missing are skipped with a clear message (see `world`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod adoption;
mod agent;
mod architecture;
mod binary;
mod certificates;
mod chart;
mod commands;
mod conformance;
mod console;
mod daemon;
mod documents;
mod engine;
mod generated;
mod guide;
mod imports;
mod json_reference;
mod kubernetes;
mod language;
mod notices;
#[path = "../observers/mod.rs"]
mod observers;
mod observing;
mod power;
mod recorded;
mod registry;
mod repository;
mod rights;
mod roles;
mod sandbox;
mod stalls;
mod store;
mod supply;
mod world;

/// Folder of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
