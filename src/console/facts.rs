//! Look-ups over what was seen, and the few sums that are made once for each change instead of once a frame.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;

use crate::{
    engine::snapshot::Seen,
    model::{
        cluster::Node,
        entry::{EntryId, QueueKind, Stored},
        kube::NodeRow,
        ours::{Progress, Verb},
        reason::Reason,
        reboot::{RebootEntry, RebootStatus},
    },
    store::view::{Candidate, StoreView},
};

/// Counts of the header, and the entry of each machine.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    of: Option<Arc<StoreView>>,
    /// The first live entry of each machine, by Node name (or address).
    pub by_node: HashMap<String, EntryId>,
    /// Entries in `queued` without a backoff.
    pub queued: usize,
    /// Entries in `queued` whose backoff has not ended.
    pub backoff: usize,
    /// Entries in `draining`.
    pub draining: usize,
    /// Entries in `rebooting`.
    pub rebooting: usize,
    /// Entries that cannot be read.
    pub broken: usize,
    /// Entries and orphaned cordons that need a person.
    pub trouble: usize,
    /// Columns that the longest node name takes.
    pub name_width: usize,
}

impl Facts {
    /// Takes the sums anew; the index by machine only when etcd's copy changed.
    pub fn refresh(&mut self, seen: &Seen) {
        let store = &seen.snapshot.store;
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, store)) || self.by_node.is_empty() {
            self.by_node.clear();
            for (index, stored) in &store.reboots.entries {
                if let Some(entry) = stored.get() {
                    let name = seen.snapshot.machine(&entry.node);
                    self.by_node.entry(name).or_insert(EntryId::reboot(*index));
                }
            }
            self.of = Some(Arc::clone(store));
        }
        (self.queued, self.backoff, self.draining, self.rebooting, self.broken) = (0, 0, 0, 0, 0);
        for stored in store.reboots.entries.values() {
            match stored.get() {
                None => self.broken += 1,
                Some(e)
                    if e.status == RebootStatus::Queued
                        && e.drain_backoff_expire.is_some_and(|t| t > seen.now.wall) =>
                {
                    self.backoff += 1;
                }
                Some(e) => match e.status {
                    RebootStatus::Queued => self.queued += 1,
                    RebootStatus::Draining => self.draining += 1,
                    RebootStatus::Rebooting => self.rebooting += 1,
                    RebootStatus::Cancelled => {}
                },
            }
        }
        self.trouble = seen.orphans.len()
            + seen.reasons.iter().filter(|(id, r)| id.queue == QueueKind::Reboot && own_trouble(r)).count();
        let members = store.definition().into_iter().flat_map(|d| &d.cluster.nodes).map(|n| n.node_name().len());
        self.name_width = members.chain(seen.snapshot.kube.nodes.keys().map(String::len)).max().unwrap_or(0);
    }
}

/// Needs a person at this entry: also when its last drain was held up and it is tried again by itself. What holds the whole queue (no engine, stale sources) is said once, in the header.
pub fn own_trouble(reason: &Reason) -> bool {
    match reason {
        Reason::EngineObserving { .. } | Reason::NoEngine { .. } | Reason::Stale { .. } => false,
        Reason::Backoff { cause, .. } => cause.is_some(),
        other => other.needs_attention(),
    }
}

/// An entry of the reboot queue as it lies in etcd.
pub fn stored(seen: &Seen, id: EntryId) -> Option<&Stored<RebootEntry>> {
    match id.queue {
        QueueKind::Reboot => seen.snapshot.store.reboots.entries.get(&id.index),
        QueueKind::Repair => None,
    }
}

/// A readable entry of the reboot queue.
pub fn entry(seen: &Seen, id: EntryId) -> Option<&RebootEntry> {
    stored(seen, id).and_then(Stored::get)
}

/// The member of the definition behind a Node's name.
pub fn member<'a>(seen: &'a Seen, node: &str) -> Option<&'a Node> {
    let definition = seen.snapshot.store.definition()?;
    definition.members.by_name(&definition.cluster, node)
}

/// The Kubernetes Node of that name.
pub fn node<'a>(seen: &'a Seen, name: &str) -> Option<&'a Arc<NodeRow>> {
    seen.snapshot.kube.nodes.get(name)
}

/// Whether a Node runs an API server: the definition says, or without one the Node's role.
pub fn is_api_server(seen: &Seen, name: &str) -> bool {
    match (seen.snapshot.store.definition(), member(seen, name)) {
        (Some(_), member) => member.is_some_and(|m| m.control_plane),
        _ => node(seen, name).is_some_and(|n| n.shown_labels.iter().any(|(k, _)| k.ends_with("/control-plane"))),
    }
}

