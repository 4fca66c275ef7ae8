//! Cluster definition from the machine registry: generated from sabakan's machines, a template, the constraints and the
//! current definition (docs/spec/sabakan.md).
//!
//! All modules are pure: [`plan()`] takes an [`Input`] and returns the next definition with its reasons. Nothing here
//! contacts sabakan, etcd or Kubernetes, or reads a clock.

mod all_healthy;
pub mod change;
mod draft;
mod finish;
pub mod gotext;
mod limits;
pub mod machine;
pub mod node;
pub mod plan;
mod planner;
mod pool;
mod quick;
pub mod repair;
pub mod score;
mod shared_actions;
mod state_taint;
mod step;
pub mod template;
pub mod unchanged;
pub mod unused_machines;
pub mod variables;
mod weighted;
pub mod why;

pub use machine::{Machine, MachineError, Machines, State};
pub use plan::{Action, Choice, Input, Plan, PlanError};
pub use planner::plan;
pub use repair::{RepairInput, RepairPlan, Skipped, plan_repairs};
pub use template::{Template, TemplateError};
pub use unused_machines::{Unused, unused};
pub use why::Why;

#[cfg(test)]
pub(crate) mod tests;
