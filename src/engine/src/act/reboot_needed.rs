//! Writes for Nodes that need a reboot: their records, and the entries that the leader queues by itself.

use cketerm_clients::store::StoreError;
use cketerm_model::{
    batch::BatchId,
    boot_time::BootTime,
    cketerm_records::{NeededEntry, NeededLog, REBOOT_NEEDED_USER, Request, Who},
    entry::{EntryId, QueueKind, Stored},
    policy::RebootNeeded,
    reboot::RebootEntry,
    stored::{
        transaction::{Change, Put},
        view::StoreView,
    },
    time::whole_seconds,
};
use cketerm_rules::{
    decide::{Guard, NeededBatch, RebootNeededEffect},
    reboot_needed::{
        queue::{CauseBatch, batch_of, entries_by_address, free_places, grown, logged},
        record::RecordChange,
    },
    snapshot::{EffectOutcome, StaleCause},
};

use super::{Actor, Stop};

impl Actor {
    pub(super) async fn reboot_needed(
        &self,
        guard: &Guard,
        decided: BootTime,
        what: RebootNeededEffect,
    ) -> Result<EffectOutcome, Stop> {
        match what {
            RebootNeededEffect::Record(changes) => self.record_needed(guard, decided, &changes).await,
            RebootNeededEffect::Queue(batch) => self.queue_needed(guard, decided, &batch).await,
        }
    }

    async fn record_needed(
        &self,
        guard: &Guard,
        decided: BootTime,
        changes: &[RecordChange],
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let keys = self.store.keys();
        let mut change = Change::default();
        for RecordChange { node, record, revision } in changes {
            let key = keys.needed(node);
            change.compares.push((key.clone(), *revision));
            match record {
                Some(record) => change.puts.push(Put::json(key, record)),
                None => change.deletes.push(key),
            }
        }
        self.commit(&permit, change).await.map(|_| EffectOutcome::Done)
    }

    /// Adds reboots, all or none, within the limits. They are checked again on a fresh read, in one transaction with the
    /// write indexes of both queues.
    async fn queue_needed(&self, guard: &Guard, decided: BootTime, batch: &NeededBatch) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let failed = |e: StoreError| Stop(EffectOutcome::Failed(e.to_string()));
        let keys = self.store.keys();
        let mut compares = self.compares(guard);
        // The indexes are read first. Any entry added after this read makes the transaction fail.
        for queue in QueueKind::QUEUES {
            let key = keys.write_index(queue);
            let revision = self.store.raw(&key).await.map_err(failed)?.map_or(0, |raw| raw.mod_revision);
            compares.push((key, revision));
        }
        let view = self.store.read_view().await.map_err(failed)?;
        let now = self.steady.now().wall;
        let Some(first) = self.first_index(&view, batch) else { return Ok(changed()) };
        let count = batch.machines.len() as u64;
        let (batch_id, joined) = match batch_of(&view, &batch.cause, now) {
            CauseBatch::Stopped(_) => return Ok(changed()),
            CauseBatch::Open(id) => (id, view.batches.get(&id)),
            // An id that another batch has taken makes the transaction fail, and the next pass has another time.
            CauseBatch::None => (BatchId::at(now), None),
        };
        let who = Who { user: REBOOT_NEEDED_USER.to_owned(), ..self.who.clone() };
        let grown = grown(joined.and_then(Stored::get), &who, &batch.cause, count, now);
        let log: Option<&Stored<NeededLog>> = view.needed_log.as_ref();
        let all = usize::try_from(count).unwrap_or(usize::MAX);
        let log_now = logged(log.and_then(Stored::get), all, whole_seconds(now));
        compares.push((keys.batch(batch_id), joined.map_or(0, |stored| stored.mod_revision)));
        compares.push((keys.needed_log(), log.map_or(0, |stored| stored.mod_revision)));
        let next = first.saturating_add(count);
        let mut puts = vec![
            Put { key: keys.write_index(QueueKind::Reboot), value: next.to_string(), leased: false },
            Put::json(keys.batch(batch_id), &grown),
            Put::json(keys.needed_log(), &log_now),
        ];
        for (index, machine) in (first..).zip(&batch.machines) {
            let id = EntryId::reboot(index);
            compares.push((keys.entry(id), 0));
            compares.push((keys.needed(&machine.node), machine.revision));
            puts.push(Put::json(keys.entry(id), &RebootEntry::queued(index, &machine.address)));
            let request = Request {
                who: who.clone(),
                at: now,
                reason: Some(batch.cause.clone()),
                node_uid: Some(machine.node_uid.clone()),
                batch: Some(batch_id),
            };
            puts.push(Put::json(keys.request(id), &request));
            let mut record = machine.record.clone();
            record.queued = Some(NeededEntry { index, boot_id: machine.boot_id.clone(), at: whole_seconds(now) });
            puts.push(Put::json(keys.needed(&machine.node), &record));
        }
        let addresses: Vec<&str> = batch.machines.iter().map(|machine| machine.address.as_str()).collect();
        let addresses = addresses.join(" ");
        let result = if count == 1 { format!("entry {first}") } else { format!("entries {first}-{}", next - 1) };
        puts.push(self.audit("reboot add", &addresses, Some(format!("reboot needed: {}", batch.cause)), &result));
        self.commit(&permit, Change { compares, puts, deletes: Vec::new() }).await?;
        tracing::info!(cause = batch.cause, addresses, result, "needed reboots queued");
        Ok(EffectOutcome::Done)
    }

    /// Returns the index of the first new entry, if the fresh view still allows all of them.
    fn first_index(&self, view: &StoreView, batch: &NeededBatch) -> Option<u64> {
        let policy = view.policy();
        let entries = entries_by_address(view);
        let kube = self.kube_live.borrow();
        let is_same = |machine: &cketerm_rules::decide::NeededMachine| {
            let node = kube.by_name.get(&machine.node);
            node.is_some_and(|node| node.boot_id == machine.boot_id && node.uid == machine.node_uid && node.ready)
                && !entries.contains_key(&machine.address)
        };
        let fits = free_places(view, &policy, self.steady.now().wall).is_some_and(|left| batch.machines.len() <= left);
        let is_allowed = policy.reboot_needed == RebootNeeded::Queue && view.reboots.switch.enabled();
        if !fits || !is_allowed || batch.machines.is_empty() || !batch.machines.iter().all(is_same) {
            return None;
        }
        let last = view.reboots.entries.keys().next_back().map_or(0, |last| last.saturating_add(1));
        view.reboots.write_index.as_ref().ok().map(|index| (*index).max(last))
    }
}

/// Returns the outcome for inputs that changed after the decision.
fn changed() -> EffectOutcome {
    EffectOutcome::Stale(StaleCause::Changed("the queue or the machines have changed meanwhile".to_owned()))
}
