//! The reboot queue.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::state::{App, columns::Reboots};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if app.navigation.shows_batches() {
        return super::batches::draw(app, buffer, area, stale);
    }
    if !super::columns::draw::<Reboots, _>(app, (&mut *buffer, area), &app.lists.reboots, stale) {
        super::draw_empty(buffer, area, &empty(app), app);
    }
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
