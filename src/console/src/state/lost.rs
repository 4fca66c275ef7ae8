//! Sources that are lost: etcd, Kubernetes and sabakan.

use cketerm_model::boot_time::{BootTime, Seconds};
use cketerm_rules::seen::Seen;

/// A source that has been silent for too long, or whose last answer was an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// `etcd`, `Kubernetes` or `sabakan`.
    pub source: &'static str,
    /// Boot time of the last answer. `None` if it never answered.
    pub last_seen: Option<BootTime>,
    /// The last error.
    pub error: Option<String>,
    /// Boot time of the next try. `None` or past = it is being tried now.
    pub retry: Option<BootTime>,
}

/// Silence after which a source counts as stale.
pub const STALE_AFTER: Seconds = Seconds::new(10.0);

/// Returns etcd if it is stale. Nothing is stale before the first complete read: the screen shows "connecting".
pub fn etcd_lost(seen: &Seen, boot: BootTime) -> Option<Lost> {
    let store = &seen.snapshot.store;
    let stale = store.synced && boot - store.last_seen > STALE_AFTER;
    stale.then(|| Lost {
        source: "etcd",
        last_seen: Some(store.last_seen),
        error: store.error.clone(),
        retry: store.watch_health.retry,
    })
}

/// Returns Kubernetes if one of its watches is stale.
pub fn kube_lost(seen: &Seen, boot: BootTime) -> Option<Lost> {
    let sources = seen.snapshot.kube.sources.values().filter(|s| s.synced);
    let oldest = sources.min_by_key(|source| source.last_seen)?;
    (boot - oldest.last_seen > STALE_AFTER).then(|| Lost {
        source: "Kubernetes",
        last_seen: Some(oldest.last_seen),
        error: oldest.error.clone(),
        retry: seen.snapshot.kube.link.retry,
    })
}

/// Returns sabakan if it is configured and its last answer was an error. It is queried too seldom for silence to count.
pub fn sabakan_lost(seen: &Seen) -> Option<Lost> {
    let (store, members) = (&seen.snapshot.store, &seen.snapshot.registry.members);
    store.registry.url.as_ref()?;
    let poll = Seconds::from(store.policy().sabakan_poll_seconds.max(1));
    members.error.as_ref().map(|error| Lost {
        source: "sabakan",
        last_seen: members.good.as_ref().map(|good| good.at),
        error: Some(error.clone()),
        retry: members.at.map(|at| at + poll),
    })
}
