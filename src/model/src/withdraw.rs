//! Withdrawal of an entry by an operator, as both queues have it: a reboot is cancelled, a repair is deleted. It is a
//! mark in the entry, which the leader obeys and removes together with the entry.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cketerm_records::EndKind,
    entry::QueueKind,
    names::Address,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus},
};

/// Entry of a queue that an operator can withdraw.
pub trait Withdraw: Clone + DeserializeOwned + Serialize {
    /// The queue.
    const QUEUE: QueueKind;

    /// Returns the index.
    fn index(&self) -> u64;

    /// Returns the machine's address.
    fn address(&self) -> &Address;

    /// Reports whether it is withdrawn.
    fn is_withdrawn(&self) -> bool;

    /// Returns the entry as `ckecli` withdraws it: nothing but the mark changes.
    #[must_use]
    fn withdrawn(&self) -> Self;

    /// Describes its withdrawal for the audit: `cancelled 10.0.0.11 (queued)`.
    fn withdrawal(&self) -> String;

    /// Returns its end, if it is withdrawn now and then removed.
    fn end(&self) -> EndKind;
}

impl Withdraw for RebootEntry {
    const QUEUE: QueueKind = QueueKind::Reboot;

    fn index(&self) -> u64 {
        self.index
    }

    fn address(&self) -> &Address {
        &self.node
    }

    fn is_withdrawn(&self) -> bool {
        self.status == RebootStatus::Cancelled
    }

    fn withdrawn(&self) -> Self {
        Self { status: RebootStatus::Cancelled, ..self.clone() }
    }

    fn withdrawal(&self) -> String {
        format!("cancelled {} ({})", self.node, self.status)
    }

    fn end(&self) -> EndKind {
        EndKind::Cancelled
    }
}

impl Withdraw for RepairEntry {
    const QUEUE: QueueKind = QueueKind::Repair;

    fn index(&self) -> u64 {
        self.index
    }

    fn address(&self) -> &Address {
        &self.address
    }

    fn is_withdrawn(&self) -> bool {
        self.deleted
    }

    fn withdrawn(&self) -> Self {
        Self { deleted: true, ..self.clone() }
    }

    fn withdrawal(&self) -> String {
        format!("deleted {} ({} {})", self.address, self.operation, self.status)
    }

    fn end(&self) -> EndKind {
        match self.status {
            RepairStatus::Succeeded => EndKind::Succeeded,
            RepairStatus::Failed => EndKind::Failed,
            RepairStatus::Queued | RepairStatus::Processing => EndKind::Deleted,
        }
    }
}
