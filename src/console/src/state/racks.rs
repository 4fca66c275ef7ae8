//! Map of the racks: each machine is a sign that shows its state, with its name where there is room. The map is
//! recomputed when the state changes; only its visible part is drawn. Cursor and marks are those of the Nodes view.

mod state;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cketerm_model::{
    cketerm_records::Order,
    entry::{EntryId, Stored},
    names::NodeName,
    reason::Reason,
    reboot::RebootEntry,
    repair::RepairEntry,
};
use imbl::OrdMap;

pub use self::state::State;
use super::{App, fleet::NodeNames, queries};

/// A machine on the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The Node's name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// Whether it runs an API server.
    pub api_server: bool,
}

/// A rack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rack {
    /// Its name. Empty for the machines whose rack is unknown.
    pub name: String,
    /// Its machines, in the order of the list.
    pub machines: Vec<Machine>,
}

/// The map.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// The racks, sorted by name, with numbers as numbers.
    pub racks: Vec<Rack>,
    /// The first visible line.
    pub top: usize,
    /// Rack and position of each machine.
    places: HashMap<String, (usize, usize)>,
    /// Number of machines by state.
    pub counts: BTreeMap<State, usize>,
    /// Whether any of the machines runs an API server.
    pub api_servers: bool,
    /// Number of machines in the largest rack.
    widest: usize,
    /// Width of the racks' names, in columns.
    pub label: usize,
    /// Width of the longest name of a machine, in columns.
    name: usize,
    /// Inputs of the map.
    of: Option<MapInputs>,
}

/// Inputs of the machines' states, racks and roles.
#[derive(Clone, Debug)]
pub struct MapInputs {
    named: NodeNames,
    synced: bool,
    reboots: OrdMap<u64, Stored<RebootEntry>>,
    repairs: OrdMap<u64, Stored<RepairEntry>>,
    orders: OrdMap<EntryId, Stored<Order>>,
    reasons: Arc<BTreeMap<EntryId, Reason>>,
    orphans: Arc<BTreeMap<NodeName, Reason>>,
    /// Number of entries in backoff, and of stuck entries. Both also depend on the clock.
    by_clock: (usize, usize),
}

impl MapInputs {
    /// Takes them from the present state.
    pub fn of(app: &App) -> Self {
        let (seen, store, kube) = (&app.seen, &app.seen.snapshot.store, &app.seen.snapshot.kube);
        let (reboots, repairs) = (&app.knowledge.totals.reboots, &app.knowledge.totals.repairs);
        Self {
            named: NodeNames::by(seen),
            synced: kube.sources.get("nodes").is_some_and(|s| s.synced),
            reboots: store.reboots.entries.clone(),
            repairs: store.repairs.entries.clone(),
            orders: store.orders.clone(),
            reasons: Arc::clone(&seen.reasons),
            orphans: Arc::clone(&seen.orphans),
            by_clock: (reboots.backoff + repairs.backoff, reboots.trouble + repairs.trouble),
        }
    }

    /// Returns true if nothing has changed, as far as can be found without a look at every machine.
    pub fn is(&self, other: &Self) -> bool {
        self.named.is(&other.named)
            && (self.synced, self.by_clock) == (other.synced, other.by_clock)
            && self.reboots.ptr_eq(&other.reboots)
            && self.repairs.ptr_eq(&other.repairs)
            && self.orders.ptr_eq(&other.orders)
            && self.reasons == other.reasons
            && self.orphans == other.orphans
    }
}

/// Widest name of a rack, in columns.
const MAX_LABEL_WIDTH: usize = 12;
/// Widest name of a machine, in columns; longer ones are shortened.
const MAX_NAME_WIDTH: usize = 16;
/// Columns before the machines, besides the name of the rack: the cursor's mark, and a space.
const BORDER_WIDTH: usize = 3;
/// Columns of a machine without its name: the cursor's bracket, and the sign. The bracket behind it, or the mark of an
/// API server, stands where the next machine begins.
const SIGN_WIDTH: usize = 2;
/// Most columns that a machine gets beyond its name.
const MAX_GAP: usize = 12;
/// Most lines of the screen for each line of the map.
const MAX_SPACING: usize = 4;
/// Smallest screen on which the map is the first thing that Nodes shows.
const MIN_DEFAULT_SIZE: (usize, usize) = (120, 20);

/// Arrangement of the map on a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Machines on a line.
    pub per_line: usize,
    /// Racks side by side.
    pub beside: usize,
    /// Columns of a machine.
    pub tile: usize,
    /// Lines of the screen for each line of the map.
    pub spacing: usize,
}

