//! Table whose cost depends on the screen's size: only visible rows are made, and columns are computed for the width.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::theme::Theme;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its title.
    pub title: &'static str,
    /// Its width; 0 = the rest of the line.
    pub width: u16,
    /// The narrowest table that shows the column.
    pub from: u16,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// Its style.
    pub style: Style,
}

impl Cell {
    /// Creates a cell in the terminal's own colours.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: Style::new() }
    }

    /// Creates a cell with a style.
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

/// A visible row. It has the cells of all columns, including hidden ones.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The cells.
    pub cells: Vec<Cell>,
    /// Whether the cursor is on it.
    pub cursor: bool,
    /// Whether it is marked.
    pub marked: bool,
}

/// Width of the gutter, in columns: the cursor's mark and the mark.
pub const GUTTER: u16 = 2;

/// Draws titles and rows. The cursor is a sign in the gutter and a bold first cell, so that a move costs few bytes on a
/// slow link.
pub fn draw(buffer: &mut Buffer, area: Rect, theme: &Theme, columns: &[Column], rows: &[Row], is_stale: bool) {
    let shown: Vec<(usize, u16, u16)> = places(columns, area);
    for (i, x, width) in &shown {
        if let Some(column) = columns.get(*i) {
            put(buffer, *x, area.y, *width, column.title, theme.title);
        }
    }
    for (line, row) in (area.y + 1..area.bottom()).zip(rows) {
        if row.cursor {
            put(buffer, area.x, line, 1, ">", theme.cursor);
        }
        if row.marked {
            put(buffer, area.x + 1, line, 1, "*", theme.mark);
        }
        for (position, (i, x, width)) in shown.iter().enumerate() {
            let Some(cell) = row.cells.get(*i) else { continue };
            let style = if is_stale { theme.muted } else { cell.style };
            let style = if row.cursor && position < 2 { style.patch(theme.cursor) } else { style };
            put(buffer, *x, line, *width, &cell.text, style);
        }
    }
}

/// Returns the columns that a cell of these rows needs, within bounds.
pub fn needs(rows: &[Row], cell: usize, least: u16, max_lines: u16) -> u16 {
    let longest = rows.iter().filter_map(|row| row.cells.get(cell)).map(|cell| cell.text.width()).max();
    u16::try_from(longest.unwrap_or(0)).unwrap_or(max_lines).clamp(least, max_lines)
}

/// Returns the width that is left for the column without a width.
pub fn rest(columns: &[Column], area: Rect) -> u16 {
    let shown: Vec<u16> = columns.iter().filter(|c| c.from <= area.width).map(|c| c.width).collect();
    let gaps = u16::try_from(shown.len().saturating_sub(1)).unwrap_or(0);
    area.width.saturating_sub(GUTTER + gaps + shown.iter().sum::<u16>())
}

/// Returns index, left end and width of each visible column.
fn places(columns: &[Column], area: Rect) -> Vec<(usize, u16, u16)> {
    let shown: Vec<(usize, &Column)> = columns.iter().enumerate().filter(|(_, c)| c.from <= area.width).collect();
    let rest = rest(columns, area);
    let mut x = area.x + GUTTER;
    let mut places = Vec::with_capacity(shown.len());
    for (i, column) in shown {
        let width = if column.width == 0 { rest } else { column.width }.min(area.right().saturating_sub(x));
        places.push((i, x, width));
        x = x.saturating_add(width + 1).min(area.right());
    }
    places
}

/// Writes text, truncated with `~` if it does not fit.
pub fn put(buffer: &mut Buffer, x: u16, y: u16, width: u16, text: &str, style: Style) {
    if width == 0 || !buffer.area.contains((x, y).into()) {
        return;
    }
    let (end, _) = buffer.set_stringn(x, y, text, usize::from(width), style);
    if text.width() > usize::from(width) {
        buffer.set_stringn(end.saturating_sub(1).max(x), y, "~", 1, style);
    }
}

/// Wraps text at spaces into lines of `width` columns. A word that is longer than a line is broken.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let (mut line, mut used) = (String::new(), 0);
        for word in paragraph.split(' ') {
            let (gap, word_width) = (usize::from(!line.is_empty()), word.width());
            if used + gap + word_width <= width {
                if gap == 1 {
                    line.push(' ');
                }
                line.push_str(word);
                used += gap + word_width;
                continue;
            }
            if !line.is_empty() {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            for c in word.chars() {
                let word_width = c.width().unwrap_or(0);
                if used + word_width > width {
                    lines.push(std::mem::take(&mut line));
                    used = 0;
                }
                line.push(c);
                used += word_width;
            }
        }
        lines.push(line);
    }
    lines
}

/// Wraps text to at most `max_lines` lines. A `~` marks the cut.
pub fn cut(text: &str, width: usize, max_lines: usize) -> Vec<String> {
    let mut lines = wrap(text, width);
    if lines.len() > max_lines {
        lines.truncate(max_lines);
        if let Some(last) = lines.last_mut() {
            mark_cut(last, width);
        }
    }
    lines
}

/// Puts a `~` at the end of a truncated line, within its width.
pub fn mark_cut(line: &mut String, width: usize) {
    while line.width() + 1 > width.max(1) {
        line.pop();
    }
    line.push('~');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_wrapped_at_spaces_without_loss() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert_eq!(wrap("a\n\nb", 8), ["a", "", "b"]);
    }

    #[test]
    fn truncated_text_ends_with_a_tilde() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 1));
        put(&mut buffer, 0, 0, 6, "abcdefgh", Style::new());
        assert_eq!(buffer[(5, 0)].symbol(), "~");
        assert_eq!(buffer[(4, 0)].symbol(), "e");
    }
}
