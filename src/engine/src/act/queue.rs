//! Transitions of entries (start, back off, remove) and the history records that they leave.

use std::collections::BTreeSet;

use cketerm_model::{
    any::QueueEntry,
    attempt::{Attempt, Ended, Outcome},
    boot_time::BootTime,
    cketerm_records::{EndKind, Ending, Request, Who},
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    fault,
    hook_runs::HookRuns,
    names::{Address, NodeName},
    reason::Reason,
    repair::RepairStatus,
    stored::{
        keys::Keys,
        transaction::{Change, Put, Ranged},
        view::StoreView,
    },
};
use cketerm_rules::{
    decide::{End, Guard, backoff_seconds},
    outcomes,
    snapshot::{EffectOutcome, StaleCause},
};

use super::{Actor, Stop};

/// Number of attempts without an outcome that one transaction closes.
pub(super) const CLOSE_BATCH: usize = 32;

impl Actor {
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
        let now = self.steady.now().wall;
        let next = entry.draining(now);
        let (id, keys) = (entry.id(), self.store.keys());
        let mut change = Change {
            compares: self.compares(guard),
            puts: vec![Put::json(keys.entry(id), &next), self.audit_again("drain", id, None, "started")],
            deletes: Vec::new(),
        };
        // The Node's UID is stored in etcd. An annotation would disappear with the Node that it identifies.
        let stored = self.live.borrow().requests.get(&id).cloned();
        let request = stored.as_ref().and_then(Stored::get);
        if request.is_none_or(|r| r.node_uid.is_none()) && node_uid.is_some() {
            let who = Who { user: "via ckecli".to_owned(), ..Who::default() };
            let unknown = Request { who, at: now, reason: None, node_uid: None, batch: None };
            let noted = Request { node_uid, ..request.cloned().unwrap_or(unknown) };
            change.compares.push((keys.request(id), stored.as_ref().map_or(0, |s| s.mod_revision)));
            change.puts.push(Put::json(keys.request(id), &noted));
        }
        if let Some(record) = hooks {
            // A record of an earlier drain gives way.
            let known = self.live.borrow().hooks.get(&id).map_or(0, |stored| stored.mod_revision);
            change.compares.push((keys.hooks(id), known));
            change.puts.push(Put::json(keys.hooks(id), &HookRuns { since: now, ..record.clone() }));
        }
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
        let now = self.steady.now().wall;
        let count = entry.backoff_count().saturating_add(1);
        let id = entry.id();
        let wait = backoff_seconds(id.queue, count, jitter(self.seed, id.index, count));
        let next = entry.backed_off(count, wait, now);
        let change = Change {
            compares: self.compares(guard),
            puts: vec![
                Put::json(self.store.keys().entry(id), &next),
                self.audit_again("back off", id, Some(cause.to_string()), &format!("retry in {wait} s")),
            ],
            deletes: vec![self.store.keys().progress(id)],
        };
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
        let (now, id) = (self.steady.now().wall, entry.id());
        // The last attempt gives the reason. There may be as many attempts as there were tries.
        let last =
            never_began.last().and_then(Stored::get).and_then(|a| a.outcome.as_ref().map(|o| (a.number, &o.end)));
        let ends = last.map_or_else(String::new, |(number, end)| format!("; attempt {number} never started: {end}"));
        let result = format!("queued again{ends}");
        let mut change = Change {
            compares: self.compares(guard),
            puts: vec![
                Put::json(self.store.keys().entry(id), &entry.unwound(now)),
                self.audit_again("unwind", id, Some(cause.to_string()), &result),
            ],
            deletes: vec![self.store.keys().progress(id)],
        };
        // An order for this revision of the entry, such as `done` or `retry`, is honoured first (I28).
        let (order, shown) = {
            let view = self.live.borrow();
            (view.orders.get(&id).map_or(0, |stored| stored.mod_revision), attempts_until(&view, id))
        };
        change.compares.push((self.store.keys().order(id), order));
        let mut ranged = Ranged::from(change);
        if let Some(known) = newest(never_began) {
            // An attempt written after the decision is not one of those that never began.
            let since = shown.filter(|shown| shown.newest == known).map_or(known, |shown| shown.revision);
            self.clear_attempts(&mut ranged, id, since);
        }
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
        let (id, keys) = (entry.id(), self.store.keys());
        let change = Change {
            compares: self.compares(guard),
            puts: vec![
                Put::json(keys.entry(id), &entry.commanded(self.steady.now().wall)),
                self.audit_again("begin maintenance", id, None, "drained"),
            ],
            deletes: vec![keys.progress(id)],
        };
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
            cordoned = node.owner().is_some_and(|o| o.entry == id);
        }
        let permit = self.permit(guard, decided)?;
        let (keys, view) = (self.store.keys(), self.live.borrow());
        let Some(stored) = view.stored_entry(id) else { return Ok(entry_gone()) };
        let entry = stored.get();
        let address = entry.map(|e| e.address().to_owned());
        let last = entry.map(serde_json::to_value);
        // A finished repair has its history already.
        let ended = entry.is_some_and(EntryRef::finished);
        let settled = ended || !matches!(end, End::Cancelled | End::NotMember | End::Deleted);
        let mut attempts: Vec<Attempt> = view.attempts_of(id).filter_map(Stored::get).cloned().collect();
        let mut compares = self.compares(guard);
        let deletes = vec![keys.entry(id), keys.request(id), keys.order(id), keys.progress(id)];
        let (mut puts, mut unwritten) = (Vec::new(), None);
        if settled {
            let why = match end {
                End::DoneBy(order) => format!("settled by {}", order.who),
                End::Cancelled
                | End::NotMember
                | End::Booted
                | End::Replaced
                | End::Deleted
                | End::Healthy
                | End::Released(_)
                | End::Expired
                | End::Failed(_) => "settled by the boot check".to_owned(),
            };
            let open: Vec<u32> = attempts.iter().filter(|a| a.open()).map(|a| a.number).collect();
            if !running {
                close(&mut attempts, &why, self.steady.now().wall);
            }
            unwritten = attempts_until(&view, id).map(|shown| shown.revision);
            if let (End::DoneBy(order), true) = (end, cordoned || running) {
                for place in attempts_to_mark_done(&attempts, &open) {
                    fault!(DoneForgotten => continue);
                    let attempt = &mut attempts[place];
                    attempt.done_by = Some(order.who.to_string());
                    let key = keys.attempt(id, attempt.number);
                    let known = view.attempts.get(&(id, attempt.number)).map_or(0, |stored| stored.mod_revision);
                    compares.push((key.clone(), known));
                    puts.push(Put::json(key, attempt));
                }
            }
        }
        let keep_attempts = !puts.is_empty();
        let ending = Ending {
            entry: id,
            address: address.unwrap_or_default(),
            end: end.kind(),
            outcome: end.outcome(),
            withdrawn_by: None,
            at: self.steady.now().wall,
            last: last.and_then(Result::ok).unwrap_or_default(),
            request: view.requests.get(&id).and_then(Stored::get).cloned(),
            attempts,
            hooks: Vec::new(),
            omitted: 0,
        }
        // the entry's last write is its cancellation
        .withdrawn_by(view.recent.author_of(stored.mod_revision))
        .bounded();
        let reason = if let End::DoneBy(order) = end { order.reason.clone() } else { None };
        puts.push(self.audit("end", &id.to_string(), reason, &ending.outcome));
        puts.extend(batch_end(keys, &view, id, end.kind()));
        puts.extend(
            outcomes::of(&view, id, end.kind(), ending.at).map(|outcome| Put::json(keys.outcome(id.index), &outcome)),
        );
        if !ended {
            puts.push(Put::json(keys.history_of(id), &ending));
        }
        let mut ranged = Ranged::from(Change { compares, puts, deletes });
        match unwritten {
            Some(since) if keep_attempts => ranged.unwritten.push((keys.attempts_of(id), since)),
            Some(since) => self.clear_attempts(&mut ranged, id, since),
            None => {}
        }
        self.commit(&permit, ranged).await?;
        tracing::info!(entry = %id, node = ending.address.as_str(), outcome = ending.outcome, "entry ended");
        if !ended {
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
        if node.is_some_and(|n| n.owner().is_some_and(|o| o.entry == id)) {
            return Ok(EffectOutcome::Stale(StaleCause::Object(format!("node {machine}"))));
        }
        self.settle(decided, id).await
    }

    /// Moves the attempts that an ended entry left into its history.
    pub(super) async fn settle(&self, decided: BootTime, id: EntryId) -> Result<EffectOutcome, Stop> {
        let (keys, view) = (self.store.keys(), self.live.borrow());
        if view.has_entry(id) {
            // The entry exists, so its orders stay and its attempts are its own.
            return Ok(EffectOutcome::Done);
        }
        let mut attempts: Vec<Attempt> = view.attempts_of(id).filter_map(Stored::get).cloned().collect();
        let has_order = view.orders.contains_key(&id);
        if attempts.is_empty() && !has_order {
            return Ok(EffectOutcome::Done);
        }
        close(&mut attempts, "settled after the entry had ended", self.steady.now().wall);
        let before =
            self.store.raw(&keys.history_of(id)).await.map_err(|e| Stop(EffectOutcome::Failed(e.to_string())))?;
        let mut puts: Vec<Put> = Vec::new();
        if let Some(mut ending) = before.and_then(|raw| serde_json::from_str::<Ending>(&raw.text).ok()) {
            ending.attempts = attempts;
            puts.push(Put::json(keys.history_of(id), &ending.bounded()));
        }
        let mut ranged = Ranged::from(Change { compares: Vec::new(), puts, deletes: vec![keys.order(id)] });
        if let Some(shown) = attempts_until(&view, id) {
            self.clear_attempts(&mut ranged, id, shown.revision);
        }
        let permit = self.permit(&Guard::default(), decided.max(self.steady.now().boot))?;
        self.commit(&permit, ranged).await?;
        Ok(EffectOutcome::Done)
    }

    /// Deletes all attempts of an entry if none was written after this revision. It takes two operations, however many
    /// attempts there are.
    fn clear_attempts(&self, ranged: &mut Ranged, id: EntryId, since: i64) {
        let span = self.store.keys().attempts_of(id);
        fault!(TransactionUnbounded => {
            for stored in self.live.borrow().attempts_of(id) {
                ranged.change.compares.push((stored.key.clone(), stored.mod_revision));
                ranged.change.deletes.push(stored.key.clone());
            }
            return;
        });
        ranged.unwritten.push((span.clone(), since));
        ranged.cleared.push(span);
    }
}

