//! Sabakan's machines: state and time in it, role, rack, lifetime, place in the cluster, and what the plan does with
//! each.

use cketerm_sabakan::{State, change::Kind};
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::{
    table::{Cell, Column, Row, wrap},
    visible_columns,
};
use crate::state::{
    App,
    registry::{self, Serial},
    short_text, when,
};

/// Draws the table, or the racks in its place.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let area = super::registry::draw_summary(app, buffer, area);
    if app.navigation.racks {
        return super::registry::racks(app, buffer, area);
    }
    let wide = area.width >= 110;
    let columns = [
        Column { title: "SERIAL", width: if wide { 16 } else { 10 }, from: 0 },
        Column { title: "STATE", width: 13, from: 0 },
        Column { title: "FOR", width: 6, from: 0 },
        Column { title: "ADDRESS", width: 15, from: 100 },
        Column { title: "ROLE", width: 8, from: 0 },
        Column { title: "RACK", width: 4, from: 0 },
        Column { title: "LIFE", width: 6, from: 0 },
        Column { title: "PLACE", width: 13, from: 0 },
        Column { title: "PLAN", width: 0, from: 0 },
    ];
    let visible = app.lists.machines.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<Row> = visible.iter().map(|serial| row(app, serial)).collect();
    visible_columns::draw(app, (&mut *buffer, area), &columns, &rows, visible, stale);
    if visible.is_empty() {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

fn row(app: &App, serial: &Serial) -> Row {
    let (seen, theme) = (&app.seen, &app.config.theme);
    let mut cells = vec![Cell::plain(short_text::safe(&serial.0))];
    if let Some(machine) = app.knowledge.registry.machine(seen, serial) {
        let state = match machine.state {
            State::Healthy => theme.good,
            State::Unhealthy | State::Unreachable => theme.danger,
            State::Retiring | State::Retired => theme.trouble,
            State::Uninitialized | State::Updating => Style::new(),
        };
        let plan = plan(app, &machine.address);
        cells.extend([
            Cell::styled(machine.state.as_str(), state),
            Cell::plain(when::seconds(registry::seconds_in_state(seen, machine))),
            Cell::plain(short_text::safe(&machine.address)),
            Cell::plain(short_text::safe(&machine.role)),
            Cell::plain(machine.rack.to_string()),
            Cell::plain(format!("{}d", machine.lifetime_days(app.now.wall))),
            Cell::plain(registry::place(seen, &machine.address)),
            Cell::styled(
                plan,
                if app.knowledge.registry.change(seen, &machine.address).is_some() {
                    theme.trouble
                } else {
                    Style::new()
                },
            ),
        ]);
    }
    Row {
        cells,
        cursor: app.lists.machines.cursor.as_ref() == Some(serial),
        marked: app.lists.machines.marks.contains(serial),
    }
}

/// Returns what the plan does with a machine, and why; empty if it stays as it is.
fn plan(app: &App, address: &str) -> String {
    let seen = &app.seen;
    let why = || app.knowledge.registry.choice(seen, address).map(|c| c.why.to_string()).unwrap_or_default();
    match app.knowledge.registry.change(seen, address) {
        None => String::new(),
        Some(change) => match change.kind {
            Kind::Changed => short_text::safe(&format!("changed: {}", why())),
            kind => short_text::safe(&format!("{}: {}", kind.as_str(), why())),
        },
    }
}

fn empty(app: &App) -> Vec<String> {
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    if app.lists.machines.total > 0 {
        return super::no_matches(app, "machine");
    }
    let registry = &app.seen.snapshot.registry;
    let width = usize::from(app.size.width).saturating_sub(4);
    match (&registry.members.error, &registry.members.good) {
        (Some(why), _) => wrap(&short_text::safe(why), width),
        (None, Some(_)) => vec!["sabakan has no matching machine".to_owned()],
        (None, None) if app.seen.snapshot.store.registry.url.is_none() => {
            vec!["sabakan is not set up: `cketerm sabakan set-url URL`".to_owned()]
        }
        (None, None) => vec!["asking sabakan ...".to_owned()],
    }
}
