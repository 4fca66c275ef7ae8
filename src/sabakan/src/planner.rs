//! Choice of the strategy, and of the step that the next definition takes.

use cketerm_model::policy::Strategy;

use super::{
    all_healthy,
    draft::Draft,
    finish,
    limits::Limits,
    plan::{Action, Input, Plan, PlanError},
    step::Step,
    weighted,
};

/// Makes a plan. Pure: equal inputs give equal plans, in any order of the machines.
pub fn plan(input: &Input<'_>) -> Result<Plan, PlanError> {
    let limits = Limits::of(input)?;
    let mut draft = Draft::new(input)?;
    let step = match (input.current, input.strategy) {
        (None, Strategy::Weighted) => Some(weighted::initialize(&mut draft, &limits)?),
        (None, Strategy::AllHealthy) => Some(all_healthy::initialize(&mut draft, &limits)?),
        (Some(_), Strategy::Weighted) => weighted::maintain(&mut draft, &limits)?,
        (Some(_), Strategy::AllHealthy) => all_healthy::maintain(&mut draft, &limits)?,
    };
    let step = match step {
        None if input.template_changed => Some(regenerate(&mut draft, &limits)?),
        step => step,
    };
    finish::finish(draft, step)
}

/// Regenerates the same nodes from the newer template (SAB-23).
fn regenerate(draft: &mut Draft<'_>, limits: &Limits) -> Result<Step, PlanError> {
    if !draft.vanished.is_empty() {
        let gone: Vec<&str> = draft.vanished.iter().map(|n| n.address.as_str()).collect();
        let what = format!("the new template cannot be applied: sabakan no longer has {}", gone.join(", "));
        return Err(PlanError::Input(what));
    }
    match draft.input.strategy {
        Strategy::Weighted => weighted::fill(draft, limits)?,
        Strategy::AllHealthy => all_healthy::fill(draft, limits)?,
    }
    Ok(Step { action: Action::Regenerate, reason: "the template changed".to_owned() })
}
