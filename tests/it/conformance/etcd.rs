//! Questions to an etcd.

mod auth;
mod election;
mod kv;
mod lease;
mod talk;
mod txn;
mod watch;
mod watch_streams;

use super::Case;

/// All of them, in the order they are asked: one at a time, for revisions are counted.
pub fn cases() -> Vec<Case> {
    [
        kv::cases(),
        txn::cases(),
        watch::cases(),
        watch_streams::cases(),
        lease::cases(),
        election::cases(),
        auth::cases(),
    ]
    .concat()
}
