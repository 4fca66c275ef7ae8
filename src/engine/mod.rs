//! The controller: observe, decide, act.

pub mod snapshot;
