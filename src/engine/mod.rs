//! The controller: observe, decide, act.

pub mod decide;
pub mod snapshot;
