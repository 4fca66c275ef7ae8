//! Table whose cost depends on the screen's size: only visible rows are made, and columns are computed for the width.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{
    gauge,
    theme::{Severity, Theme},
};

/// A column, ready to be drawn.
#[derive(Clone, Debug)]
pub struct DrawnColumn {
    /// Its title.
    pub title: &'static str,
    /// Its width.
    pub width: u16,
    /// Its cells in the visible rows.
    pub cells: Vec<Cell>,
    /// Whether the table is sorted by it, and whether the largest value comes first.
    pub sorted: Option<bool>,
}

/// A cell: a shape, and text to its right. Either may be missing.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// A sign or a bar, and its style.
    pub shape: Option<(String, Style)>,
    /// Its text.
    pub text: String,
    /// The text's style.
    pub style: Style,
}

impl Cell {
    /// Creates a cell in the terminal's own colours.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::styled(text, Style::new())
    }

    /// Creates a cell with a style.
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { shape: None, text: text.into(), style }
    }

    /// Creates a cell with a sign and text, both of this severity.
    pub fn signed(theme: &Theme, severity: Severity, text: impl Into<String>) -> Self {
        let shape = Some((severity.sign().to_owned(), theme.shape(severity)));
        Self { shape, text: text.into(), style: theme.severity(severity) }
    }

    /// Creates a cell with a [`bar`] of this severity and text.
    pub fn bar(bar: String, theme: &Theme, severity: Severity, text: impl Into<String>) -> Self {
        Self { shape: Some((bar, theme.shape(severity))), text: text.into(), style: Style::new() }
    }

    /// Returns its width in terminal columns.
    pub fn width(&self) -> usize {
        let shape = self.shape.as_ref().map_or(0, |(shape, _)| shape.width());
        shape + usize::from(shape > 0 && !self.text.is_empty()) + self.text.width()
    }

    /// Returns true if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.shape.is_none() && self.text.is_empty()
    }
}

/// Returns a bar: `part` of `whole` is filled. It is full only at the end, and not empty after the beginning.
pub fn bar(part: u64, whole: u64, width: u16) -> String {
    let amount = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (part, whole) = (amount(part), amount(whole.max(1)));
    let spans = gauge::done_of(part.min(whole), whole, usize::from(width), Style::new(), Style::new(), true);
    spans.iter().map(|span| span.content.as_ref()).collect()
}

/// Signs in front of a visible row.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowMarks {
    /// Whether the cursor is on it.
    pub cursor: bool,
    /// Whether it is marked.
    pub marked: bool,
}

/// Sign behind the title of the sort column, if the least value comes first.
const SORTED_UP: &str = "\u{2191}";
/// The same if the largest value comes first.
const SORTED_DOWN: &str = "\u{2193}";

/// Width of the gutter, in columns: the cursor's mark and the mark.
pub const GUTTER: u16 = 2;

/// Draws titles and rows. The row under the cursor is a bar over the full width, in which cells keep their colours. A
/// sign in the gutter shows it without colours too.
pub fn draw(
    buffer: &mut Buffer,
    area: Rect,
    theme: &Theme,
    columns: &[DrawnColumn],
    rows: impl Iterator<Item = RowMarks>,
    is_stale: bool,
) {
    for (column, x, width) in places(columns, area) {
        put(buffer, x, area.y, width, column.title, theme.title);
        if let Some(largest_first) = column.sorted {
            // behind the title, or over its end if the column has no more space
            let behind = u16::try_from(column.title.width()).unwrap_or(width).min(width.saturating_sub(1));
            put(buffer, x + behind, area.y, 1, if largest_first { SORTED_DOWN } else { SORTED_UP }, theme.key);
        }
    }
    for ((line, row), nth) in (area.y + 1..area.bottom()).zip(rows).zip(0..) {
        if row.cursor {
            put(buffer, area.x, line, 1, ">", Style::new());
        }
        if row.marked {
            put(buffer, area.x + 1, line, 1, "*", theme.mark);
        }
        // a theme whose bar cannot be seen shows the names in another face
        let has_bar = theme.selection != Style::new();
        if row.cursor {
            buffer.set_style(Rect { y: line, height: 1, ..area }, theme.selection);
        }
        for (position, (column, x, width)) in places(columns, area).enumerate() {
            let Some(cell) = column.cells.get::<usize>(nth) else { continue };
            let named = row.cursor && position < 2 && !has_bar;
            let style = |style: Style| match (is_stale, named) {
                (true, true) => theme.muted.patch(theme.cursor),
                (true, false) => theme.muted,
                (false, true) => style.patch(theme.cursor),
                (false, false) => style,
            };
            put_cell(buffer, (x, line), width, cell, row.cursor && has_bar, style);
        }
    }
}

