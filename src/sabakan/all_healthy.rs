//! Today's CKE: every healthy machine of a templated role is a worker (spec/sabakan.md, Strategy `all-healthy`).

#![allow(clippy::unnecessary_wraps)] // all actions have one signature

use super::{
    draft::{Draft, Member},
    machine::State,
    plan::{Action, Limits, PlanError, Step},
    weighted::{demote_surplus, planes_missing, remove_non_existent, taint_nodes},
};
use crate::model::{cluster::Taint, policy::Strategy};

type Done = Result<Option<Step>, PlanError>;

/// The first definition: control planes, then every other healthy machine of a templated role.
pub(super) fn initialize(draft: &mut Draft<'_>, limits: &Limits) -> Result<Step, PlanError> {
    fill(draft, limits)?;
    let reason = format!(
        "there is no definition yet: {} control planes, and every other healthy machine of a templated role ({})",
        limits.planes,
        draft.workers.len()
    );
    Ok(Step { action: Action::Initialize, reason })
}

/// The first action whose condition holds. Today's CKE replaces no control plane by itself.
pub(super) fn maintain(draft: &mut Draft<'_>, limits: &Limits) -> Done {
    let actions: [fn(&mut Draft<'_>, &Limits) -> Done; 6] = [
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

/// Adds the control planes that are missing, unused machines first, then workers; then the workers that are missing.
pub(super) fn fill(draft: &mut Draft<'_>, limits: &Limits) -> Result<(), PlanError> {
    add_planes(draft, limits)?;
    let target = target(draft, limits);
    add_workers(draft, target.saturating_sub(draft.workers.len()));
    Ok(())
}

fn add_planes(draft: &mut Draft<'_>, limits: &Limits) -> Result<(), PlanError> {
    while draft.planes.len() < limits.planes {
        let reason = format!("{} of {} are there", draft.planes.len(), limits.planes);
        if draft.add_plane(&reason).is_some() {
            continue;
        }
        let Some(pick) = draft.best_worker(true) else {
            return Err(PlanError::NotEnough(planes_missing(draft, limits)));
        };
        draft.promote(&pick, &format!("{reason}, and no unused machine is left"));
    }
    Ok(())
}

fn increase_control_plane(draft: &mut Draft<'_>, limits: &Limits) -> Done {
    let before = draft.planes.len();
    if before >= limits.planes {
        return Ok(None);
    }
    add_planes(draft, limits)?;
    let reason = format!("there are {before} control planes, {} are wanted", limits.planes);
    Ok(Some(Step { action: Action::IncreaseControlPlane, reason }))
}

fn decrease_control_plane(draft: &mut Draft<'_>, limits: &Limits) -> Done {
    let before = draft.planes.len();
    if !demote_surplus(draft, limits) {
        return Ok(None);
    }
    let reason = format!("there are {before} control planes, {} are wanted", limits.planes);
    Ok(Some(Step { action: Action::DecreaseControlPlane, reason }))
}

fn increase_workers(draft: &mut Draft<'_>, limits: &Limits) -> Done {
    let missing = target(draft, limits).saturating_sub(healthy(draft, &draft.workers));
    match add_workers(draft, missing) {
        0 => Ok(None),
        n => {
            let reason = format!("healthy machines of templated roles that were in no place: {n}");
            Ok(Some(Step { action: Action::IncreaseWorkers, reason }))
        }
    }
}

/// How many workers there should be: all healthy machines but those that the control plane needs. As in CKE so many
/// stay unused as control planes are not healthy: a person can replace those with them.
fn target(draft: &Draft<'_>, limits: &Limits) -> usize {
    let unused = draft.unused().filter(|&i| template(draft, i).is_some()).count();
    let members = healthy(draft, &draft.planes) + healthy(draft, &draft.workers);
    (members + unused).saturating_sub(limits.planes)
}

fn healthy(draft: &Draft<'_>, members: &[Member]) -> usize {
    let is = |m: &&Member| match m {
        Member::Machine(i) => draft.counts_as_healthy(*i),
        Member::Absent(_) => true,
    };
    members.iter().filter(is).count()
}

/// The worker template of whose role a machine is.
fn template(draft: &Draft<'_>, i: usize) -> Option<usize> {
    let of = draft.worker_kind(i)?;
    draft.input.template.workers[of].takes(&draft.machine(i).role).then_some(of)
}

/// Makes so many unused machines workers where there are as many, the template with the smallest part of its machines
/// first.
fn add_workers(draft: &mut Draft<'_>, missing: usize) -> usize {
    let mut have = vec![0_usize; draft.input.template.workers.len()];
    for i in Draft::machines_of(&draft.workers).filter(|&i| draft.counts_as_healthy(i)) {
        if let Some(of) = draft.worker_kind(i) {
            have[of] += 1;
        }
    }
    let mut wanted = have.clone();
    for i in draft.unused() {
        if let Some(of) = template(draft, i) {
            wanted[of] += 1;
        }
    }
    let mut added = 0;
    while added < missing
        && let Some(of) = least(&have, &wanted)
        && draft.add_worker(of, "every healthy machine of a templated role is one").is_some()
    {
        have[of] += 1;
        added += 1;
    }
    added
}

/// The template that has the smallest part of its machines and not all of them.
fn least(have: &[usize], wanted: &[usize]) -> Option<usize> {
    let open = (0..have.len()).filter(|&i| have[i] < wanted[i]);
    // a/b < c/d without fractions
    open.min_by(|&a, &b| (have[a] * wanted[b]).cmp(&(have[b] * wanted[a])))
}

/// "A worker RETIRED (not merely retiring) for over 300 s is removed while (workers − 1) / machines ≥
/// minimum-workers-rate % of all machines in the answer."
fn decrease_workers(draft: &mut Draft<'_>, limits: &Limits) -> Done {
    #[allow(clippy::cast_precision_loss)] // seconds
    let wait = draft.input.wait_seconds as f64;
    let retired = |i: &usize| {
        let m = draft.machine(*i);
        m.state == State::Retired && m.duration > wait && !draft.is_rebooting(*i)
    };
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
    draft.take_out(&[old]);
    draft.because(old, format!("leaves: it is retired, and {left} workers remain"));
    Ok(Some(Step { action: Action::DecreaseWorkers, reason: format!("the worker {name} is retired: it leaves") }))
}

impl Draft<'_> {
    /// Taints of a machine's Kubernetes Node, where it has one and they are known.
    fn taints(&self, i: usize) -> &[Taint] {
        let Some(nodes) = self.input.kubernetes_nodes else { return &[] };
        let name = match self.nodes[i].and_then(|place| self.current_node(place)) {
            Some(node) => node.node_name(),
            None => &self.machine(i).address,
        };
        nodes.get(name).map_or(&[], Vec::as_slice)
    }

    fn spare_key(&self) -> Option<&str> {
        let key = self.input.template.cluster.sabakan.get("spare_node_taint_key")?.as_str()?;
        (!key.is_empty()).then_some(key)
    }

    /// Whether nobody else keeps a machine's node for himself.
    pub(super) fn free_of_taints(&self, i: usize) -> bool {
        if self.input.strategy == Strategy::Weighted {
            return true;
        }
        let tolerated = self.input.template.cluster.control_plane_tolerations.as_deref().unwrap_or_default();
        self.taints(i).iter().all(|t| {
            t.key.starts_with("node.kubernetes.io/")
                || matches!(t.key.as_str(), "cke.cybozu.com/state" | "cke.cybozu.com/master")
                || Some(t.key.as_str()) == self.spare_key()
                || tolerated.contains(&t.key)
        })
    }

    /// Where there are spare nodes among the candidates, only those are left.
    pub(super) fn only_spares(&self, candidates: &mut Vec<usize>) {
        if self.input.strategy == Strategy::Weighted {
            return;
        }
        let Some(key) = self.spare_key() else { return };
        let spares: Vec<usize> =
            candidates.iter().copied().filter(|&i| self.taints(i).iter().any(|t| t.key == key)).collect();
        if !spares.is_empty() {
            *candidates = spares;
        }
    }
}
