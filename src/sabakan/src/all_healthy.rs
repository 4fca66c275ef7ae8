//! Strategy `all-healthy`: every healthy machine of a templated role is a worker (SAB-47 to SAB-58), as in CKE since
//! 2025.

#![allow(clippy::unnecessary_wraps)] // all actions have one signature

use cketerm_model::boot_time::Seconds;

use super::{
    draft::{Draft, Member},
    limits::Limits,
    machine::State,
    plan::{Action, PlanError},
    shared_actions::{demote_surplus, missing_planes_message, remove_non_existent, taint_nodes},
    step::{Step, StepResult},
};

/// Builds the first definition: control planes, then every other healthy machine of a templated role.
pub(super) fn initialize(draft: &mut Draft<'_>, limits: &Limits) -> Result<Step, PlanError> {
    fill(draft, limits)?;
    let reason = format!(
        "first definition: {} control planes, and every other healthy machine of a templated role ({})",
        limits.planes,
        draft.workers.len()
    );
    Ok(Step { action: Action::Initialize, reason })
}

/// Applies the first action whose condition holds. Like CKE, it never replaces a control plane by itself (SAB-47).
pub(super) fn maintain(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    let actions: [fn(&mut Draft<'_>, &Limits) -> StepResult; 6] = [
        remove_non_existent,
        increase_control_plane,
        decrease_control_plane,
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

/// Adds missing control planes, from unused machines first and then from workers. Then adds missing workers (SAB-48).
pub(super) fn fill(draft: &mut Draft<'_>, limits: &Limits) -> Result<(), PlanError> {
    add_planes(draft, limits)?;
    let target = target(draft);
    add_workers(draft, |draft| draft.workers.len() < target);
    Ok(())
}

fn add_planes(draft: &mut Draft<'_>, limits: &Limits) -> Result<(), PlanError> {
    while draft.planes.len() < limits.planes {
        let reason = format!("{} of {} present", draft.planes.len(), limits.planes);
        if draft.add_plane(&reason).is_some() {
            continue;
        }
        let Some(pick) = draft.best_worker(true, None) else {
            return Err(PlanError::NotEnough(missing_planes_message(draft, limits)));
        };
        draft.promote(&pick, &format!("{reason}, and no unused machine is left"));
    }
    Ok(())
}

fn increase_control_plane(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    let before = draft.planes.len();
    if before >= limits.planes {
        return Ok(None);
    }
    add_planes(draft, limits)?;
    let reason = format!("{before} control planes, {} wanted", limits.planes);
    Ok(Some(Step { action: Action::IncreaseControlPlane, reason }))
}

fn decrease_control_plane(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    let before = draft.planes.len();
    if !demote_surplus(draft, limits) {
        return Ok(None);
    }
    let reason = format!("{before} control planes, {} wanted", limits.planes);
    Ok(Some(Step { action: Action::DecreaseControlPlane, reason }))
}

/// SAB-50: workers are added while healthy workers are fewer than healthy machines of any role minus all control
/// planes.
fn increase_workers(draft: &mut Draft<'_>, _: &Limits) -> StepResult {
    let required = (healthy(draft, |_| true) + count_absent(&draft.planes) + count_absent(&draft.workers))
        .saturating_sub(draft.planes.len());
    match add_workers(draft, |draft| healthy_members(draft, &draft.workers) < required) {
        0 => Ok(None),
        n => {
            let reason = format!("unused healthy machines of templated roles: {n}");
            Ok(Some(Step { action: Action::IncreaseWorkers, reason }))
        }
    }
}

/// Returns *W* of SAB-49: the number of workers, healthy or not, that the definition is filled up to. It is the number
/// of healthy machines of the worker templates' roles, minus the control planes with one of these roles, healthy or
/// not.
fn target(draft: &Draft<'_>) -> usize {
    let templated = |i: usize| template(draft, i).is_some();
    let planes = planes_of(draft, templated);
    // A machine in work that the answer lacks counts as healthy, and keeps the role that it had.
    let absent_count =
        count_absent(&draft.workers) + if planes == draft.planes.len() { count_absent(&draft.planes) } else { 0 };
    (healthy(draft, templated) + absent_count).saturating_sub(planes)
}

/// Returns the number of control planes to subtract from the machines of these roles. If the control-plane template
/// names one of these roles, all control planes count; otherwise those whose machines have one.
fn planes_of(draft: &Draft<'_>, of: impl Fn(usize) -> bool) -> usize {
    let own = Draft::machines_of(&draft.planes).filter(|&i| of(i)).count();
    let role = draft.input.template.control_plane.role.as_deref();
    let named =
        role.is_some_and(|role| (0..draft.input.machines.len()).any(|i| draft.machine(i).role == role && of(i)));
    if named { draft.planes.len() } else { own }
}

/// Returns the number of healthy machines in the whole answer.
fn healthy(draft: &Draft<'_>, of: impl Fn(usize) -> bool) -> usize {
    (0..draft.input.machines.len()).filter(|&i| draft.counts_as_healthy(i) && of(i)).count()
}

fn count_absent(members: &[Member]) -> usize {
    members.iter().filter(|m| matches!(m, Member::Absent(_))).count()
}

fn healthy_members(draft: &Draft<'_>, members: &[Member]) -> usize {
    count_absent(members) + Draft::machines_of(members).filter(|&i| draft.counts_as_healthy(i)).count()
}

/// Returns the worker template that names a machine's role.
fn template(draft: &Draft<'_>, i: usize) -> Option<usize> {
    let of = draft.worker_kind(i)?;
    draft.input.template.workers[of].accepts_role(&draft.machine(i).role).then_some(of)
}

/// Adds unused machines as workers while `more` returns true, each of the template whose turn it is. Returns their
/// number.
fn add_workers(draft: &mut Draft<'_>, more: impl Fn(&Draft<'_>) -> bool) -> usize {
    let shares: Vec<i64> = (0..draft.input.template.workers.len())
        .map(|of| {
            let is_of_template = |i: usize| template(draft, i) == Some(of);
            signed(healthy(draft, is_of_template)) - signed(planes_of(draft, is_of_template))
        })
        .collect();
    // templates without an unused machine
    let mut empty = vec![false; shares.len()];
    let mut added = 0;
    while more(draft)
        && let Some(of) = next_worker_template(draft, &shares, &empty)
    {
        if draft.add_worker(of, "all healthy machines of templated roles are workers").is_some() {
            added += 1;
        } else {
            empty[of] = true;
        }
    }
    added
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Returns the template with the smallest quotient of workers, healthy or not, and machines. Of equal quotients the
/// first is used. A template without machines for workers comes last (SAB-51, SAB-52).
fn next_worker_template(draft: &Draft<'_>, shares: &[i64], empty: &[bool]) -> Option<usize> {
    let open = (0..shares.len()).filter(|&of| !empty[of]);
    open.min_by(|&a, &b| {
        let (have, all) = (|of| signed(draft.share(of)), |of: usize| shares[of]);
        match (all(a) > 0, all(b) > 0) {
            // compares a/b with c/d without fractions
            (true, true) => have(a).saturating_mul(all(b)).cmp(&have(b).saturating_mul(all(a))),
            (one, other) => other.cmp(&one),
        }
    })
}

/// SAB-58: a worker that has been retired, not only retiring, for more than `removal_wait_seconds` leaves. It stays if
/// (workers − 1) / machines of the answer would be below `minimum-workers-rate` percent.
fn decrease_workers(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    let wait = Seconds::from(draft.input.wait_seconds);
    let retired =
        |i: &usize| draft.state(*i) == State::Retired && draft.machine(*i).duration > wait && !draft.is_rebooting(*i);
    let Some(old) = Draft::machines_of(&draft.workers).find(retired) else { return Ok(None) };
    let (name, machines) = (draft.name(old), draft.input.machines.len());
    let left = draft.workers.len() - 1;
    if left * 100 < limits.worker_rate * machines {
        let rate = limits.worker_rate;
        draft.hints.push(format!(
            "the worker {name} is retired and stays: without it {left} workers would be less than {rate} % of {machines} machines"
        ));
        return Ok(None);
    }
    draft.remove_members(&[old]);
    draft.set_reason(old, format!("leaves: it is retired, and {left} workers remain"));
    Ok(Some(Step { action: Action::DecreaseWorkers, reason: format!("the worker {name} is retired: it leaves") }))
}
