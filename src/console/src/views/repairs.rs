//! The repair queue.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::state::{App, columns::Repairs};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if app.navigation.shows_batches() {
        return super::batches::draw(app, buffer, area, stale);
    }
    if !super::columns::draw::<Repairs, _>(app, (&mut *buffer, area), &app.lists.repairs, stale) {
        super::draw_empty(buffer, area, &empty(app), app);
    }
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
