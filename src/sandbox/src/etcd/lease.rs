//! Leases: granted time, deadline and attached keys.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tokio::time::{Duration, Instant};

use super::RpcError;

/// Shortest TTL in seconds: one and a half times the longest election, rounded to whole seconds.
const MIN_TTL: i64 = 2;
/// Longest TTL in seconds that etcd grants.
const MAX_TTL: i64 = 9_000_000_000;
/// Start of the generated ids, which are as long as etcd's.
const FIRST_ID: i64 = 0x694d_6b3a_5c10_a000;

/// One lease.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Granted TTL in seconds.
    pub ttl: i64,
    /// Deadline; `None` if it is beyond the range of [`Instant`].
    pub deadline: Option<Instant>,
    /// Keys that are deleted with the lease.
    pub keys: BTreeSet<Bytes>,
}

impl Lease {
    /// Returns the remaining time in whole seconds.
    pub fn remaining_seconds(&self) -> i64 {
        self.deadline.map_or(self.ttl, |d| {
            i64::try_from(d.saturating_duration_since(Instant::now()).as_secs()).unwrap_or(i64::MAX)
        })
    }
}

/// All leases.
#[derive(Debug, Default)]
pub struct Leases {
    all: BTreeMap<i64, Lease>,
    ids_issued: i64,
}

impl Leases {
    /// Grants a lease. Generates an id if `id` is 0. Returns the id and the granted seconds.
    pub fn grant(&mut self, id: i64, ttl: i64) -> Result<(i64, i64), RpcError> {
        if ttl > MAX_TTL {
            return Err(RpcError::LeaseTooLong);
        }
        let mut id = id;
        if id == 0 {
            self.ids_issued += 1;
            while self.all.contains_key(&(FIRST_ID + self.ids_issued)) {
                self.ids_issued += 1;
            }
            id = FIRST_ID + self.ids_issued;
        }
        if self.all.contains_key(&id) {
            return Err(RpcError::LeaseExists);
        }
        let ttl = ttl.max(MIN_TTL);
        self.all.insert(id, Lease { ttl, deadline: deadline_after(ttl), keys: BTreeSet::new() });
        Ok((id, ttl))
    }

    /// Renews a lease and returns its TTL in seconds. Returns `None` for an unknown lease, and for an expired one, even
    /// if it has not been removed yet.
    pub fn keep_alive(&mut self, id: i64) -> Option<i64> {
        let now = Instant::now();
        let lease = self.all.get_mut(&id).filter(|lease| lease.deadline.is_none_or(|d| d > now))?;
        lease.deadline = deadline_after(lease.ttl);
        Some(lease.ttl)
    }

    /// Returns a lease.
    pub fn get(&self, id: i64) -> Option<&Lease> {
        self.all.get(&id)
    }

    /// Returns all leases by id.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Lease)> {
        self.all.iter().map(|(id, lease)| (*id, lease))
    }

    /// Removes a lease and returns it with the list of its keys.
    pub fn take(&mut self, id: i64) -> Option<Lease> {
        self.all.remove(&id)
    }

    /// Moves a key from the lease that it is attached to (0: none) to another lease.
    pub fn attach(&mut self, key: &Bytes, from: i64, to: i64) {
        if let Some(lease) = self.all.get_mut(&from) {
            lease.keys.remove(key);
        }
        if let Some(lease) = self.all.get_mut(&to) {
            lease.keys.insert(key.clone());
        }
    }

    /// Returns the earliest deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.all.values().filter_map(|lease| lease.deadline).min()
    }

    /// Returns the expired leases, earliest deadline first.
    pub fn expired_leases(&self, now: Instant) -> Vec<i64> {
        let mut out: Vec<(Instant, i64)> =
            self.all.iter().filter_map(|(id, l)| l.deadline.filter(|d| *d <= now).map(|d| (d, *id))).collect();
        out.sort_unstable();
        out.into_iter().map(|(_, id)| id).collect()
    }
}

fn deadline_after(ttl: i64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(ttl.unsigned_abs()))
}
