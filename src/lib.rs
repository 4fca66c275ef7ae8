//! cketerm: a console and controller for bare-metal Kubernetes clusters.
//!
//! Dependencies between modules go one way: `model` ← `store`, `kubernetes` ← `engine`, `actions` ← `console`, `cli`,
//! `daemon`. `sandbox` implements the wire protocols and depends on none of the others.

pub mod actions;
pub mod backends;
pub mod cli;
pub mod clock;
pub mod config;
pub mod console;
pub mod daemon;
pub mod descriptors;
pub mod engine;
pub mod fence;
#[cfg(test)]
mod fuzz;
pub mod heartbeat;
pub mod kubernetes;
pub mod model;
pub mod mutation;
pub mod net;
pub mod notices;
pub mod power;
pub mod sabakan;
pub mod sandbox;
pub mod scenario;
pub mod store;
pub mod tasks;
pub mod tokio_clock;
pub mod telemetry;
