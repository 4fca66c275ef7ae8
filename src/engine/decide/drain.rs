//! One node's drain, for an entry of either queue: cordon, empty the node ([`super::evictions`]), run the command, or back
//! off (seeds; spec/reboot.md, Drain of one node; spec/repair.md, Decisions 6; spec/safety.md, Cordons and Drains; I16).

use std::sync::Arc;

use super::{Effect, Guard, Pass, entry_context::EntryContext, pods::sort, recheck::Recheck};
use crate::{
    engine::snapshot::Work,
    model::{
        attempt::Attempt,
        cketerm_records::{Order, Verb},
        cluster::Eviction,
        entry::{QueueKind, Stored},
        kube::{NodeRow, Owner},
        policy::UnreachableRule,
        reason::Reason,
        time::seconds_between,
    },
    mutation::{Mutation, on},
};

impl<'a> Pass<'a> {
    /// An entry in `draining`.
    pub(super) fn drain(&mut self, case: EntryContext<'a>) -> Reason {
        let snap = self.snap;
        let Some(definition) = self.definition else { return self.no_definition() };
        let rules = definition.cluster.eviction(case.queue());
        let node = self.node_of(case);
        self.out.ask_etcd |= self.hosts_voter(case);
        if let Some(node) = node {
            self.out.watch_pods.insert(node.name.clone());
        }
        // Disabled: what is draining backs off. Nothing is stranded.
        if !self.switch(case.queue()).enabled() {
            return self.back_off(case, Reason::QueueDisabled);
        }
        // On hold: a machine that must not start now goes back before its command, and its cordon goes with it (Rule 6).
        if let Some(held) = self.on_hold(case) {
            return self.unwind(case, held);
        }
        if let Some(reason @ Reason::NoCommand { .. }) = self.no_command(case) {
            return self.back_off(case, reason);
        }
        // The window has ended, or a freeze has begun: it is unwound, and begins anew when it may (I8).
        if let Some(closed) = self.closed(case) {
            return self.unwind(case, closed);
        }
        let planned = self.out.effects.len();
        let waits = self.drain_step(case, rules, node, snap.work.get(&case.id));
        let since = case.since.unwrap_or(self.now.wall);
        let left = f64::from(i32::try_from(rules.timeout).unwrap_or(i32::MAX)) - seconds_between(since, self.now.wall);
        match waits {
            // What has come to nothing before has no more time than the rest of the drain.
            Ok(command) => match self.came_to_nothing(case).filter(|_| left <= 0.0) {
                Some(reason) => {
                    self.out.effects.truncate(planned);
                    self.back_off(case, reason)
                }
                None => command,
            },
            Err(Waits::BackOff(why)) => self.back_off(case, why),
            // Timed out: whatever the step would have done is not done any more.
            Err(Waits::For(reason)) if left <= 0.0 => {
                self.out.effects.truncate(planned);
                self.back_off(case, reason)
            }
            Err(Waits::For(reason)) => {
                self.wake_at(self.boot() + left + 0.001);
                reason
            }
        }
    }

    /// The next step of a drain: `Ok` when the command is next.
    fn drain_step(
        &mut self,
        case: EntryContext<'a>,
        rules: Eviction<'a>,
        node: Option<&'a Arc<NodeRow>>,
        work: Option<&'a Work>,
    ) -> Result<Reason, Waits> {
        // An observer or a new leader knows nothing of the drain yet.
        let (Some(work), true) = (work, self.leading()) else {
            let reason = self.not_ours().unwrap_or_else(|| Reason::Working { phase: "drains".to_owned() });
            return Err(Waits::For(reason));
        };
        if let Some(stale) = self.stale() {
            return Err(Waits::For(stale));
        }
        if let Some(reason) = self.wrong_node(case, node.map(AsRef::as_ref)) {
            return Err(Waits::For(reason));
        }
        if let Some(other) = self.claims.running.get(case.address) {
            return Err(Waits::For(Reason::OutcomeUnknown { attempt: Some(other.to_string()), until: None }));
        }
        if let Some(reason) = self.paused(case.id, "the last step") {
            return Err(Waits::For(reason));
        }
        // A repair's machine that is no Node any longer has nothing to drain.
        let Some(node) = node else {
            return self.command(case, None, None).map_err(Waits::For);
        };
        self.cordoned(case, node, work).map_err(Waits::For)?;
        let pods = self.snap.kube.pods.get(&node.name).filter(|p| p.synced);
        let Some(pods) = pods else {
            return Err(Waits::For(self.pods_unlisted(case, &node.name)));
        };
        if let Some(stale) = self.stale_pods(&node.name, pods) {
            return Err(Waits::For(stale));
        }
        let force = self.order_of(case, Verb::Force);
        let leaving = sort(pods.pods.values(), rules, &self.snap.kube);
        if force.is_none() {
            if leaving.len() > 0 {
                return Err(self.clear_out(case, node, work, rules, &leaving));
            }
            if !node.volumes_in_use.is_empty() && !on(Mutation::VolumesForgotten) {
                return Err(Waits::For(Reason::VolumeAttached { names: node.volumes_in_use.clone() }));
            }
        }
        self.command(case, Some(node), force.cloned()).map_err(Waits::For)
    }

