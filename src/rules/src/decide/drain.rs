//! Drain of one node, for an entry of any kind (REB-20 to REB-36, REP-22, REP-40, I16). It cordons the node,
//! removes its pods ([`super::evictions`]), then runs the command, begins the maintenance, or backs off.

use std::sync::Arc;

use cketerm_model::{
    attempt::Attempt,
    boot_time::Seconds,
    cketerm_records::{Order, Verb},
    cluster::Eviction,
    entry::{QueueKind, Stored},
    fault,
    hook_runs::HookPoint,
    kube::{NodeRow, Owner},
    policy::UnreachableRule,
    reason::Reason,
    time::seconds_between,
};

use super::{Effect, Guard, Pass, entry_context::EntryContext, pods::classify_pods, recheck::Recheck};
use crate::snapshot::Work;

impl<'a> Pass<'a> {
    /// Moves an entry in `draining` on.
    pub(super) fn drain(&mut self, ctx: EntryContext<'a>) -> Reason {
        let snap = self.snap;
        let Some(rules) = self.drain_rules(ctx) else { return self.no_definition() };
        let node = self.node_of(ctx);
        self.out.ask_etcd |= self.hosts_voting_member(ctx);
        if let Some(node) = node {
            self.out.watch_pods.insert(node.name.clone());
        }
        // While the queue is disabled, drains back off (REB-50).
        if !self.queue_enabled(ctx.queue()) {
            return self.back_off(ctx, Reason::QueueDisabled);
        }
        // An entry on hold returns to the queue before its command, and its cordon is removed (REB-47, REB-44).
        if let Some(held) = self.on_hold(ctx) {
            return self.unwind(ctx, held);
        }
        if let Some(reason @ Reason::NoCommand { .. }) = self.no_command(ctx) {
            return self.back_off(ctx, reason);
        }
        // CKE began the drain while it led.
        if let Some(kept) = self.kept_for_maintenance(ctx) {
            return self.unwind(ctx, kept);
        }
        // The window has ended, or a freeze has begun. The drain unwinds and starts anew when it may (REB-47, I8).
        if let Some(window_blocker) = self.window_blocker(ctx) {
            return self.unwind(ctx, window_blocker);
        }
        let planned = self.out.effects.len();
        let waits = self.drain_step(ctx, rules, node, snap.work.get(&ctx.id));
        let left = self.drain_time_left(ctx, rules);
        match waits {
            // The value is the reason that the entry shows. Retries of a failed effect do not extend the deadline of
            // the drain (REB-36).
            Ok(command) => match self.command_failure(ctx).filter(|_| left <= Seconds::ZERO) {
                Some(reason) => {
                    self.out.effects.truncate(planned);
                    self.back_off(ctx, reason)
                }
                None => command,
            },
            Err(Waits::BackOff(why)) => self.back_off(ctx, why),
            // The deadline has passed: effects of this step are dropped.
            Err(Waits::For(reason)) if left <= Seconds::ZERO => {
                self.out.effects.truncate(planned);
                self.back_off(ctx, reason)
            }
            Err(Waits::For(reason)) => {
                self.wake_at(self.monotonic_now() + left + Seconds::new(0.001));
                reason
            }
        }
    }

    /// Returns the time until the deadline of the drain; negative after it.
    pub(super) fn drain_time_left(&self, ctx: EntryContext<'_>, rules: Eviction<'_>) -> Seconds {
        let since = ctx.since.unwrap_or(self.now.wall);
        let timeout = Seconds::new(i32::try_from(rules.timeout).unwrap_or(i32::MAX).into());
        timeout - seconds_between(since, self.now.wall)
    }

