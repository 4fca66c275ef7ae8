//! Parts of etcd's copy that an estimate uses. Progress, output and audit records change several times a second while
//! commands run, and no estimate reads them.

use std::sync::Arc;

use cketerm_model::{entry::Stored, stored::view::StoreView};

/// Reports whether two copies are the same to an estimate. It compares pointers and revisions, so it costs the same for
/// every length of the queues.
pub fn are_same(one: &Arc<StoreView>, other: &Arc<StoreView>) -> bool {
    Arc::ptr_eq(one, other)
        || one.reboots.entries.ptr_eq(&other.reboots.entries)
            && one.repairs.entries.ptr_eq(&other.repairs.entries)
            && one.requests.ptr_eq(&other.requests)
            && one.attempts.ptr_eq(&other.attempts)
            && one.orders.ptr_eq(&other.orders)
            && one.batches.ptr_eq(&other.batches)
            && one.candidates.ptr_eq(&other.candidates)
            && one.engines.ptr_eq(&other.engines)
            && one.reboots.switch == other.reboots.switch
            && one.repairs.switch == other.repairs.switch
            && revision(one.cluster.as_ref()) == revision(other.cluster.as_ref())
            && revision(one.constraints.as_ref()) == revision(other.constraints.as_ref())
            && revision(one.our_constraints.as_ref()) == revision(other.our_constraints.as_ref())
            && revision(one.policy.as_ref()) == revision(other.policy.as_ref())
            && revision(one.stopped.as_ref()) == revision(other.stopped.as_ref())
}

fn revision<T>(stored: Option<&Stored<T>>) -> Option<i64> {
    stored.map(|stored| stored.mod_revision)
}