    /// The node is cordoned by our own record, under our own lease (I9, I16); else the stamp comes first.
    fn cordoned(&mut self, case: EntryContext<'a>, node: &Arc<NodeRow>, work: &Work) -> Result<(), Reason> {
        let lease = self.snap.engine.lease;
        let mine = node.owner().filter(|o| o.entry == case.id && o.lease == lease);
        let recordoned = match mine {
            Some(_) if node.unschedulable || on(Mutation::UncordonUnseen) => return Ok(()),
            // An uncordon by somebody else is noticed: cordon again once, then wait with the reason (I12).
            Some(owner) if owner.recordoned > 0 => {
                let since = work.drain.uncordoned.unwrap_or(self.now.wall);
                return Err(Reason::UncordonedByOther { since });
            }
            Some(owner) => owner.recordoned + 1,
            // Whoever wrote over our record leads since: our own lease will be found to be gone.
            None if work.stamped && node.owner().is_some_and(|o| o.entry == case.id) => {
                return Err(Reason::Working { phase: "another engine has taken the node over".to_owned() });
            }
            // Stamped under an older lease: an uncordon in between counts all the same.
            None => {
                node.owner().filter(|o| o.entry == case.id).map_or(0, |o| o.recordoned + u32::from(!node.unschedulable))
            }
        };
        // It went down since this drain began, and the record of an entry that is gone keeps its cordon: that one stands (I14).
        if let Some(orphan) = self.orphan_of_another(case, node) {
            return Err(orphan);
        }
        // Somebody has uncordoned it: the cordon that we make now is ours, whatever was before.
        let before = schedulable_before(node) || (node.owner().is_some() && !node.unschedulable);
        let owner = Owner {
            lease,
            entry: case.id,
            schedulable_before: before,
            uid: node.uid.clone(),
            boot_id: node.boot_id.clone(),
            taken_over_rebooting: false,
            called_done: false,
            since: None,
            recordoned,
        };
        let effect = Effect::Stamp { node: Arc::clone(node), owner, cordon: true, mark: before };
        let guard = self.cordoning(case, node)?;
        self.plan(&node.name, Some(case.id), guard, effect);
        Err(Reason::Working { phase: "cordons".to_owned() })
    }

    /// Drained, or nothing to drain: the command is next. An API server that is rebooted first leaves the endpoints; the
    /// older rule of the unreachable limit and an unhealthy control plane hold the command back too (I6, I7).
    pub(super) fn command(
        &mut self,
        case: EntryContext<'a>,
        drained: Option<&Arc<NodeRow>>,
        force: Option<Stored<Order>>,
    ) -> Result<Reason, Reason> {
        if let Some(missing) = self.no_command(case) {
            return Err(missing);
        }
        if let Some(barred) = self.barred(case) {
            return Err(barred);
        }
        let older = self.policy.unreachable_rule == UnreachableRule::All;
        if !case.is_repair()
            && older
            && let Some(gate) = self.unreachable_gate()
        {
            return Err(gate);
        }
        if case.control_plane() {
            if let Some(unhealthy) = self.control_plane_unhealthy_for(case) {
                return Err(unhealthy);
            }
            if !case.is_repair() {
                self.left_endpoints(case.address)?;
            }
        }
        self.etcd_before_power(case)?;
        let node = drained.or_else(|| self.node_of(case)).cloned();
        if let Some(reason) = self.wrong_node(case, node.as_deref()) {
            return Err(reason);
        }
        let Some(task) = self.task(case) else { return Err(self.no_definition()) };
        let on_delete = if case.is_repair() { Vec::new() } else { self.on_delete_uids() };
        let fresh = match self.recheck(case, node.as_ref(), drained.is_some(), force.is_some()) {
            Recheck::Allows(fresh) => fresh,
            Recheck::Asks(reason) => return Ok(reason),
            Recheck::Waits(reason) => return Err(reason),
        };
        let mut attempt = self.next_attempt(case, task, fresh.as_ref().and_then(|f| f.node.as_deref()));
        attempt.forced = force.is_some();
        let effect = Effect::Power { entry: case.owned(), fresh, force, on_delete, attempt };
        self.plan(case.machine, Some(case.id), self.disrupting(case), effect);
        let phase = if case.is_repair() { "runs the repair command" } else { "drained, reboots" };
        Ok(Reason::Working { phase: phase.to_owned() })
    }

