//! The cluster definition from the machine registry: what sabakan's machines, a template and the constraints make of
//! the definition in force (seed `cke-sabakan-integration.md`; spec/sabakan.md).
//!
//! All but [`client`] is pure: [`plan()`] looks at an [`Input`] and says what the next definition is and why. Nothing else
//! here asks sabakan, etcd, Kubernetes or a clock.

pub mod client;
pub mod machine;
pub mod plan;
pub mod template;
pub mod variables;

pub use machine::{Machine, MachineError, Machines, State};
pub use plan::{Action, Choice, Input, Plan, PlanError, plan};
pub use template::{Template, TemplateError};
