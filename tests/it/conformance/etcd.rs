//! Questions to an etcd.

mod auth;
mod election;
mod etcdctl;
mod kv;
mod lease;
mod talk;
mod txn;
mod watch;
mod watch_streams;

use super::Case;

/// All of them, in the order they are asked: one at a time, for revisions are counted.
pub fn cases() -> Vec<Case> {
    let ctl = if etcdctl::is_there() { etcdctl::cases() } else { Vec::new() };
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
