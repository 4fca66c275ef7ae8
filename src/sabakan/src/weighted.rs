//! Strategy `weighted`: as many workers as the constraints want, in the ratio of the weights, with one action per pass
//! (SAB-31 to SAB-46). Quotations are from CKE's document of its sabakan integration.

#![allow(clippy::unnecessary_wraps)] // all actions have one signature

use super::{
    draft::{Draft, Member, of_role},
    machine::State,
    plan::{Action, Limits, PlanError, Step},
    score::Kind,
};

type StepResult = Result<Option<Step>, PlanError>;

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

/// SAB-33, SAB-34: "If the current cluster contains nodes that no longer exist in the list, they are removed."
pub(super) fn remove_non_existent(draft: &mut Draft<'_>, _: &Limits) -> StepResult {
    let gone: Vec<&str> = draft.vanished.iter().filter(|n| n.control_plane).map(|n| n.address.as_str()).collect();
    if draft.planes_before == 0 {
        return Err(PlanError::TooManyControlPlanes(
            "the definition in force has no control plane, so there is no cluster to maintain: fix it manually \
             (`cketerm cluster set FILE`)"
                .to_owned(),
        ));
    }
    if draft.planes.len() * 2 <= draft.planes_before {
        return Err(PlanError::TooManyControlPlanes(format!(
            "{} of {} control planes are no longer in sabakan's answer ({}): replacing half or more of etcd's members \
             would break it; correct sabakan or its variables, or correct the definition manually (`cketerm cluster set FILE`)",
            gone.len(),
            draft.planes_before,
            gone.join(", ")
        )));
    }
    if draft.vanished.is_empty() {
        return Ok(None);
    }
    let all: Vec<&str> = draft.vanished.iter().map(|n| n.address.as_str()).collect();
    let reason = format!("sabakan no longer has {}", some(&all));
    Ok(Some(Step { action: Action::RemoveNonExistent, reason }))
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

/// Demotes surplus control planes, lowest score first, while another worker is allowed. The rest leave the definition,
/// as in the CKE of 2019, which spares the present workers. Returns false if there is no surplus, or if all of it is
/// in work.
pub(super) fn demote_surplus(draft: &mut Draft<'_>, limits: &Limits) -> bool {
    let surplus = draft.planes.len().saturating_sub(limits.planes);
    if surplus == 0 {
        return false;
    }
    let picks = draft.lowest_planes(surplus);
    if picks.is_empty() {
        draft.hints.push(format!("{surplus} control planes too many, but the removable ones are being rebooted"));
        return false;
    }
    for pick in &picks {
        let can_add_worker = limits.can_add_worker(draft.workers.len());
        if can_add_worker {
            draft.demote(&[pick.machine]);
        } else {
            draft.remove_members(&[pick.machine]);
        }
        let what = match (draft.kind(pick.machine), can_add_worker) {
            (Some(_), _) => "becomes a worker",
            (None, true) => "leaves, because no worker template has its role",
            (None, false) => "leaves, because maximum-workers is reached",
        };
        let what = format!("{what}: {} control planes are wanted", limits.planes);
        draft.chosen(pick, true, what, "control planes".to_owned());
    }
    true
}

/// SAB-39 to SAB-42: "If a control plane node is neither healthy, updating, or uninitialized, the node is demoted to a
/// worker, and a new machine is added as a control plane node."
fn replace_control_plane(draft: &mut Draft<'_>, limits: &Limits) -> StepResult {
    if draft.planes.len() < 2 {
        return Ok(None);
    }
    let bad = |i: &usize| {
        let state = draft.machine(*i).state;
        !matches!(state, State::Healthy | State::Updating | State::Uninitialized) && !draft.is_rebooting(*i)
    };
    let Some(bad) = Draft::machines_of(&draft.planes).find(bad) else { return Ok(None) };
    let (name, state) = (draft.name(bad), draft.machine(bad).state);
    let fault = format!("the control plane {name} is {state}");
    let reason = format!("in place of {name}, which is {state}");
    let place = draft.planes.iter().position(|m| *m == Member::Machine(bad)).unwrap_or(0);
    let step = |how: String| Ok(Some(Step { action: Action::ReplaceControlPlane, reason: format!("{fault}: {how}") }));
    if !limits.can_add_worker(draft.workers.len()) {
        // a demoted one would be one worker too many (SAB-41)
        if let Some(pick) = draft.best_worker(false, Some(bad)).filter(|p| draft.machine(p.machine).healthy()) {
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
    #[allow(clippy::cast_precision_loss)] // seconds
    let wait = draft.input.wait_seconds as f64;
    let leaving = |i: &usize| {
        let m = draft.machine(*i);
        matches!(m.state, State::Retiring | State::Retired) && m.duration >= wait && !draft.is_rebooting(*i)
    };
    let Some(old) = Draft::machines_of(&draft.workers).find(leaving) else { return Ok(None) };
    let (name, state) = (draft.name(old), draft.machine(old).state);
    let fault = format!("the worker {name} has been {state} for {:.0} s", draft.machine(old).duration);
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

/// SAB-46: "CKE adds taints to nodes"; "for other machine states, the taint is removed".
pub(super) fn taint_nodes(draft: &mut Draft<'_>, _: &Limits) -> StepResult {
    let mut wrong = Vec::new();
    let members = draft.planes.iter().chain(&draft.workers).copied().collect::<Vec<_>>();
    for i in Draft::machines_of(&members) {
        let wanted = draft.desired_taint(i);
        let node = draft.nodes[i].and_then(|place| draft.current_node(place));
        if node.is_none_or(|n| super::node::taint_is_right(n, wanted.as_ref())) {
            continue;
        }
        let m = draft.machine(i);
        let why = match &wanted {
            Some(taint) => format!("is {}: gets the taint {}:{}", m.state, taint.value, taint.effect),
            None => format!("is {}: loses the taint of its state", m.state),
        };
        wrong.push(format!("{} {why}", m.address));
        draft.set_reason(i, why);
    }
    if wrong.is_empty() {
        return Ok(None);
    }
    let wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
    Ok(Some(Step { action: Action::TaintNodes, reason: some(&wrong) }))
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

pub(super) fn missing_planes_message(draft: &Draft<'_>, limits: &Limits) -> String {
    let role = draft.input.template.control_plane.role.as_deref();
    format!(
        "{} control planes wanted, {} present: no healthy machine{} is left ({})",
        limits.planes,
        draft.planes.len(),
        of_role(role),
        left(draft, role)
    )
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
        left(draft, role)
    )
}

/// Explains why the unused machines were not taken.
fn left(draft: &Draft<'_>, role: Option<&str>) -> String {
    let (mut sick, mut other) = (0, 0);
    for i in (0..draft.input.machines.len()).filter(|&i| draft.kind(i).is_none()) {
        if role.is_some_and(|role| draft.machine(i).role != role) {
            other += 1;
        } else if !draft.machine(i).healthy() || draft.is_rebooting(i) {
            sick += 1;
        }
    }
    format!("unused: {sick} not healthy, {other} of other roles")
}

/// Returns the first few of a list, and the number of the others.
pub(super) fn some(list: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = list.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match list.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
