//! Fresh read before a command. The API server returns the machine's Node and pods, and the rules judge these instead
//! of the cache (SAF-17; I16, I24, I26). The command begins within TTL/12 of the answers, however long they took.

use std::sync::Arc;

use cketerm_model::{boot_time::Seconds, fault, kube::NodeRow, reason::Reason};

use super::{Effect, Pass, entry_context::EntryContext, pods::classify_pods};
use crate::snapshot::FreshRead;

/// Time before the API server is queried again about a machine that was not ready for its command.
const RETRY_DELAY: Seconds = Seconds::new(2.0);

/// State of the fresh read before a command.
pub(super) enum Recheck {
    /// The answers allow the command. `None`: the machine has no Node, so there is nothing to read.
    Allows(Option<FreshRead>),
    /// The request is under way.
    Pending(Reason),
    /// The answers forbid the command, or an earlier try failed.
    Waits(Reason),
}

impl<'a> Pass<'a> {
    /// Plans the fresh read, or judges the one that was made. `drained`: the Node was drained for this command, and
    /// must still be empty and cordoned for this entry. `force`: an operator ordered to skip pods and volumes.
    pub(super) fn recheck(
        &mut self,
        ctx: EntryContext<'a>,
        node: Option<&Arc<NodeRow>>,
        drained: bool,
        force: bool,
    ) -> Recheck {
        let Some(node) = node else { return Recheck::Allows(None) };
        let work = self.snap.work.get(&ctx.id);
        // A read without pods does not serve a command after a drain, nor the other way round.
        let fresh = work.and_then(|w| w.fresh.as_ref()).filter(|f| f.pods.is_some() == drained);
        if let Some(fresh) = fresh.filter(|f| self.monotonic_now() - f.at <= self.max_age()) {
            let Some(forbidden_reason) = self.forbidden_reason(ctx, node, fresh, drained, force) else {
                return Recheck::Allows(Some(fresh.clone()));
            };
            if self.monotonic_now() < fresh.at + RETRY_DELAY {
                self.wake_at(fresh.at + RETRY_DELAY);
                return Recheck::Waits(forbidden_reason);
            }
            self.plan_recheck(ctx, node, drained);
            return Recheck::Waits(forbidden_reason);
        }
        self.plan_recheck(ctx, node, drained);
        match self.command_failure(ctx) {
            Some(reason) => Recheck::Waits(reason),
            None => Recheck::Pending(Reason::Working { phase: "reading its Node and pods".to_owned() }),
        }
    }

    /// Returns the reason if the last effect of this entry failed or was outdated, whatever effect it was. An answer to
    /// an eviction, a written owner record or a command that ended resets it.
    pub(super) fn command_failure(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        let retries = self.snap.work.get(&ctx.id)?.retries.as_ref()?;
        let why = format!("{} (tried {} times)", retries.why, retries.count);
        Some(Reason::EffectFailed { what: "the command".to_owned(), why })
    }

    fn plan_recheck(&mut self, ctx: EntryContext<'a>, node: &Arc<NodeRow>, pods: bool) {
        let effect = Effect::Recheck { entry: ctx.queue_entry(), node: node.name.clone(), pods };
        self.plan(ctx.machine, Some(ctx.id), self.start_guard(ctx), effect);
    }

    /// Returns the time for which a fresh read is valid. An effect starts within TTL/12 of the data that it is based
    /// on (I24).
    fn max_age(&self) -> Seconds {
        Seconds::from(self.snap.engine.ttl) / 12.0
    }

    /// Returns the reason why these answers forbid the command.
    fn forbidden_reason(
        &self,
        ctx: EntryContext<'a>,
        node: &NodeRow,
        fresh: &FreshRead,
        drained: bool,
        force: bool,
    ) -> Option<Reason> {
        let Some(found) = &fresh.node else {
            return Some(Reason::NodeMismatch { expected: format!("Node {}", node.name), found: "none".to_owned() });
        };
        if found.uid != node.uid {
            let (expected, found) = (format!("UID {}", node.uid), format!("UID {}", found.uid));
            return Some(Reason::NodeMismatch { expected, found });
        }
        if let Some(reason) = self.wrong_node(ctx, Some(found)) {
            return Some(reason);
        }
        if let Some(reason) = self.drained_by_other_for(ctx, found) {
            return Some(reason);
        }
        if !drained {
            return None;
        }
        let cordoned = found.unschedulable;
        fault!(UncordonUnseen => cordoned = true);
        let is_owner =
            found.owner().is_some_and(|o| o.entry == ctx.id && o.lease == self.snap.engine.lease && o.uid == found.uid);
        if !cordoned || !is_owner {
            let since = self.snap.work.get(&ctx.id).and_then(|w| w.drain.uncordoned).unwrap_or(self.now.wall);
            return Some(Reason::UncordonedByOther { since });
        }
        if force {
            return None;
        }
        let rules = self.drain_rules(ctx)?;
        let leaving = classify_pods(fresh.pods.iter().flatten(), rules, &self.snap.kube);
        if let Some(first) = leaving.first() {
            let left = u32::try_from(leaving.len()).unwrap_or(u32::MAX);
            return Some(Reason::PodsLeaving { left, first: first.full_name() });
        }
        let attached = !found.volumes_in_use.is_empty();
        fault!(VolumesForgotten => attached = false);
        attached.then(|| Reason::VolumeAttached { names: found.volumes_in_use.clone() })
    }
}
