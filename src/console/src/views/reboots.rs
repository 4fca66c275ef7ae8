//! The reboot queue.

use cketerm_model::entry::EntryId;
use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    table::{Cell, Column, Row},
    visible_columns,
};
use crate::state::{App, queries, short_text, when};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let name =
        u16::try_from(app.knowledge.totals.name_width).unwrap_or(16).clamp(8, if area.width < 100 { 18 } else { 40 });
    let columns = [
        Column { title: "INDEX", width: 6, from: 0 },
        Column { title: "NODE", width: name, from: 0 },
        Column { title: "ADDRESS", width: 15, from: 100 },
        Column { title: "ROLE", width: 8, from: 100 },
        Column { title: "STATUS", width: 9, from: 0 },
        Column { title: "SINCE", width: 6, from: 70 },
        Column { title: "PODS", width: 7, from: 0 },
        Column { title: "REASON", width: 0, from: 0 },
    ];
    let visible = app.lists.reboots.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<Row> = visible.iter().map(|id| row(app, *id, usize::from(name))).collect();
    visible_columns::draw(app, (&mut *buffer, area), &columns, &rows, visible, stale);
    if visible.is_empty() {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

fn row(app: &App, id: EntryId, width: usize) -> Row {
    let (seen, theme, now) = (&app.seen, &app.config.theme, app.known());
    let mut cells = vec![Cell::plain(id.index.to_string())];
    let why = seen.reasons.get(&id);
    if let Some(entry) = queries::entry(seen, id) {
        let name = seen.snapshot.machine(&entry.node);
        let role = queries::role(seen, &name);
        cells.extend([
            Cell::plain(short_text::shorten_middle(&name, width)),
            Cell::plain(short_text::safe(&entry.node)),
            Cell::plain(short_text::safe(role)),
            Cell::plain(short_text::status(entry, now)),
            Cell::plain(queries::since(seen, id).map(|at| when::age(at, now)).unwrap_or_default()),
            Cell::plain(short_text::pods(seen, id)),
        ]);
    } else {
        cells.extend(["?", "", "", "broken", "", ""].map(|t| Cell::styled(t, theme.danger)));
    }
    let order = short_text::order(seen, id);
    let text = match (why, queries::stored(seen, id).map(|s| &s.value)) {
        (Some(why), _) => short_text::reason(why, now),
        (None, Some(Err(broken))) => short_text::safe(broken),
        _ => String::new(),
    };
    cells.push(super::why(app, id, &format!("{order}{text}")));
    Row { cells, cursor: app.lists.reboots.cursor == Some(id), marked: app.lists.reboots.marks.contains(&id) }
}

fn empty(app: &App) -> Vec<String> {
    let store = &app.seen.snapshot.store;
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    if app.lists.reboots.total > 0 {
        return super::no_matches(app, "entry");
    }
    let mut lines = vec!["the reboot queue is empty".to_owned()];
    if store.definition().is_none() {
        lines.push("there is no cluster definition yet: `cketerm cluster set FILE`".to_owned());
    } else {
        let [nodes, mark, reboot] = ["nodes", "mark", "reboot"].map(|name| app.key(name));
        lines.push(format!("press {nodes} for the nodes, mark some with {mark}, then {reboot}"));
    }
    lines
}
