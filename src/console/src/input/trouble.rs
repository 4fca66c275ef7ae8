//! Moves to the next row that needs an operator.

use cketerm_model::entry::EntryId;
use cketerm_rules::trouble::{self, Trouble};

use crate::state::{App, View, logs::LineId, overview::OverviewRow, past::PastId, short_text};

/// Moves to the next row that needs an operator, wrapping around at the end.
pub(super) fn next_row(app: &mut App) {
    let found = select_next_trouble(app, Trouble::Stuck);
    if !found && select_next_trouble(app, Trouble::Waits) {
        app.print_here("nothing here is stuck; this row only waits");
    } else if !found {
        app.print_here("no row here needs an operator");
    }
}

/// Moves to the next row whose trouble is at least this severe.
fn select_next_trouble(app: &mut App, least: Trouble) -> bool {
    let entry = |id: &EntryId| trouble::of(&app.seen, *id) >= Some(least);
    let found = match app.view {
        View::Reboots => next(&app.reboots.rows, app.reboots.place, entry).map(|place| app.reboots.select(place)),
        View::Repairs => next(&app.repairs.rows, app.repairs.place, entry).map(|place| app.repairs.select(place)),
        View::Machines => {
            let changes = |serial: &crate::state::registry::Serial| {
                let machine = app.registry.machine(&app.seen, serial);
                machine.is_some_and(|m| !m.healthy() || app.registry.change(&app.seen, &m.address).is_some())
            };
            next(&app.machines.rows, app.machines.place, changes).map(|place| app.machines.select(place))
        }
        View::Overview => {
            let stuck = |overview_row: &OverviewRow| match overview_row {
                OverviewRow::Stuck(..) | OverviewRow::Gate | OverviewRow::Unready => true,
                OverviewRow::WaitsOn(..) | OverviewRow::Blocks(..) => least == Trouble::Waits,
                OverviewRow::Hosts => !app.totals.hosts.trouble.is_empty(),
                OverviewRow::Work(_) | OverviewRow::Ended(_) | OverviewRow::Action(_) => false,
            };
            next(&app.overview_rows.rows, app.overview_rows.place, stuck).map(|place| {
                app.overview_rows.moved = true;
                app.overview_rows.select(place);
            })
        }
        View::Diff => None,
        View::Logs => {
            let bad = |id: &LineId| app.logs.get(id).is_some_and(|line| line.level <= tracing::Level::WARN);
            next(&app.log.rows, app.log.place, bad).map(|place| app.log.select(place))
        }
        View::History | View::Audit if app.cke_records || app.view == View::Audit => None,
        View::History | View::Audit => {
            let bad = |id: &PastId| app.past.history.get(id).is_none_or(|e| !e.end.good());
            next(&app.history.rows, app.history.place, bad).map(|place| app.history.select(place))
        }
        View::Hosts => {
            let troubled = |id: &crate::state::HostId| short_text::host(&app.seen, id).1;
            next(&app.hosts.rows, app.hosts.place, troubled).map(|place| app.hosts.select(place))
        }
        View::Nodes => {
            let hit = next(&app.nodes.rows, app.nodes.place, |name| short_text::node_state(app, name).1 >= Some(least));
            hit.map(|place| app.nodes.select(place))
        }
    };
    found.is_some()
}

fn next<Id>(rows: &[Id], from: usize, is_match: impl Fn(&Id) -> bool) -> Option<usize> {
    let round = (from + 1..rows.len()).chain(0..=from.min(rows.len().saturating_sub(1)));
    round.into_iter().find(|place| rows.get(*place).is_some_and(&is_match))
}
