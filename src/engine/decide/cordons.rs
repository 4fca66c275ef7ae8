//! Letting go of cordons, and holding on to them (spec/reboot.md, Decisions 6; spec/safety.md, Cordons; I9–I13).

use std::sync::Arc;

use super::{Effect, Guard, Pass, attempts, drain, entry_context::EntryContext, readiness};
use crate::model::{
    attempt::CheckAnswer,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind, Stored},
    kube::{NodeRow, Owner},
    reason::Reason,
    reboot::RebootStatus,
    repair::RepairEntry,
};
use crate::mutation::{Mutation, on};

/// What becomes of a cordon whose entry is gone.
enum Orphan {
    /// It can go.
    LetGo,
    /// The machine was being rebooted and has not come back: it stays.
    Stays(Reason),
}

impl<'a> Pass<'a> {
    /// If a node is cordoned by the reboot operation and its entry is not `draining` or `rebooting`, uncordon it; one
    /// that was being rebooted not before it has booted (I10, I13, I14). The queue's switch does not matter here.
    pub(super) fn let_go_of_cordons(&mut self) {
        let snap = self.snap;
        // Without a definition nobody can say what is in work: nothing is let go of.
        if self.definition.is_none() || !snap.store.synced {
            return;
        }
        let unreadable = self.unreadable();
        for name in &snap.kube.marked {
            let Some(node) = snap.kube.nodes.get(name) else { continue };
            let address = self.address_of(node);
            let owner = node.owner();
            if let Some(&entry) = self.claims.running.get(&address)
                && !attempts::has_live_entry(snap, entry)
            {
                // Cancelled in mid-command: it says so from the first moment.
                self.out.orphans.insert(name.clone(), Reason::OrphanedCordon { node: name.clone(), entry });
            }
            if on(Mutation::ForgottenCordon) {
                continue;
            }
            if on(Mutation::UncordonOnDisable) && !snap.store.reboots.switch.enabled() {
                self.release(node, owner);
                continue;
            }
            if self.claimed(&address) || owner.is_some_and(|o| self.in_work(o.entry)) {
                continue;
            }
            // CKE's mark alone does not say for which entry: it may be one that cannot be read. No order can mean this node
            // alone: a person uncordons it in Kubernetes, or removes the entry.
            if let Some(entry) = unreadable.filter(|_| owner.is_none() && node.unschedulable) {
                let why = format!("{entry} cannot be read and may be this node's: its cordon stays");
                self.out.orphans.insert(name.clone(), Reason::InvalidEntry { why });
                continue;
            }
            match self.orphan(node, owner) {
                Orphan::LetGo if self.may_be_a_later_leaders(name) => {}
                Orphan::LetGo => self.release(node, owner),
                Orphan::Stays(reason) => {
                    self.out.orphans.insert(name.clone(), reason);
                }
            }
        }
        self.settle_what_is_left();
    }

    /// A record of another lease that appeared while we led may be a later leader's, for an entry that our copy does not
    /// show in work yet: our lease may be gone without our knowing. A keep-alive that was sent after we saw the record,
    /// and acknowledged, proves that it is an older one (I24).
    fn may_be_a_later_leaders(&self, node: &str) -> bool {
        let Some(leading) = &self.snap.engine.leading else { return false };
        self.snap.foreign.get(node).is_some_and(|(_, seen)| *seen > leading.since && leading.acknowledged <= *seen)
    }

    /// Whether an entry of either queue works on it now, by what is persisted.
    fn claimed(&self, address: &str) -> bool {
        let Some(&id) = self.claims.machines.get(address) else { return false };
        // What is claimed only because it is still cordoned for an entry that has ended does not keep its cordon by it.
        attempts::has_live_entry(self.snap, id) || self.claims.running.contains_key(address)
    }

    /// The entry is draining, rebooting or watching, or cannot be read.
    fn in_work(&self, id: EntryId) -> bool {
        match id.queue {
            QueueKind::Reboot => self.snap.store.reboots.entries.get(&id.index).is_some_and(|s| {
                let member = |address: &str| {
                    self.definition.is_some_and(|d| d.members.by_address(&d.cluster, address).is_some())
                };
                s.get().is_none_or(|e| {
                    matches!(e.status, RebootStatus::Draining | RebootStatus::Rebooting) && member(&e.node)
                })
            }),
            QueueKind::Repair => {
                let stored = self.snap.store.repairs.entries.get(&id.index);
                stored.is_some_and(|s| s.get().is_none_or(RepairEntry::claims_machine))
            }
        }
    }

