//! Plans of the definition that follows the Nodes of Kubernetes.

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    kube::KubeView,
    stored::view::StoreView,
    time::seconds_between,
};
use cketerm_rules::{
    membership::{next_leave, propose},
    registry::{Basis, Proposal},
};
use jiff::Timestamp;

/// Shortest time between two plans from the same settings. Nodes change often, and seldom in a way that matters.
const INTERVAL: Seconds = Seconds::new(2.0);

/// The last plan.
#[derive(Debug, Default)]
pub struct NodeMembership {
    /// Settings and boot time of the last plan.
    planned: Option<(Basis, BootTime)>,
}

/// Result of a look at the Nodes.
pub struct Look {
    /// The new plan; none while the last one is kept.
    pub proposal: Option<Proposal>,
    /// Time until the next look.
    pub next: Seconds,
}

impl NodeMembership {
    /// Compares the Nodes with the definition.
    pub fn look(&mut self, store: &StoreView, kube: &KubeView, now: BootTime, wall: Timestamp) -> Look {
        let basis = Basis::of(store);
        if let Some((of, at)) = &self.planned
            && *of == basis
            && now < *at + INTERVAL
        {
            return Look { proposal: None, next: pause(*at + INTERVAL - now) };
        }
        if !kube.synced() {
            return Look { proposal: None, next: INTERVAL };
        }
        let proposal = propose(store, kube, wall);
        self.planned = Some((basis, now));
        // the end of a grace period is no news of any watch
        let next = next_leave(store, wall).map_or(Seconds::new(3600.0), |end| seconds_between(wall, end));
        Look { proposal: Some(proposal), next: pause(next) }
    }
}

/// Returns a wait of at least a tenth of a second: a shorter rest of an interval may be the rounding of a time.
fn pause(rest: Seconds) -> Seconds {
    Seconds::new(rest.get().max(0.1))
}
