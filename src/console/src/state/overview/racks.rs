//! Machines by rack, for the Overview. They are computed again only when a machine's state may have changed, in large
//! clusters not at every change.

use std::{cmp::Reverse, collections::BTreeMap};

use cketerm_model::boot_time::{BootTime, Seconds};

use crate::state::{
    App, fleet, queries,
    racks::{MapInputs, State, order},
};

/// Most machines that are shown one by one. In larger clusters the racks are counted.
const MAX_MACHINES: usize = 2_000;
/// Shortest time between two counts of a large cluster: they cost a look at each machine.
const COUNT_INTERVAL: Seconds = Seconds::new(5.0);

/// Machines of a rack: their states, and whether each runs an API server.
pub type Rack = (String, Vec<(State, bool)>);
/// Number of machines of a rack in each state.
pub type CountedRack = (String, BTreeMap<State, usize>);

/// Machines by rack.
#[derive(Clone, Debug, Default)]
pub struct RackStates {
    /// The racks, by name. The machines whose rack is unknown come last. Empty in large clusters.
    pub racks: Vec<Rack>,
    /// The racks of a large cluster: those with the most machines that are not ready first.
    pub counted: Vec<CountedRack>,
    of: Option<MapInputs>,
    counted_at: Option<BootTime>,
}

/// Order of the racks: machines without a rack last, then names with their numbers in order.
type RackKey = (bool, (String, u64, String));

impl RackStates {
    /// Returns the racks for the present state.
    pub(super) fn updated(self, app: &App) -> Self {
        let is_large = app.knowledge.totals.names > MAX_MACHINES;
        let is_recent = |at: BootTime| app.now.boot - at < COUNT_INTERVAL;
        if is_large && self.counted_at.is_some_and(is_recent) {
            return self;
        }
        let inputs = MapInputs::of(app);
        if self.of.as_ref().is_some_and(|of| of.is(&inputs)) {
            return self;
        }
        if is_large {
            return Self { counted: counted(app), of: Some(inputs), counted_at: Some(app.now.boot), ..Self::default() };
        }
        let mut racks: BTreeMap<RackKey, Vec<(State, bool)>> = BTreeMap::new();
        for name in fleet::names(&app.seen) {
            let rack = queries::rack(&app.seen, name);
            let machine = (State::of(app, name), queries::is_api_server(&app.seen, name));
            racks.entry((rack.is_empty(), order(rack))).or_default().push(machine);
        }
        let racks = racks.into_iter().map(|((_, (_, _, name)), machines)| (name, machines)).collect();
        Self { racks, of: Some(inputs), ..Self::default() }
    }
}

fn counted(app: &App) -> Vec<CountedRack> {
    let mut racks: BTreeMap<&str, BTreeMap<State, usize>> = BTreeMap::new();
    for name in fleet::names(&app.seen) {
        let states = racks.entry(queries::rack(&app.seen, name)).or_default();
        *states.entry(State::of(app, name)).or_default() += 1;
    }
    let not_ready = |states: &BTreeMap<State, usize>| -> usize {
        states.iter().filter(|(state, _)| **state != State::Ready).map(|(_, n)| n).sum()
    };
    let mut racks: Vec<CountedRack> = racks.into_iter().map(|(name, states)| (name.to_owned(), states)).collect();
    racks.sort_by_cached_key(|(name, states)| (Reverse(not_ready(states)), name.is_empty(), order(name)));
    racks
}
