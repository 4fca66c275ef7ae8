//! Gates that stop new starts and nothing else. Ends, backoff, cancel, dequeue and uncordon always proceed (I6, I7).

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    fault,
    kube::{HOSTS_SOURCE, NodePods},
    maintenance_request::MAINTENANCE_REQUESTS_SOURCE,
    names::{Address, NodeName},
    policy::{Membership, UnreachableRule},
    reason::{MAX_NAMES, Reason},
    stored::view::migrates,
    time::{after, seconds_between},
};
use cketerm_sabakan::change::Missing;

use super::{Pass, entry_context::EntryContext};
use crate::{handover::remedy_without_leader, limits::unreachable_limit, preflight_fault::PreflightFault};

/// Maximum age of a copy from which new work starts (SAF-21).
const STALE: Seconds = Seconds::new(10.0);

impl Pass<'_> {
    /// Returns the reason why this engine may start nothing. `None` also while another cketerm leads and decides.
    ///
    /// A leader is barred by `resigning`, a preflight fault (`observing`) or a host that can run no program (`unable`).
    /// Without a leader, the reason is a preflight fault, or a candidate that defers to another one (`standing_back`).
    pub(super) fn leadership_blocker(&self) -> Option<Reason> {
        let engine = &self.snap.engine;
        if self.leading() {
            // A preflight that fails in mid-work is no cause to resign, but nothing new starts (SAF-4).
            return self.leader_fault().map(|why| Reason::EngineObserving { why });
        }
        let store = &self.snap.store;
        match store.leader() {
            Some(leader) if store.is_cke(leader) => {
                Some(Reason::EngineElsewhere { holder: format!("CKE on {}", leader.host) })
            }
            // Another cketerm leads and publishes its reasons, which this engine shows. A leader that has just won may
            // still be unable to decide.
            Some(leader) => {
                let ours = engine.migrating.as_deref().filter(|_| engine.lease == leader.lease);
                let why = ours.map(|why| migrates(&leader.host, why)).or_else(|| store.migrates(leader));
                why.map(|why| Reason::EngineObserving { why })
            }
            None if !engine.observing.is_empty() => {
                Some(Reason::EngineObserving { why: PreflightFault::joined(&engine.observing) })
            }
            None => {
                // A candidate that defers to a complete engine campaigns later by itself. The operator need not start
                // another one.
                let candidate = engine.standing_back.as_deref().or_else(|| store.standing_back());
                let why = candidate.unwrap_or_else(|| remedy_without_leader(store));
                Some(Reason::NoEngine { why: why.to_owned() })
            }
        }
    }

    /// Returns a reason if the copy of etcd or Kubernetes is older than 10 s. Each source counts by its own connection
    /// (SAF-21). Side effect: requests through `needs_proof` that each watch of Kubernetes proves its connection.
    pub(super) fn stale(&self) -> Option<Reason> {
        self.stale_sources(true)
    }

    /// Returns the same for one entry. A machine outside the cluster does not wait for Kubernetes.
    pub(super) fn stale_for(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        self.stale_sources(ctx.member.is_some())
    }

    fn stale_sources(&self, kubernetes: bool) -> Option<Reason> {
        let leading_since = self.leading_since()?;
        if !self.etcd_copy_is_fresh() {
            return Some(self.stale_since("etcd", self.etcd_last_seen(), self.snap.store.error.as_ref()));
        }
        if !kubernetes {
            return None;
        }
        self.needs_proof.set(true);
        if self.kube_read_just_now() {
            return None;
        }
        let sources = &self.snap.kube.sources;
        if !self.kube_synced {
            // Custom resources do not count: many clusters do not have them.
            let custom = [HOSTS_SOURCE, MAINTENANCE_REQUESTS_SOURCE];
            let mut watched_sources = sources.iter().filter(|(name, _)| !custom.contains(&name.as_str()));
            let error = watched_sources.find_map(|(_, s)| s.error.as_ref());
            // With the start of the leadership as `since`, the reason is the same in every pass.
            return Some(self.stale_since("kubernetes", leading_since, error));
        }
        let (name, oldest) = ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"]
            .into_iter()
            .filter_map(|name| Some((name, sources.get(name)?)))
            .min_by_key(|(_, source)| source.fresh_as_of)?;
        let late = self.monotonic_now() - oldest.fresh_as_of > STALE;
        late.then(|| self.stale_since(name, oldest.fresh_as_of, oldest.error.as_ref()))
    }

    /// Reports whether the copy of etcd is fresh enough to start work.
    pub(super) fn etcd_copy_is_fresh(&self) -> bool {
        self.monotonic_now() - self.etcd_last_seen() <= STALE
    }

    /// Returns a reason if the copy of a drained node's pods is older than 10 s.
    pub(super) fn stale_pods(&self, node: &NodeName, pods: &NodePods) -> Option<Reason> {
        let error = self.snap.kube.sources.get("pods").and_then(|s| s.error.as_ref());
        let source = || format!("pods on {node}");
        (self.monotonic_now() - pods.fresh_as_of > STALE).then(|| self.stale_since(&source(), pods.fresh_as_of, error))
    }

    /// Returns the reason of a drain whose node's pods are not listed yet.
    pub(super) fn pods_not_listed(&self, ctx: EntryContext<'_>, node: &NodeName) -> Reason {
        let Some(error) = self.snap.kube.sources.get("pods").and_then(|s| s.error.as_ref()) else {
            return Reason::Working { phase: "listing pods".to_owned() };
        };
        let drain_seconds = seconds_between(ctx.since.unwrap_or(self.now.wall), self.now.wall);
        self.stale_since(&format!("pods on {node}"), self.monotonic_now() - drain_seconds, Some(error))
    }

    fn stale_since(&self, source: &str, last_seen: BootTime, error: Option<&String>) -> Reason {
        fault!(StaleUnnamed => return Reason::Working { phase: "waits".to_owned() });
        Reason::Stale {
            source: error.map_or_else(|| source.to_owned(), |e| format!("{source} ({e})")),
            since: after(self.now.wall, -(self.monotonic_now() - last_seen).whole()),
        }
    }

    /// Returns a reason if more nodes are unreachable than `maximum-unreachable-nodes-for-reboot` allows (REB-17). With
    /// `outside-reboots`, nodes under this reboot process do not count. With `all`, every node counts, and `drain`
    /// holds power commands back too.
    ///
    /// In a definition that follows the Nodes, a share of the members may be unreachable too, and members whose Nodes are
    /// gone do not count: they leave. They count if they are so many that their removal would wait for an approval.
    pub(super) fn unreachable_gate(&self) -> Option<Reason> {
        let definition = self.definition?;
        if !self.kube_synced {
            return None;
        }
        let follows_nodes = self.policy.membership == Membership::Nodes;
        let members = definition.cluster.nodes.len() as u64;
        let limit = unreachable_limit(&self.policy, &self.snap.store.constraints(), members);
        let outside_only = self.policy.unreachable_rule == UnreachableRule::OutsideReboots;
        let kube = &self.snap.kube;
        // Both lists are in order of names. One parallel walk replaces a search for each of 5,000 members.
        let mut rows = kube.nodes.iter().peekable();
        let (mut names, mut count): (Vec<NodeName>, i64) = (Vec::new(), 0);
        let mut gone: Vec<NodeName> = Vec::new();
        for node in definition.members.sorted_by_name(&definition.cluster) {
            let name = node.node_name();
            while rows.next_if(|(row, _)| *row < name).is_some() {}
            let row = rows.peek().filter(|(row, _)| *row == name);
            let down = row.is_none_or(|(_, node)| !node.ready);
            if follows_nodes && row.is_none() {
                gone.push(name.clone());
            } else if down && !(outside_only && self.claims.is_rebooting(&node.address)) {
                count += 1;
                if names.len() < MAX_NAMES {
                    names.push(name.clone());
                }
            }
        }
        let are_counted = Missing::Nodes(gone.len()).is_much(members, self.policy.gate_percent);
        fault!(VanishedNodeCounts => are_counted = true);
        if are_counted {
            count += i64::try_from(gone.len()).unwrap_or(i64::MAX);
            names.extend(gone.into_iter().take(MAX_NAMES.saturating_sub(names.len())));
        }
        let is_exceeded = count > limit;
        fault!(VanishedNodeCounts => is_exceeded = count > 0);
        fault!(GateForgotten => is_exceeded = false);
        is_exceeded.then(|| Reason::UnreachableGate { count, limit, names: names.into() })
    }

    /// Returns a reason unless every control-plane node is Ready and its probe was good within the last minute. This
    /// leader must have seen the answers itself. Checked before an API server starts (SAF-29, I7).
    pub(super) fn control_plane_unhealthy(&self) -> Option<Reason> {
        self.unhealthy_except(None)
    }

    /// Returns the same for all other control planes, before a further command of an API server. If that API server is
    /// down already, nothing more is disrupted, and nothing is checked (I7).
    pub(super) fn others_unhealthy(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        if !ctx.control_plane() || self.is_known_down(ctx) {
            return None;
        }
        self.unhealthy_except(Some(ctx.address))
    }

    /// Returns a reason if a control plane, other than the one with this address, is unhealthy.
    fn unhealthy_except(&self, address: Option<&Address>) -> Option<Reason> {
        let definition = self.definition?;
        let mut members =
            definition.members.control_planes(&definition.cluster).filter(|m| Some(&m.address) != address);
        fault!(UnhealthyControlPlaneIgnored => return None);
        members.find_map(|member| {
            let missing = self.unhealthy(member.node_name(), &member.address);
            missing.map(|why| Reason::ControlPlaneUnhealthy { node: member.node_name().clone(), why })
        })
    }

    /// Returns the reason of [`Self::control_plane_unhealthy`], except for a repair of an API server that is down (I7).
    pub(super) fn control_plane_unhealthy_for(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        if ctx.is_repair() && self.is_known_down(ctx) {
            return None;
        }
        self.control_plane_unhealthy()
    }

    /// Reports whether the API server is known to be down: not Ready, or with a bad answer to the last probe. An API
    /// server that was not probed yet is not known to be down.
    fn is_known_down(&self, ctx: EntryContext<'_>) -> bool {
        let ready = self.snap.kube.by_name.get(ctx.machine).is_some_and(|node| node.ready);
        let probe = self.snap.probes.get(ctx.address).filter(|_| !self.control_planes_by_node());
        (self.kube_synced && !ready) || probe.is_some_and(|p| p.error.is_some())
    }

    fn unhealthy(&self, name: &NodeName, address: &Address) -> Option<String> {
        match self.snap.kube.nodes.get(name) {
            None => return Some("no Node object".to_owned()),
            Some(node) if !node.ready => return Some("not Ready".to_owned()),
            Some(_) => {}
        }
        self.probe_fault(address).map(|why| format!("{why} (policy control_plane_probe)"))
    }
}
