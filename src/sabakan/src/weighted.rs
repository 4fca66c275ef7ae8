//! Strategy `weighted`: as many workers as the constraints want, in the ratio of the weights, with one action per pass
//! (SAB-31 to SAB-46). Quotations are from CKE's document of its sabakan integration.

#![allow(clippy::unnecessary_wraps)] // all actions have one signature

use cketerm_model::boot_time::Seconds;

use super::{
    draft::{Draft, Member, of_role},
    limits::Limits,
    machine::State,
    plan::{Action, PlanError},
    score::Kind,
    shared_actions::{demote_surplus, missing_planes_message, remove_non_existent, taint_nodes, unused_summary},
    step::{Step, StepResult},
};

/// Builds the first definition: control planes, then workers up to `minimum-workers`.
pub(super) fn initialize(draft: &mut Draft<'_>, limits: &Limits) -> Result<Step, PlanError> {
    fill(draft, limits)?;
    let reason = format!("first definition: {} control planes, {} workers", limits.planes, limits.min_workers);
    Ok(Step { action: Action::Initialize, reason })
}

/// Applies the first action whose condition holds, then adds the machines that the constraints still want.
pub(super) fn maintain(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    let actions: [fn(&mut Draft<'_>, &Limits) -> StepResult; 7] = [
        remove_non_existent,
        increase_control_plane,
        decrease_control_plane,
        replace_control_plane,
        increase_workers,
        decrease_workers,
        taint_nodes,
    ];
    for action in actions {
        if let Some(step) = action(draft, limits)? {
            fill(draft, limits)?;
            return Ok(Some(step));
        }
    }
    Ok(None)
}

/// Adds the machines that the constraints still want, from unused machines only (SAB-32).
pub(super) fn fill(draft: &mut Draft<'_>, limits: &Limits) -> Result<(), PlanError> {
    while draft.planes.len() < limits.planes {
        let reason = format!("{} of {} present", draft.planes.len(), limits.planes);
        if draft.add_plane(&reason).is_none() {
            return Err(PlanError::NotEnough(missing_planes_message(draft, limits)));
        }
    }
    while draft.workers.len() < limits.min_workers {
        let reason = format!("{} of at least {} present", draft.workers.len(), limits.min_workers);
        if add_worker(draft, &reason).is_none() {
            return Err(PlanError::NotEnough(missing_workers_message(draft, limits)));
        }
    }
    Ok(())
}

/// SAB-35: "When control-plane-count constraint is increased, control plane nodes are added."
fn increase_control_plane(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    let before = draft.planes.len();
    if before >= limits.planes {
        return Ok(None);
    }
    while draft.planes.len() < limits.planes {
        let reason = format!("{} of {} present", draft.planes.len(), limits.planes);
        if draft.add_plane(&reason).is_some() {
            continue;
        }
        // "existing healthy worker nodes are changed to control plane nodes"
        let pick = if draft.workers.len() > limits.min_workers { draft.best_worker(true, None) } else { None };
        let Some(pick) = pick else { return Err(PlanError::NotEnough(missing_planes_message(draft, limits))) };
        draft.promote(&pick, &format!("{reason}, and no unused machine is left"));
    }
    let reason = format!("{before} control planes, {} wanted", limits.planes);
    Ok(Some(Step { action: Action::IncreaseControlPlane, reason }))
}

/// SAB-36, SAB-37: "When control-plane-count constraint is decreased, control plane nodes are changed to
/// non-control-plane nodes. If the total number of worker nodes exceeds maximum-workers, existing worker nodes are
/// removed to satisfy the constraint."
fn decrease_control_plane(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    let before = draft.planes.len();
    if !demote_surplus(draft, limits) {
        return Ok(None);
    }
    if let Some(surplus) = limits.max_workers.map(|most| draft.workers.len().saturating_sub(most)) {
        let picks = draft.lowest_workers(surplus);
        draft.remove_members(&picks.iter().map(|p| p.machine).collect::<Vec<_>>());
        for pick in &picks {
            draft.chosen(
                pick,
                true,
                "leaves: there are more workers than maximum-workers".to_owned(),
                "workers".to_owned(),
            );
        }
    }
    let reason = format!("{before} control planes, {} wanted", limits.planes);
    Ok(Some(Step { action: Action::DecreaseControlPlane, reason }))
}

/// SAB-39 to SAB-42: "If a control plane node is neither healthy, updating, or uninitialized, the node is demoted to a
/// worker, and a new machine is added as a control plane node."
fn replace_control_plane(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    if draft.planes.len() < 2 {
        return Ok(None);
    }
    let bad = |i: &usize| {
        let state = draft.state(*i);
        !matches!(state, State::Healthy | State::Updating | State::Uninitialized) && !draft.is_rebooting(*i)
    };
    let Some(bad) = Draft::machines_of(&draft.planes).find(bad) else { return Ok(None) };
    let (name, state) = (draft.name(bad), draft.state(bad));
    let fault = format!("the control plane {name} is {state}");
    let reason = format!("in place of {name}, which is {state}");
    let place = draft.planes.iter().position(|m| *m == Member::Machine(bad)).unwrap_or(0);
    let step = |how: String| Ok(Some(Step { action: Action::ReplaceControlPlane, reason: format!("{fault}: {how}") }));
    if !limits.can_add_worker(draft.workers.len()) {
        // a demoted one would be one worker too many (SAB-41)
        if let Some(pick) = draft.best_worker(false, Some(bad)).filter(|p| draft.state(p.machine) == State::Healthy) {
            draft.promote(&pick, &reason);
            let new = draft.name(pick.machine);
            demote_bad(draft, bad, state, &new);
            return step(format!("it swaps roles with the worker {new}"));
        }
        draft.remove_members(&[bad]);
        if draft.planes.len() < limits.planes && draft.add_plane(&reason).is_none() {
            return skip_demotion(draft, bad, place, &fault);
        }
        draft.set_reason(bad, format!("leaves: it is {state}, and maximum-workers is reached"));
        return step("it leaves, because maximum-workers is reached".to_owned());
    }
    draft.remove_members(&[bad]);
    let new = match draft.add_plane(&reason) {
        Some(new) => Some(new),
        None => draft.best_worker(true, None).map(|pick| {
            draft.promote(&pick, &format!("{reason}; there is no unused machine"));
            pick.machine
        }),
    };
    let Some(new) = new else { return skip_demotion(draft, bad, place, &fault) };
    let new = draft.name(new);
    demote_bad(draft, bad, state, &new);
    step(format!("{new} takes its place"))
}

/// Keeps a bad control plane that nothing can replace, so that later actions go on (SAB-42). CKE fails the whole pass.
fn skip_demotion(draft: &mut Draft<'_>, bad: usize, place: usize, fault: &str) -> StepResult {
    draft.restore_member(bad, Kind::ControlPlane, place);
    draft.hints.push(format!("{fault}, and no healthy machine{} can take its place", plane_role(draft)));
    Ok(None)
}

fn demote_bad(draft: &mut Draft<'_>, bad: usize, state: State, new: &str) {
    draft.demote(&[bad]);
    if draft.kind(bad).is_some() {
        draft.set_reason(bad, format!("becomes a worker: it is {state}; {new} takes its place"));
    }
}

/// SAB-43: "If the number of healthy worker nodes is less than minimum-workers and the total number of worker nodes is
/// less than maximum-workers, new worker nodes are added."
fn increase_workers(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    let healthy = |m: &&Member| match m {
        Member::Machine(i) => draft.counts_as_healthy(*i),
        Member::Absent(_) => true,
    };
    let before = draft.workers.iter().filter(healthy).count();
    let mut now = before;
    while now < limits.min_workers && limits.can_add_worker(draft.workers.len()) {
        let reason = format!("{now} of at least {} are healthy", limits.min_workers);
        if add_worker(draft, &reason).is_none() {
            draft.hints.push(missing_workers_message(draft, limits));
            break;
        }
        now += 1;
    }
    if now == before {
        return Ok(None);
    }
    let reason = format!("{before} workers are healthy, at least {} must be", limits.min_workers);
    Ok(Some(Step { action: Action::IncreaseWorkers, reason }))
}

/// SAB-44, SAB-45: "If a worker node is either retiring or retired for a while". One worker per pass.
fn decrease_workers(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    let wait = Seconds::from(draft.input.wait_seconds);
    let leaving = |i: &usize| {
        let is_leaving = matches!(draft.state(*i), State::Retiring | State::Retired);
        is_leaving && draft.machine(*i).duration >= wait && !draft.is_rebooting(*i)
    };
    let Some(old) = Draft::machines_of(&draft.workers).find(leaving) else { return Ok(None) };
    let (name, state) = (draft.name(old), draft.state(old));
    let fault = format!("the worker {name} has been {state} for {:.0}", draft.machine(old).duration);
    let place = draft.workers.iter().position(|m| *m == Member::Machine(old)).unwrap_or(0);
    draft.remove_members(&[old]);
    if draft.workers.len() >= limits.min_workers {
        draft.set_reason(old, format!("leaves: it is {state}, and {} workers remain", draft.workers.len()));
        return Ok(Some(Step { action: Action::DecreaseWorkers, reason: format!("{fault}: it leaves") }));
    }
    let Some(new) = add_worker(draft, &format!("in place of {name}, which is {state}")) else {
        draft.restore_member(old, Kind::Worker, place);
        draft.hints.push(format!("{fault}, and is left untouched: no unused machine can take its place"));
        return Ok(None);
    };
    let new = draft.name(new);
    draft.set_reason(old, format!("leaves: it is {state}; {new} takes its place"));
    Ok(Some(Step { action: Action::DecreaseWorkers, reason: format!("{fault}: {new} takes its place") }))
}

/// Adds the best unused machine of the worker template with the smallest quotient of workers and weight. Of equal
/// quotients the first is used. The CKE of 2019 counts the current definition, cketerm the definition being built
/// (SAB-31).
fn add_worker(draft: &mut Draft<'_>, reason: &str) -> Option<usize> {
    draft.add_worker(next_template(draft), reason)
}

fn next_template(draft: &Draft<'_>) -> usize {
    let mut best = (0, f64::INFINITY);
    for (i, kind) in draft.input.template.workers.iter().enumerate() {
        #[allow(clippy::cast_precision_loss)] // counts of machines
        let load = draft.share(i) as f64 / kind.weight;
        if load < best.1 {
            best = (i, load);
        }
    }
    best.0
}

fn plane_role(draft: &Draft<'_>) -> String {
    of_role(draft.input.template.control_plane.role.as_deref())
}

fn missing_workers_message(draft: &Draft<'_>, limits: &Limits) -> String {
    let kind = &draft.input.template.workers[next_template(draft)];
    let role = kind.role.as_deref();
    let turn = role.map_or_else(String::new, |_| format!(", next by weight {}", kind.weight));
    format!(
        "at least {} healthy workers wanted, {} present: no unused healthy machine{}{turn} is left ({})",
        limits.min_workers,
        Draft::machines_of(&draft.workers).filter(|&i| draft.counts_as_healthy(i)).count(),
        of_role(role),
        unused_summary(draft, role)
    )
}
