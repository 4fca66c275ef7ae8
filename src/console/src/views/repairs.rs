//! The repair queue.

use cketerm_model::{entry::EntryId, repair::RepairStatus};
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::{
    table::{Cell, Column, Row},
    visible_columns,
};
use crate::state::{App, queries, short_text, when};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let wide = area.width >= 100;
    let name = u16::try_from(app.knowledge.totals.name_width).unwrap_or(15).clamp(11, if wide { 40 } else { 14 });
    let columns = [
        Column { title: "INDEX", width: 5, from: 0 },
        Column { title: "MACHINE", width: name, from: 0 },
        Column { title: "ADDRESS", width: 15, from: 120 },
        Column { title: "TYPE", width: 10, from: 90 },
        Column { title: "OPERATION", width: if wide { 14 } else { 11 }, from: 0 },
        Column { title: "STEP", width: 4, from: 0 },
        Column { title: "COMMAND", width: if area.width >= 160 { 30 } else { 20 }, from: 140 },
        Column { title: "STATUS", width: 9, from: 0 },
        Column { title: "LEFT", width: 5, from: 0 },
        Column { title: "PODS", width: 7, from: 110 },
        Column { title: "HEALTH", width: 10, from: 110 },
        Column { title: "REASON", width: 0, from: 0 },
    ];
    let visible = app.lists.repairs.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<Row> = visible.iter().map(|id| row(app, *id, usize::from(name))).collect();
    visible_columns::draw(app, (&mut *buffer, area), &columns, &rows, visible, stale);
    if visible.is_empty() {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

fn row(app: &App, id: EntryId, width: usize) -> Row {
    let (seen, theme, now) = (&app.seen, &app.config.theme, app.known());
    let mut cells = vec![Cell::plain(id.index.to_string())];
    let why = seen.reasons.get(&id).map(|why| short_text::reason(why, now));
    let mut text = why.unwrap_or_default();
    if let Some(entry) = queries::repair(seen, id) {
        let status = match entry.status {
            RepairStatus::Failed if !entry.deleted => theme.danger,
            RepairStatus::Succeeded if !entry.deleted => theme.good,
            _ => Style::new(),
        };
        cells.extend([
            Cell::plain(short_text::shorten_middle(&seen.snapshot.machine(&entry.address), width)),
            Cell::plain(short_text::safe(&entry.address)),
            Cell::plain(short_text::safe(&entry.machine_type)),
            Cell::plain(short_text::safe(&entry.operation)),
            Cell::plain(short_text::step(seen, entry)),
            Cell::plain(short_text::command(seen, entry)),
            Cell::styled(short_text::repair_status(entry, now), status),
            Cell::plain(queries::deadline(seen, id).map(|at| when::left(at, now)).unwrap_or_default()),
            Cell::plain(short_text::pods(seen, id)),
            Cell::plain(if entry.unfinished() { short_text::health(seen, id) } else { String::new() }),
        ]);
        if entry.deleted {
            "the leader removes it".clone_into(&mut text);
        } else if entry.finished() {
            text = short_text::ending(seen, entry);
        }
    } else {
        cells.extend(["?", "", "", "", "", "", "broken", "", "", ""].map(|t| Cell::styled(t, theme.danger)));
        if let Some(Err(broken)) = seen.snapshot.store.repairs.entries.get(&id.index).map(|s| &s.value) {
            text = short_text::safe(broken);
        }
    }
    let order = short_text::order(seen, id);
    cells.push(super::why(app, id, &format!("{order}{text}")));
    Row { cells, cursor: app.lists.repairs.cursor == Some(id), marked: app.lists.repairs.marks.contains(&id) }
}

fn empty(app: &App) -> Vec<String> {
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    if app.lists.repairs.total > 0 {
        return super::no_matches(app, "entry");
    }
    let mut lines = vec!["the repair queue is empty".to_owned()];
    match app.seen.snapshot.store.definition() {
        None => lines.push("there is no cluster definition yet: `cketerm cluster set FILE`".to_owned()),
        Some(d) if d.cluster.repair.machine_types().is_empty() => {
            lines.push("the definition has no repair procedures yet: its `repair` section".to_owned());
        }
        Some(_) => {
            let [nodes, mark, repair] = ["nodes", "mark", "repair"].map(|name| app.key(name));
            lines.push(format!("press {nodes} for the nodes, mark some with {mark}, then {repair}"));
            lines.push("a machine outside: `cketerm repair-queue add OPERATION TYPE ADDRESS`".to_owned());
        }
    }
    lines
}
