//! List of completions above the command line.

use cketerm_model::entry::EntryId;
use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use unicode_width::UnicodeWidthStr;

use crate::{
    state::{
        App,
        command_line::{self, CommandLine},
        queries, short_text,
    },
    table::put,
};

/// Most lines of the list.
const MAX_ROWS: usize = 6;
/// Width of the completions in columns, if that is enough.
const MIN_COMMAND_WIDTH: usize = 30;

/// Draws the list. Its last line is right above `area`.
pub fn draw(app: &App, line: &CommandLine, buffer: &mut Buffer, area: Rect) {
    let candidates = line.completions.as_ref().unwrap_or(&line.suggestions);
    if candidates.words.is_empty() || line.error.is_some() {
        return;
    }
    let theme = &app.config.theme;
    let is_cycling = line.completions.is_some();
    let from = if is_cycling { (candidates.at + 1).saturating_sub(MAX_ROWS) } else { 0 };
    let first = candidates.before.is_empty();
    let shown: Vec<(usize, String, String)> = candidates
        .words
        .iter()
        .enumerate()
        .skip(from)
        .take(MAX_ROWS)
        .map(|(at, word)| {
            let (form, about) = if first { command_line::usage(word) } else { (word.clone(), about(app, word)) };
            (at, short_text::safe(&form), short_text::safe(&about))
        })
        .collect();
    let rows = u16::try_from(shown.len()).unwrap_or(0).min(area.y);
    let words = shown
        .iter()
        .map(|(_, form, _)| form.width())
        .max()
        .unwrap_or(0)
        .max(MIN_COMMAND_WIDTH)
        .min(usize::from(area.width / 2));
    for (y, (at, form, about)) in (area.y - rows..area.y).zip(&shown) {
        for x in area.left()..area.right() {
            buffer[(x, y)].reset();
        }
        let here = is_cycling && *at == candidates.at;
        let width = u16::try_from(words).unwrap_or(30);
        put(buffer, area.x, y, 1, if here { ">" } else { "\u{2502}" }, theme.cursor);
        put(buffer, area.x + 2, y, width, form, if here { theme.tab } else { theme.key });
        let x = area.x + width + 4;
        put(buffer, x, y, area.right().saturating_sub(x), about, if here { Style::new() } else { theme.muted });
    }
    if let (Some((last, ..)), true) = (shown.last(), candidates.words.len() > shown.len()) {
        let more = candidates.words.len() - last - 1;
        if more > 0 {
            let text = format!(" {more} more ");
            let x = area.right().saturating_sub(u16::try_from(text.len()).unwrap_or(0));
            put(buffer, x, area.y - 1, area.right() - x, &text, theme.muted);
        }
    }
}

/// Returns a description of a completion that is a node or an entry.
fn about(app: &App, word: &str) -> String {
    if let Ok(id) = word.parse::<EntryId>() {
        let reboot = queries::entry(&app.seen, id).map(|e| short_text::status(e, app.now.wall));
        let status =
            reboot.or_else(|| queries::repair(&app.seen, id).map(|e| short_text::repair_status(e, app.now.wall)));
        let machine = queries::machine(&app.seen, id).unwrap_or_default();
        return format!("{machine} {}", status.unwrap_or_default());
    }
    if queries::node(&app.seen, word).is_some() {
        return short_text::node_state(app, word).0;
    }
    String::new()
}
