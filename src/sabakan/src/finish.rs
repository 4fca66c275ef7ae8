//! Converts a draft into a definition, with a reason for each node.

use cketerm_model::cluster::{Cluster, Node};

use super::{
    draft::{Draft, Member},
    node,
    plan::{Action, Choice, Plan, PlanError},
    score::Kind,
    step::Step,
    why::Why,
};

pub(super) fn finish(mut draft: Draft<'_>, step: Option<Step>) -> Result<Plan, PlanError> {
    let mut warnings = std::mem::take(&mut draft.hints);
    let (action, reason, cluster) = if let Some(step) = step {
        check_etcd_quorum(&draft, step.action)?;
        let cluster = definition(&draft, &mut warnings)?;
        (step.action, step.reason, Some(cluster))
    } else {
        let reason = if warnings.is_empty() {
            "the definition matches template, constraints and machines".to_owned()
        } else {
            warnings.join("; ")
        };
        (Action::None, reason, None)
    };
    let nodes = choices(&mut draft);
    Ok(Plan { action, reason, changed: cluster.is_some(), cluster, nodes, warnings })
}

/// Refuses a plan that removes half of etcd's members or more at once, whatever the action (SAB-25): "etcd cluster must
/// not be broken". A lower `control-plane-count` of the operator is exempt.
fn check_etcd_quorum(draft: &Draft<'_>, action: Action) -> Result<(), PlanError> {
    if matches!(action, Action::Initialize | Action::DecreaseControlPlane) {
        return Ok(());
    }
    let was_plane = |m: &&Member| {
        let place = match m {
            Member::Machine(i) => draft.nodes[*i],
            Member::Absent(place) => Some(*place),
        };
        place.and_then(|p| draft.current_node(p)).is_some_and(|n| n.control_plane)
    };
    let kept = draft.planes.iter().filter(was_plane).count();
    // one of two may be replaced, which is half of them
    let replaced_one = action == Action::ReplaceControlPlane && kept * 2 == draft.planes_before;
    if kept * 2 > draft.planes_before || replaced_one {
        return Ok(());
    }
    Err(PlanError::TooManyControlPlanes(format!(
        "{kept} of {} control planes would remain: replacing half or more of etcd's members would break it",
        draft.planes_before
    )))
}

/// Builds the definition: control planes, then workers, each in the order of the current definition with new nodes last
/// (SAB-73).
fn definition(draft: &Draft<'_>, warnings: &mut Vec<String>) -> Result<Cluster, PlanError> {
    let template = draft.input.template;
    let mut nodes = Vec::with_capacity(draft.planes.len() + draft.workers.len());
    let strategy = draft.input.strategy;
    for (members, kind) in [(&draft.planes, Kind::ControlPlane), (&draft.workers, Kind::Worker)] {
        for member in members {
            let made = match *member {
                Member::Absent(place) => {
                    let node = draft.current_node(place).cloned().unwrap_or_default();
                    warnings
                        .push(format!("{} is not in sabakan's answer and is kept: it is being rebooted", node.address));
                    node
                }
                Member::Machine(i) => {
                    let machine = draft.machine(i);
                    let of = match kind {
                        Kind::ControlPlane => &template.control_plane,
                        Kind::Worker => draft.worker_kind(i).map(|t| &template.workers[t]).ok_or_else(|| {
                            PlanError::Input(format!(
                                "the worker {} ({}) has the role {}, but no worker template has it; add one to the \
                                 template, or change the machine's role in sabakan",
                                machine.address, machine.serial, machine.role
                            ))
                        })?,
                    };
                    let made = node::node(machine, of, draft.desired_taint(i), strategy, warnings);
                    let mut node = made.map_err(PlanError::Input)?;
                    // A member keeps its hostname. With another one it would be another Node.
                    if let Some(was) = draft.nodes[i].and_then(|place| draft.current_node(place)) {
                        node.hostname.clone_from(&was.hostname);
                    }
                    node
                }
            };
            nodes.push(made);
        }
    }
    let mut cluster = template.cluster.clone();
    cluster.nodes = nodes;
    Ok(cluster)
}

/// Returns the nodes after the plan in the definition's order, then those that leave.
fn choices(draft: &mut Draft<'_>) -> Vec<Choice> {
    let mut out = Vec::with_capacity(draft.planes.len() + draft.workers.len() + draft.vanished.len());
    let members: Vec<Member> = draft.planes.iter().chain(&draft.workers).copied().collect();
    let of_node = |node: &Node, control_plane: Option<bool>, why: &str| Choice {
        address: node.address.clone(),
        serial: node.annotations.as_ref().and_then(|a| a.get("cke.cybozu.com/serial").cloned()),
        role: node.labels.as_ref().and_then(|l| l.get("cke.cybozu.com/role").cloned()).unwrap_or_default(),
        control_plane,
        was_control_plane: Some(node.control_plane),
        score: None,
        why: Why::Because(why.to_owned()),
    };
    for member in members {
        match member {
            Member::Machine(i) => out.push(choice(draft, i)),
            Member::Absent(place) => {
                if let Some(node) = draft.current_node(place) {
                    let why = "stays: it is not in sabakan's answer, but it is being rebooted";
                    out.push(of_node(node, Some(node.control_plane), why));
                }
            }
        }
    }
    for i in 0..draft.nodes.len() {
        if draft.nodes[i].is_some() && draft.kind(i).is_none() {
            out.push(choice(draft, i));
        }
    }
    for node in &draft.vanished {
        out.push(of_node(node, None, "leaves: sabakan no longer has it"));
    }
    out
}

fn choice(draft: &mut Draft<'_>, i: usize) -> Choice {
    let machine = draft.machine(i);
    let was = draft.nodes[i].and_then(|place| draft.current_node(place)).map(|n| n.control_plane);
    let outcome = draft.outcomes.remove(&i);
    Choice {
        address: machine.address.clone(),
        serial: Some(machine.serial.clone()),
        role: machine.role.clone(),
        control_plane: draft.kind(i).map(|k| k == Kind::ControlPlane),
        was_control_plane: was,
        score: outcome.as_ref().and_then(|f| f.score),
        why: outcome.map_or(Why::Stays, |f| f.why),
    }
}
