//! Cases for etcd.

mod auth;
mod election;
mod etcdctl;
mod kv;
mod lease;
mod session;
mod txn;
mod watch;
mod watch_streams;

use super::Case;

/// All cases in the order in which they run: one at a time, because they count revisions.
pub fn cases() -> Vec<Case> {
    let ctl = if etcdctl::is_installed() { etcdctl::cases() } else { Vec::new() };
    if ctl.is_empty() {
        crate::world::skipped::<()>("etcdctl is missing (Debian: etcd-client)");
    }
    [
        kv::cases(),
        txn::cases(),
        watch::cases(),
        watch_streams::cases(),
        lease::cases(),
        election::cases(),
        ctl,
        auth::cases(),
    ]
    .concat()
}