    /// Takes the next step of a drain. Both results hold the reason that the entry shows. `Ok`: the command, or the
    /// fresh read before it, is planned. `Err`: the drain has not come so far.
    fn drain_step(
        &mut self,
        ctx: EntryContext<'a>,
        rules: Eviction<'a>,
        node: Option<&'a Arc<NodeRow>>,
        work: Option<&'a Work>,
    ) -> Result<Reason, Waits> {
        // Only a leader has `work` for each drain; `memory.rs` fills it before each pass.
        let (Some(work), true) = (work, self.leading()) else {
            let reason = self.leadership_blocker().unwrap_or_else(|| Reason::Working { phase: "drains".to_owned() });
            return Err(Waits::For(reason));
        };
        if let Some(stale) = self.stale() {
            return Err(Waits::For(stale));
        }
        if let Some(reason) = self.wrong_node(ctx, node.map(AsRef::as_ref)) {
            return Err(Waits::For(reason));
        }
        // Only the ended entry is known here. Its ID takes the place of the attempt's ID in the reason.
        if let Some(other) = self.claims.commands_without_entry.get(ctx.address) {
            return Err(Waits::For(Reason::OutcomeUnknown { attempt: Some(other.to_string()), until: None }));
        }
        if let Some(reason) = self.paused(ctx.id, "the last step") {
            return Err(Waits::For(reason));
        }
        // A repair of a machine that has no Node any longer has nothing to drain.
        let Some(node) = node else {
            return self.command(ctx, None, None).map_err(Waits::For);
        };
        self.hooks_of_drain(ctx, rules, HookPoint::BeforeDrain)?;
        self.ensure_cordoned(ctx, node, work).map_err(Waits::For)?;
        let pods = self.snap.kube.pods.get(&node.name).filter(|p| p.synced);
        let Some(pods) = pods else {
            return Err(Waits::For(self.pods_not_listed(ctx, &node.name)));
        };
        if let Some(stale) = self.stale_pods(&node.name, pods) {
            return Err(Waits::For(stale));
        }
        let force = self.order_of(ctx, Verb::Force);
        let leaving = classify_pods(pods.pods.values(), rules, &self.snap.kube);
        if force.is_none() {
            if leaving.len() > 0 {
                return Err(self.remove_pods(ctx, node, work, rules, &leaving));
            }
            let attached = !node.volumes_in_use.is_empty();
            fault!(VolumesForgotten => attached = false);
            if attached {
                return Err(Waits::For(Reason::VolumeAttached { names: node.volumes_in_use.clone() }));
            }
        }
        self.hooks_of_drain(ctx, rules, HookPoint::AfterDrain)?;
        self.command(ctx, Some(node), force.cloned()).map_err(Waits::For)
    }

    /// Ensures that the node is cordoned with this entry's record, under this engine's lease. Otherwise it plans the
    /// patch first (I9, I16). The first row that matches counts:
    ///
    /// | owner record | Node | action |
    /// | --- | --- | --- |
    /// | this entry, this lease | unschedulable | none: it is cordoned |
    /// | this entry, this lease | schedulable, was cordoned again before | wait with the reason |
    /// | this entry, this lease | schedulable | cordon once more, count it |
    /// | this entry, another lease, after this leader wrote its own | any | wait: a newer leader wrote it |
    /// | this entry, another lease | any | write this lease; cordon, and count it if the Node is schedulable |
    /// | another entry, which ended without recovery | unschedulable | wait: its record must stay |
    /// | another entry, or none | any | write the record, cordon |
    pub(super) fn ensure_cordoned(
        &mut self,
        ctx: EntryContext<'a>,
        node: &Arc<NodeRow>,
        work: &Work,
    ) -> Result<(), Reason> {
        let lease = self.snap.engine.lease;
        let recordoned = self.times_recordoned(ctx, node);
        fault!(UncordonUnseen if recordoned.is_some() => return Ok(()));
        let recordoned = match recordoned {
            Some(_) if node.unschedulable => return Ok(()),
            // Somebody else uncordoned the node. cketerm cordons it once more, then waits with the reason (I12).
            Some(times) if times > 0 => {
                let since = work.drain.uncordoned.unwrap_or(self.now.wall);
                return Err(Reason::UncordonedByOther { since });
            }
            Some(times) => times + 1,
            // This leader wrote the record before, so a newer leader has replaced it. Nothing is planned; this engine
            // will find that its lease is lost.
            None if work.stamped && node.owner().is_some_and(|o| o.entry == ctx.id) => {
                return Err(Reason::Working { phase: "another engine has taken over the node".to_owned() });
            }
            // The record has an older lease. An uncordon in between counts nevertheless.
            None => {
                node.owner().filter(|o| o.entry == ctx.id).map_or(0, |o| o.recordoned + u32::from(!node.unschedulable))
            }
        };
        // The Node still has the record of an ended entry and has not recovered, for example because it went down after
        // this drain began. That record keeps the Node cordoned and must stay (I14).
        if let Some(orphan) = self.orphaned_cordon_of_other_entry(ctx, node) {
            return Err(orphan);
        }
        // `before`: whether pods could be scheduled before the drain. If cketerm's record is there but the node is
        // schedulable, somebody uncordoned it, so the new cordon is cketerm's, whatever it was before.
        let before = schedulable_before(node) || (node.owner().is_some() && !node.unschedulable);
        let owner = Owner {
            lease,
            entry: ctx.id,
            schedulable_before: before,
            uid: node.uid.clone(),
            boot_id: node.boot_id.clone(),
            taken_over_rebooting: false,
            called_done: false,
            since: None,
            recordoned,
        };
        // CKE uncordons a Node with its mark and without an entry in its queues.
        let mark = before && ctx.queue() != QueueKind::Maintenance;
        let effect = Effect::Stamp { node: Arc::clone(node), owner, cordon: true, mark };
        let guard = self.cordon_guard(ctx, node)?;
        self.plan(&node.name, Some(ctx.id), guard, effect);
        Err(Reason::Working { phase: "cordons".to_owned() })
    }

