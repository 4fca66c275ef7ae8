//! Upkeep of Nodes beside the work on their machines: its keys among the effects, and when it waits.

use cketerm_model::{boot_time::Seconds, names::NodeName};

use super::{Effect, Pass};
use crate::snapshot::{NodeUpkeep, UpkeepProgress};

/// Time between two tries while as many Nodes as may be patched at once have failed: a webhook, or the API server,
/// probably refuses all of them.
const FAILED_INTERVAL: Seconds = Seconds::new(1.0);

impl NodeUpkeep {
    /// Returns the key among the effects. The Node's own key stays free for its drain: upkeep that fails, and waits ever
    /// longer to be tried again, holds no entry back.
    pub(super) fn key(self, node: &NodeName) -> String {
        match self {
            Self::Description => format!("description of {node}"),
            Self::Signs => format!("signs of {node}"),
        }
    }
}

impl Pass<'_> {
    /// Returns the number of Nodes for which this upkeep may begin now, if it may be under way for `most` at once. A Node
    /// whose patch failed takes no place, so that it holds no other one back.
    pub(super) fn free_upkeep(&self, upkeep: NodeUpkeep, most: usize) -> usize {
        let of = |progress: UpkeepProgress| self.snap.in_flight.values().filter(move |f| f.upkeep == Some(progress));
        let under_way = of(UpkeepProgress::UnderWay(upkeep)).count();
        let failed = || of(UpkeepProgress::Failed(upkeep));
        if failed().count() < most {
            return most.saturating_sub(under_way);
        }
        let last = failed().map(|flight| flight.since).max();
        let is_due = last.is_none_or(|at| self.monotonic_now() - at >= FAILED_INTERVAL);
        usize::from(is_due && under_way == 0)
    }

    /// Reports whether a patch of the Node or the start of an entry on it is planned in this pass, or under way. A second
    /// patch would only conflict with the first, and a cordon goes first.
    pub(super) fn is_about_to_change(&self, name: &NodeName) -> bool {
        let is_change = |effect: &Effect| effect.starts() || effect.patches_node();
        let key = name.as_str();
        let is_changing = self.snap.in_flight.get(key).is_some_and(|flight| flight.starts || flight.patches_node);
        is_changing
            || self.out.effects.iter().any(|planned| planned.machine == key && is_change(&planned.effect))
            || [NodeUpkeep::Description, NodeUpkeep::Signs].into_iter().any(|upkeep| self.is_kept_up(upkeep, name))
    }

    /// Reports whether this upkeep of the Node is planned in this pass, or under way.
    fn is_kept_up(&self, upkeep: NodeUpkeep, name: &NodeName) -> bool {
        let key = upkeep.key(name);
        self.snap.in_flight.get(&key).is_some_and(|flight| flight.upkeep == Some(UpkeepProgress::UnderWay(upkeep)))
            || self.out.effects.iter().any(|planned| planned.machine == key)
    }
}
