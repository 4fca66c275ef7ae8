//! cketerm: a console and controller for bare-metal Kubernetes clusters. This crate is the program: its command line,
//! its settings, the daemon, and the scenarios of the sandbox.

pub mod backends;
pub mod cli;
pub mod config;
pub mod daemon;
#[cfg(test)]
mod fuzz;
pub mod scenario;