/// Writes a cell: its shape, a gap, its text. In the cursor's bar the text has no colour of its own, so that the bar is one
/// piece; the sign keeps its colour, and the word is beside it. A bar of several blocks is no part of the cursor's bar: in
/// reverse video a full block would look empty.
fn put_cell(
    buffer: &mut Buffer,
    (x, y): (u16, u16),
    width: u16,
    cell: &Cell,
    is_in_bar: bool,
    style: impl Fn(Style) -> Style,
) {
    let mut left = x;
    if let Some((shape, of)) = &cell.shape {
        let shape_width = u16::try_from(shape.width()).unwrap_or(width);
        if shape_width > 1 {
            buffer.set_style(Rect::new(x, y, shape_width.min(width), 1), Style::reset());
        }
        put(buffer, x, y, width, shape, style(*of));
        left = left.saturating_add(shape_width + 1);
    }
    let of_text = if is_in_bar { Style { fg: None, ..cell.style } } else { style(cell.style) };
    put(buffer, left, y, (x + width).saturating_sub(left), &cell.text, of_text);
}

/// Returns the width that is left beside these columns.
pub fn rest(columns: &[DrawnColumn], table_width: u16) -> u16 {
    let gaps = u16::try_from(columns.len().saturating_sub(1)).unwrap_or(0);
    table_width.saturating_sub(GUTTER + gaps + columns.iter().map(|c| c.width).sum::<u16>())
}

/// Returns each column with its left end and its width within the table.
fn places(columns: &[DrawnColumn], area: Rect) -> impl Iterator<Item = (&DrawnColumn, u16, u16)> {
    columns.iter().scan(area.x + GUTTER, move |x, column| {
        let (left, width) = (*x, column.width.min(area.right().saturating_sub(*x)));
        *x = left.saturating_add(width + 1).min(area.right());
        Some((column, left, width))
    })
}

/// Writes text, truncated with `~` if it does not fit, at a word if there is one near.
pub fn put(buffer: &mut Buffer, x: u16, y: u16, width: u16, text: &str, style: Style) {
    if width == 0 || !buffer.area.contains((x, y).into()) {
        return;
    }
    let text_width = if is_ascii_text(text) { text.len() } else { text.width() };
    if text_width <= usize::from(width) {
        write(buffer, x, y, width, text, style);
        return;
    }
    let shown = text.get(..word_end(text, usize::from(width) - 1)).unwrap_or(text);
    let end = write(buffer, x, y, width - 1, shown, style);
    write(buffer, end, y, 1, "~", style);
}

