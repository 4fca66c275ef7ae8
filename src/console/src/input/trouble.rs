//! Moves to the next row that needs an operator.

use cketerm_model::entry::EntryId;
use cketerm_rules::trouble::{self, Trouble};

use crate::state::{App, View, logs::LineId, navigation::Target, overview::OverviewRow, past::PastId, short_text};

/// Moves to the next row that needs an operator, wrapping around at the end. If this view has none, it goes to the
/// first entry elsewhere that does: the header counts them in every view.
pub(super) fn next_row(app: &mut App) {
    if select_next_trouble(app, Trouble::Stuck) {
        return;
    }
    let elsewhere = trouble::all_stuck(&app.seen).find(|id| View::of_queue(id.queue) != app.navigation.view);
    if let Some(id) = elsewhere {
        super::navigation::visit(app, Target::Entry(id));
    } else if select_next_trouble(app, Trouble::Waits) {
        app.print_here("nothing is stuck; this row only waits");
    } else {
        app.print_here("nothing needs an operator");
    }
}

/// Moves to the next row whose trouble is at least this severe.
fn select_next_trouble(app: &mut App, least: Trouble) -> bool {
    let entry = |id: &EntryId| trouble::of(&app.seen, *id) >= Some(least);
    let found = match app.navigation.view {
        View::Reboots => {
            next(&app.lists.reboots.rows, app.lists.reboots.place, entry).map(|place| app.lists.reboots.select(place))
        }
        View::Repairs => {
            next(&app.lists.repairs.rows, app.lists.repairs.place, entry).map(|place| app.lists.repairs.select(place))
        }
        View::Machines => {
            let changes = |serial: &crate::state::registry::Serial| {
                let machine = app.knowledge.registry.machine(&app.seen, serial);
                machine.is_some_and(|m| !m.healthy() || app.knowledge.registry.change(&app.seen, &m.address).is_some())
            };
            next(&app.lists.machines.rows, app.lists.machines.place, changes)
                .map(|place| app.lists.machines.select(place))
        }
        View::Overview => {
            let stuck = |overview_row: &OverviewRow| match overview_row {
                OverviewRow::Stuck(..) | OverviewRow::Gate | OverviewRow::Unready => true,
                OverviewRow::WaitsOn(..) | OverviewRow::Blocks(..) => least == Trouble::Waits,
                OverviewRow::Hosts => !app.knowledge.totals.hosts.trouble.is_empty(),
                OverviewRow::Work(_) | OverviewRow::Ended(_) | OverviewRow::Action(_) => false,
            };
            next(&app.lists.overview_rows.rows, app.lists.overview_rows.place, stuck).map(|place| {
                app.lists.overview_rows.moved = true;
                app.lists.overview_rows.select(place);
            })
        }
        View::Diff => None,
        View::Logs => {
            let bad = |id: &LineId| app.knowledge.logs.get(id).is_some_and(|line| line.level <= tracing::Level::WARN);
            next(&app.lists.log.rows, app.lists.log.place, bad).map(|place| app.lists.log.select(place))
        }
        View::History | View::Audit if app.navigation.cke_records || app.navigation.view == View::Audit => None,
        View::History | View::Audit => {
            let bad = |id: &PastId| app.knowledge.past.history.get(id).is_none_or(|e| !e.end.good());
            next(&app.lists.history.rows, app.lists.history.place, bad).map(|place| app.lists.history.select(place))
        }
        View::Hosts => {
            let troubled = |id: &crate::state::HostId| short_text::host(&app.seen, id).1;
            next(&app.lists.hosts.rows, app.lists.hosts.place, troubled).map(|place| app.lists.hosts.select(place))
        }
        View::Nodes => {
            let hit = next(&app.lists.nodes.rows, app.lists.nodes.place, |name| {
                short_text::node_state(app, name).1 >= Some(least)
            });
            hit.map(|place| app.lists.nodes.select(place))
        }
    };
    found.is_some()
}

fn next<Id>(rows: &[Id], from: usize, is_match: impl Fn(&Id) -> bool) -> Option<usize> {
    let round = (from + 1..rows.len()).chain(0..=from.min(rows.len().saturating_sub(1)));
    round.into_iter().find(|place| rows.get(*place).is_some_and(&is_match))
}