/// State of an entry's attempts in a live copy.
#[derive(Clone, Copy)]
struct Shown {
    /// ModRevision of the attempt written last.
    newest: i64,
    /// Revision of the live copy. No attempt of the entry was written between `newest` and this revision. A comparison
    /// with it ignores keys in the folder that are no attempts and were written long ago.
    revision: i64,
}

fn attempts_until(view: &StoreView, id: EntryId) -> Option<Shown> {
    let newest = newest(view.attempts_of(id))?;
    Some(Shown { newest, revision: view.revision })
}

fn newest<'a>(attempts: impl IntoIterator<Item = &'a Stored<Attempt>>) -> Option<i64> {
    attempts.into_iter().map(|stored| stored.mod_revision).max()
}

/// Returns the record of an entry's end below its batch. Each entry has a key of its own, because ends of a batch that
/// wrote one key would conflict (STO-64). A repair that finished before keeps that end.
fn batch_end(keys: &Keys, view: &StoreView, id: EntryId, end: EndKind) -> Option<Put> {
    let batch = view.batch_of(id).filter(|batch| view.batches.contains_key(batch))?;
    let end = match view.entry(id).and_then(EntryRef::as_repair).map(|repair| repair.status) {
        Some(RepairStatus::Succeeded) => EndKind::Succeeded,
        Some(RepairStatus::Failed) => EndKind::Failed,
        Some(RepairStatus::Queued | RepairStatus::Processing) | None => end,
    };
    Some(Put::json(keys.batch_end(batch, id), &end))
}