    fn on_delete_uids(&self) -> Vec<String> {
        self.snap.kube.daemon_sets.iter().filter(|(_, ds)| ds.on_delete).map(|(uid, _)| uid.clone()).collect()
    }

    /// Back into the queue: the count goes up, the wait grows (spec/reboot.md, Backoff; spec/repair.md, Drain backoff).
    /// Rule 6 uncordons at once.
    pub(super) fn back_off(&mut self, case: EntryContext<'a>, why: Reason) -> Reason {
        let guard = Guard::of_entry(case.id, case.mod_revision);
        let effect = Effect::BackOff { entry: case.owned(), cause: why.clone() };
        self.plan(case.machine, Some(case.id), guard, effect);
        why
    }

    /// Back into the queue as if it had not started: neither count nor wait, for nothing of it was the machine's fault.
    fn unwind(&mut self, case: EntryContext<'a>, why: Reason) -> Reason {
        self.back_as_it_was(case, why, Vec::new())
    }

    /// The same from after its command, which never began. Its attempts go: whoever runs the next command – another program,
    /// another version – begins anew, with the boot id of that time (I14, I25).
    pub(super) fn take_back(&mut self, case: EntryContext<'a>, why: Reason) -> Reason {
        self.back_as_it_was(case, why, self.snap.store.attempts_of(case.id).cloned().collect())
    }

    fn back_as_it_was(&mut self, case: EntryContext<'a>, why: Reason, never_began: Vec<Stored<Attempt>>) -> Reason {
        let guard = Guard::of_entry(case.id, case.mod_revision);
        let effect = Effect::Unwind { entry: case.owned(), cause: why.clone(), never_began };
        self.plan(case.machine, Some(case.id), guard, effect);
        why
    }
}

/// Why a drain does not reach the command yet.
pub(super) enum Waits {
    For(Reason),
    BackOff(Reason),
}

/// Whether pods could be scheduled on the node before any of us came. What the owner annotation says counts; without
/// one, CKE's annotation means that the cordon is CKE's; else an unschedulable node was so before us (I11).
pub(super) fn schedulable_before(node: &NodeRow) -> bool {
    match node.owner() {
        Some(owner) => owner.schedulable_before,
        None => node.cke_mark || !node.unschedulable || on(Mutation::ForeignCordonLost),
    }
}

/// Seconds to wait after the `count`-th backoff (I34). Reboots: min(300·2^(count−1), 1200) + random(0..299), the shift
/// clamped. Repairs: 300 + random(0 .. 300·count − 1).
pub fn backoff_seconds(queue: QueueKind, count: i64, random: u64) -> i64 {
    if on(Mutation::BackoffOverflow) {
        return i64::from(300_i16.wrapping_shl(u32::try_from(count * 4).unwrap_or(0)));
    }
    let up_to = |n: u64| i64::try_from(random % n).unwrap_or(0);
    match queue {
        QueueKind::Reboot => {
            let shift = u32::try_from((count - 1).clamp(0, 8)).unwrap_or(0);
            (300_i64 << shift).min(1200) + up_to(300)
        }
        // A billion tries would be ten thousand years: the clamp is for counts that somebody wrote by hand.
        QueueKind::Repair => 300 + up_to(300 * count.clamp(1, 1_000_000_000).unsigned_abs()),
    }
}
