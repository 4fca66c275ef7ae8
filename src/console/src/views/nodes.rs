//! Nodes of Kubernetes and of the definition, each with one accurate state.

use cketerm_model::entry::EntryId;
use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use unicode_width::UnicodeWidthStr;

use super::{
    table::{self, Cell, Column, Row},
    visible_columns,
};
use crate::state::{App, queries, short_text};

/// Least width of STATE, so that it does not change with every row.
const MIN_STATE_WIDTH: u16 = 16;

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let name =
        u16::try_from(app.knowledge.totals.name_width).unwrap_or(16).clamp(8, if area.width < 100 { 18 } else { 40 });
    let visible = app.lists.nodes.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<Row> = visible.iter().map(|node| row(app, node, usize::from(name))).collect();
    // columns are as wide as their content; STATE has the longest text and is cut first
    let needs = |cell: usize, least: u16, most: u16| {
        let longest = rows.iter().filter_map(|row| row.cells.get(cell)).map(|cell| cell.text.width()).max();
        u16::try_from(longest.unwrap_or(0)).unwrap_or(most).clamp(least, most)
    };
    // without repairs, narrow screens use that column's space for others
    let repairs = rows.iter().filter_map(|row| row.cells.get(7)).any(|cell| !cell.text.is_empty());
    let mut columns = [
        Column { title: "NODE", width: name, from: 0 },
        Column { title: "STATE", width: 0, from: 0 },
        // filters know the address even if it is hidden; STATE is more useful
        Column { title: "ADDRESS", width: needs(2, 7, 39), from: 90 },
        Column { title: "ROLE", width: needs(3, 4, if area.width < 100 { 6 } else { 20 }), from: 0 },
        Column { title: "RACK", width: needs(4, 4, if area.width < 100 { 6 } else { 20 }), from: 60 },
        Column { title: "KUBELET", width: needs(5, 7, 16), from: 100 },
        Column { title: "REBOOT", width: 6, from: 0 },
        Column { title: "REPAIR", width: 6, from: if repairs { 0 } else { 100 } },
    ];
    columns[1].width = needs(1, MIN_STATE_WIDTH, u16::MAX).min(table::rest(&columns, area));
    visible_columns::draw(app, (&mut *buffer, area), &columns, &rows, visible, stale);
    if visible.is_empty() {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

fn row(app: &App, name: &str, width: usize) -> Row {
    let seen = &app.seen;
    let entry = |id: Option<EntryId>| id.map(|id| format!("#{}", id.index)).unwrap_or_default();
    let (state, trouble) = short_text::node_state(app, name);
    let state_style = if trouble.is_some() { app.config.theme.trouble } else { Style::new() };
    let kubelet = queries::node(seen, name).map(|n| short_text::safe(&n.kubelet)).unwrap_or_default();
    let cells = vec![
        Cell::plain(short_text::shorten_middle(name, width)),
        Cell::styled(state, state_style),
        Cell::plain(short_text::safe(&queries::address(seen, name).unwrap_or_default())),
        Cell::plain(short_text::safe(queries::role(seen, name))),
        Cell::plain(short_text::safe(queries::rack(seen, name))),
        Cell::plain(kubelet),
        Cell::plain(entry(app.knowledge.totals.reboot_of(name))),
        Cell::plain(entry(app.knowledge.totals.repair_of(name))),
    ];
    Row { cells, cursor: app.lists.nodes.cursor.as_deref() == Some(name), marked: app.lists.nodes.marks.contains(name) }
}

fn empty(app: &App) -> Vec<String> {
    if app.lists.nodes.total > 0 {
        return super::no_matches(app, "node");
    }
    match app.seen.snapshot.kube.sources.get("nodes") {
        Some(source) if source.synced => vec!["Kubernetes has no nodes".to_owned()],
        source => {
            let text = if app.config.sandbox { "the sandbox starts ..." } else { "connecting to Kubernetes ..." };
            let mut lines = vec![text.to_owned()];
            if let Some(error) = source.and_then(|s| s.error.as_ref()) {
                lines.extend(table::wrap(&short_text::safe(error), usize::from(app.size.width).saturating_sub(4)));
            }
            lines
        }
    }
}
