//! Metal3's controller role: the state machine of one host, and the state that screens show.

pub mod controller;
mod state;

pub use state::{HostSeen, Metal3};
