//! An entry ends: its history is written, and its attempts are settled.

use std::collections::BTreeSet;

use cketerm_model::{
    attempt::{Attempt, Ended as CommandEnd, Outcome},
    cketerm_records::{EndKind, Ending},
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    fault,
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::{
        keys::Keys,
        transaction::{Change, Put, Ranged},
        view::StoreView,
    },
};
use jiff::Timestamp;

use super::{CLOSE_BATCH, Transition, attempts_until, compares};
use crate::{
    decide::{End, Guard},
    outcomes,
};

/// The end of an entry.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The transaction.
    pub ranged: Ranged,
    /// The entry's history.
    pub ending: Ending,
    /// Whether the history had it already, because the entry is a repair that has finished.
    pub was_finished: bool,
}

impl Transition<'_> {
    /// Removes the entry and writes its history. If the machine was not seen to boot, the attempts stay in etcd. They
    /// block the machine and keep its cordon until they are settled. After an operator's `done` they stay too, until
    /// the cordon is gone: the Node may be Ready now, yet go down before that (I14). `None`: the entry is gone.
    ///
    /// `cordoned` says whether the Node still has the entry's cordon, `running` whether a command of a dead leader may
    /// still run.
    pub fn remove(&self, guard: &Guard, end: &End, cordoned: bool, running: bool) -> Option<Ended> {
        let (id, _) = guard.entry?;
        let (keys, view) = (self.keys, self.view);
        let stored = view.stored_entry(id)?;
        let entry = stored.get();
        let address = entry.map(|e| e.address().to_owned());
        let last = entry.map(serde_json::to_value);
        // A finished repair has its history already.
        let was_finished = entry.is_some_and(EntryRef::finished);
        let settled = was_finished || !matches!(end, End::Cancelled | End::NotMember | End::Deleted);
        let mut attempts: Vec<Attempt> = view.attempts_of(id).filter_map(Stored::get).cloned().collect();
        let mut compares = compares(keys, guard);
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
                close_attempts(&mut attempts, &why, self.now);
            }
            unwritten = attempts_until(view, id).map(|shown| shown.revision);
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
            at: self.now,
            last: last.and_then(Result::ok).unwrap_or_default(),
            request: view.requests.get(&id).and_then(Stored::get).cloned(),
            attempts,
            hooks: Vec::new(),
            omitted: 0,
        }
        // the entry's last write is its cancellation
        .withdrawn_by(view.recent.author_of(stored.mod_revision))
        .bounded();
        puts.extend(batch_end(keys, view, id, end.kind()));
        puts.extend(
            outcomes::of(view, id, end.kind(), ending.at).map(|outcome| Put::json(keys.outcome(id.index), &outcome)),
        );
        if !was_finished {
            puts.push(Put::json(keys.history_of(id), &ending));
        }
        let mut ranged = Ranged::from(Change { compares, puts, deletes });
        match unwritten {
            Some(since) if keep_attempts => ranged.unwritten.push((keys.attempts_of(id), since)),
            Some(since) => self.clear_attempts(&mut ranged, id, since),
            None => {}
        }
        Some(Ended { ranged, ending, was_finished })
    }

    /// Sets a repair to `succeeded` or `failed`. Its attempts stay beside it until it is deleted. The health check, or
    /// an operator, has settled an attempt without an outcome, so it gets the outcome "unknown", unless its command may
    /// still run.
    pub fn finish_repair(&self, guard: &Guard, entry: &RepairEntry, end: &End, running: bool) -> (Change, Ending) {
        let (id, now) = (EntryId::repair(entry.index), self.now);
        let (status, settled) = match end {
            End::Failed(_) => (RepairStatus::Failed, "the repair has failed".to_owned()),
            End::DoneBy(order) => (RepairStatus::Succeeded, format!("settled by {}", order.who)),
            End::Healthy
            | End::Cancelled
            | End::NotMember
            | End::Booted
            | End::Replaced
            | End::Deleted
            | End::Released(_)
            | End::Expired => (RepairStatus::Succeeded, "settled by the health check".to_owned()),
        };
        let next = entry.moved_to(status, StepStatus::Waiting, now);
        let (keys, view) = (self.keys, self.view);
        let mut change = Change { compares: compares(keys, guard), ..Change::default() };
        let mut attempts: Vec<Attempt> = Vec::new();
        // The newest attempts come first: the mark on the newest one, that an operator called the machine back, holds
        // for those before it.
        for stored in view.attempts_of(id).rev() {
            let Some(attempt) = stored.get() else { continue };
            let mut closed = vec![attempt.clone()];
            if !running {
                close_attempts(&mut closed, &settled, now);
            }
            mark_done(&mut closed, end);
            if closed.first() != Some(attempt) && change.puts.len() < CLOSE_BATCH {
                change.compares.push((stored.key.clone(), stored.mod_revision));
                change.puts.extend(closed.iter().map(|a| Put::json(stored.key.clone(), a)));
            }
            attempts.append(&mut closed);
        }
        attempts.reverse();
        let ending = Ending {
            entry: id,
            address: entry.address.clone(),
            end: end.kind(),
            outcome: end.outcome(),
            withdrawn_by: None,
            at: now,
            last: serde_json::to_value(&next).unwrap_or_default(),
            request: view.requests.get(&id).and_then(Stored::get).cloned(),
            attempts,
            hooks: Vec::new(),
            omitted: 0,
        }
        .bounded();
        change.puts.push(Put::json(keys.entry(id), &next));
        change.puts.push(Put::json(keys.history_of(id), &ending));
        change.deletes = vec![keys.order(id), keys.progress(id)];
        (change, ending)
    }

    /// Moves the attempts that an ended entry left into its history, which `before` is. `None`: nothing is left, or the
    /// entry exists, so that its orders stay and its attempts are its own.
    pub fn settle(&self, id: EntryId, before: Option<Ending>) -> Option<Ranged> {
        let (keys, view) = (self.keys, self.view);
        if !self.is_left(id) {
            return None;
        }
        let mut attempts: Vec<Attempt> = view.attempts_of(id).filter_map(Stored::get).cloned().collect();
        close_attempts(&mut attempts, "settled after the entry had ended", self.now);
        let mut puts: Vec<Put> = Vec::new();
        if let Some(mut ending) = before {
            ending.attempts = attempts;
            puts.push(Put::json(keys.history_of(id), &ending.bounded()));
        }
        let mut ranged = Ranged::from(Change { compares: Vec::new(), puts, deletes: vec![keys.order(id)] });
        if let Some(shown) = attempts_until(view, id) {
            self.clear_attempts(&mut ranged, id, shown.revision);
        }
        Some(ranged)
    }

    /// Reports whether an entry that is gone has left attempts or an order.
    pub fn is_left(&self, id: EntryId) -> bool {
        let view = self.view;
        let any_attempt = view.attempts_of(id).any(|stored| stored.get().is_some());
        !view.has_entry(id) && (any_attempt || view.orders.contains_key(&id))
    }
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

