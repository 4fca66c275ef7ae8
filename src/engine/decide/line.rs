//! Who starts next (spec/reboot.md, Decisions 2, 3, 5; seed `cke-reboot-newer.md`; I2, I3, I5, I30).

use super::{Effect, Guard, Member, Pass};
use crate::model::{
    attempt::Attempt,
    entry::EntryId,
    kube::NodeRow,
    ours::{Order, Verb},
    policy::ApiServerOrder,
    reason::Reason,
};

impl<'a> Pass<'a> {
    /// Picks from the front of the queue as many nodes as the limits allow, and says of each other entry why it waits.
    pub(super) fn start_drains(&mut self, waiting: &[Member<'a>]) {
        let (mut workers, mut api_servers) = (Vec::new(), Vec::new());
        for &member in waiting {
            match self.not_drainable(member) {
                Some(reason) => {
                    if let Reason::Backoff { until, .. } = &reason {
                        self.wake_at_wall(*until);
                    }
                    self.reason(member.id, reason);
                }
                None if member.node.control_plane => api_servers.push(member),
                None => workers.push(member),
            }
        }
        self.out.probe_often = !api_servers.is_empty() || !self.claims.api_servers.is_empty();
        if workers.is_empty() && api_servers.is_empty() {
            return;
        }
        if let Some(shut) = self.shut() {
            for member in workers.iter().chain(&api_servers) {
                self.reason(member.id, shut.clone());
            }
            return;
        }
        match self.policy.api_server_order {
            ApiServerOrder::Last => self.workers_first(&workers, &api_servers),
            ApiServerOrder::First => self.api_servers_first(&workers, &api_servers),
        }
    }

    /// Order `last`: an API server in work lets nothing else start; none starts while a worker is in work or could be.
    fn workers_first(&mut self, workers: &[Member<'a>], api_servers: &[Member<'a>]) {
        if self.api_server_in_work(workers, api_servers) {
            return;
        }
        self.start_workers(workers);
        let before = self.claims.workers.values().next().copied().or_else(|| workers.first().map(|m| m.id));
        match before {
            Some(holder) => {
                for member in api_servers {
                    self.reason(member.id, Reason::WaitingForWorkers { holder });
                }
            }
            None => self.start_one_api_server(api_servers),
        }
    }

    /// Order `first`: while an API server could start, no worker does; one starts as soon as no worker is in work.
    /// One that the control plane's health keeps back does not keep the workers back.
    fn api_servers_first(&mut self, workers: &[Member<'a>], api_servers: &[Member<'a>]) {
        if self.api_server_in_work(workers, api_servers) {
            return;
        }
        let eligible = api_servers.first().filter(|_| self.api_server_barred().is_none());
        let Some(first) = eligible else {
            self.start_one_api_server(api_servers);
            self.start_workers(workers);
            return;
        };
        for member in workers {
            self.reason(member.id, Reason::WaitingForControlPlane { other: first.node.node_name().to_owned() });
        }
        match self.claims.workers.values().next().copied() {
            Some(holder) => {
                for member in api_servers {
                    self.reason(member.id, Reason::WaitingForWorkers { holder });
                }
            }
            None => self.start_one_api_server(api_servers),
        }
    }

    /// API servers are not processed simultaneously with anything else of this queue.
    fn api_server_in_work(&mut self, workers: &[Member<'a>], api_servers: &[Member<'a>]) -> bool {
        let own = |address: &String| api_servers.first().is_some_and(|m| m.entry.node == *address);
        let in_work = self.claims.api_servers.keys().find(|address| !own(address));
        let Some(other) = in_work.map(|address| self.snap.machine(address)) else {
            return false;
        };
        for member in workers.iter().chain(api_servers) {
            self.reason(member.id, Reason::WaitingForControlPlane { other: other.clone() });
        }
        true
    }

    fn start_workers(&mut self, workers: &[Member<'a>]) {
        let limit = self.definition.map_or(0, |d| d.cluster.reboot.concurrency());
        let taken = self.claims.workers.len() + self.claims.api_servers.len();
        let mut free = usize::try_from(limit).unwrap_or(0).saturating_sub(taken);
        let holder = self.claims.workers.values().next().copied().or_else(|| workers.first().map(|m| m.id));
        for &member in workers {
            // A later entry of the same machine may be in work already: the machine counts once.
            let counted = self.claims.workers.contains_key(&member.entry.node);
            let room = if counted { limit >= i64::try_from(taken).unwrap_or(i64::MAX) } else { free > 0 };
            if room {
                free -= usize::from(!counted);
                self.start(member);
            } else {
                self.reason(member.id, Reason::WaitingForSlot { holder, limit });
            }
        }
    }

    /// API servers go one at a time, alone, and only while the whole control plane is well (I1, I2, I7).
    fn start_one_api_server(&mut self, api_servers: &[Member<'a>]) {
        let Some((&first, others)) = api_servers.split_first() else { return };
        match self.api_server_barred() {
            Some(reason) => self.reason(first.id, reason),
            None => self.start(first),
        }
        for member in others {
            self.reason(member.id, Reason::WaitingForControlPlane { other: first.node.node_name().to_owned() });
        }
    }

    /// Another API server is under repair, or the control plane is not well.
    fn api_server_barred(&self) -> Option<Reason> {
        if let Some(address) = self.claims.api_repairs.keys().next() {
            return Some(Reason::WaitingForControlPlane { other: self.snap.machine(address) });
        }
        // Who only looks on has no probes of its own: the leader's published reason says it.
        if self.leading() { self.control_plane_unhealthy() } else { None }
    }

    fn start(&mut self, member: Member<'a>) {
        let machine = member.node.node_name();
        if self.snap.in_flight.contains_key(machine) {
            self.reason(member.id, Reason::Working { phase: "starts".to_owned() });
            return;
        }
        let guard = Guard::starting(member.id, member.stored.mod_revision, &self.snap.store);
        let node_uid = self.snap.node_of(&member.entry.node).map(|n| n.uid.clone());
        self.plan(machine, Some(member.id), guard, Effect::StartDrain { entry: member.entry.clone(), node_uid });
        self.reason(member.id, Reason::Ready);
    }

    /// Why this queued entry is no candidate, whatever the others do. Such an entry takes no slot and holds up
    /// nobody, API servers included (I5).
    fn not_drainable(&self, member: Member<'a>) -> Option<Reason> {
        let store = &self.snap.store;
        let address = &member.entry.node;
        if let Some(hold) = self.order(member.id, 0, Verb::Hold) {
            return Some(Reason::OnHold { who: hold.who.to_string(), why: hold.reason.clone() });
        }
        if !store.reboots.switch.enabled() {
            return Some(Reason::QueueDisabled);
        }
        if let Some(missing) = self.no_command() {
            return Some(missing);
        }
        match self.claims.machines.get(address) {
            // Its own start is under way.
            Some(&id) if id == member.id => return Some(Reason::Working { phase: "starts".to_owned() }),
            Some(&entry) if entry.queue == crate::model::entry::QueueKind::Repair => {
                return Some(Reason::MachineInRepair { entry });
            }
            // Only the one with the smaller index is looked at, whatever state a later one is in.
            Some(&entry)
                if entry.index > member.id.index
                    && super::boot::has_live_entry(self.snap, entry)
                    && !self.command_may_run(entry) => {}
            Some(&entry) => {
                return Some(Reason::OrphanedCordon { node: member.node.node_name().to_owned(), entry });
            }
            None => {}
        }
        // A person who forces it does not wait for the backoff either.
        let forced = self.order(member.id, 0, Verb::Force).is_some();
        if let Some(until) = member.entry.drain_backoff_expire.filter(|until| *until > self.now.wall && !forced) {
            return Some(Reason::Backoff {
                count: member.entry.drain_backoff_count,
                until,
                cause: self.snap.work.get(&member.id).and_then(|w| w.backoff_cause.clone()),
            });
        }
        if let Some((until, why)) = self.snap.work.get(&member.id).and_then(|w| w.pause.as_ref())
            && *until > self.boot()
        {
            return Some(Reason::EffectFailed { what: "the start".to_owned(), why: why.clone() });
        }
        let node = self.snap.node_of(address);
        if let Some(orphan) = node.and_then(|n| self.orphan_of_another(member, n)) {
            return Some(orphan);
        }
        self.wrong_node(member, node.map(AsRef::as_ref))
    }

    /// The machine was being rebooted for an entry that is gone, and has not come back: a new drain would wipe out what
    /// keeps its cordon.
    fn orphan_of_another(&self, member: Member<'_>, node: &std::sync::Arc<NodeRow>) -> Option<Reason> {
        let owner = node.owner().filter(|o| o.entry != member.id && node.unschedulable)?;
        let entry = owner.entry;
        let gone = !super::boot::has_live_entry(self.snap, entry);
        let powered = owner.taken_over_rebooting
            || self.snap.store.attempts_of(entry).filter_map(crate::model::entry::Stored::get).any(Attempt::began);
        let away = gone && powered && super::boot::back_again(self.snap, entry, Some(node)).is_some();
        away.then(|| Reason::OrphanedCordon { node: node.name.clone(), entry })
    }

    fn command_may_run(&self, id: EntryId) -> bool {
        let attempts = self.snap.store.attempts_of(id).filter_map(crate::model::entry::Stored::get);
        attempts.into_iter().any(|a| super::boot::may_still_run(self.snap, a, self.now).is_some())
    }

    /// Without both commands nothing starts; a program that is not on this host bars only the entries that need it.
    pub(super) fn no_command(&self) -> Option<Reason> {
        let reboot = &self.definition?.cluster.reboot;
        let fields = [("reboot_command", &reboot.reboot_command), ("boot_check_command", &reboot.boot_check_command)];
        for (field, command) in fields {
            match command.as_ref().and_then(|argv| argv.first()) {
                None => return Some(Reason::NoCommand { field: format!("reboot.{field}") }),
                Some(program) if self.leading() && self.snap.engine.missing_programs.contains(program) => {
                    return Some(Reason::ProgramMissing { path: program.clone() });
                }
                Some(_) => {}
            }
        }
        None
    }

    /// The Node is the machine that was meant: it carries the entry's address, and its UID is the one noted at
    /// enqueue, else at the drain's start (spec/safety.md, The right node; I26).
    pub(super) fn wrong_node(&self, member: Member<'_>, node: Option<&NodeRow>) -> Option<Reason> {
        if !self.snap.kube.synced() {
            return None;
        }
        let address = &member.entry.node;
        let Some(node) = node else {
            return Some(Reason::NodeMismatch {
                expected: format!("a Node with address {address}"),
                found: "none".to_owned(),
            });
        };
        if !node.addresses.contains(address) {
            return Some(Reason::NodeMismatch {
                expected: format!("Node {} with address {address}", node.name),
                found: node.addresses.join(", "),
            });
        }
        // What lies in etcd first: an annotation goes with the Node that it should tell apart.
        let requested = || self.snap.store.requests.get(&member.id)?.get()?.node_uid.as_deref();
        let stamped = || node.owner().filter(|o| o.entry == member.id).map(|o| o.uid.as_str());
        let noted = requested().or_else(stamped)?;
        (noted != node.uid)
            .then(|| Reason::NodeMismatch { expected: format!("UID {noted}"), found: format!("UID {}", node.uid) })
    }

    /// A person's order for this entry, if it was given for this very state of it. `hold` and `force` outlive changes:
    /// an entry that a budget puts back at its first look is never long enough in one state to be forced in it.
    pub(super) fn order(&self, id: EntryId, mod_revision: i64, verb: Verb) -> Option<&'a Order> {
        let order = self.snap.store.orders.get(&id)?.get()?;
        let lasting = matches!(verb, Verb::Hold | Verb::Force);
        (order.verb == verb && (lasting || order.entry_revision == mod_revision)).then_some(order)
    }
}
