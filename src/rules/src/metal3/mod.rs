//! Metal3's controller role: the state machine of one host, and the state that screens show.

pub mod controller;
#[cfg(test)]
mod fuzz;
mod state;

pub use state::{HostSeen, Metal3};