    /// The first entry of the reboot queue that cannot be read, and so may be draining or rebooting any machine.
    fn unreadable(&self) -> Option<EntryId> {
        let broken = self.snap.store.reboots.entries.iter().find(|(_, stored)| stored.get().is_none());
        broken.map(|(index, _)| EntryId::reboot(*index))
    }

    /// A command was run on the machine, for an entry that is gone, and it has not come back since.
    pub(super) fn is_away(&self, node: &Arc<NodeRow>, owner: &Owner) -> bool {
        let id = owner.entry;
        // A repair that stays in the queue has ended, or has backed off: both let go of the node.
        let stays = id.queue == QueueKind::Repair && attempts::has_entry(self.snap, id);
        let powered = owner.taken_over_rebooting || attempts::commanded(self.snap, id);
        if self.done_and_down(node, owner) {
            return true;
        }
        !stays
            && powered
            && readiness::back_from_all(self.snap, id, Some(node)).is_some()
            && !self.checked_back(id, node)
    }

    /// A person said that the machine is back, of a reboot that another program began or of a repair that stays in the queue,
    /// and its Node is not Ready (I14).
    fn done_and_down(&self, node: &NodeRow, owner: &Owner) -> bool {
        let id = owner.entry;
        let stays = id.queue == QueueKind::Repair && attempts::has_entry(self.snap, id);
        let called_done = owner.called_done || (stays && readiness::is_back_by_order(self.snap, id));
        called_done && !node.ready && !on(Mutation::DoneForgotten)
    }

    /// A deleted repair's machine: its health check takes the place of the boot id.
    fn checked_back(&self, id: EntryId, node: &NodeRow) -> bool {
        let answer = self.snap.work.get(&id).and_then(|w| w.check.as_ref());
        id.queue == QueueKind::Repair && node.ready && matches!(answer, Some((_, CheckAnswer::Yes)))
    }

    fn orphan(&mut self, node: &Arc<NodeRow>, owner: Option<&Owner>) -> Orphan {
        let Some(owner) = owner else { return Orphan::LetGo };
        let id = owner.entry;
        // A command that was cancelled before it could start did nothing to the machine.
        let powered = attempts::commanded(self.snap, id) || owner.taken_over_rebooting;
        let powered = powered && !on(Mutation::EarlyUncordon);
        let stays_in_queue = id.queue == QueueKind::Repair && attempts::has_entry(self.snap, id);
        if self.done_and_down(node, owner) && node.unschedulable && !self.ordered_uncordon(id) {
            return Orphan::Stays(Reason::OrphanedCordon { node: node.name.clone(), entry: id });
        }
        if !powered || stays_in_queue {
            return Orphan::LetGo;
        }
        // A person uncordoned it: that settles it.
        if !node.unschedulable || self.ordered_uncordon(id) {
            return Orphan::LetGo;
        }
        let recorded = readiness::is_recorded(self.snap, id, node);
        let back = readiness::back_from_all(self.snap, id, Some(node)).is_none();
        if (back && recorded) || self.checked_back(id, node) {
            return Orphan::LetGo;
        }
        let attempt = self.snap.store.attempts_of(id).next_back().and_then(Stored::get);
        // No boot id was recorded: the boot check must say it.
        let answer = self.snap.work.get(&id).and_then(|w| w.check.as_ref());
        if back && matches!(answer, Some((_, CheckAnswer::Yes))) {
            return Orphan::LetGo;
        }
        if let (Some(definition), true) = (self.definition, self.leading()) {
            let since = attempt.map(|a| a.start).or(owner.since).unwrap_or(self.now.wall);
            let address = attempt.map_or_else(|| self.address_of(node), |a| a.address.clone());
            match id.queue {
                QueueKind::Reboot if back => {
                    self.plan_check(id, &node.name, &address, since, &definition.cluster.reboot, Guard::default());
                }
                QueueKind::Reboot => {}
                QueueKind::Repair => self.check_health_of_orphan(id, attempt, &address, since),
            }
        }
        Orphan::Stays(Reason::OrphanedCordon { node: node.name.clone(), entry: id })
    }

