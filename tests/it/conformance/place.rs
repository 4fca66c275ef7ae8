//! The worlds that are asked: real servers, and the sandbox behind loopback ports.

use crate::world::{Etcd, EtcdVersion};

/// Where a case asks.
pub struct Place {
    /// How the report calls it.
    pub name: &'static str,
    /// etcd's client URL.
    pub etcd: String,
    /// What ends when the place does.
    _holds: Holds,
}

#[allow(dead_code)] // held for their end
enum Holds {
    Etcd(Etcd),
}

/// etcd 3.6, the truth, first; then Debian's 3.4.
pub fn etcds() -> Vec<Place> {
    let one = |(name, version)| {
        let etcd = Etcd::start(version)?;
        Some(Place { name, etcd: etcd.url.clone(), _holds: Holds::Etcd(etcd) })
    };
    [("etcd 3.6", EtcdVersion::V36), ("etcd 3.4", EtcdVersion::V34)].into_iter().filter_map(one).collect()
}

/// The sandbox's etcd on a loopback port.
pub fn sandbox_etcd() -> Option<Place> {
    None
}