/// Returns the action of the Kubernetes Events of this kind of work.
fn event_action(queue: QueueKind) -> &'static str {
    match queue {
        QueueKind::Reboot => "Reboot",
        QueueKind::Repair => "Repair",
        QueueKind::Maintenance => "Maintenance",
    }
}

/// Returns the places of the attempts to be marked as done by an operator. They are the last one that began, which
/// covers all before it; the last of all, in case the entry is put back; and those without an outcome.
fn attempts_to_mark_done(attempts: &[Attempt], open: &[u32]) -> BTreeSet<usize> {
    let began = attempts.iter().rposition(|a| a.began() && !a.success);
    let open = attempts.iter().enumerate().rev().filter(|(_, a)| open.contains(&a.number)).map(|(place, _)| place);
    open.take(CLOSE_BATCH).chain(began).chain(attempts.len().checked_sub(1)).collect()
}

/// Gives attempts without an outcome the outcome "unknown": it cannot be learned any more.
pub(super) fn close(attempts: &mut [Attempt], why: &str, at: jiff::Timestamp) {
    for attempt in attempts.iter_mut().filter(|a| a.open()) {
        let end = Ended::Unknown(why.to_owned());
        attempt.outcome = Some(Outcome { end, at, stdout: String::new(), stderr: String::new() });
    }
}

/// Marks attempts as done by an operator. The Node is uncordoned once it is Ready, whatever its boot id is (REB-49).
pub(super) fn mark_done(attempts: &mut [Attempt], end: &End) {
    let End::DoneBy(order) = end else { return };
    fault!(DoneForgotten => return);
    for attempt in attempts {
        attempt.done_by = Some(order.who.to_string());
    }
}

/// Returns jitter from the leadership's seed (splitmix64), so that repeating a decision gives the same wait.
fn jitter(seed: u64, index: u64, count: i64) -> u64 {
    let mut z = seed
        .wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(count.unsigned_abs().wrapping_mul(0xbf58_476d_1ce4_e5b9));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the outcome for an entry that no longer exists.
fn entry_gone() -> EffectOutcome {
    EffectOutcome::Stale(StaleCause::Changed("the entry is gone".to_owned()))
}
