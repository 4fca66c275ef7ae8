//! Logs: lines of this process, and the place of the leader's log.

use cketerm_model::{cketerm_records::EngineMode, entry::Stored};
use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    state::{
        App,
        columns::Lines,
        queries::{self, Leader},
        short_text,
    },
    table::{put, wrap},
};

/// Draws the origin of the lines, and the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect) {
    let theme = &app.config.theme;
    let lines = origin_lines(app, usize::from(area.width));
    let summary_height = u16::try_from(lines.len()).unwrap_or(0).min(area.height / 3);
    for (y, line) in (area.y..area.y + summary_height).zip(&lines) {
        put(buffer, area.x, y, area.width, line, theme.muted);
    }
    let area = Rect { y: area.y + summary_height, height: area.height - summary_height, ..area };
    if !super::columns::draw::<Lines, _>(app, (&mut *buffer, area), &app.lists.log, false) {
        let text = if app.lists.log.total > 0 {
            super::no_matches(app, "line")
        } else {
            vec!["nothing was logged yet".to_owned()]
        };
        super::draw_empty(buffer, area, &text, app);
    }
}

/// Returns lines about the origin of the log, and about the leader's log if this process does not lead.
pub(super) fn origin_lines(app: &App, width: usize) -> Vec<String> {
    let store = &app.seen.snapshot.store;
    let engine = |lease: i64| store.engines.get(&lease).and_then(Stored::get);
    let text = match (queries::leader(&app.seen), store.leader()) {
        (Leader::Us, _) => "log of this process, whose engine leads".to_owned(),
        (Leader::Cke(host), _) => {
            format!("log of this process only; CKE leads on {host}: its logs are there (journalctl -u cke)")
        }
        (Leader::Other(host), Some(leader)) => match engine(leader.lease) {
            Some(e) if e.mode == EngineMode::Daemon => format!(
                "log of this process only; the leader's is on {host}: journalctl -u cketerm, or its log directory"
            ),
            _ => format!("log of this process only; the leader is a console on {host}: see its log directory there"),
        },
        _ => "log of this process only; no engine leads".to_owned(),
    };
    wrap(&short_text::safe(&text), width)
}