    /// Plans the first command, or the fresh read before it. `Ok` holds the reason that the entry shows once one of
    /// them is planned, `Err` the reason why neither is. An API server leaves the endpoints before a reboot. The rule
    /// `all` for unreachable nodes and an unhealthy control plane hold the command back too (REB-34, I6, I7).
    pub(super) fn command(
        &mut self,
        ctx: EntryContext<'a>,
        drained: Option<&Arc<NodeRow>>,
        force: Option<Stored<Order>>,
    ) -> Result<Reason, Reason> {
        if let Some(missing) = self.no_command(ctx) {
            return Err(missing);
        }
        if let Some(barred) = self.command_window_blocker(ctx) {
            return Err(barred);
        }
        let count_all_nodes = self.policy.unreachable_rule == UnreachableRule::All;
        if !ctx.is_repair()
            && count_all_nodes
            && let Some(gate) = self.unreachable_gate()
        {
            return Err(gate);
        }
        if ctx.control_plane() {
            if let Some(unhealthy) = self.control_plane_unhealthy_for(ctx) {
                return Err(unhealthy);
            }
            if !ctx.is_repair() {
                self.leave_endpoints(ctx.address)?;
            }
        }
        self.check_etcd_before_power(ctx)?;
        let node = drained.or_else(|| self.node_of(ctx)).cloned();
        if let Some(reason) = self.wrong_node(ctx, node.as_deref()) {
            return Err(reason);
        }
        if ctx.queue() == QueueKind::Maintenance {
            return self.begin_maintenance(ctx);
        }
        let Some(command_spec) = self.command_spec(ctx) else { return Err(self.no_definition()) };
        let on_delete = if ctx.is_repair() { Vec::new() } else { self.on_delete_uids() };
        let fresh = match self.recheck(ctx, node.as_ref(), drained.is_some(), force.is_some()) {
            Recheck::Allows(fresh) => fresh,
            Recheck::Pending(reason) => return Ok(reason),
            Recheck::Waits(reason) => return Err(reason),
        };
        let mut attempt = self.next_attempt(ctx, command_spec, fresh.as_ref().and_then(|f| f.node.as_deref()));
        attempt.forced = force.is_some();
        let effect = Effect::Power { entry: ctx.queue_entry(), fresh, force, on_delete, attempt };
        self.plan(ctx.machine, Some(ctx.id), self.disruption_guard(ctx), effect);
        let phase = if ctx.is_repair() { "running the repair command" } else { "drained, rebooting" };
        Ok(Reason::Working { phase: phase.to_owned() })
    }

