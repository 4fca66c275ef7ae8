//! Actions that both strategies share, and the messages about machines that are missing.

#![allow(clippy::unnecessary_wraps)] // all actions have one signature

use super::{
    draft::{Draft, of_role},
    limits::Limits,
    machine::State,
    plan::{Action, PlanError},
    state_taint::taint_is_right,
    step::{Step, StepResult},
};

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

/// SAB-46: "CKE adds taints to nodes"; "for other machine states, the taint is removed".
pub(super) fn taint_nodes(draft: &mut Draft<'_>, _: &Limits) -> StepResult {
    let mut wrong = Vec::new();
    let members = draft.planes.iter().chain(&draft.workers).copied().collect::<Vec<_>>();
    for i in Draft::machines_of(&members) {
        let wanted = draft.desired_taint(i);
        let node = draft.nodes[i].and_then(|place| draft.current_node(place));
        if node.is_none_or(|n| taint_is_right(n, wanted.as_ref())) {
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

/// Explains why control planes are missing and no machine can become one.
pub(super) fn missing_planes_message(draft: &Draft<'_>, limits: &Limits) -> String {
    let role = draft.input.template.control_plane.role.as_deref();
    format!(
        "{} control planes wanted, {} present: no healthy machine{} is left ({})",
        limits.planes,
        draft.planes.len(),
        of_role(role),
        unused_summary(draft, role)
    )
}

/// Explains why the unused machines were not taken.
pub(super) fn unused_summary(draft: &Draft<'_>, role: Option<&str>) -> String {
    let (mut sick, mut other) = (0, 0);
    for i in (0..draft.input.machines.len()).filter(|&i| draft.kind(i).is_none()) {
        if role.is_some_and(|role| draft.machine(i).role != role) {
            other += 1;
        } else if draft.state(i) != State::Healthy || draft.is_rebooting(i) {
            sick += 1;
        }
    }
    format!("unused: {sick} not healthy, {other} of other roles")
}

/// Returns the first few of a list, and the number of the others.
fn some(list: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = list.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match list.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
