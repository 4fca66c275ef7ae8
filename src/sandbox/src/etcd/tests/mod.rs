//! The sandbox's etcd as a client sees it. The expected values were observed on real etcd 3.4 and 3.6.

mod accounts;
mod etcdctl;
mod kv;
mod lease;
mod store;
mod txn;
mod watch;

use etcd_client::{Client, Error};
use tokio::time::Instant;

use super::*;

/// Returns an empty etcd and a client of it.
fn etcd() -> (Etcd, Client) {
    let etcd = Etcd::new(cketerm_runtime::tokio_clock::starting_at(jiff::Timestamp::UNIX_EPOCH));
    let client = etcd.client();
    (etcd, client)
}

/// Returns why a request was refused: the name of the code, and the message without `etcdserver: `.
fn outcome<T>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::GRpcStatus(status)) => {
            format!("{:?}: {}", status.code(), status.message().trim_start_matches("etcdserver: "))
        }
        Err(other) => format!("{other:?}"),
        Ok(_) => "it was carried out".to_owned(),
    }
}
