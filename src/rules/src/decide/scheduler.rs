//! Choice of the entries of the reboot queue that start (REB-11 to REB-19; I2, I3, I5, I30).

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    entry::{EntryId, QueueKind},
    fault,
    kube::NodeRow,
    names::Address,
    policy::ApiServerOrder,
    reason::Reason,
};

use super::{Effect, Guard, Pass, attempts, entry_context::EntryContext};

impl<'a> Pass<'a> {
    /// Starts as many entries from the front of the queue as the limits allow. Each other entry gets the reason for its
    /// wait.
    pub(super) fn start_drains(&mut self, waiting: &[EntryContext<'a>]) {
        let (mut workers, mut api_servers) = (Vec::new(), Vec::new());
        // Machines whose maintenance is a candidate: it comes first, and their reboot waits for its end.
        let mut for_maintenance: BTreeMap<&Address, EntryId> = BTreeMap::new();
        for &ctx in waiting {
            if let Some(&id) = for_maintenance.get(ctx.address) {
                let reason = self.waits_for_maintenance(id);
                self.reason(ctx.id, reason);
                continue;
            }
            let blocker = self.candidate_blocker(ctx);
            if blocker.is_none() && ctx.queue() == QueueKind::Maintenance {
                for_maintenance.insert(ctx.address, ctx.id);
            }
            match blocker {
                Some(reason) => self.reason(ctx.id, reason),
                None if ctx.control_plane() => api_servers.push(ctx),
                None => workers.push(ctx),
            }
        }
        self.out.probe_often |= !api_servers.is_empty() || !self.claims.api_servers.is_empty();
        self.out.ask_etcd |= workers.iter().any(|worker| self.hosts_voting_member(*worker));
        if workers.is_empty() && api_servers.is_empty() {
            return;
        }
        if let Some(blocker) = self.leadership_blocker() {
            self.all_wait(workers.iter().chain(&api_servers), &blocker);
            return;
        }
        // Each machine has its own window. Outside it, an entry takes no slot and holds up nobody.
        for kind in [&mut workers, &mut api_servers] {
            kind.retain(|&ctx| {
                let late = self.drain_window_blocker(ctx);
                let may = late.is_none();
                self.reasons.extend(late.map(|reason| (ctx.id, reason)));
                may
            });
        }
        self.keep_canaries(&mut workers, &mut api_servers);
        if workers.is_empty() && api_servers.is_empty() {
            return;
        }
        self.out.ask_start_gates = true;
        let gate = self.stale().or_else(|| self.unreachable_gate()).or_else(|| self.breaker_open());
        if let Some(gate) = gate.or_else(|| self.start_gate_closed()) {
            self.all_wait(workers.iter().chain(&api_servers), &gate);
            return;
        }
        match self.policy.api_server_order {
            ApiServerOrder::Last => self.workers_first(&workers, &api_servers),
            ApiServerOrder::First => self.api_servers_first(&workers, &api_servers),
        }
    }

    fn all_wait<'c>(&mut self, members: impl Iterator<Item = &'c EntryContext<'a>>, why: &Reason)
    where
        'a: 'c,
    {
        self.reasons.extend(members.map(|ctx| (ctx.id, why.clone())));
    }

    /// Order `last`: nothing else starts while an API server is in progress. No API server starts while a worker is in
    /// progress or is a candidate (REB-13).
    fn workers_first(&mut self, workers: &[EntryContext<'a>], api_servers: &[EntryContext<'a>]) {
        if self.continue_with_api_server(workers, api_servers) {
            return;
        }
        self.start_workers(workers);
        let blocking_worker = self.claims.workers.values().next().copied().or_else(|| workers.first().map(|m| m.id));
        fault!(WorkersForgotten => blocking_worker = None);
        match blocking_worker {
            Some(holder) => {
                for ctx in api_servers {
                    self.reason(ctx.id, Reason::WaitingForWorkers { holder });
                }
            }
            None => self.start_one_api_server(api_servers),
        }
    }

    /// Order `first`: no worker starts while an API server could start. The API server starts once no worker is in
    /// progress. An API server that the health of the control plane bars does not hold the workers back (REB-14).
    fn api_servers_first(&mut self, workers: &[EntryContext<'a>], api_servers: &[EntryContext<'a>]) {
        if self.continue_with_api_server(workers, api_servers) {
            return;
        }
        let eligible = api_servers.first().filter(|first| self.api_server_blocker(**first).is_none());
        let Some(first) = eligible else {
            self.start_one_api_server(api_servers);
            self.start_workers(workers);
            return;
        };
        for ctx in workers {
            self.reason(ctx.id, Reason::WaitingForControlPlane { other: first.machine.to_owned() });
        }
        match self.claims.workers.values().next().copied() {
            Some(holder) => {
                for ctx in api_servers {
                    self.reason(ctx.id, Reason::WaitingForWorkers { holder });
                }
            }
            None => self.start_one_api_server(api_servers),
        }
    }

    /// If an API server is in progress, decides about every candidate and returns true. Otherwise returns false. If a
    /// later entry of the same API server is in progress, this starts the entry with the smaller index, because the
    /// machine counts once (I2).
    fn continue_with_api_server(&mut self, workers: &[EntryContext<'a>], api_servers: &[EntryContext<'a>]) -> bool {
        let is_own = |address: &Address| {
            fault!(TwoApiServers => return true);
            api_servers.first().map(|m| m.address) == Some(address)
        };
        let in_work = &self.claims.api_servers;
        let Some(address) = in_work.keys().find(|a| !is_own(a)).or_else(|| in_work.keys().next()).cloned() else {
            return false;
        };
        let other = self.snap.machine(&address);
        for ctx in workers {
            self.reason(ctx.id, Reason::WaitingForControlPlane { other: other.clone() });
        }
        match self.claims.workers.values().next().copied() {
            _ if !is_own(&address) => {
                for ctx in api_servers {
                    self.reason(ctx.id, Reason::WaitingForControlPlane { other: other.clone() });
                }
            }
            Some(holder) => {
                for ctx in api_servers {
                    self.reason(ctx.id, Reason::WaitingForWorkers { holder });
                }
            }
            None => self.start_one_api_server(api_servers),
        }
        true
    }

    fn start_workers(&mut self, workers: &[EntryContext<'a>]) {
        let limit = self.definition.map_or(0, |d| d.cluster.reboot.concurrency());
        let taken = self.claims.workers.len() + self.claims.api_servers.len();
        fault!(LimitIgnored => taken = 0);
        let mut free = usize::try_from(limit).unwrap_or(0).saturating_sub(taken);
        let holder = self.claims.workers.values().next().copied().or_else(|| workers.first().map(|m| m.id));
        let mut groups = self.groups(workers);
        let mut budgets = self.budget_order(free);
        fault!(LastFirst => workers = &workers.iter().rev().copied().collect::<Vec<_>>()[..]);
        for &ctx in workers {
            // A later entry of the same machine may be in progress already. The machine counts once: it holds a slot,
            // and this entry may start unless the limit was lowered below the present count.
            let already_in_progress = self.claims.workers.contains_key(ctx.address);
            let has_slot =
                if already_in_progress { limit >= i64::try_from(taken).unwrap_or(i64::MAX) } else { free > 0 };
            let etcd = if has_slot { self.etcd_blocker(ctx) } else { None };
            let is_new = has_slot && !already_in_progress && etcd.is_none();
            let group = groups.as_ref().filter(|_| is_new).and_then(|groups| groups.blocker(ctx));
            let budget = match budgets.as_mut().filter(|_| is_new && group.is_none()) {
                Some(budgets) => self.admit_by_budgets(budgets, ctx),
                None => None,
            };
            if let Some(budgets) = budgets.as_mut().filter(|_| !has_slot) {
                self.look_ahead(budgets, ctx);
            }
            if let Some(groups) = groups.as_mut().filter(|_| is_new && group.is_none() && budget.is_none()) {
                groups.enter(ctx);
            }
            if let Some(waits) = etcd.or(group).or(budget) {
                self.reason(ctx.id, waits);
            } else if has_slot {
                free -= usize::from(!already_in_progress);
                self.start(ctx);
            } else {
                fault!(SilentEntry => continue);
                self.reason(ctx.id, Reason::WaitingForSlot { holder, limit, ahead: false });
            }
        }
    }

    /// Starts one API server, alone, and only while the whole control plane is healthy (I1, I2, I7).
    fn start_one_api_server(&mut self, api_servers: &[EntryContext<'a>]) {
        let Some((&first, others)) = api_servers.split_first() else { return };
        match self.api_server_blocker(first) {
            Some(reason) => self.reason(first.id, reason),
            None => self.start(first),
        }
        for ctx in others {
            self.reason(ctx.id, Reason::WaitingForControlPlane { other: first.machine.to_owned() });
        }
    }

    /// Returns a reason if another API server is in repair, the control plane is unhealthy, or the etcd quorum bars the
    /// machine.
    fn api_server_blocker(&self, first: EntryContext<'_>) -> Option<Reason> {
        if let Some(address) = self.claims.api_repairs.keys().next() {
            return Some(Reason::WaitingForControlPlane { other: self.snap.machine(address) });
        }
        // An observing engine has no probes of its own. It shows the reason that the leader published.
        if !self.leading() {
            return None;
        }
        self.control_plane_unhealthy().or_else(|| self.etcd_blocker(first))
    }

    fn start(&mut self, ctx: EntryContext<'a>) {
        let machine = ctx.machine;
        if self.snap.in_flight.contains_key(machine) {
            self.reason(ctx.id, Reason::Working { phase: "starts".to_owned() });
            return;
        }
        if let Some(reason) = self.leader_is_on(ctx) {
            self.reason(ctx.id, reason);
            return;
        }
        self.start_drain(ctx);
        // Later decisions of this pass count it as in progress.
        self.claims.add(ctx.address, ctx.id, ctx.control_plane());
        self.reason(ctx.id, Reason::Ready);
    }

    /// Moves the entry to `draining`. The transition records the Node's UID if none was recorded when the entry was
    /// added.
    pub(super) fn start_drain(&mut self, ctx: EntryContext<'a>) {
        let start_gates = self.start_gates().filter(|_| !ctx.is_repair()).map(Box::new);
        let guard = Guard { start_gates, ..self.disruption_guard(ctx) };
        let node_uid = self.node_of(ctx).map(|n| n.uid.clone());
        let hooks = self.hooks_at_start(ctx);
        let effect = Effect::StartDrain { entry: ctx.queue_entry(), node_uid, hooks };
        self.plan(ctx.machine, Some(ctx.id), guard, effect);
    }

    /// Returns the reason why this queued entry is no candidate, by conditions that do not depend on slots, order or
    /// groups. Work on its own machine is among them. Such an entry takes no slot and holds up nobody, API servers
    /// included (REB-11, I5).
    fn candidate_blocker(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        if let Some(reason) = self.entry_blocker(ctx) {
            return Some(reason);
        }
        match self.claims.machines.get(ctx.address) {
            // Its own start is under way.
            Some(&id) if id == ctx.id => return Some(Reason::Working { phase: "starts".to_owned() }),
            Some(&entry) if entry.queue == QueueKind::Repair => return Some(Reason::MachineInRepair { entry }),
            Some(&entry) if entry.queue == QueueKind::Maintenance && attempts::has_live_entry(self.snap, entry) => {
                return Some(self.waits_for_maintenance(entry));
            }
            Some(&entry) if entry.queue != ctx.queue() && attempts::has_live_entry(self.snap, entry) => {
                return Some(Reason::MachineInReboot { entry });
            }
            // This entry has the smaller index, so it may start although the later one is in progress.
            Some(&entry)
                if entry.index > ctx.id.index
                    && attempts::has_live_entry(self.snap, entry)
                    && self.running_attempt(entry).is_none() => {}
            // An ended entry with a command that may still run or a cordon, or a later entry with such a command.
            Some(&entry) => {
                return Some(Reason::OrphanedCordon { node: ctx.machine.to_owned(), entry });
            }
            None => {}
        }
        if let Some(reason) = self.backing_off(ctx).or_else(|| self.paused(ctx.id, "the start")) {
            return Some(reason);
        }
        let node = self.node_of(ctx);
        if let Some(orphan) = node.and_then(|n| self.orphaned_cordon_of_other_entry(ctx, n)) {
            return Some(orphan);
        }
        self.wrong_node(ctx, node.map(AsRef::as_ref))
    }

    /// Returns a reason if the machine was in progress for an entry that is gone and has not recovered, or is in a
    /// maintenance that cannot be read. A new drain would overwrite the record that keeps the Node cordoned (REB-45).
    pub(super) fn orphaned_cordon_of_other_entry(&self, ctx: EntryContext<'_>, node: &Arc<NodeRow>) -> Option<Reason> {
        let owner = node.owner().filter(|o| o.entry != ctx.id && node.unschedulable)?;
        let entry = owner.entry;
        if let Some(unreadable) = self.unreadable_maintenance(entry) {
            return Some(unreadable);
        }
        let gone = !attempts::has_live_entry(self.snap, entry);
        (gone && self.has_not_recovered(node, owner))
            .then(|| Reason::OrphanedCordon { node: node.name.to_string(), entry })
    }
}
