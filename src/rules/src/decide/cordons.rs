//! Removal and protection of cordons (REB-44, REB-45, SAF-33 to SAF-35; I9–I14).

use std::{cell::LazyCell, sync::Arc};

use cketerm_model::{
    attempt::CheckAnswer,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    fault,
    kube::{NodeRow, Owner},
    names::{Address, NodeName},
    reason::Reason,
};

use super::{Effect, Guard, Pass, Snapshot, attempts, drain, entry_context::EntryContext, readiness};

/// Decision about a cordon whose entry is gone.
enum CordonState {
    /// The node is uncordoned.
    Removable,
    /// The node stays cordoned: its machine was rebooted or repaired and has not recovered.
    Kept(Reason),
}

impl<'a> Pass<'a> {
    /// Uncordons nodes that cketerm or CKE cordoned for an entry that is no longer in progress. A node whose command
    /// began must have recovered first. The queue's switch does not matter here (I10, I13, I14).
    pub(super) fn release_cordons(&mut self) {
        let snap = self.snap;
        // Without a definition it is unknown which entries are in progress, so no node is uncordoned (REB-7).
        if self.definition.is_none() || !self.etcd_synced() {
            return;
        }
        let first_unreadable_reboot = LazyCell::new(|| first_unreadable_reboot(snap));
        for name in &snap.kube.marked {
            let Some(node) = snap.kube.nodes.get(name) else { continue };
            let address = self.address_of(node);
            let owner = node.owner();
            if let Some(&entry) = self.claims.commands_without_entry.get(&address)
                && !attempts::has_live_entry(snap, entry)
            {
                // Cancelled in mid-command: the orphaned cordon is reported from the first pass on.
                self.out.orphans.insert(name.clone(), Reason::OrphanedCordon { node: name.to_string(), entry });
            }
            fault!(ForgottenCordon => continue);
            fault!(UncordonOnDisable if !snap.store.reboots.switch.enabled() => {
                self.release(node, owner);
                continue;
            });
            if self.claimed(&address) || owner.is_some_and(|o| self.in_work(o.entry)) {
                continue;
            }
            // CKE's annotation does not name the entry, which may be one that cannot be read. No order can name this
            // node: an operator uncordons it in Kubernetes, or removes the unreadable entry.
            if owner.is_none()
                && node.unschedulable
                && let Some(entry) = *first_unreadable_reboot
            {
                let why = format!("{entry} cannot be read and may be for this node: the cordon stays");
                self.out.orphans.insert(name.clone(), Reason::InvalidEntry { why });
                continue;
            }
            match self.cordon_state(node, owner) {
                CordonState::Removable if self.may_belong_to_later_leader(name) => {}
                CordonState::Removable if let Some(reason) = self.keeps_for_other(node, owner) => {
                    self.out.orphans.insert(name.clone(), reason);
                }
                CordonState::Removable if let Some(reason) = self.gate_before_release(node, owner, &address) => {
                    self.out.orphans.insert(name.clone(), reason);
                }
                CordonState::Removable => match self.hooks_before_release(node, owner) {
                    // A hook that runs is no reason to look after the Node.
                    Some(Reason::HookRunning { .. }) => {}
                    Some(reason) => {
                        self.out.orphans.insert(name.clone(), reason);
                    }
                    None => self.release(node, owner),
                },
                CordonState::Kept(reason) => {
                    self.out.orphans.insert(name.clone(), reason);
                }
            }
        }
        self.archive_ended_attempts();
    }

    /// Returns the reason why a rebooted worker whose entry is gone stays cordoned: a gate of the policy is closed. An
    /// operator's `done`, or order to uncordon, does not wait for it.
    fn gate_before_release(&mut self, node: &NodeRow, owner: Option<&Owner>, address: &Address) -> Option<Reason> {
        let id = owner?.entry;
        let definition = self.definition?;
        let is_worker = definition.members.by_address(&definition.cluster, address).is_none_or(|m| !m.control_plane);
        let is_rebooted = id.queue == QueueKind::Reboot && attempts::any_command_began(self.snap, id);
        let is_decided_by_person = self.has_uncordon_order(id) || readiness::is_done_by_order(self.snap, id);
        if !is_worker || !is_rebooted || !drain::is_uncordoned_by_release(node) || is_decided_by_person {
            return None;
        }
        self.uncordon_gate_of_orphan(node, id)
    }

    /// Reports whether the record may belong to a later leader. The record has another lease and appeared while this
    /// engine led. This lease may be lost without notice, and the record's entry may be in progress under the later
    /// leader. Once a keep-alive that was sent after the record was first seen is acknowledged, the record is proved to
    /// be older, and the result is false (SAF-34, I24).
    fn may_belong_to_later_leader(&self, node: &NodeName) -> bool {
        // A leadership that is only assumed has no later one.
        let Some(leading) = &self.snap.engine.leading else { return false };
        self.snap.foreign.get(node).is_some_and(|(_, seen)| *seen > leading.since && leading.acknowledged <= *seen)
    }

