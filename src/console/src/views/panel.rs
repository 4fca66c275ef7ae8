//! Panel: a frame with a title around a part of the screen.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{state::AppConfig, table::put};

/// Corners and sides of a frame: top left, top right, bottom left, bottom right, horizontal, vertical.
const ROUNDED: [&str; 6] = ["\u{256d}", "\u{256e}", "\u{2570}", "\u{256f}", "\u{2500}", "\u{2502}"];
/// Frame for consoles whose fonts have no rounded corners. Terminals without UTF-8 get ASCII when the screen is sent.
const SQUARE: [&str; 6] = ["\u{250c}", "\u{2510}", "\u{2514}", "\u{2518}", "\u{2500}", "\u{2502}"];

/// Number of rows and columns that a frame takes, both sides together.
pub const FRAME: u16 = 2;

/// Columns that the title keeps beside a note.
const MIN_TITLE: u16 = 12;

/// Frame with a title at the left and optional notes at the right.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    title: Vec<Span<'static>>,
    note: Vec<Span<'static>>,
}

impl Panel {
    /// Creates a panel with a title.
    pub fn new(title: Vec<Span<'static>>) -> Self {
        Self { title, note: Vec::new() }
    }

    /// Adds a note at the right end of the top side, after the notes before it. A long title is cut for it. On a narrow
    /// panel the first notes are dropped.
    #[must_use]
    pub fn note(mut self, note: Span<'static>) -> Self {
        self.note.push(note);
        self
    }

    /// Draws the frame, and returns the area within, without the sides and one space beside each.
    pub fn draw(self, config: &AppConfig, buffer: &mut Buffer, area: Rect) -> Rect {
        let style = config.theme.border;
        if area.width < 6 || area.height < FRAME {
            return Rect { width: 0, height: 0, ..area };
        }
        let [top_left, top_right, bottom_left, bottom_right, horizontal, vertical] =
            if config.blocks { ROUNDED } else { SQUARE };
        let (right, bottom) = (area.right() - 1, area.bottom() - 1);
        let side = horizontal.repeat(usize::from(area.width - FRAME));
        for (y, left_corner, right_corner) in [(area.y, top_left, top_right), (bottom, bottom_left, bottom_right)] {
            put(buffer, area.x, y, 1, left_corner, style);
            put(buffer, area.x + 1, y, area.width - FRAME, &side, style);
            put(buffer, right, y, 1, right_corner, style);
        }
        for y in area.y + 1..bottom {
            put(buffer, area.x, y, 1, vertical, style);
            put(buffer, right, y, 1, vertical, style);
        }
        self.draw_title(buffer, area, style);
        inner(area)
    }

    fn draw_title(self, buffer: &mut Buffer, area: Rect, style: Style) {
        let free = area.width - 4;
        let mut notes = self.note;
        let width_of = |notes: &[Span<'static>]| {
            let width: usize = notes.iter().map(|note| note.width() + 2).sum();
            u16::try_from(width).unwrap_or(u16::MAX)
        };
        while !notes.is_empty() && width_of(&notes).saturating_add(MIN_TITLE) > free {
            notes.remove(0);
        }
        let note_width = width_of(&notes);
        let for_title = if note_width > 0 { free - note_width - 1 } else { free };
        let mut title = Line::from(self.title);
        if title.width() > 0 {
            title.spans.insert(0, Span::raw(" "));
            title.spans.push(Span::raw(" "));
        }
        let width = u16::try_from(title.width()).unwrap_or(free);
        // the frame's colour is not the title's
        let mut clear = |from: u16, width: u16| {
            for x in from..from + width {
                buffer[(x, area.y)].set_style(Style::reset());
            }
        };
        clear(area.x + 2, width.min(for_title));
        clear(area.right() - 2 - note_width, note_width);
        buffer.set_line(area.x + 2, area.y, &title, width.min(for_title));
        if width > for_title {
            put(buffer, area.x + 1 + for_title, area.y, 1, "~", style);
        }
        let notes: Vec<Span<'static>> =
            notes.into_iter().flat_map(|note| [Span::raw(" "), note, Span::raw(" ")]).collect();
        if note_width > 0 {
            buffer.set_line(area.right() - 2 - note_width, area.y, &Line::from(notes), note_width);
        }
    }
}

/// Returns the area within a frame, without the sides and one space beside each.
pub fn inner(area: Rect) -> Rect {
    Rect::new(area.x + 2, area.y + 1, area.width.saturating_sub(4), area.height.saturating_sub(FRAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(panel: Panel, blocks: bool, width: u16) -> Vec<String> {
        let config = AppConfig { blocks, ..AppConfig::default() };
        let area = Rect::new(0, 0, width, 3);
        let mut buffer = Buffer::empty(area);
        let inside = panel.draw(&config, &mut buffer, area);
        assert_eq!(inside, Rect::new(2, 1, width - 4, 1));
        let cells: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        cells.chunks(usize::from(width)).map(<[&str]>::concat).collect()
    }

    #[test]
    fn a_panel_has_a_frame_a_title_and_a_note() {
        let panel = Panel::new(vec![Span::raw("In work")]).note(Span::raw("4/4"));
        assert_eq!(
            rows(panel.clone(), true, 24),
            [
                "\u{256d}\u{2500} In work \u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500} 4/4 \u{2500}\u{256e}",
                "\u{2502}                      \u{2502}",
                "\u{2570}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{256f}",
            ]
        );
        let square = rows(panel, false, 24);
        assert!(square[0].starts_with('\u{250c}') && square[2].ends_with('\u{2518}'), "{square:?}");
    }

    #[test]
    fn a_title_that_is_too_long_is_cut_with_a_tilde_and_drops_the_note() {
        let top = rows(Panel::new(vec![Span::raw("Reboots: kernel")]).note(Span::raw("4/4")), true, 14).remove(0);
        assert_eq!(top, "\u{256d}\u{2500} Reboots:~\u{2500}\u{256e}");
    }

    #[test]
    fn a_narrow_panel_keeps_the_last_note() {
        let panel = || Panel::new(vec![Span::raw("Reboots")]).note(Span::raw("moving")).note(Span::raw("done 07:41Z"));
        assert!(rows(panel(), true, 40)[0].contains(" moving  done 07:41Z "), "{:?}", rows(panel(), true, 40));
        let narrow = rows(panel(), true, 30).remove(0);
        assert!(!narrow.contains("moving") && narrow.contains(" done 07:41Z "), "{narrow}");
        assert!(!rows(panel(), true, 20)[0].contains("done"));
    }

    #[test]
    fn an_area_that_is_too_small_stays_empty() {
        let area = Rect::new(0, 0, 5, 3);
        let mut buffer = Buffer::empty(area);
        let inside = Panel::new(vec![Span::raw("x")]).draw(&AppConfig::default(), &mut buffer, area);
        assert_eq!((inside.width, inside.height), (0, 0));
        assert_eq!(buffer, Buffer::empty(area));
    }
}
