//! Gates of a site before the uncordon of a rebooted worker (policy `uncordon_gates`; REB-59).

use cketerm_model::{
    entry::{EntryId, Stored},
    kube::NodeRow,
    reason::Reason,
    time::after,
};
use jiff::Timestamp;

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
        Some(self.closed(missing, self.last_command(ctx.id).or(ctx.since)))
    }

    /// Returns the reason why a rebooted worker whose entry is gone stays cordoned.
    pub(super) fn uncordon_gate_of_orphan(&mut self, node: &NodeRow, entry: EntryId) -> Option<Reason> {
        if self.policy.uncordon_gates.is_empty() {
            return None;
        }
        let missing = self.gate_of_node(node)?;
        Some(self.closed(missing, self.last_command(entry)))
    }

    /// Returns the start of an entry's last command, which every leader knows.
    fn last_command(&self, entry: EntryId) -> Option<Timestamp> {
        self.snap.store.attempts_of(entry).next_back().and_then(Stored::get).map(|attempt| attempt.start)
    }

    fn closed(&mut self, missing: String, since: Option<Timestamp>) -> Reason {
        let since = since.unwrap_or(self.now.wall);
        let overdue_seconds = self.policy.uncordon_gates.overdue_seconds;
        let until = after(since, i64::try_from(overdue_seconds).unwrap_or(i64::MAX));
        let is_overdue = self.now.wall >= until;
        if !is_overdue {
            self.wake_at_wall(until);
        }
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
