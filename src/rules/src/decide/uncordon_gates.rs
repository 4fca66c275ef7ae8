//! Gates of a site before the uncordon of a rebooted worker (policy `uncordon_gates`; REB-59).

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    kube::NodeRow,
    reason::Reason,
    time::after,
};

use super::{Pass, entry_context::EntryContext};

impl<'a> Pass<'a> {
    /// Returns the reason why an entry whose worker is back does not end yet. It keeps its slot meanwhile, so a fault
    /// that every machine has cordons no more machines than may be in work.
    pub(super) fn uncordon_gate(&mut self, ctx: EntryContext<'a>, node: Option<&NodeRow>) -> Option<Reason> {
        if self.policy.uncordon_gates.is_empty() || ctx.control_plane() || ctx.is_repair() {
            return None;
        }
        let missing = match node {
            None => "the Node is gone".to_owned(),
            Some(node) => self.gate_of_node(node)?,
        };
        let back = self.snap.work.get(&ctx.id).and_then(|work| work.recovered_since).unwrap_or(self.monotonic_now());
        Some(self.closed(missing, back))
    }

    /// Returns the reason why a rebooted worker whose entry is gone stays cordoned.
    pub(super) fn uncordon_gate_of_orphan(&mut self, node: &NodeRow) -> Option<Reason> {
        if self.policy.uncordon_gates.is_empty() {
            return None;
        }
        let missing = self.gate_of_node(node)?;
        Some(self.closed(missing, self.monotonic_now()))
    }

    fn closed(&mut self, missing: String, back: BootTime) -> Reason {
        let until = back + Seconds::from(self.policy.uncordon_gates.overdue_seconds);
        let is_overdue = self.monotonic_now() >= until;
        if !is_overdue {
            self.wake_at(until);
        }
        let since = after(self.now.wall, -(self.monotonic_now() - back).whole());
        Reason::UncordonGateClosed { missing, since, overdue: is_overdue }
    }

    /// Returns what keeps the gates of this Node closed. `None`: they are open.
    fn gate_of_node(&mut self, node: &NodeRow) -> Option<String> {
        if let Some(missing) = self.policy.uncordon_gates.missing_of_node(node) {
            return Some(missing);
        }
        if !self.policy.uncordon_gates.daemon_sets {
            return None;
        }
        self.out.watch_pods.insert(node.name.clone());
        let Some(pods) = self.snap.kube.pods.get(&node.name).filter(|pods| pods.synced) else {
            return Some("its pods are not listed yet".to_owned());
        };
        if let Some(stale) = self.stale_pods(&node.name, pods) {
            return Some(stale.to_string());
        }
        let mut of_daemon_sets = pods.pods.values().filter(|pod| pod.controlled_by("DaemonSet").is_some());
        let waiting = of_daemon_sets.find(|pod| !pod.ready && !pod.finished() && pod.terminating_since.is_none())?;
        Some(format!("pod {} of a DaemonSet is not Ready", waiting.full_name()))
    }
}
