//! The constraints in force, validated.

use cketerm_model::policy::Strategy;

use super::plan::{Input, PlanError};

/// The validated constraints.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) planes: usize,
    pub(super) min_workers: usize,
    /// `None`: no limit.
    pub(super) max_workers: Option<usize>,
    /// Percent.
    pub(super) worker_rate: usize,
}

impl Limits {
    pub(super) fn of(input: &Input<'_>) -> Result<Self, PlanError> {
        let constraints = input.constraints;
        let weighted = input.strategy == Strategy::Weighted;
        let number = |name: &str, value: i64| {
            usize::try_from(value).map_err(|_| {
                PlanError::Input(format!(
                    "the constraint {name} is {value} and must not be negative: `cketerm constraints set {name} NUMBER`"
                ))
            })
        };
        let limits = Self {
            planes: number("control-plane-count", constraints.control_plane_count)?,
            min_workers: number("minimum-workers", constraints.minimum_workers.unwrap_or(1))?,
            max_workers: Some(number("maximum-workers", constraints.maximum_workers.unwrap_or(0))?)
                .filter(|n| *n > 0 && weighted),
            worker_rate: number("minimum-workers-rate", constraints.minimum_workers_rate)?,
        };
        if limits.planes == 0 {
            return Err(PlanError::Input(
                "the constraint control-plane-count is 0: a cluster needs at least one control plane \
                 (`cketerm constraints set control-plane-count NUMBER`)"
                    .to_owned(),
            ));
        }
        if let Some(most) = limits.max_workers.filter(|most| *most < limits.min_workers) {
            return Err(PlanError::Input(format!(
                "the constraints contradict each other: maximum-workers is {most}, minimum-workers is {}",
                limits.min_workers
            )));
        }
        Ok(limits)
    }

    /// Returns true if one more worker is allowed.
    pub(super) fn can_add_worker(&self, workers: usize) -> bool {
        self.max_workers.is_none_or(|most| workers < most)
    }
}
