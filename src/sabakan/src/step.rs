//! One action of a strategy and its reason.

use super::plan::{Action, PlanError};

/// An action and its reason.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) reason: String,
}

/// Outcome of an action: its step, or none if its condition does not hold.
pub(super) type StepResult = Result<Option<Step>, PlanError>;
