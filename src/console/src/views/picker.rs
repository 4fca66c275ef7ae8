//! Dialog in which the operator chooses and orders the columns of a table.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::dialog::outline;
use crate::{
    state::{App, picker::ColumnPicker},
    table::put,
};

/// Draws the picker in the middle of the screen.
pub fn draw(app: &App, picker: &ColumnPicker, buffer: &mut Buffer) {
    let (screen, theme) = (buffer.area, &app.config.theme);
    let width = screen.width.min(56);
    let rows = u16::try_from(picker.columns.len()).unwrap_or(u16::MAX).min(screen.height.saturating_sub(8));
    let height = rows + 6;
    let area = Rect::new((screen.width - width) / 2, (screen.height - height) / 2, width, height);
    outline(buffer, area, theme.title);
    let (x, line) = (area.x + 2, area.width.saturating_sub(4));
    put(buffer, x, area.y + 1, line, &format!("Columns of {}", app.navigation.view.title()), theme.title);
    let from = (picker.at + 1).saturating_sub(usize::from(rows));
    for (y, (at, (id, shown))) in (area.y + 2..area.y + 2 + rows).zip(picker.columns.iter().enumerate().skip(from)) {
        let here = at == picker.at;
        let text = format!("{} [{}] {id}", if here { ">" } else { " " }, if *shown { "x" } else { " " });
        put(buffer, x, y, line, &text, if here { theme.cursor } else { Style::new() });
    }
    put(buffer, x, area.y + 2 + rows, line, picker.help(), Style::new());
    let key = |name: &str| app.key(name);
    let hints = [
        format!("Space show or hide, {} {} move", key("previous-option"), key("next-option")),
        format!("{} keeps it, {} drops it, :columns default", key("press"), key("no")),
    ];
    for (y, hint) in (area.y + 3 + rows..).zip(hints) {
        put(buffer, x, y, line, &hint, theme.muted);
    }
}
