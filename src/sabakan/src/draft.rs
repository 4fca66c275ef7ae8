//! The definition being built: its members, and the moves that both strategies share.

mod spares;

use cketerm_model::{
    cluster::{Node, Taint},
    policy::Strategy,
};

use super::{
    machine::{Machine, State},
    plan::{Input, PlanError},
    pool::{Pick, PickOrder, Pool, Racks},
    quick::QuickMap,
    score::{Kind, Rule, Score},
    state_taint::{state_taint, state_taints},
    why::{Chosen, Why},
};

/// A node of the definition being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// A machine of the answer, by its index.
    Machine(usize),
    /// A node of the current definition, by its index. The answer lacks it, but it is in work, so it is kept as
    /// it is (SAB-24). A rebooting machine is absent for a while, above all if the variables exclude unreachable
    /// machines.
    Absent(usize),
}

/// Effect of a plan on a machine.
#[derive(Clone, Debug)]
pub(super) struct MachineOutcome {
    pub(super) score: Option<i64>,
    pub(super) why: Why,
}

/// Some fields of a machine.
#[derive(Clone, Copy)]
struct Summary {
    rack: i64,
    state: State,
    /// Index of the worker template for its role.
    worker_kind: Option<usize>,
}

/// The definition being built.
pub(super) struct Draft<'a> {
    pub(super) input: Input<'a>,
    pub(super) planes: Vec<Member>,
    pub(super) workers: Vec<Member>,
    /// Nodes of the current definition that the answer lacks.
    pub(super) vanished: Vec<&'a Node>,
    /// Number of control planes in the current definition.
    pub(super) planes_before: usize,
    /// Reasons for machines that change their place.
    pub(super) outcomes: QuickMap<usize, MachineOutcome>,
    /// Conditions that hold but that no action can resolve.
    pub(super) hints: Vec<String>,
    /// By machine: its index in the current definition.
    pub(super) nodes: Vec<Option<usize>>,
    /// By machine: what a plan looks up again and again, close together in memory.
    summaries: Vec<Summary>,
    /// By machine: whether it is in work (a reboot or a repair).
    rebooting: Vec<bool>,
    /// By machine: its kind in the definition being built.
    kinds: Vec<Option<Kind>>,
    plane_racks: Racks,
    worker_racks: Racks,
    /// Number of workers, by worker template.
    shares: Vec<usize>,
    plane_pool: Option<Pool<'a>>,
    worker_pools: Option<Vec<Pool<'a>>>,
}

impl<'a> Draft<'a> {
    /// Starts with the current definition.
    pub(super) fn new(input: &Input<'a>) -> Result<Self, PlanError> {
        let machines = input.machines;
        let mut by_address: QuickMap<&str, usize> =
            QuickMap::with_capacity_and_hasher(machines.len(), std::hash::BuildHasherDefault::default());
        let mut summaries = Vec::with_capacity(machines.len());
        for (i, machine) in machines.iter().enumerate() {
            let worker_kind = input.template.worker_kind(&machine.role);
            summaries.push(Summary { rack: machine.rack, state: machine.state, worker_kind });
            if let Some(other) = by_address.insert(&machine.address, i) {
                let (a, b) = (&machines[other].serial, &machine.serial);
                let what = format!("machines {a} and {b} both have the address {}", machine.address);
                return Err(PlanError::Input(what));
            }
        }
        let mut draft = Self {
            input: *input,
            planes: Vec::new(),
            workers: Vec::new(),
            vanished: Vec::new(),
            planes_before: 0,
            outcomes: QuickMap::default(),
            hints: Vec::new(),
            nodes: vec![None; machines.len()],
            summaries,
            rebooting: vec![false; machines.len()],
            kinds: vec![None; machines.len()],
            plane_racks: Racks::default(),
            worker_racks: Racks::default(),
            shares: vec![0; input.template.workers.len()],
            plane_pool: None,
            worker_pools: None,
        };
        for address in input.rebooting {
            if let Some(&i) = by_address.get(address.as_str()) {
                draft.rebooting[i] = true;
            }
        }
        for (place, node) in input.current.iter().flat_map(|c| c.nodes.iter().enumerate()) {
            draft.planes_before += usize::from(node.control_plane);
            let kind = if node.control_plane { Kind::ControlPlane } else { Kind::Worker };
            match by_address.get(node.address.as_str()) {
                Some(&i) if draft.nodes[i].is_some() => {
                    let what = format!("the definition in force has the address {} twice", node.address);
                    return Err(PlanError::Input(what));
                }
                Some(&i) => {
                    draft.nodes[i] = Some(place);
                    draft.put(i, kind);
                }
                None if input.rebooting.contains(&node.address) => {
                    let members = if node.control_plane { &mut draft.planes } else { &mut draft.workers };
                    members.push(Member::Absent(place));
                }
                None => draft.vanished.push(node),
            }
        }
        Ok(draft)
    }