/// Returns true if each byte is a character that takes one column.
fn is_ascii_text(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Writes at most `width` columns of text, from a cell of the buffer on, and returns the column behind it. Nearly all texts
/// are ASCII. ratatui looks for the graphemes of these too, which took a quarter of the instructions of a frame.
fn write(buffer: &mut Buffer, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
    if !is_ascii_text(text) {
        return buffer.set_stringn(x, y, text, usize::from(width), style).0;
    }
    let columns = width.min(buffer.area.right().saturating_sub(x));
    if columns == 0 {
        return x;
    }
    let first = buffer.index_of(x, y);
    let cells = buffer.content[first..].iter_mut().take(usize::from(columns));
    cells.zip(text.chars()).fold(x, |column, (cell, character)| {
        cell.set_char(character).set_style(style);
        column + 1
    })
}

/// Longest part of a word that is left out so that a text ends at a word. Names are longer and are cut.
const MAX_LEFT_OUT: usize = 10;

/// Returns where a text that is cut to `width` columns ends, in bytes: at the end of a word if that is near. The time
/// depends on the width alone.
fn word_end(text: &str, width: usize) -> usize {
    let (mut used, mut end, mut at_word) = (0, text.len(), None);
    for (at, c) in text.char_indices() {
        if c == ' ' && used > 0 {
            at_word = Some((at, used));
        }
        used += c.width().unwrap_or(0);
        if used > width {
            if !(c.is_alphanumeric() || "-._/:".contains(c)) {
                // the last word is whole
                return at;
            }
            end = at;
            break;
        }
    }
    match at_word {
        Some((at, columns)) if columns + MAX_LEFT_OUT >= width => at,
        Some(_) | None => end,
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

/// Puts a `~` at the end of a truncated line, within its width. The time depends on the width alone, because texts from
/// outside may be long.
pub fn mark_cut(line: &mut String, width: usize) {
    let room = width.saturating_sub(1);
    let mut used = 0;
    let end = line.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > room
    });
    line.truncate(end.map_or(line.len(), |(at, _)| at));
    // a sequence may be wider than its characters
    while line.width() > room && line.pop().is_some() {}
    line.push('~');
}

#[cfg(test)]
mod tests {
    use ratatui::style::Modifier;

    use super::*;

    #[test]
    fn long_text_is_wrapped_at_spaces_without_loss() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert_eq!(wrap("a\n\nb", 8), ["a", "", "b"]);
    }

    #[test]
    fn a_bar_is_full_only_at_the_end_and_empty_only_at_the_beginning() {
        let filled = |part, whole| bar(part, whole, 8).chars().filter(|c| *c == '\u{2588}').count();
        let all = [(0, 40), (1, 40), (20, 40), (39, 40), (40, 40), (50, 40), (0, 0), (u64::MAX - 1, u64::MAX)];
        assert_eq!(all.map(|(part, whole)| filled(part, whole)), [0, 1, 4, 7, 8, 8, 0, 7]);
        assert_eq!(bar(1, 2, 4), "\u{2588}\u{2588}\u{2591}\u{2591}");
    }

    /// The colour of a severity and the marks can be seen in the row under the cursor too, and without colours.
    #[test]
    fn the_cursors_row_is_a_full_bar_that_keeps_colours_and_marks() {
        let area = Rect::new(0, 0, 30, 3);
        let mut buffer = Buffer::empty(area);
        let theme = Theme::named("terminal", true).unwrap();
        let status = |severity| Cell::signed(&theme, severity, "text");
        let column = |title, cells| DrawnColumn { title, width: 10, cells, sorted: None };
        let columns = [
            column("A", vec![Cell::plain("one"), Cell::plain("two")]),
            column("B", vec![status(Severity::Waiting), status(Severity::Failed)]),
        ];
        let rows = [RowMarks::default(), RowMarks { cursor: true, marked: true }];
        draw(&mut buffer, area, &theme, &columns, rows.into_iter(), false);
        let reversed =
            |buffer: &Buffer, y: u16| (0..30).filter(|x| buffer[(*x, y)].modifier.contains(Modifier::REVERSED)).count();
        assert_eq!((reversed(&buffer, 1), reversed(&buffer, 2)), (0, 30));
        assert_eq!((buffer[(0, 2)].symbol(), buffer[(1, 2)].symbol(), buffer[(13, 2)].symbol()), (">", "*", "!"));
        assert_eq!(Some(buffer[(13, 2)].fg), theme.danger.fg, "the sign has the colour of its severity");
        assert_eq!(buffer[(15, 2)].fg, ratatui::style::Color::Reset, "the bar is one piece");
        let gauge = DrawnColumn {
            title: "C",
            width: 10,
            cells: vec![Cell::bar(bar(1, 2, 4), &theme, Severity::Draining, "1/2")],
            sorted: None,
        };
        let cursor = [RowMarks { cursor: true, marked: false }];
        let mut buffer = Buffer::empty(area);
        draw(&mut buffer, area, &theme, &[gauge], cursor.into_iter(), false);
        assert_eq!(reversed(&buffer, 1), 26, "reverse video would empty the blocks of a bar");
    }

    #[test]
    fn an_arrow_behind_its_title_shows_the_sort_column_and_the_order() {
        let titles = |sorted, width| {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
            let column = DrawnColumn { title: "SINCE", width, cells: Vec::new(), sorted };
            let theme = Theme::named("terminal", true).unwrap();
            draw(&mut buffer, Rect::new(0, 0, 12, 1), &theme, &[column], std::iter::empty(), false);
            buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim().to_owned()
        };
        assert_eq!(titles(None, 8), "SINCE");
        assert_eq!(titles(Some(false), 8), "SINCE\u{2191}");
        assert_eq!(titles(Some(true), 5), "SINC\u{2193}", "the title gives way");
    }

    #[test]
    fn truncated_text_ends_at_a_word_if_that_is_near() {
        let cut = |text: &str, width| {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 30, 1));
            put(&mut buffer, 0, 0, width, text, Style::new());
            buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim().to_owned()
        };
        assert_eq!(cut("not healthy after the last step", 25), "not healthy after the~");
        assert_eq!(cut("not healthy after the last step", 22), "not healthy after the~");
        assert_eq!(cut("a worker-012.rack3.tokyo.example.com", 20), "a worker-012.rack3.~", "a name is cut");
        assert_eq!(cut("not healthy yet: \"OK\", not true", 22), "not healthy yet: \"OK\"~");
        assert_eq!(cut("one two", 7), "one two");
    }

    /// ASCII is written without ratatui's search for graphemes: nobody may see a difference.
    #[test]
    fn text_is_written_as_ratatui_writes_it() {
        let area = Rect::new(3, 1, 12, 3);
        let style = Style::new().fg(ratatui::style::Color::Red).add_modifier(Modifier::BOLD);
        let texts = [
            "",
            " ",
            "a",
            "node-01",
            "exactly 12 ch",
            "longer than the buffer",
            "a\tb",
            "\u{7f}",
            "é",
            "日本",
            "e\u{301}x",
            "~",
        ];
        for (text, x, width) in texts.iter().flat_map(|t| (3..=15).flat_map(move |x| (1..14).map(move |w| (*t, x, w))))
        {
            let mut buffers = [
                Buffer::filled(area, ratatui::buffer::Cell::new("#")),
                Buffer::filled(area, ratatui::buffer::Cell::new("#")),
            ];
            let end = write(&mut buffers[0], x, 2, width, text, style);
            let (expected_end, _) = buffers[1].set_stringn(x, 2, text, usize::from(width), style);
            assert_eq!((end, &buffers[0]), (expected_end, &buffers[1]), "{text:?} at {x}, {width} columns");
        }
    }

    #[test]
    fn truncated_text_ends_with_a_tilde() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 1));
        put(&mut buffer, 0, 0, 6, "abcdefgh", Style::new());
        assert_eq!(buffer[(5, 0)].symbol(), "~");
        assert_eq!(buffer[(4, 0)].symbol(), "e");
    }
}