impl Grid {
    /// Returns the columns of a machine's name. 0 = names are not shown.
    pub fn name_width(self) -> usize {
        self.tile.saturating_sub(SIGN_WIDTH + 2)
    }

    /// Returns true if there is a line below each machine for its state.
    pub fn has_states(self) -> bool {
        self.spacing > 2 && self.name_width() > 0
    }
}

impl Map {
    /// Creates the map of the nodes that pass the filter.
    pub fn of(app: &App, top: usize) -> Self {
        let mut map = Self { top, of: Some(MapInputs::of(app)), ..Self::default() };
        let mut racks: BTreeMap<(String, u64, String), Vec<Machine>> = BTreeMap::new();
        for name in &app.lists.nodes.rows {
            let rack = queries::rack(&app.seen, name);
            let machine = Machine {
                name: name.clone(),
                state: State::of(app, name),
                api_server: queries::is_api_server(&app.seen, name),
            };
            *map.counts.entry(machine.state).or_default() += 1;
            map.api_servers |= machine.api_server;
            racks.entry(order(rack)).or_default().push(machine);
        }
        map.racks = racks.into_iter().map(|((_, _, name), machines)| Rack { name, machines }).collect();
        // Machines whose rack is unknown come last.
        map.racks.sort_by_key(|rack| rack.name.is_empty());
        for (at, rack) in map.racks.iter().enumerate() {
            map.widest = map.widest.max(rack.machines.len());
            map.label = map.label.max(shown(&rack.name).chars().count()).min(MAX_LABEL_WIDTH);
            for (place, machine) in rack.machines.iter().enumerate() {
                map.name = map.name.max(machine.name.chars().count()).min(MAX_NAME_WIDTH);
                map.places.insert(machine.name.clone(), (at, place));
            }
        }
        map
    }

    /// Returns the arrangement on a screen of this width and height. Names are shown if all machines fit with them, each
    /// rack has lines of its own if all of them fit, and lines are spread if there is room.
    pub fn grid(&self, (width, height): (usize, usize)) -> Grid {
        let arranged = |tile| {
            let side_by_side = self.arranged(tile, width);
            let one_a_line = Grid { beside: 1, ..side_by_side };
            if self.lines(one_a_line) <= height { one_a_line } else { side_by_side }
        };
        let named = arranged(SIGN_WIDTH + 2 + self.name);
        if self.lines(named) > height {
            let compact = arranged(SIGN_WIDTH);
            let spacing = if self.lines(compact) * 2 <= height { 2 } else { 1 };
            return Grid { spacing, ..compact };
        }
        // what is left of the screen goes between the machines and between the lines
        let widest = width.saturating_sub(self.label + BORDER_WIDTH + 1) / (named.per_line * named.beside).max(1);
        let tile = if named.beside == 1 { named.tile.max(widest.min(named.tile + MAX_GAP)) } else { named.tile };
        let spacing = (height / self.lines(named).max(1)).clamp(1, MAX_SPACING);
        Grid { tile, spacing, ..named }
    }

    fn arranged(&self, tile: usize, width: usize) -> Grid {
        let most = (width.saturating_sub(self.label + BORDER_WIDTH + 1) / tile).max(1);
        if self.widest > most {
            return Grid { per_line: most, beside: 1, tile, spacing: 1 };
        }
        let per_line = self.widest.max(1);
        let rack = per_line * tile + self.label + BORDER_WIDTH + 1;
        Grid { per_line, beside: ((width + 1) / (rack + 1)).max(1), tile, spacing: 1 }
    }

    /// Returns the columns of a rack, with the gap behind it.
    pub fn rack_width(&self, grid: Grid) -> usize {
        grid.per_line * grid.tile + self.label + BORDER_WIDTH + 2
    }

    /// Returns true if the map is worth being shown first: the racks are known, and all machines fit.
    fn fits(&self, (width, height): (usize, usize)) -> bool {
        let known = self.racks.iter().any(|rack| !rack.name.is_empty());
        known
            && width >= MIN_DEFAULT_SIZE.0
            && height >= MIN_DEFAULT_SIZE.1
            && self.lines(self.grid((width, height))) <= height
    }

    /// Returns the number of lines of a rack.
    fn lines_of(&self, rack: usize, per_line: usize) -> usize {
        self.racks.get(rack).map_or(0, |r| r.machines.len().div_ceil(per_line).max(1))
    }

    /// Returns the line of a machine.
    pub fn line_of(&self, (rack, place): (usize, usize), grid: Grid) -> usize {
        let Grid { per_line, beside, .. } = grid;
        if beside > 1 {
            return rack / beside;
        }
        (0..rack).map(|r| self.lines_of(r, per_line)).sum::<usize>() + place / per_line
    }

