//! Logs: lines of this process, and the place of the leader's log.

use cketerm_model::{cketerm_records::EngineMode, entry::Stored};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use super::detail;

use crate::{
    state::{
        App,
        columns::Lines,
        queries::{self, Leader},
        short_text,
    },
    table::wrap,
};

/// Draws the origin of the lines, and the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect) {
    let lines = summary_lines(app, area);
    let summary_height = u16::try_from(lines.len()).unwrap_or(0).min(summary_limit(area));
    for (y, line) in (area.y..area.y + summary_height).zip(&lines) {
        buffer.set_line(area.x, y, line, area.width);
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

/// Returns the most lines above the table.
pub(super) fn summary_limit(area: Rect) -> u16 {
    area.height / 2
}

/// Returns the lines above the table: the origin of the log and, if the filter asks for one entry, the end of its newest
/// command's output.
pub(super) fn summary_lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let muted = app.config.theme.muted;
    let mut lines: Vec<_> = origin_lines(app, width).into_iter().map(|line| Line::styled(line, muted)).collect();
    let left = usize::from(summary_limit(area)).saturating_sub(lines.len());
    let entry = app.lists.log.filter.split_whitespace().find_map(|word| word.strip_prefix("entry=")?.parse().ok());
    if let Some(id) = entry {
        lines.extend(detail::output_lines(app, id, width, left));
    }
    lines
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
