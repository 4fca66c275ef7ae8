//! List of themes at the side of the screen; the rest of the screen is the preview.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::dialog::outline;
use crate::{
    state::{App, short_text, theme_picker::ThemePicker},
    table::put,
};

/// Width of the list.
const WIDTH: u16 = 34;

/// Draws the picker at the right.
pub fn draw(app: &App, picker: &ThemePicker, buffer: &mut Buffer) {
    let (screen, theme) = (buffer.area, &app.config.theme);
    let width = WIDTH.min(screen.width);
    let rows = u16::try_from(picker.themes.len()).unwrap_or(u16::MAX).min(screen.height.saturating_sub(8));
    let area = Rect::new(screen.right() - width, screen.height.saturating_sub(rows + 7), width, rows + 5);
    outline(buffer, area, theme.title);
    let (x, line) = (area.x + 2, area.width.saturating_sub(4));
    put(buffer, x, area.y + 1, line, "Theme", theme.title);
    let from = (picker.at + 1).saturating_sub(usize::from(rows));
    for (y, (at, (name, listed))) in (area.y + 2..area.y + 2 + rows).zip(picker.themes.iter().enumerate().skip(from)) {
        let here = at == picker.at;
        let of = if listed.name == *name { String::new() } else { format!(" ({})", listed.name) };
        let text = format!("{} {}{of}", if here { ">" } else { " " }, short_text::safe(name));
        put(buffer, x, y, line, &text, if here { theme.cursor } else { Style::new() });
    }
    let [keep, back] = ["press", "no"].map(|name| app.key(name));
    put(buffer, x, area.y + 2 + rows, line, "j k move", theme.muted);
    put(buffer, x, area.y + 3 + rows, line, &format!("{keep} keeps it, {back} restores"), theme.muted);
}