    fn ordered_uncordon(&self, id: EntryId) -> bool {
        self.snap.store.orders.get(&id).and_then(Stored::get).is_some_and(|o| o.verb == Verb::Uncordon)
    }

    /// Takes our annotations off. `unschedulable` goes too if it was our cordon and no administrator made it his
    /// (I11, I12); then `keep-cordoned` has done its work and goes.
    fn release(&mut self, node: &Arc<NodeRow>, owner: Option<&Owner>) {
        let ours = drain::schedulable_before(node);
        let effect = Effect::Release {
            node: Arc::clone(node),
            uncordon: ours && (!node.keep_cordoned || on(Mutation::KeepForgotten)),
            drop_keep: ours && node.keep_cordoned,
            // An entry that stays in the queue keeps its orders, such as the hold that took it back, and its attempts, from
            // which a repair's tries are counted.
            settle: owner.map(|o| o.entry).filter(|id| !attempts::has_entry(self.snap, *id)),
        };
        self.plan(&node.name, owner.map(|o| o.entry), Guard::default(), effect);
    }

    /// A new leader first writes its own lease on every Node that it takes over, so that late patches of the old one
    /// fail (spec/safety.md, Effects; I23). A node that another program is rebooting gets its first record.
    pub(super) fn restamp(&mut self, case: EntryContext<'a>, node: &Arc<NodeRow>) {
        let lease = self.snap.engine.lease;
        let effect = match node.owner().filter(|o| o.entry == case.id) {
            Some(owner) if owner.lease == lease => return,
            // Whoever wrote over our record leads since: our own lease will be found to be gone.
            Some(_) if self.snap.work.get(&case.id).is_some_and(|w| w.stamped) => return,
            Some(owner) => {
                let owner = Owner { lease, ..owner.clone() };
                let mark = owner.schedulable_before;
                Effect::Stamp { node: Arc::clone(node), owner, cordon: false, mark }
            }
            // Not one of our drains' cordons, and not CKE's either: somebody uncordoned it and took the records off.
            None if !node.cke_mark || case.is_repair() => return,
            None => {
                let owner = Owner {
                    lease,
                    entry: case.id,
                    schedulable_before: drain::schedulable_before(node),
                    uid: node.uid.clone(),
                    boot_id: String::new(),
                    taken_over_rebooting: true,
                    called_done: false,
                    since: case.since,
                    recordoned: 0,
                };
                Effect::Stamp { node: Arc::clone(node), owner, cordon: false, mark: true }
            }
        };
        let guard = Guard::of_entry(case.id, case.mod_revision);
        self.plan(&node.name, Some(case.id), guard, effect);
    }

    /// Attempts whose entry is gone and whose Node is gone, or carries our record no more, go into history. They are the
    /// only proof that a machine was powered: an old copy of the Node does not decide over them (I14).
    fn settle_what_is_left(&mut self) {
        let snap = self.snap;
        let mut last = None;
        for ((id, _), stored) in &snap.store.attempts {
            // A cancelled entry is removed first; a finished repair keeps its attempts.
            if last == Some(*id) || attempts::has_entry(snap, *id) {
                continue;
            }
            let Some(attempt) = stored.get() else { continue };
            let open = snap
                .store
                .attempts_of(*id)
                .filter_map(Stored::get)
                .any(|a| attempts::may_still_run(snap, a, self.now).is_some());
            let held = snap.node_of(&attempt.address).is_some_and(|n| n.owner().is_some_and(|o| o.entry == *id));
            if open || held {
                continue;
            }
            if self.stale().is_some() {
                return;
            }
            last = Some(*id);
            let machine = snap.machine(&attempt.address);
            self.plan(&machine, Some(*id), Guard::default(), Effect::Settle { entry: *id });
        }
    }

    /// The address under which a Node's machine is known: the definition's, else the first of its own.
    fn address_of(&self, node: &NodeRow) -> String {
        let member = self.definition.and_then(|d| d.members.by_name(&d.cluster, &node.name));
        member
            .map_or_else(|| node.addresses.first().cloned().unwrap_or_else(|| node.name.clone()), |m| m.address.clone())
    }
}
