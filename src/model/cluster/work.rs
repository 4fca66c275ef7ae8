//! What the `reboot` and `repair` sections say about one piece of work: how its drain treats pods, what its commands are
//! and how long and how often they run (spec/reboot.md, spec/repair.md).

use super::{Cluster, Operation, Reboot, Repair, Step};
use crate::model::{entry::QueueKind, selector::Selector};

/// Seconds that a command of a repair may run where nothing is said.
const REPAIR_COMMAND: i64 = 30;

/// How a drain of either queue treats pods, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Eviction<'a> {
    /// Namespaces whose pods are never deleted; none = all.
    pub protected_namespaces: Option<&'a Selector>,
    /// Running Job-managed pods that hold the drain back; none = all.
    pub protected_job_pods: Option<&'a Selector>,
    /// Previews or first rounds of evictions that may be refused: 1 + retries.
    pub tries: u32,
    /// Seconds between them.
    pub interval: i64,
    /// Deadline of one drain in seconds.
    pub timeout: i64,
}

impl Cluster {
    /// The drains of one queue.
    pub fn eviction(&self, queue: QueueKind) -> Eviction<'_> {
        match queue {
            QueueKind::Reboot => self.reboot.eviction(),
            QueueKind::Repair => self.repair.eviction(),
        }
    }
}

impl Reboot {
    /// How reboots drain.
    pub fn eviction(&self) -> Eviction<'_> {
        Eviction {
            protected_namespaces: self.protected_namespaces.as_ref(),
            protected_job_pods: self.protected_job_pods.as_ref(),
            tries: tries(self.evict_retries),
            interval: self.evict_interval.unwrap_or(0),
            timeout: self.eviction_timeout(),
        }
    }
}

impl Repair {
    /// How repairs drain.
    pub fn eviction(&self) -> Eviction<'_> {
        Eviction {
            protected_namespaces: self.protected_namespaces.as_ref(),
            protected_job_pods: self.protected_job_pods.as_ref(),
            tries: tries(self.evict_retries),
            interval: self.evict_interval.unwrap_or(0),
            timeout: self.eviction_timeout_seconds.unwrap_or(600),
        }
    }

    /// How many machines may be in repair at once.
    pub fn concurrency(&self) -> i64 {
        self.max_concurrent_repairs.unwrap_or(1)
    }
}

impl Operation {
    /// Seconds that the health check may run, under the policy's cap where none is set.
    pub fn health_bound(&self, cap: u64) -> u64 {
        bound(self.command_timeout_seconds, cap)
    }

    /// Seconds that the success command may run.
    pub fn success_bound(&self, cap: u64) -> u64 {
        bound(self.success_command_timeout, cap)
    }
}

impl Step {
    /// Tries of the repair command: 1 + retries.
    pub fn tries(&self) -> u32 {
        tries(self.command_retries)
    }

    /// Seconds that the repair command may run, under the policy's cap where none is set.
    pub fn command_bound(&self, cap: u64) -> u64 {
        bound(self.command_timeout_seconds, cap)
    }
}

fn tries(retries: Option<i64>) -> u32 {
    u32::try_from(retries.unwrap_or(0)).unwrap_or(0).saturating_add(1)
}

fn bound(seconds: Option<i64>, cap: u64) -> u64 {
    match seconds.unwrap_or(REPAIR_COMMAND) {
        n if n > 0 => n.unsigned_abs(),
        _ => cap,
    }
}
