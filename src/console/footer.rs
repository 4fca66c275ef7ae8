//! The footer: the last message, and the hints of the key table.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr;

use super::{
    app::App,
    brief,
    keys::{Context, TABLE},
    table::{cut, put},
    update,
};

/// Most lines a message takes.
const MOST: usize = 3;

fn message(app: &App) -> Vec<String> {
    let Some(message) = &app.message else { return Vec::new() };
    let text = if message.failed { format!("! {}", message.text) } else { message.text.clone() };
    cut(&brief::safe(&text), usize::from(app.size.width), MOST)
}

/// Lines of the footer: one for the message at least, one for the hints.
pub fn height(app: &App) -> u16 {
    u16::try_from(message(app).len().max(1)).unwrap_or(1) + 1
}

/// Draws it.
pub fn draw(app: &App, frame: &mut Frame, area: Rect) {
    let theme = &app.looks.theme;
    let failed = app.message.as_ref().is_some_and(|m| m.failed);
    let style = if failed { theme.danger } else { ratatui::style::Style::new() };
    let hints = area.bottom().saturating_sub(1);
    for (y, line) in (area.y..hints).zip(message(app)) {
        put(frame.buffer_mut(), area.x, y, area.width, &line, style);
    }
    if let Some((input, _)) = &app.typing {
        let scroll = input.visual_scroll(usize::from(area.width.saturating_sub(30)));
        let text: String = input.value().chars().skip(scroll).collect();
        let prompt = format!("filter: {text}");
        put(frame.buffer_mut(), area.x, hints, area.width, &prompt, theme.key);
        put(frame.buffer_mut(), area.right().saturating_sub(22), hints, 22, "Enter keep  Esc drop", theme.muted);
        let column = 8 + input.visual_cursor().saturating_sub(scroll);
        frame.set_cursor_position((area.x + u16::try_from(column).unwrap_or(0), hints));
        return;
    }
    let line = hint_line(app, usize::from(area.width));
    frame.buffer_mut().set_line(area.x, hints, &line, area.width);
}

/// Hints of this context, as many as fit.
fn hint_line(app: &App, width: usize) -> Line<'static> {
    let here = update::context(app);
    let mut spans = Vec::new();
    let mut used = 0;
    for b in TABLE.iter().filter(|b| !b.hint.is_empty()) {
        if b.context != here && !(b.context == Context::Everywhere && matches!(here, Context::Table | Context::Detail))
        {
            continue;
        }
        if b.changes && app.looks.read_only {
            continue;
        }
        let Some(key) = app.looks.keymap.key(b.name) else { continue };
        let key = if key.len() > 1 { format!("{}{}", key[..1].to_uppercase(), &key[1..]) } else { key.to_owned() };
        let needed = key.width() + b.hint.width() + 3;
        if used + needed > width {
            break;
        }
        used += needed;
        spans.push(Span::styled(key, app.looks.theme.key));
        spans.push(Span::raw(format!(" {}  ", b.hint)));
    }
    Line::from(spans)
}