    /// Reports whether an entry of either queue works on the machine now, according to etcd.
    fn claimed(&self, address: &Address) -> bool {
        let Some(&id) = self.claims.machines.get(address) else { return false };
        // A claim that exists only because of the orphaned cordon does not count. It would keep the cordon for ever.
        attempts::has_live_entry(self.snap, id) || self.claims.commands_without_entry.contains_key(address)
    }

    /// Reports whether the entry is draining, rebooting or watching, or cannot be read. Unlike `Claims`, this does not
    /// include an entry that is about to start.
    pub(super) fn in_work(&self, id: EntryId) -> bool {
        let member =
            |address: &Address| self.definition.is_some_and(|d| d.members.by_address(&d.cluster, address).is_some());
        self.snap.store.stored_entry(id).is_some_and(|stored| match stored.get() {
            None => true,
            // A machine outside the cluster is repaired, but not rebooted.
            Some(EntryRef::Reboot(entry)) => entry.claims_machine() && member(&entry.node),
            Some(EntryRef::Repair(entry)) => entry.claims_machine(),
            Some(EntryRef::Maintenance(entry)) => entry.claims_machine(),
        })
    }

    /// Reports whether a command ran on the machine for an entry that is gone, and the machine has not recovered since.
    pub(super) fn has_not_recovered(&self, node: &Arc<NodeRow>, owner: &Owner) -> bool {
        let id = owner.entry;
        // A repair that stays in the queue has ended or backed off. In both cases its node may be uncordoned.
        let stays = id.queue == QueueKind::Repair && attempts::has_entry(self.snap, id);
        let command_began = owner.taken_over_rebooting || attempts::any_command_began(self.snap, id);
        // A maintenance ran no command: its record protects the cordon alone, which the next drain takes over.
        if id.queue != QueueKind::Maintenance && self.is_done_but_not_ready(node, owner) {
            return true;
        }
        !stays
            && command_began
            && readiness::missing_proof_of_all_reboots(self.snap, id, Some(node)).is_some()
            && !self.health_check_confirms_recovery(id, node)
    }

    /// Reports whether the Node is not Ready and an operator ordered `done`, or a maintenance has ended. It concerns a
    /// reboot that another program began, a repair that stays in the queue (I14), and a machine that is still being
    /// worked on.
    fn is_done_but_not_ready(&self, node: &NodeRow, owner: &Owner) -> bool {
        let id = owner.entry;
        let stays = id.queue == QueueKind::Repair && attempts::has_entry(self.snap, id);
        let is_released = id.queue == QueueKind::Maintenance && !attempts::has_entry(self.snap, id);
        let called_done = owner.called_done || is_released || (stays && readiness::is_done_by_order(self.snap, id));
        fault!(DoneForgotten => return false);
        called_done && !node.ready
    }

    /// Reports whether the health check of a deleted repair shows that its machine has recovered. It takes the place of
    /// the boot id.
    fn health_check_confirms_recovery(&self, id: EntryId, node: &NodeRow) -> bool {
        let answer = self.snap.work.get(&id).and_then(|w| w.check.as_ref());
        id.queue == QueueKind::Repair && node.ready && matches!(answer, Some((_, CheckAnswer::Yes)))
    }

    fn cordon_state(&mut self, node: &Arc<NodeRow>, owner: Option<&Owner>) -> CordonState {
        let Some(owner) = owner else { return CordonState::Removable };
        let id = owner.entry;
        // A command that was cancelled before it began did nothing to the machine.
        let command_began = attempts::any_command_began(self.snap, id) || owner.taken_over_rebooting;
        fault!(EarlyUncordon => command_began = false);
        let stays_in_queue = id.queue == QueueKind::Repair && attempts::has_entry(self.snap, id);
        if self.is_done_but_not_ready(node, owner) && node.unschedulable && !self.has_uncordon_order(id) {
            return CordonState::Kept(Reason::OrphanedCordon { node: node.name.to_string(), entry: id });
        }
        if !command_began || stays_in_queue {
            return CordonState::Removable;
        }
        // An operator uncordoned the node, or ordered it.
        if !node.unschedulable || self.has_uncordon_order(id) {
            return CordonState::Removable;
        }
        let recorded = readiness::is_boot_id_recorded(self.snap, id, node);
        let back = readiness::missing_proof_of_all_reboots(self.snap, id, Some(node)).is_none();
        if (back && recorded) || self.health_check_confirms_recovery(id, node) {
            return CordonState::Removable;
        }
        let attempt = self.snap.store.attempts_of(id).next_back().and_then(Stored::get);
        // Without a recorded boot id the boot check must decide.
        let answer = self.snap.work.get(&id).and_then(|w| w.check.as_ref());
        if back && matches!(answer, Some((_, CheckAnswer::Yes))) {
            return CordonState::Removable;
        }
        if let (Some(definition), true) = (self.definition, self.leading()) {
            let since = attempt.map(|a| a.start).or(owner.since).unwrap_or(self.now.wall);
            let address = attempt.map_or_else(|| self.address_of(node), |a| a.address.clone());
            match id.queue {
                QueueKind::Reboot if back => {
                    self.plan_boot_check(id, &node.name, &address, since, &definition.cluster.reboot, Guard::default());
                }
                QueueKind::Reboot | QueueKind::Maintenance => {}
                QueueKind::Repair => self.check_health_of_orphan(id, attempt, &address, since),
            }
        }
        CordonState::Kept(Reason::OrphanedCordon { node: node.name.to_string(), entry: id })
    }