/// Returns the places of the attempts to be marked as done by an operator. They are the last one that began, which
/// covers all before it; the last of all, in case the entry is put back; and those without an outcome.
fn attempts_to_mark_done(attempts: &[Attempt], open: &[u32]) -> BTreeSet<usize> {
    let began = attempts.iter().rposition(|a| a.began() && !a.success);
    let open = attempts.iter().enumerate().rev().filter(|(_, a)| open.contains(&a.number)).map(|(place, _)| place);
    open.take(CLOSE_BATCH).chain(began).chain(attempts.len().checked_sub(1)).collect()
}

/// Gives attempts without an outcome the outcome "unknown": it cannot be learned any more.
pub fn close_attempts(attempts: &mut [Attempt], why: &str, at: Timestamp) {
    for attempt in attempts.iter_mut().filter(|a| a.open()) {
        let end = CommandEnd::Unknown(why.to_owned());
        attempt.outcome = Some(Outcome { end, at, stdout: String::new(), stderr: String::new() });
    }
}

/// Marks attempts as done by an operator. The Node is uncordoned once it is Ready, whatever its boot id is (REB-49).
fn mark_done(attempts: &mut [Attempt], end: &End) {
    let End::DoneBy(order) = end else { return };
    fault!(DoneForgotten => return);
    for attempt in attempts {
        attempt.done_by = Some(order.who.to_string());
    }
}
