//! Machines by rack, for the Overview. They are computed again only when a machine's state may have changed.

use std::collections::BTreeMap;

use crate::state::{
    App, fleet, queries,
    racks::{MapInputs, State, order},
};

/// Most machines that are shown one by one. Larger clusters have the map in Nodes.
const MAX_MACHINES: usize = 2_000;

/// Machines of a rack: their states, and whether each runs an API server.
pub type Rack = (String, Vec<(State, bool)>);

/// Machines by rack.
#[derive(Clone, Debug, Default)]
pub struct RackStates {
    /// The racks, by name. The machines whose rack is unknown come last.
    pub racks: Vec<Rack>,
    of: Option<MapInputs>,
}

/// Order of the racks: machines without a rack last, then names with their numbers in order.
type RackKey = (bool, (String, u64, String));

impl RackStates {
    /// Returns the racks for the present state.
    pub(super) fn updated(self, app: &App) -> Self {
        if app.knowledge.totals.names > MAX_MACHINES {
            return Self::default();
        }
        let inputs = MapInputs::of(app);
        if self.of.as_ref().is_some_and(|of| of.is(&inputs)) {
            return self;
        }
        let mut racks: BTreeMap<RackKey, Vec<(State, bool)>> = BTreeMap::new();
        for name in fleet::names(&app.seen) {
            let rack = queries::rack(&app.seen, name);
            let machine = (State::of(app, name), queries::is_api_server(&app.seen, name));
            racks.entry((rack.is_empty(), order(rack))).or_default().push(machine);
        }
        let racks = racks.into_iter().map(|((_, (_, _, name)), machines)| (name, machines)).collect();
        Self { racks, of: Some(inputs) }
    }
}
