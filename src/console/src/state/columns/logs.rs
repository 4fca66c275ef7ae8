//! Columns of this process's log lines.

use std::sync::Arc;

use cketerm_runtime::telemetry::LogLine;
use ratatui::style::Style;

use super::{
    Table,
    Width::{Fixed, Rest},
    values,
};
use crate::{
    state::{App, calendar, filter::Value, logs::LineId, short_text},
    table::Cell,
    theme::Severity,
};

/// The log lines.
pub enum Lines {}

/// A line; `None` if the ring buffer no longer has it.
pub struct Row<'a> {
    app: &'a App,
    line: Option<&'a Arc<LogLine>>,
}

type Column = super::Column<Lines>;

impl Table for Lines {
    type Id = LineId;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("at", "AT", Fixed(11), "time of the line")
            .value(|row| row.value(|line| values::age(row.app, Some(line.at))))
            .cell(|row| row.cell(|line| Cell::plain(calendar::short(row.app, line.at)))),
        Column::new("level", "LEVEL", Fixed(5), "level of the line")
            .value(|row| row.value(|line| Value::text(line.level.as_str())))
            .cell(|row| row.cell(|line| Cell::styled(line.level.as_str(), style(row.app, line)))),
        Column::new("entry", "ENTRY", Fixed(11), "entry that the line is about")
            .value(|row| row.value(|line| Value::text(entry(line))))
            .cell(|row| row.cell(|line| Cell::plain(short_text::safe(entry(line))))),
        Column::new("text", "TEXT", Rest, "text of the line")
            .value(|row| row.value(|line| Value::text(line.text.as_str())))
            .cell(|row| row.cell(|line| Cell::styled(short_text::safe(&line.text), style(row.app, line)))),
    ];

    fn row<'a>(app: &'a App, id: &'a LineId) -> Row<'a> {
        Row { app, line: app.knowledge.logs.get(id) }
    }
}

impl<'a> Row<'a> {
    fn value(&self, of: impl FnOnce(&'a LogLine) -> Value<'a>) -> Value<'a> {
        self.line.map_or(Value::None, |line| of(line))
    }

    fn cell(&self, of: impl FnOnce(&'a LogLine) -> Cell) -> Cell {
        self.line.map_or_else(Cell::default, |line| of(line))
    }
}

fn style(app: &App, line: &LogLine) -> Style {
    let theme = &app.config.theme;
    match line.level {
        tracing::Level::ERROR => theme.severity(Severity::Failed),
        tracing::Level::WARN => theme.severity(Severity::Slow),
        tracing::Level::INFO => Style::new(),
        _ => theme.muted,
    }
}

fn entry(line: &LogLine) -> &str {
    line.entry.as_deref().unwrap_or_default()
}
