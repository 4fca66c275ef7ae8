//! Settings of the `reboot` and `repair` sections for one piece of work: treatment of pods, commands, their bounds and
//! their number of tries (CLU-16 to CLU-23).

use super::{Cluster, Operation, Reboot, Repair, Step};
use crate::{entry::QueueKind, selector::Selector};

/// Default bound of a repair's commands in seconds.
const REPAIR_COMMAND: i64 = 30;

/// Rules of a drain: treatment of pods, and deadline.
#[derive(Clone, Copy, Debug)]
pub struct Eviction<'a> {
    /// Namespaces whose pods are never deleted; none = all.
    pub protected_namespaces: Option<&'a Selector>,
    /// Running pods of Jobs that hold the drain back; none = all.
    pub protected_job_pods: Option<&'a Selector>,
    /// Maximum number of refused previews or refused first rounds of evictions: 1 + retries.
    pub tries: u32,
    /// Seconds between them.
    pub interval: i64,
    /// Deadline of one drain in seconds.
    pub timeout: i64,
}

impl Cluster {
    /// Returns the rules for drains of one kind. A maintenance has those of reboots.
    pub fn eviction(&self, queue: QueueKind) -> Eviction<'_> {
        match queue {
            QueueKind::Reboot | QueueKind::Maintenance => self.reboot.eviction(),
            QueueKind::Repair => self.repair.eviction(),
        }
    }
}

impl Reboot {
    /// Returns the rules for drains of reboots.
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
    /// Returns the rules for drains of repairs.
    pub fn eviction(&self) -> Eviction<'_> {
        Eviction {
            protected_namespaces: self.protected_namespaces.as_ref(),
            protected_job_pods: self.protected_job_pods.as_ref(),
            tries: tries(self.evict_retries),
            interval: self.evict_interval.unwrap_or(0),
            timeout: self.eviction_timeout_seconds.unwrap_or(600),
        }
    }

    /// Returns the maximum number of machines in repair at once.
    pub fn concurrency(&self) -> i64 {
        self.max_concurrent_repairs.unwrap_or(1)
    }
}

impl Operation {
    /// Returns the bound of the health check in seconds; `cap` is the policy's bound for commands without a timeout.
    pub fn health_bound(&self, cap: u64) -> u64 {
        bound(self.command_timeout_seconds, cap)
    }

    /// Returns the bound of the success command in seconds.
    pub fn success_bound(&self, cap: u64) -> u64 {
        bound(self.success_command_timeout, cap)
    }
}

impl Step {
    /// Returns the number of tries of the repair command: 1 + retries.
    pub fn tries(&self) -> u32 {
        tries(self.command_retries)
    }

    /// Returns the bound of the repair command in seconds; `cap` is the policy's bound for commands without a timeout.
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
