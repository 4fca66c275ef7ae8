//! Leases: what is granted, when it runs out, and which keys are attached.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tokio::time::{Duration, Instant};

use super::Refusal;

/// The shortest one: one and a half times the longest election, in whole seconds.
const SHORTEST: i64 = 2;
/// The longest one that etcd grants.
const LONGEST: i64 = 9_000_000_000;
/// Where generated ids begin; theirs are as long.
const FIRST_ID: i64 = 0x694d_6b3a_5c10_a000;

/// One lease.
#[derive(Clone, Debug)]
pub struct Lease {
    /// What was granted, in seconds.
    pub ttl: i64,
    /// When it runs out; nothing when that is beyond all time.
    pub deadline: Option<Instant>,
    /// What goes with it.
    pub keys: BTreeSet<Bytes>,
}

impl Lease {
    /// Whole seconds that are left.
    pub fn left(&self) -> i64 {
        self.deadline.map_or(self.ttl, |d| {
            i64::try_from(d.saturating_duration_since(Instant::now()).as_secs()).unwrap_or(i64::MAX)
        })
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Leases {
    all: BTreeMap<i64, Lease>,
    given: i64,
}

impl Leases {
    /// Grants one; an id of 0 has one generated. Returns the id and the seconds granted.
    pub fn grant(&mut self, id: i64, ttl: i64) -> Result<(i64, i64), Refusal> {
        if ttl > LONGEST {
            return Err(Refusal::LeaseTooLong);
        }
        let mut id = id;
        if id == 0 {
            self.given += 1;
            while self.all.contains_key(&(FIRST_ID + self.given)) {
                self.given += 1;
            }
            id = FIRST_ID + self.given;
        }
        if self.all.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        let ttl = ttl.max(SHORTEST);
        self.all.insert(id, Lease { ttl, deadline: after(ttl), keys: BTreeSet::new() });
        Ok((id, ttl))
    }

    /// Begins its time anew. Returns the seconds, or nothing for an unknown one; one that has run out stays so, even
    /// if nobody came to take it away yet.
    pub fn keep_alive(&mut self, id: i64) -> Option<i64> {
        let now = Instant::now();
        let lease = self.all.get_mut(&id).filter(|lease| lease.deadline.is_none_or(|d| d > now))?;
        lease.deadline = after(lease.ttl);
        Some(lease.ttl)
    }

    /// One of them.
    pub fn get(&self, id: i64) -> Option<&Lease> {
        self.all.get(&id)
    }

    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Lease)> {
        self.all.iter().map(|(id, lease)| (*id, lease))
    }

    /// Takes it away with the list of its keys.
    pub fn take(&mut self, id: i64) -> Option<Lease> {
        self.all.remove(&id)
    }

    /// Moves a key from the lease it is attached to (0: none) to another one.
    pub fn attach(&mut self, key: &Bytes, from: i64, to: i64) {
        if let Some(lease) = self.all.get_mut(&from) {
            lease.keys.remove(key);
        }
        if let Some(lease) = self.all.get_mut(&to) {
            lease.keys.insert(key.clone());
        }
    }

    /// When the next one runs out.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.all.values().filter_map(|lease| lease.deadline).min()
    }

    /// Which have run out, the first of them first.
    pub fn run_out(&self, now: Instant) -> Vec<i64> {
        let mut out: Vec<(Instant, i64)> =
            self.all.iter().filter_map(|(id, l)| l.deadline.filter(|d| *d <= now).map(|d| (d, *id))).collect();
        out.sort_unstable();
        out.into_iter().map(|(_, id)| id).collect()
    }
}

fn after(ttl: i64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(ttl.unsigned_abs()))
}
