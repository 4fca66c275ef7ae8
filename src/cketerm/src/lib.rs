//! cketerm: a console and controller for bare-metal Kubernetes clusters. This crate is the program: its command line,
//! its settings and the daemon.

mod agent;
pub mod backends;
pub mod cli;
pub mod config;
pub mod daemon;
#[cfg(test)]
mod fuzz;
