//! The cluster definition from the machine registry: what sabakan's machines, a template and the constraints make of
//! the definition in force (seed `cke-sabakan-integration.md`; spec/sabakan.md).
//!
//! All but [`client`] is pure: [`plan()`] looks at an [`Input`] and says what the next definition is and why. Nothing else
//! here asks sabakan, etcd, Kubernetes or a clock.

mod all_healthy;
pub mod change;
pub mod client;
mod draft;
mod finish;
pub mod gotext;
pub mod machine;
pub mod node;
pub mod others;
pub mod plan;
mod pool;
mod quick;
pub mod repair;
pub mod score;
pub mod template;
pub mod variables;
mod weighted;
pub mod why;

pub use machine::{Machine, MachineError, Machines, State};
pub use others::{Unused, unused};
pub use plan::{Action, Choice, Input, Plan, PlanError, plan};
pub use repair::{RepairInput, RepairPlan, Skipped, plan_repairs};
pub use template::{Template, TemplateError};
pub use why::Why;

#[cfg(test)]
pub(crate) mod tests;