    /// Returns a reason while another program works on a cordoned Node: it counts on the cordon, and uncordons or deletes
    /// the Node itself.
    fn keeps_for_other(&self, node: &NodeRow, owner: Option<&Owner>) -> Option<Reason> {
        let ordered = owner.is_some_and(|owner| self.has_uncordon_order(owner.entry));
        if !drain::is_uncordoned_by_release(node) || ordered { None } else { self.drained_by_other(node) }
    }

    pub(super) fn has_uncordon_order(&self, id: EntryId) -> bool {
        self.snap.store.orders.get(&id).and_then(Stored::get).is_some_and(|o| o.verb == Verb::Uncordon)
    }

    /// Removes cketerm's annotations. It also removes `unschedulable` if the cordon is cketerm's and no administrator
    /// took it over (I11, I12). In that case `keep-cordoned` is removed too.
    fn release(&mut self, node: &Arc<NodeRow>, owner: Option<&Owner>) {
        let schedulable = drain::schedulable_before(node);
        let uncordon = schedulable && !node.keep_cordoned;
        fault!(KeepForgotten => uncordon = schedulable);
        let effect = Effect::Release {
            node: Arc::clone(node),
            uncordon,
            drop_keep: schedulable && node.keep_cordoned,
            // An entry that stays in the queue keeps its orders, for example the hold that unwound it. It also keeps
            // its attempts, from which the tries of a repair are counted.
            settle: owner.map(|o| o.entry).filter(|id| !attempts::has_entry(self.snap, *id)),
        };
        self.plan(&node.name, owner.map(|o| o.entry), Guard::default(), effect);
    }

    /// Writes this leader's lease into the owner annotation of a Node that it takes over, so that late patches of the
    /// old leader fail (SAF-34, I23). A node that another program is rebooting gets its first record.
    pub(super) fn renew_owner(&mut self, ctx: EntryContext<'a>, node: &Arc<NodeRow>) {
        let lease = self.snap.engine.lease;
        let effect = match node.owner().filter(|o| o.entry == ctx.id) {
            Some(owner) if owner.lease == lease => return,
            // This leader wrote the record before, so a newer leader has replaced it. Nothing is planned.
            Some(_) if self.snap.work.get(&ctx.id).is_some_and(|w| w.stamped) => return,
            Some(owner) => {
                let owner = Owner { lease, ..owner.clone() };
                let mark = owner.schedulable_before;
                Effect::Stamp { node: Arc::clone(node), owner, cordon: false, mark }
            }
            // The cordon is neither of a cketerm drain nor of CKE: somebody uncordoned the node and removed the
            // records.
            None if !node.cke_mark || ctx.is_repair() => return,
            None => {
                let owner = Owner {
                    lease,
                    entry: ctx.id,
                    schedulable_before: drain::schedulable_before(node),
                    uid: node.uid.clone(),
                    boot_id: String::new(),
                    taken_over_rebooting: true,
                    called_done: false,
                    since: ctx.since,
                    recordoned: 0,
                };
                Effect::Stamp { node: Arc::clone(node), owner, cordon: false, mark: true }
            }
        };
        let guard = Guard::of_entry(ctx.id, ctx.mod_revision);
        self.plan(&node.name, Some(ctx.id), guard, effect);
    }

    /// Moves attempts into history if their entry is gone and their Node is gone or has no record any more. They are
    /// the only proof that a command ran on the machine, so a stale copy of the Node must not decide this (I14).
    fn archive_ended_attempts(&mut self) {
        let snap = self.snap;
        let mut last = None;
        for ((id, _), stored) in &snap.store.attempts {
            // A cancelled entry is removed first. A finished repair keeps its attempts.
            if last == Some(*id) || attempts::has_entry(snap, *id) {
                continue;
            }
            let Some(attempt) = stored.get() else { continue };
            let open = snap
                .store
                .attempts_of(*id)
                .filter_map(Stored::get)
                .any(|a| attempts::may_run_until(snap, self.leading_since(), a, self.now).is_some());
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

    /// Returns the address of a Node's machine: the definition's, else the first of the Node's own addresses.
    fn address_of(&self, node: &NodeRow) -> Address {
        let member = self.definition.and_then(|d| d.members.by_name(&d.cluster, &node.name));
        // Without any address, only the name is left: CKE registers a Node under its address unless it has a host name.
        let own = || node.addresses.first().cloned().unwrap_or_else(|| Address::new(node.name.as_str()));
        member.map_or_else(own, |m| m.address.clone())
    }
}

/// Returns the first entry of the reboot queue that cannot be read. It may be draining or rebooting any machine.
fn first_unreadable_reboot(snap: &Snapshot) -> Option<EntryId> {
    let unreadable = snap.store.reboots.entries.iter().find(|(_, stored)| stored.get().is_none());
    unreadable.map(|(index, _)| EntryId::reboot(*index))
}
