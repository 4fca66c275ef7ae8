//! Dialog in which the operator chooses and orders the columns of a table.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::{app::App, column_id::ColumnId, columns, dialog::draw::outline, table::put};

/// The open column picker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPicker {
    /// All columns of the table in the order of the list, each with whether it is shown.
    pub columns: Vec<(ColumnId, bool)>,
    /// Index of the column under the cursor.
    pub at: usize,
}

impl ColumnPicker {
    /// Opens the picker for the open view. `None` if the view has no table.
    pub fn open(app: &App) -> Option<Self> {
        let all = columns::all(app.view, app.cke_records);
        let default_columns = columns::default_columns(app.view, app.cke_records);
        let shown = app.visible_columns.get(columns::table(app.view, app.cke_records)).unwrap_or(&default_columns);
        let hidden = all.iter().filter(|id| !shown.contains(id)).map(|id| (*id, false));
        let columns: Vec<_> = shown.iter().map(|id| (*id, true)).chain(hidden).collect();
        (!columns.is_empty()).then_some(Self { columns, at: 0 })
    }

    /// Moves the cursor; it wraps around at the ends.
    pub fn step(&mut self, forward: bool) {
        let all = self.columns.len().max(1);
        self.at = (self.at + if forward { 1 } else { all - 1 }) % all;
    }

    /// Shows or hides the column under the cursor.
    pub fn toggle(&mut self) {
        if let Some((_, shown)) = self.columns.get_mut(self.at) {
            *shown = !*shown;
        }
    }

    /// Moves the column under the cursor left or right in the table.
    pub fn move_column(&mut self, right: bool) {
        let to = if right { self.at + 1 } else { self.at.wrapping_sub(1) };
        if to < self.columns.len() {
            self.columns.swap(self.at, to);
            self.at = to;
        }
    }

    /// Returns the columns that are shown.
    pub fn visible_columns(&self) -> Vec<ColumnId> {
        self.columns.iter().filter(|(_, shown)| *shown).map(|(id, _)| *id).collect()
    }
}

/// Draws the picker in the middle of the screen.
pub fn draw(app: &App, picker: &ColumnPicker, buffer: &mut Buffer) {
    let (screen, theme) = (buffer.area, &app.config.theme);
    let width = screen.width.min(56);
    let rows = u16::try_from(picker.columns.len()).unwrap_or(u16::MAX).min(screen.height.saturating_sub(7));
    let height = rows + 5;
    let area = Rect::new((screen.width - width) / 2, (screen.height - height) / 2, width, height);
    outline(buffer, area, theme.title);
    let (x, line) = (area.x + 2, area.width.saturating_sub(4));
    put(buffer, x, area.y + 1, line, &format!("Columns of {}", app.view.title()), theme.title);
    let from = (picker.at + 1).saturating_sub(usize::from(rows));
    for (y, (at, (id, shown))) in (area.y + 2..area.y + 2 + rows).zip(picker.columns.iter().enumerate().skip(from)) {
        let here = at == picker.at;
        let text = format!("{} [{}] {id}", if here { ">" } else { " " }, if *shown { "x" } else { " " });
        put(buffer, x, y, line, &text, if here { theme.cursor } else { Style::new() });
    }
    let key = |name: &str| app.key(name);
    let hints = [
        format!("Space show or hide, {} {} move", key("previous-option"), key("next-option")),
        format!("{} keeps it, {} drops it, :columns default", key("press"), key("no")),
    ];
    for (y, hint) in (area.y + 2 + rows..).zip(hints) {
        put(buffer, x, y, line, &hint, theme.muted);
    }
}