    fn on_delete_uids(&self) -> Vec<String> {
        self.snap.kube.daemon_sets.iter().filter(|(_, ds)| ds.on_delete).map(|(uid, _)| uid.clone()).collect()
    }

    /// Backs off: the entry returns to the queue with a higher count and a longer wait (REB-46, REP-41). Its node is
    /// uncordoned at once (REB-44).
    pub(super) fn back_off(&mut self, ctx: EntryContext<'a>, why: Reason) -> Reason {
        let guard = Guard::of_entry(ctx.id, ctx.mod_revision);
        let effect = Effect::BackOff { entry: ctx.queue_entry(), cause: why.clone() };
        self.plan(ctx.machine, Some(ctx.id), guard, effect);
        why
    }

    /// Unwinds: the entry returns to the queue with its count and its wait unchanged (REB-47).
    fn unwind(&mut self, ctx: EntryContext<'a>, why: Reason) -> Reason {
        self.plan_unwind(ctx, why, Vec::new())
    }

    /// Unwinds an entry whose command never began. Its attempts are deleted: the next command, possibly of another
    /// program or version, starts afresh with the boot id of that time (REB-41, I14, I25).
    pub(super) fn unwind_withheld(&mut self, ctx: EntryContext<'a>, why: Reason) -> Reason {
        self.plan_unwind(ctx, why, self.snap.store.attempts_of(ctx.id).cloned().collect())
    }

    fn plan_unwind(&mut self, ctx: EntryContext<'a>, why: Reason, never_began: Vec<Stored<Attempt>>) -> Reason {
        let guard = Guard::of_entry(ctx.id, ctx.mod_revision);
        let effect = Effect::Unwind { entry: ctx.queue_entry(), cause: why.clone(), never_began };
        self.plan(ctx.machine, Some(ctx.id), guard, effect);
        why
    }
}

/// Reason why a drain does not reach the command yet.
///
/// A drain knows three waits. The backoff lasts minutes and is stored in etcd with its count (`EntryContext::backoff`).
/// The pause after a failed effect lasts seconds and is in memory (`Work::pause`). `Work::retries` counts failed
/// effects in a row.
pub(super) enum Waits {
    /// The entry stays in `draining` until its deadline.
    For(Reason),
    /// The entry backs off now: it returns to the queue.
    BackOff(Reason),
}

/// Reports whether pods could be scheduled on the node before the drain. The owner annotation decides. Without one,
/// CKE's annotation means that CKE cordoned the node. Otherwise an unschedulable node was unschedulable before (I11).
pub(super) fn schedulable_before(node: &NodeRow) -> bool {
    fault!(ForeignCordonLost => return node.owner().is_none_or(|owner| owner.schedulable_before));
    match node.owner() {
        Some(owner) => owner.schedulable_before,
        None => node.cke_mark || !node.unschedulable,
    }
}

/// Reports whether the release of the Node uncordons it.
pub(super) fn is_uncordoned_by_release(node: &NodeRow) -> bool {
    node.unschedulable && schedulable_before(node) && !node.keep_cordoned
}

/// Returns the seconds of the `count`-th backoff (I34). Reboots and maintenance: min(300·2^(count−1), 1200) + random(0..299), with a
/// clamped shift (REB-46). Repairs: 300 + random(0 .. 300·count − 1) (REP-41).
pub fn backoff_seconds(queue: QueueKind, count: i64, random: u64) -> i64 {
    fault!(BackoffOverflow => return i64::from(300_i16.wrapping_shl(u32::try_from(count * 4).unwrap_or(0))));
    let up_to = |n: u64| i64::try_from(random % n).unwrap_or(0);
    match queue {
        QueueKind::Reboot | QueueKind::Maintenance => {
            let shift = u32::try_from((count - 1).clamp(0, 8)).unwrap_or(0);
            (300_i64 << shift).min(1200) + up_to(300)
        }
        // A billion tries would take ten thousand years. The clamp is for counts that somebody wrote manually.
        QueueKind::Repair => 300 + up_to(300 * count.clamp(1, 1_000_000_000).unsigned_abs()),
    }
}