/// `api` for an API server, else the node's role label, else `worker`.
pub fn role(seen: &Seen, name: &str) -> String {
    if is_api_server(seen, name) {
        return "api".to_owned();
    }
    let labels = || node(seen, name).into_iter().flat_map(|n| &n.shown_labels);
    let by_value = labels().find(|(k, v)| k.ends_with("/role") && !v.is_empty()).map(|(_, v)| v.clone());
    let by_key = || labels().find_map(|(k, _)| k.strip_prefix("node-role.kubernetes.io/").map(str::to_owned));
    by_value.or_else(by_key).unwrap_or_else(|| "worker".to_owned())
}

/// The rack, or the zone where no rack is told; empty without either.
pub fn rack(seen: &Seen, name: &str) -> String {
    let own = node(seen, name).into_iter().flat_map(|n| &n.shown_labels).map(|(k, v)| (k.as_str(), v.as_str()));
    let defined = member(seen, name).and_then(|m| m.labels.as_ref()).into_iter().flatten();
    let mut labels: Vec<(&str, &str)> = own.chain(defined.map(|(k, v)| (k.as_str(), v.as_str()))).collect();
    labels.sort_by_key(|(k, _)| !k.ends_with("/rack"));
    let hit = labels.iter().find(|(k, _)| k.ends_with("/rack") || k.ends_with("/zone"));
    hit.map(|(_, v)| (*v).to_owned()).unwrap_or_default()
}

/// The address that names a Node in the queue: the definition's, else the Node's first IP address.
pub fn address(seen: &Seen, name: &str) -> Option<String> {
    let defined = member(seen, name).map(|m| m.address.clone());
    defined.or_else(|| {
        let row = node(seen, name)?;
        row.addresses.iter().find(|a| a.parse::<std::net::IpAddr>().is_ok()).cloned()
    })
}

/// What the leader published about an entry.
pub fn progress(seen: &Seen, id: EntryId) -> Option<&Progress> {
    seen.snapshot.store.progress.get(&id).and_then(Stored::get)
}

/// Since when an entry stands where it stands: its transition, else its request.
pub fn since(seen: &Seen, id: EntryId) -> Option<Timestamp> {
    let asked = || seen.snapshot.store.requests.get(&id).and_then(Stored::get).map(|r| r.at);
    entry(seen, id)?.last_transition_time.or_else(asked)
}

/// An order that was given and not yet taken up.
pub fn order(seen: &Seen, id: EntryId) -> Option<Verb> {
    seen.snapshot.store.orders.get(&id).and_then(Stored::get).map(|o| o.verb)
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This program.
    Us,
    /// Another cketerm on that host.
    Other(String),
    /// CKE on that host.
    Cke(String),
    /// Nobody.
    Nobody,
}

/// Who leads.
pub fn leader(seen: &Seen) -> Leader {
    let store = &seen.snapshot.store;
    let ours = |c: &Candidate| seen.snapshot.engine.leading.as_ref().is_some_and(|l| l.key == c.key);
    match store.leader() {
        None => Leader::Nobody,
        Some(c) if ours(c) => Leader::Us,
        Some(c) if store.is_cke(c) => Leader::Cke(c.host.clone()),
        Some(c) => Leader::Other(c.host.clone()),
    }
}

/// A source that has not been heard for too long.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// `etcd` or `Kubernetes`.
    pub source: &'static str,
    /// Boot-time seconds of the last sign of life.
    pub heard: f64,
    /// What went wrong last.
    pub error: Option<String>,
}

/// Seconds of silence above which a source counts as stale.
pub const STALE_SECONDS: f64 = 10.0;

/// etcd, when it is stale. Before the first complete read nothing is stale: the screen says "connecting".
pub fn etcd_lost(seen: &Seen, boot: f64) -> Option<Lost> {
    let store = &seen.snapshot.store;
    let stale = store.synced && boot - store.heard > STALE_SECONDS;
    stale.then(|| Lost { source: "etcd", heard: store.heard, error: store.error.clone() })
}

/// Kubernetes, when its nodes are stale.
pub fn kube_lost(seen: &Seen, boot: f64) -> Option<Lost> {
    let sources = seen.snapshot.kube.sources.values().filter(|s| s.synced);
    let oldest = sources.min_by(|a, b| a.heard.total_cmp(&b.heard))?;
    (boot - oldest.heard > STALE_SECONDS).then(|| Lost {
        source: "Kubernetes",
        heard: oldest.heard,
        error: oldest.error.clone(),
    })
}
