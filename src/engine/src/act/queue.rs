//! Transitions of entries (start, back off, remove) and the history records that they leave. What each writes is in
//! `cketerm_rules::transition`.

use cketerm_model::{
    any::QueueEntry,
    attempt::Attempt,
    boot_time::BootTime,
    cketerm_records::Ending,
    entry::{EntryId, QueueKind, Stored},
    hook_runs::HookRuns,
    names::{Address, NodeName},
    reason::Reason,
    stored::view::StoreView,
};
use cketerm_rules::{
    decide::{End, Guard},
    snapshot::{EffectOutcome, StaleCause},
    transition::{BackedOff, Ended, Transition, Unwound},
};
use jiff::Timestamp;

use super::{Actor, Stop};

impl Actor {
    /// Returns what a transition is made from now.
    pub(super) fn transition<'a>(&'a self, view: &'a StoreView) -> Transition<'a> {
        self.transition_at(view, self.steady.now().wall)
    }

    /// Returns what a transition is made from at this time.
    pub(super) fn transition_at<'a>(&'a self, view: &'a StoreView, now: Timestamp) -> Transition<'a> {
        Transition { keys: self.store.keys(), view, now }
    }

    /// Moves the entry to `draining`.
    pub(super) async fn start_drain(
        &self,
        guard: &Guard,
        decided: BootTime,
        entry: &QueueEntry,
        node_uid: Option<String>,
        hooks: Option<&HookRuns>,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let (id, view) = (entry.id(), self.live.borrow());
        let transition = self.transition(&view);
        let now = transition.now;
        let mut change = transition.start_drain(guard, entry, node_uid, hooks);
        change.puts.push(self.audit_again("drain", id, None, "started"));
        self.commit(&permit, change).await?;
        tracing::info!(entry = %id, node = entry.address().as_str(), "drain started");
        let note = format!("drain for {id} started{}", self.requested_by_text(id));
        self.record_event_on(entry.address(), ("DrainStarted", "Drain"), false, note);
        self.write_cke_record_of(id, ("reboot-drain-start", "repair-drain-start"), entry.address(), "", now);
        Ok(EffectOutcome::Done)
    }

    /// Moves the entry from `draining` back into the queue, with a higher backoff count and the time of the next try
    /// (REB-46).
    pub(super) async fn back_off(
        &self,
        guard: &Guard,
        decided: BootTime,
        entry: &QueueEntry,
        cause: &Reason,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let (id, view) = (entry.id(), self.live.borrow());
        let transition = self.transition(&view);
        let now = transition.now;
        let BackedOff { mut change, count, wait } = transition.back_off(guard, entry, self.seed);
        change.puts.push(self.audit_again("back off", id, Some(cause.to_string()), &format!("retry in {wait} s")));
        self.commit(&permit, change).await?;
        tracing::warn!(entry = %id, node = entry.address().as_str(), cause = %cause, count, wait, "drain backed off");
        let note = format!("drain for {id} given up, retrying later: {cause}");
        self.record_event_on(entry.address(), ("DrainBackedOff", "Drain"), true, note);
        let names = ("reboot-drain-timeout", "repair-drain-timeout");
        self.write_cke_record_of(id, names, entry.address(), &cause.to_string(), now);
        Ok(EffectOutcome::Done)
    }

    /// Moves the entry back into the queue with unchanged count and backoff (I8, REB-47). Its window has ended, a
    /// freeze has begun, or it is on hold. The Node is uncordoned as after a backoff. Attempts that never began are
    /// deleted; the audit record mentions them.
    pub(super) async fn unwind(
        &self,
        guard: &Guard,
        decided: BootTime,
        entry: &QueueEntry,
        cause: &Reason,
        never_began: &[Stored<Attempt>],
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let (id, view) = (entry.id(), self.live.borrow());
        let transition = self.transition(&view);
        let now = transition.now;
        let Unwound { mut ranged, result } = transition.unwind(guard, entry, never_began);
        ranged.change.puts.push(self.audit_again("unwind", id, Some(cause.to_string()), &result));
        self.commit(&permit, ranged).await?;
        tracing::info!(entry = %id, node = entry.address().as_str(), cause = %cause, "drain unwound");
        let names = ("reboot-drain-timeout", "repair-drain-timeout");
        self.write_cke_record_of(id, names, entry.address(), &cause.to_string(), now);
        Ok(EffectOutcome::Done)
    }

    /// Moves a maintenance from `draining` to `in-maintenance`: its Node is empty and stays cordoned.
    pub(super) async fn begin_maintenance(
        &self,
        guard: &Guard,
        decided: BootTime,
        entry: &QueueEntry,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let (id, view) = (entry.id(), self.live.borrow());
        let mut change = self.transition(&view).begin_maintenance(guard, entry);
        change.puts.push(self.audit_again("begin maintenance", id, None, "drained"));
        self.commit(&permit, change).await?;
        tracing::info!(entry = %id, node = entry.address().as_str(), "maintenance began");
        let note = format!("{id}: the node is drained and stays cordoned until it is released");
        self.record_event_on(entry.address(), ("MaintenanceBegan", "Maintenance"), false, note);
        Ok(EffectOutcome::Done)
    }