    /// Returns the number of lines.
    pub fn lines(&self, grid: Grid) -> usize {
        let Grid { per_line, beside, .. } = grid;
        if beside > 1 {
            return self.racks.len().div_ceil(beside);
        }
        (0..self.racks.len()).map(|r| self.lines_of(r, per_line)).sum()
    }

    /// Returns the contents of a line: the rack of each piece, and the positions of its machines.
    pub fn line(&self, line: usize, grid: Grid) -> Vec<(usize, std::ops::Range<usize>)> {
        let Grid { per_line, beside, .. } = grid;
        let full_rack = |rack: usize| (rack, 0..self.racks.get(rack).map_or(0, |r| r.machines.len()));
        if beside > 1 {
            return (line * beside..((line + 1) * beside).min(self.racks.len())).map(full_rack).collect();
        }
        let mut left = line;
        for (rack, of) in self.racks.iter().enumerate() {
            let lines = self.lines_of(rack, per_line);
            if left < lines {
                return vec![(rack, left * per_line..((left + 1) * per_line).min(of.machines.len()))];
            }
            left -= lines;
        }
        Vec::new()
    }

    /// Returns the position of a machine.
    pub fn place_of(&self, name: &str) -> Option<(usize, usize)> {
        self.places.get(name).copied()
    }

    /// Returns true if the map is up to date.
    fn is_current(&self, app: &App) -> bool {
        let mut filled = vec![0; self.racks.len()];
        let mut in_order = |name: &String| {
            let Some(&(rack, place)) = self.places.get(name) else { return false };
            let next = filled.get_mut(rack);
            next.is_some_and(|next| std::mem::replace(next, place + 1) == place)
        };
        self.of.as_ref().is_some_and(|of| of.is(&MapInputs::of(app)))
            && app.lists.nodes.rows.len() == self.places.len()
            && app.lists.nodes.rows.iter().all(&mut in_order)
    }

    fn name_at(&self, rack: usize, place: usize) -> Option<String> {
        let machines = &self.racks.get(rack)?.machines;
        machines.get(place.min(machines.len().saturating_sub(1))).map(|m| m.name.clone())
    }

    /// Returns the machine that is `by` positions further, across the ends of racks.
    pub fn along(&self, name: &str, by: isize) -> Option<String> {
        let (mut rack, mut place) = self.place_of(name)?;
        for _ in 0..by.unsigned_abs() {
            if by > 0 && place + 1 < self.racks.get(rack)?.machines.len() {
                place += 1;
            } else if by > 0 && rack + 1 < self.racks.len() {
                (rack, place) = (rack + 1, 0);
            } else if by < 0 && place > 0 {
                place -= 1;
            } else if by < 0 && rack > 0 {
                rack -= 1;
                place = self.racks.get(rack)?.machines.len().saturating_sub(1);
            }
        }
        self.name_at(rack, place)
    }

    /// Returns the machine that is `by` lines further down.
    pub fn down(&self, name: &str, by: isize, grid: Grid) -> Option<String> {
        let at = self.place_of(name)?;
        let Grid { per_line, beside, .. } = grid;
        let last = self.lines(grid).saturating_sub(1);
        let line = self.line_of(at, grid).saturating_add_signed(by).min(last);
        let pieces = self.line(line, grid);
        let (rack, range) = pieces.get(at.0 % beside).or_else(|| pieces.last())?.clone();
        let column = if beside > 1 { at.1 } else { at.1 % per_line };
        self.name_at(rack, (range.start + column).min(range.end.saturating_sub(1)))
    }
}

/// Returns a rack's name as shown on the map.
pub fn shown(name: &str) -> &str {
    if name.is_empty() { "no rack" } else { name }
}

/// Returns the sort key of a rack's name: `rack-2` comes before `rack-10`.
pub fn order(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(stem.len()..).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    (stem.to_owned(), number, name.to_owned())
}

/// Returns true if Nodes shows the map now.
pub fn open(app: &App) -> bool {
    app.navigation.view == crate::state::View::Nodes && app.navigation.map.is_some()
}

/// Decides whether Nodes shows the map or the list: as the operator chose last, else the map if all of it fits into
/// this width and height.
pub fn choose(app: &mut App, size: (usize, usize)) {
    let shown = app.navigation.map_chosen.unwrap_or_else(|| Map::of(app, 0).fits(size));
    app.navigation.map = shown.then(Map::default);
    refresh(app);
}

/// Recomputes the map if it is shown and out of date.
pub fn refresh(app: &mut App) {
    if open(app) && !app.navigation.map.as_ref().is_some_and(|map| map.is_current(app)) {
        let top = app.navigation.map.as_ref().map_or(0, |map| map.top);
        app.navigation.map = Some(Map::of(app, top));
    }
}