    pub(super) fn machine(&self, i: usize) -> &'a Machine {
        &self.input.machines[i]
    }

    pub(super) fn state(&self, i: usize) -> State {
        self.summaries[i].state
    }

    pub(super) fn is_rebooting(&self, i: usize) -> bool {
        self.rebooting[i]
    }

    pub(super) fn kind(&self, i: usize) -> Option<Kind> {
        self.kinds[i]
    }

    /// Returns `10.0.0.1 (serial)`.
    pub(super) fn name(&self, i: usize) -> String {
        let m = self.machine(i);
        format!("{} ({})", m.address, m.serial)
    }

    /// Reports whether it is healthy, or unhealthy or unreachable only because it is in work.
    pub(super) fn counts_as_healthy(&self, i: usize) -> bool {
        match self.state(i) {
            State::Healthy => true,
            State::Unhealthy | State::Unreachable => self.rebooting[i],
            State::Uninitialized | State::Updating | State::Retiring | State::Retired => false,
        }
    }

    /// Returns the machines among these members, without absent ones.
    pub(super) fn machines_of(members: &[Member]) -> impl Iterator<Item = usize> {
        members.iter().filter_map(|m| match m {
            Member::Machine(i) => Some(*i),
            Member::Absent(_) => None,
        })
    }

    /// Returns the unused machines that may be taken: in no place, healthy, and not in work.
    pub(super) fn unused(&self) -> impl Iterator<Item = usize> {
        (0..self.input.machines.len())
            .filter(|&i| self.kinds[i].is_none() && self.state(i) == State::Healthy && !self.rebooting[i])
    }

    /// Returns the index of the worker template for a machine.
    pub(super) fn worker_kind(&self, i: usize) -> Option<usize> {
        self.summaries[i].worker_kind
    }

    /// Returns the number of workers of a worker template.
    pub(super) fn share(&self, template: usize) -> usize {
        self.shares[template]
    }

    fn rule(&self, kind: Kind, health: bool) -> Rule {
        Rule { strategy: self.input.strategy, kind, health }
    }

    /// Adds a machine at the end of its kind.
    pub(super) fn put(&mut self, i: usize, kind: Kind) {
        self.kinds[i] = Some(kind);
        let rack = self.summaries[i].rack;
        match kind {
            Kind::ControlPlane => {
                self.planes.push(Member::Machine(i));
                self.plane_racks.add(rack);
            }
            Kind::Worker => {
                self.workers.push(Member::Machine(i));
                self.worker_racks.add(rack);
                if let Some(template) = self.worker_kind(i) {
                    self.shares[template] += 1;
                }
            }
        }
    }

    /// Removes machines from their places. That changes the scores, so the candidate pools are dropped.
    pub(super) fn remove_members(&mut self, machines: &[usize]) {
        for &i in machines {
            let rack = self.summaries[i].rack;
            match self.kinds[i].take() {
                Some(Kind::ControlPlane) => self.plane_racks.remove(rack),
                Some(Kind::Worker) => {
                    self.worker_racks.remove(rack);
                    if let Some(template) = self.worker_kind(i) {
                        self.shares[template] = self.shares[template].saturating_sub(1);
                    }
                }
                None => {}
            }
        }
        let kinds = &self.kinds;
        let stays =
            |m: &Member| matches!(m, Member::Absent(_)) || matches!(m, Member::Machine(i) if kinds[*i].is_some());
        self.planes.retain(stays);
        self.workers.retain(stays);
        (self.plane_pool, self.worker_pools) = (None, None);
    }

    /// Reverts a [`Self::remove_members`]: the machine returns to its former place, so a diff shows only real changes.
    pub(super) fn restore_member(&mut self, i: usize, kind: Kind, place: usize) {
        self.put(i, kind);
        let members = if kind == Kind::ControlPlane { &mut self.planes } else { &mut self.workers };
        if let Some(member) = members.pop() {
            members.insert(place.min(members.len()), member);
        }
    }

    /// Records why a machine changes its place.
    pub(super) fn set_reason(&mut self, i: usize, why: impl Into<String>) {
        self.outcomes.insert(i, MachineOutcome { score: None, why: Why::Because(why.into()) });
    }

    /// Records the result of a comparison for a machine.
    pub(super) fn chosen(&mut self, pick: &Pick, lowest: bool, what: String, of: String) {
        let next = pick.next.map(|(i, score)| (self.machine(i).serial.clone(), score));
        let chosen = Chosen { what, score: pick.score, lowest, among: pick.among, of, next };
        let outcome = MachineOutcome { score: Some(pick.score.total), why: Why::Chosen(Box::new(chosen)) };
        self.outcomes.insert(pick.machine, outcome);
    }

    /// Adds the best unused machine as a control plane.
    pub(super) fn add_plane(&mut self, reason: &str) -> Option<usize> {
        let template = &self.input.template.control_plane;
        if self.plane_pool.is_none() {
            let of_role = self
                .unused()
                .filter(|&i| template.accepts_role(&self.machine(i).role) && self.has_only_tolerated_taints(i));
            let mut candidates: Vec<usize> = of_role.collect();
            self.prefer_spares(&mut candidates);
            self.plane_pool = Some(self.pool(&candidates, self.rule(Kind::ControlPlane, false), PickOrder::Highest));
        }
        let pick = self.plane_pool.as_mut()?.take(&self.plane_racks);
        let Some(pick) = pick else {
            // No spare is left: continue with the other candidates (SAB-55).
            self.plane_pool = None;
            let more = self
                .unused()
                .any(|i| template.accepts_role(&self.machine(i).role) && self.has_only_tolerated_taints(i));
            return if more { self.add_plane(reason) } else { None };
        };
        let of = format!("unused healthy machines{}", of_role(template.role.as_deref()));
        self.chosen(&pick, false, format!("added as a control plane: {reason}"), of);
        self.put(pick.machine, Kind::ControlPlane);
        Some(pick.machine)
    }

    /// Adds the best unused machine as a worker of one template.
    pub(super) fn add_worker(&mut self, template: usize, reason: &str) -> Option<usize> {
        if self.worker_pools.is_none() {
            let mut candidates: Vec<Vec<usize>> = vec![Vec::new(); self.input.template.workers.len()];
            for i in self.unused() {
                if let Some(of) = self.worker_kind(i)
                    && self.input.template.workers[of].accepts_role(&self.machine(i).role)
                {
                    candidates[of].push(i);
                }
            }
            let rule = self.rule(Kind::Worker, false);
            let pools = candidates.iter().map(|c| self.pool(c, rule, PickOrder::Highest)).collect();
            self.worker_pools = Some(pools);
        }
        let pool = self.worker_pools.as_mut()?.get_mut(template)?;
        let pick = loop {
            let pick = pool.take(&self.worker_racks)?;
            if self.kinds[pick.machine].is_none() {
                break pick;
            }
        };
        let kind = &self.input.template.workers[template];
        let share = self.shares[template];
        let turn = match kind.role.as_deref() {
            Some(role) => format!("; role {role} was next ({share} at weight {})", kind.weight),
            None => String::new(),
        };
        let of = format!("unused healthy machines{}", of_role(kind.role.as_deref()));
        self.chosen(&pick, false, format!("added as a worker: {reason}{turn}"), of);
        self.put(pick.machine, Kind::Worker);
        Some(pick.machine)
    }

    /// Returns the best worker to promote: among the healthy ones, or among all with health in their scores. Of equal
    /// scores the first in the definition's order is taken. A control plane that `leaving` no longer counts in its rack
    /// (SAB-30).
    pub(super) fn best_worker(&self, only_healthy: bool, leaving: Option<usize>) -> Option<Pick> {
        let template = &self.input.template.control_plane;
        let of_role = Self::machines_of(&self.workers).filter(|&i| {
            template.accepts_role(&self.machine(i).role)
                && !self.rebooting[i]
                && (!only_healthy || self.state(i) == State::Healthy)
                && self.has_only_tolerated_taints(i)
        });
        let mut candidates: Vec<usize> = of_role.collect();
        self.prefer_spares(&mut candidates);
        let mut racks = self.plane_racks.clone();
        if let Some(bad) = leaving {
            racks.remove(self.machine(bad).rack);
        }
        let rule = self.rule(Kind::ControlPlane, self.input.strategy == Strategy::Weighted);
        self.sort_by_score(&mut candidates, rule, &racks, PickOrder::Highest);
        self.first(&candidates, rule, &racks)
    }

    /// Sorts stably by score, so equal scores keep their order.
    fn sort_by_score(&self, candidates: &mut [usize], rule: Rule, racks: &Racks, order: PickOrder) {
        candidates.sort_by_cached_key(|&i| {
            let score = self.score(i, rule, racks).total;
            if order == PickOrder::Highest { -score } else { score }
        });
    }

    fn score(&self, i: usize, rule: Rule, racks: &Racks) -> Score {
        let machine = self.machine(i);
        rule.score(machine, racks.count(machine.rack), self.input.now)
    }

    /// Returns the first of sorted candidates with the next one.
    fn first(&self, sorted: &[usize], rule: Rule, racks: &Racks) -> Option<Pick> {
        let machine = *sorted.first()?;
        let next = sorted.get(1).map(|&i| (i, self.score(i, rule, racks).total));
        Some(Pick { machine, score: self.score(machine, rule, racks), among: sorted.len(), next })
    }

    /// Returns the `count` control planes with the lowest scores, except those in work. The list starts in the
    /// definition's order. Before each choice it is sorted stably by the present rack counts and keeps that order
    /// (SAB-29).
    pub(super) fn lowest_planes(&self, count: usize) -> Vec<Pick> {
        let (rule, mut racks) = (self.rule(Kind::ControlPlane, true), self.plane_racks.clone());
        let mut candidates: Vec<usize> = Self::machines_of(&self.planes).filter(|&i| !self.rebooting[i]).collect();
        let mut out = Vec::new();
        while out.len() < count {
            self.sort_by_score(&mut candidates, rule, &racks, PickOrder::Lowest);
            let Some(pick) = self.first(&candidates, rule, &racks) else { break };
            racks.remove(self.machine(pick.machine).rack);
            candidates.remove(0);
            out.push(pick);
        }
        out
    }

    /// Promotes a worker to a control plane.
    pub(super) fn promote(&mut self, pick: &Pick, reason: &str) {
        let of = format!("workers{}", of_role(self.input.template.control_plane.role.as_deref()));
        self.remove_members(&[pick.machine]);
        self.chosen(pick, false, format!("becomes a control plane: {reason}"), of);
        self.put(pick.machine, Kind::ControlPlane);
    }

    /// Demotes control planes to workers. One whose role no worker template has leaves instead (SAB-38).
    pub(super) fn demote(&mut self, machines: &[usize]) {
        self.remove_members(machines);
        for &i in machines {
            if self.worker_kind(i).is_some() {
                self.put(i, Kind::Worker);
            } else {
                let role = &self.machine(i).role;
                self.set_reason(
                    i,
                    format!("leaves: it is no longer a control plane, and no worker template has role {role}"),
                );
            }
        }
    }

    /// Returns the `count` workers with the lowest scores, except those in work.
    pub(super) fn lowest_workers(&self, count: usize) -> Vec<Pick> {
        let mut racks = self.worker_racks.clone();
        let candidates: Vec<usize> = Self::machines_of(&self.workers).filter(|&i| !self.rebooting[i]).collect();
        let rule = self.rule(Kind::Worker, true);
        let mut pool =
            Pool::new(self.input.machines, candidates.into_iter(), rule, PickOrder::Lowest, &racks, self.input.now);
        let mut out = Vec::new();
        while out.len() < count
            && let Some(pick) = pool.take(&racks)
        {
            racks.remove(self.machine(pick.machine).rack);
            out.push(pick);
        }
        out
    }

    fn pool(&self, candidates: &[usize], rule: Rule, order: PickOrder) -> Pool<'a> {
        let racks = if rule.kind == Kind::ControlPlane { &self.plane_racks } else { &self.worker_racks };
        Pool::new(self.input.machines, candidates.iter().copied(), rule, order, racks, self.input.now)
    }

    /// Returns the state taint that a machine's node must have. A machine in work keeps the one it had.
    pub(super) fn desired_taint(&self, i: usize) -> Option<Taint> {
        match self.nodes[i] {
            Some(place) if self.rebooting[i] => {
                let node = self.input.current.and_then(|c| c.nodes.get(place));
                node.and_then(|n| state_taints(n).next().cloned())
            }
            _ => state_taint(self.state(i), self.input.strategy),
        }
    }

    /// Returns the node of the current definition at this index.
    pub(super) fn current_node(&self, place: usize) -> Option<&'a Node> {
        self.input.current.and_then(|c| c.nodes.get(place))
    }
}

pub(super) fn of_role(role: Option<&str>) -> String {
    role.map_or_else(String::new, |role| format!(" of role {role}"))
}
