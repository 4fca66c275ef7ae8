//! Snapshot of an engine that only observes, for subcommands that show everything that is known.

use std::{sync::Arc, time::Duration};

use cketerm_engine::backends::Backends;
use cketerm_model::{
    cketerm_records::EngineMode,
    etcd::MemberState,
    kube::CONTROL_PLANE_PODS,
    policy::{EtcdMembers, Membership},
};
use cketerm_rules::{seen::Seen, snapshot::Probe};
use tokio::time::{Instant, timeout_at};

use super::Context;

/// Longest wait until the live copies are complete.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the snapshot of an engine that only observes, once everything has been read. After a timeout it names what
/// is missing.
pub async fn read_complete(backends: &Backends, context: &Context) -> Arc<Seen> {
    read(backends, false, context).await
}

/// Returns the same, and waits until the API servers and etcd's members have answered too, or their time is over.
pub async fn examine(backends: &Backends, context: &Context) -> Arc<Seen> {
    read(backends, true, context).await
}

async fn read(backends: &Backends, examines: bool, context: &Context) -> Arc<Seen> {
    let reader = Backends { repeats_cancels: false, examines, ..backends.clone() };
    let engine = reader.start(EngineMode::Console, false, None);
    let mut seen = engine.seen();
    let deadline = Instant::now() + TIMEOUT;
    let missing_sources = |seen: &Seen| missing(seen, backends.kube.is_some());
    let waits = |seen: &Seen| !missing_sources(seen).is_empty() || examines && unanswered(seen);
    while waits(&seen.borrow()) {
        if !matches!(timeout_at(deadline, seen.changed()).await, Ok(Ok(()))) {
            break;
        }
    }
    let last = Arc::clone(&seen.borrow());
    engine.stop().await;
    for what in missing_sources(&last) {
        context.print_message(&format!("warning: incomplete, not read: {what}"));
    }
    last
}

/// Reports whether an API server or a member of etcd has not been asked yet.
fn unanswered(seen: &Seen) -> bool {
    let snap = &seen.snapshot;
    let Some(definition) = snap.store.definition() else { return false };
    let policy = snap.store.policy();
    let mut planes = definition.members.control_planes(&definition.cluster).peekable();
    if planes.peek().is_none() {
        return false;
    }
    let unasked_members = policy.etcd_members == EtcdMembers::Check
        && snap.etcd.error.is_none()
        && (snap.etcd.members.is_empty()
            || snap.etcd.members.values().any(|member| member.state == MemberState::Unasked));
    let probed = |probe: &Probe| probe.error.is_some() || probe.not_known.is_some() || probe.last_good.is_some();
    let unprobed = planes.any(|plane| !snap.probes.get(&plane.address).is_some_and(probed));
    unasked_members || policy.control_plane_probe.url().is_some() && unprobed
}

/// Returns the sources that have not been read yet.
fn missing(seen: &Seen, with_kubernetes: bool) -> Vec<String> {
    let (snap, mut out) = (&seen.snapshot, Vec::new());
    if !snap.store.synced {
        out.push("etcd".to_owned());
    }
    if with_kubernetes && !(snap.kube.synced() && snap.kube.rights_known && snap.kube.cluster_uid.is_some()) {
        let errors = snap.kube.sources.values().filter_map(|s| s.error.clone());
        out.push(errors.fold("Kubernetes".to_owned(), |text, error| format!("{text}; {error}")));
    }
    if with_kubernetes && snap.kube.sources.get("baremetalhosts").is_none_or(|s| !s.synced && s.error.is_none()) {
        out.push("the BareMetalHosts".to_owned());
    }
    let follows_nodes = snap.store.policy().membership == Membership::Nodes;
    if snap.store.synced && follows_nodes {
        let unread = |source: &&str| snap.kube.sources.get(*source).is_none_or(|s| !s.synced && s.error.is_none());
        out.extend(["endpoints", CONTROL_PLANE_PODS].into_iter().filter(unread).map(|source| format!("the {source}")));
        if snap.registry.proposal.is_none() {
            out.push("the plan of a definition".to_owned());
        }
    } else if snap.store.synced && snap.store.registry.url.is_some() {
        let (registry, settings) = (&snap.registry, &snap.store.registry);
        if registry.members.at.is_none() {
            out.push("sabakan's machines".to_owned());
        } else if registry.members.good.is_some() && settings.template.is_some() && registry.proposal.is_none() {
            out.push("the plan of a definition".to_owned());
        }
    }
    out
}