    /// Writes a record of CKE's for an entry of CKE's queues, by the name of the operation in either queue.
    fn write_cke_record_of(
        &self,
        id: EntryId,
        (reboot, repair): (&'static str, &'static str),
        address: &Address,
        error: &str,
        start: jiff::Timestamp,
    ) {
        let operation = match id.queue {
            QueueKind::Reboot => reboot,
            QueueKind::Repair => repair,
            // CKE has no name for it
            QueueKind::Maintenance => return,
        };
        self.write_cke_record(operation, address, error, start);
    }

    /// Removes the entry and writes its history. If the machine was not seen to boot, the attempts stay in etcd. They
    /// block the machine and keep its cordon until they are settled. After an operator's `done` they stay too, until
    /// the cordon is gone: the Node may be Ready now, yet go down before that (I14).
    pub(super) async fn remove(
        &self,
        guard: &Guard,
        decided: BootTime,
        end: &End,
        ready: Option<&NodeName>,
        running: bool,
    ) -> Result<EffectOutcome, Stop> {
        let Some((id, _)) = guard.entry else { return Ok(entry_gone()) };
        let mut cordoned = false;
        // The live copy may be old: a silent watch looks like a Node that stays Ready (I14).
        if let Some(name) = ready {
            let fresh = self.kube.node(name).await.map_err(|e| super::power::unreachable(&e))?;
            let Some(node) = fresh.filter(|node| node.ready) else {
                return Ok(EffectOutcome::Failed(format!("node {name} is not Ready (fresh read)")));
            };
            cordoned = node.is_owned_by(id);
        }
        let permit = self.permit(guard, decided)?;
        let view = self.live.borrow();
        let ended = self.transition(&view).remove(guard, end, cordoned, running);
        let Some(Ended { mut ranged, ending, was_finished }) = ended else { return Ok(entry_gone()) };
        let reason = if let End::DoneBy(order) = end { order.reason.clone() } else { None };
        ranged.change.puts.push(self.audit("end", &id.to_string(), reason, &ending.outcome));
        self.commit(&permit, ranged).await?;
        tracing::info!(entry = %id, node = ending.address.as_str(), outcome = ending.outcome, "entry ended");
        if !was_finished {
            self.record_event_on(
                &ending.address,
                (end.event(), event_action(id.queue)),
                false,
                format!("{id} ended: {}", ending.outcome),
            );
        }
        let reboot = if matches!(end, End::Cancelled) { "reboot-cancel" } else { "reboot-dequeue" };
        self.write_cke_record_of(id, (reboot, "repair-dequeue"), &ending.address, "", ending.at);
        Ok(EffectOutcome::Done)
    }

    /// Settles the attempts of an entry whose record no Node seems to carry. It reads the Node afresh first. An
    /// orphaned cordon without attempts would look like that of a machine without any power command (I14).
    pub(super) async fn settle_left(
        &self,
        decided: BootTime,
        machine: &str,
        id: EntryId,
    ) -> Result<EffectOutcome, Stop> {
        // The key of a machine without a Node is its address, under which CKE registers Nodes by default.
        let name = NodeName::new(machine);
        let node =
            self.kube.node(&name).await.map_err(|e| Stop(EffectOutcome::Failed(format!("node {machine}: {e}"))))?;
        if node.is_some_and(|n| n.is_owned_by(id)) {
            return Ok(EffectOutcome::Stale(StaleCause::Object(format!("node {machine}"))));
        }
        self.settle(decided, id).await
    }

    /// Moves the attempts that an ended entry left into its history.
    pub(super) async fn settle(&self, decided: BootTime, id: EntryId) -> Result<EffectOutcome, Stop> {
        let (keys, view) = (self.store.keys(), self.live.borrow());
        if !self.transition(&view).is_left(id) {
            return Ok(EffectOutcome::Done);
        }
        let before =
            self.store.raw(&keys.history_of(id)).await.map_err(|e| Stop(EffectOutcome::Failed(e.to_string())))?;
        let before = before.and_then(|raw| serde_json::from_str::<Ending>(&raw.text).ok());
        let Some(ranged) = self.transition(&view).settle(id, before) else { return Ok(EffectOutcome::Done) };
        let permit = self.permit(&Guard::default(), decided.max(self.steady.now().boot))?;
        self.commit(&permit, ranged).await?;
        Ok(EffectOutcome::Done)
    }
}

/// Returns the action of the Kubernetes Events of this kind of work.
fn event_action(queue: QueueKind) -> &'static str {
    match queue {
        QueueKind::Reboot => "Reboot",
        QueueKind::Repair => "Repair",
        QueueKind::Maintenance => "Maintenance",
    }
}

/// Returns the outcome for an entry that no longer exists.
fn entry_gone() -> EffectOutcome {
    EffectOutcome::Stale(StaleCause::Changed("the entry is gone".to_owned()))
}
