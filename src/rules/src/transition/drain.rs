//! A drain starts, backs off or is unwound; a maintenance begins.

use cketerm_model::{
    any::QueueEntry,
    attempt::Attempt,
    cketerm_records::{Request, Who},
    entry::Stored,
    hook_runs::HookRuns,
    stored::transaction::{Change, Put, Ranged},
};

use super::{Transition, attempts_until, compares, newest};
use crate::decide::{Guard, backoff_seconds};

/// A backoff.
#[derive(Clone, Debug)]
pub struct BackedOff {
    /// The transaction.
    pub change: Change,
    /// Number of backoffs of the entry, this one included.
    pub count: i64,
    /// Seconds until the next try.
    pub wait: i64,
}

/// A drain that is taken back.
#[derive(Clone, Debug)]
pub struct Unwound {
    /// The transaction.
    pub ranged: Ranged,
    /// State of the entry, for the audit record.
    pub result: String,
}

impl Transition<'_> {
    /// Moves the entry to `draining`. The Node's UID is recorded if none was recorded when the entry was added: in etcd,
    /// because an annotation would disappear with the Node that it identifies.
    pub fn start_drain(
        &self,
        guard: &Guard,
        entry: &QueueEntry,
        node_uid: Option<String>,
        hooks: Option<&HookRuns>,
    ) -> Change {
        let (id, keys, now) = (entry.id(), self.keys, self.now);
        let mut change = Change {
            compares: compares(keys, guard),
            puts: vec![Put::json(keys.entry(id), &entry.draining(now))],
            deletes: Vec::new(),
        };
        let stored = self.view.requests.get(&id);
        let request = stored.and_then(Stored::get);
        if request.is_none_or(|r| r.node_uid.is_none()) && node_uid.is_some() {
            let who = Who { user: "via ckecli".to_owned(), ..Who::default() };
            let unknown = Request { who, at: now, reason: None, node_uid: None, batch: None };
            let noted = Request { node_uid, ..request.cloned().unwrap_or(unknown) };
            change.compares.push((keys.request(id), stored.map_or(0, |s| s.mod_revision)));
            change.puts.push(Put::json(keys.request(id), &noted));
        }
        if let Some(record) = hooks {
            // A record of an earlier drain gives way.
            let known = self.view.hooks.get(&id).map_or(0, |stored| stored.mod_revision);
            change.compares.push((keys.hooks(id), known));
            change.puts.push(Put::json(keys.hooks(id), &HookRuns { since: now, ..record.clone() }));
        }
        change
    }

    /// Moves the entry from `draining` back into the queue, with a higher backoff count and the time of the next try
    /// (REB-46). `seed` is that of the leadership's jitter.
    pub fn back_off(&self, guard: &Guard, entry: &QueueEntry, seed: u64) -> BackedOff {
        let (id, keys) = (entry.id(), self.keys);
        let count = entry.backoff_count().saturating_add(1);
        let wait = backoff_seconds(id.queue, count, jitter(seed, id.index, count));
        let change = Change {
            compares: compares(keys, guard),
            puts: vec![Put::json(keys.entry(id), &entry.backed_off(count, wait, self.now))],
            deletes: vec![keys.progress(id)],
        };
        BackedOff { change, count, wait }
    }

    /// Moves the entry back into the queue with unchanged count and backoff (I8, REB-47). Its window has ended, a freeze
    /// has begun, or it is on hold. Attempts that never began are deleted.
    pub fn unwind(&self, guard: &Guard, entry: &QueueEntry, never_began: &[Stored<Attempt>]) -> Unwound {
        let (id, keys) = (entry.id(), self.keys);
        // The last attempt gives the reason. There may be as many attempts as there were tries.
        let last =
            never_began.last().and_then(Stored::get).and_then(|a| a.outcome.as_ref().map(|o| (a.number, &o.end)));
        let ends = last.map_or_else(String::new, |(number, end)| format!("; attempt {number} never started: {end}"));
        let mut change = Change {
            compares: compares(keys, guard),
            puts: vec![Put::json(keys.entry(id), &entry.unwound(self.now))],
            deletes: vec![keys.progress(id)],
        };
        // An order for this revision of the entry, such as `done` or `retry`, is honoured first (I28).
        let order = self.view.orders.get(&id).map_or(0, |stored| stored.mod_revision);
        change.compares.push((keys.order(id), order));
        let mut ranged = Ranged::from(change);
        if let Some(known) = newest(never_began) {
            // An attempt written after the decision is not one of those that never began.
            let shown = attempts_until(self.view, id);
            let since = shown.filter(|shown| shown.newest == known).map_or(known, |shown| shown.revision);
            self.clear_attempts(&mut ranged, id, since);
        }
        Unwound { ranged, result: format!("queued again{ends}") }
    }

    /// Moves a maintenance from `draining` to `in-maintenance`: its Node is empty and stays cordoned.
    pub fn begin_maintenance(&self, guard: &Guard, entry: &QueueEntry) -> Change {
        let (id, keys) = (entry.id(), self.keys);
        Change {
            compares: compares(keys, guard),
            puts: vec![Put::json(keys.entry(id), &entry.commanded(self.now))],
            deletes: vec![keys.progress(id)],
        }
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
