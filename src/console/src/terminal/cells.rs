//! Escapes that draw changed cells, in as few bytes as they need: short codes for the 16 colours, one reset for several
//! attributes, moves within a line, and one erase for blanks up to its end. Slow links feel each byte of a cursor move.

use ratatui::{
    buffer::Cell,
    style::{Color, Modifier},
};

/// Blanks at the end of a line from which they are erased together.
const MIN_ERASE: usize = 4;

/// Attributes of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    fg: Color,
    bg: Color,
    modifier: Modifier,
}

impl Look {
    const PLAIN: Self = Self { fg: Color::Reset, bg: Color::Reset, modifier: Modifier::empty() };

    /// Returns true if a blank looks the same with these attributes.
    fn is_same_on_blanks(self, other: Self) -> bool {
        const VISIBLE: Modifier =
            Modifier::REVERSED.union(Modifier::UNDERLINED).union(Modifier::CROSSED_OUT).union(Modifier::SLOW_BLINK);
        self.bg == other.bg && !self.modifier.union(other.modifier).intersects(VISIBLE)
    }

    fn of(cell: &Cell) -> Self {
        Self { fg: cell.fg, bg: cell.bg, modifier: cell.modifier }
    }
}

/// Attributes with their codes.
const MODIFIERS: [(Modifier, &str); 9] = [
    (Modifier::BOLD, "1"),
    (Modifier::DIM, "2"),
    (Modifier::ITALIC, "3"),
    (Modifier::UNDERLINED, "4"),
    (Modifier::SLOW_BLINK, "5"),
    (Modifier::RAPID_BLINK, "6"),
    (Modifier::REVERSED, "7"),
    (Modifier::HIDDEN, "8"),
    (Modifier::CROSSED_OUT, "9"),
];

/// Appends the escapes for these cells, which come line by line from left to right. The terminal's attributes are the
/// default ones before and afterwards. `width` is that of the screen.
pub(super) fn write(out: &mut Vec<u8>, width: u16, cells: &[(u16, u16, &Cell)]) {
    let mut look = Look::PLAIN;
    // the place at which the terminal writes next, while it is known
    let mut next: Option<(u16, u16)> = None;
    let mut at = 0;
    while let Some(&(x, y, cell)) = cells.get(at) {
        go(out, next, (x, y));
        let wanted = Look::of(cell);
        if cell.symbol() != " " || !look.is_same_on_blanks(wanted) {
            turn(out, &mut look, wanted);
        }
        let blanks = blanks_to_the_end(cells, at, width);
        if blanks >= MIN_ERASE {
            out.extend_from_slice(b"\x1b[K");
            next = Some((x, y));
            at += blanks;
            continue;
        }
        out.extend_from_slice(cell.symbol().as_bytes());
        // terminals disagree about the width of other scripts
        next = (!has_disputed_width(cell.symbol())).then(|| (x + 1, y)).filter(|(x, _)| *x < width);
        at += 1;
    }
    turn(out, &mut look, Look::PLAIN);
}

/// Reports whether a symbol is neither ASCII nor box drawing nor a block.
fn has_disputed_width(symbol: &str) -> bool {
    !symbol.is_ascii() && !symbol.chars().all(|c| matches!(c, '\u{2500}'..='\u{259f}'))
}

/// Returns the number of cells from `at` on that are plain blanks and reach the end of the line.
fn blanks_to_the_end(cells: &[(u16, u16, &Cell)], at: usize, width: u16) -> usize {
    let Some(&(x, y, _)) = cells.get(at) else { return 0 };
    let all = usize::from(width.saturating_sub(x));
    let run = cells.get(at..at + all).unwrap_or_default();
    let blank = |(offset, (column, line, cell)): (usize, &(u16, u16, &Cell))| {
        *line == y
            && usize::from(*column) == usize::from(x) + offset
            && cell.symbol() == " "
            && Look::of(cell) == Look::PLAIN
    };
    if !run.is_empty() && run.iter().enumerate().all(blank) { all } else { 0 }
}

/// Moves the terminal's place.
fn go(out: &mut Vec<u8>, from: Option<(u16, u16)>, (x, y): (u16, u16)) {
    match from {
        Some((column, line)) if (column, line) == (x, y) => {}
        Some((column, line)) if line == y && column + 1 == x => out.extend_from_slice(b"\x1b[C"),
        Some((column, line)) if line == y && column < x => {
            out.extend_from_slice(format!("\x1b[{}C", x - column).as_bytes());
        }
        Some(_) | None => out.extend_from_slice(format!("\x1b[{};{}H", y + 1, x + 1).as_bytes()),
    }
}

/// Changes the attributes.
fn turn(out: &mut Vec<u8>, look: &mut Look, to: Look) {
    if *look == to {
        return;
    }
    if to == Look::PLAIN {
        out.extend_from_slice(b"\x1b[m");
        *look = to;
        return;
    }
    let mut codes: Vec<String> = Vec::new();
    if !to.modifier.contains(look.modifier) {
        codes.push("0".to_owned());
        *look = Look::PLAIN;
    }
    let added =
        MODIFIERS.iter().filter(|(modifier, _)| to.modifier.contains(*modifier) && !look.modifier.contains(*modifier));
    codes.extend(added.map(|(_, code)| (*code).to_owned()));
    if to.fg != look.fg {
        codes.push(code(to.fg, 30, to.modifier.contains(Modifier::BOLD)));
    }
    if to.bg != look.bg {
        codes.push(code(to.bg, 40, false));
    }
    out.extend_from_slice(format!("\x1b[{}m", codes.join(";")).as_bytes());
    *look = to;
}

/// Returns the code of a colour; `base` is 30 for the foreground and 40 for the background. Many terminals turn the
/// short code of a bold dark colour into the light colour, so the long code is used there.
fn code(colour: Color, base: u16, bold: bool) -> String {
    let (number, light) = match colour {
        Color::Reset => return (base + 9).to_string(),
        Color::Indexed(index) => return format!("{};5;{index}", base + 8),
        Color::Rgb(red, green, blue) => return format!("{};2;{red};{green};{blue}", base + 8),
        Color::Black => (0, false),
        Color::Red => (1, false),
        Color::Green => (2, false),
        Color::Yellow => (3, false),
        Color::Blue => (4, false),
        Color::Magenta => (5, false),
        Color::Cyan => (6, false),
        Color::Gray => (7, false),
        Color::DarkGray => (0, true),
        Color::LightRed => (1, true),
        Color::LightGreen => (2, true),
        Color::LightYellow => (3, true),
        Color::LightBlue => (4, true),
        Color::LightMagenta => (5, true),
        Color::LightCyan => (6, true),
        Color::White => (7, true),
    };
    match (light, bold) {
        (true, _) => (base + 60 + number).to_string(),
        (false, true) => format!("{};5;{number}", base + 8),
        (false, false) => (base + number).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::{buffer::Buffer, layout::Rect, style::Style};

    use super::*;

    /// Returns the escapes from one screen of 12×2 to another.
    fn escapes(before: &[(u16, u16, &str, Style)], after: &[(u16, u16, &str, Style)]) -> String {
        let screen = |texts: &[(u16, u16, &str, Style)]| {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 2));
            for (x, y, text, style) in texts {
                buffer.set_string(*x, *y, text, *style);
            }
            buffer
        };
        let (before, after) = (screen(before), screen(after));
        let mut out = Vec::new();
        write(&mut out, 12, &before.diff(&after));
        String::from_utf8(out).unwrap().replace('\u{1b}', "^")
    }

    #[test]
    fn attributes_are_changed_with_few_bytes() {
        let (plain, red) = (Style::new(), Style::new().fg(Color::Red));
        let bold = red.add_modifier(Modifier::BOLD);
        assert_eq!(escapes(&[], &[(0, 0, "a", plain), (1, 0, "b", red)]), "^[1;1Ha^[31mb^[m");
        assert_eq!(escapes(&[], &[(0, 0, "a", bold), (1, 0, "b", red)]), "^[1;1H^[1;38;5;1ma^[0;31mb^[m");
        let words = [(0, 0, "a", red), (1, 0, "  ", plain), (3, 0, "b", red)];
        assert_eq!(escapes(&[(0, 0, "xxxx", plain)], &words), "^[1;1H^[31ma  b^[m", "blanks need no colour");
        let light = Style::new().fg(Color::LightBlue).add_modifier(Modifier::REVERSED);
        assert_eq!(escapes(&[], &[(0, 1, "a", light)]), "^[2;1H^[7;94ma^[m");
    }

    #[test]
    fn blanks_to_the_end_of_a_line_are_erased_and_short_gaps_are_jumped() {
        let plain = Style::new();
        assert_eq!(escapes(&[(3, 0, "abcdefghi", plain)], &[(3, 0, "x", plain)]), "^[1;4Hx^[K");
        assert_eq!(escapes(&[(0, 0, "abcdef", plain)], &[(0, 0, "xbcdey", plain)]), "^[1;1Hx^[4Cy");
        let bar = plain.add_modifier(Modifier::REVERSED);
        let full = " ".repeat(12);
        assert_eq!(escapes(&[(0, 0, &full, bar)], &[]), "^[1;1H^[K");
        assert_eq!(escapes(&[], &[(0, 1, &full, bar)]), format!("^[2;1H^[7m{full}^[m"));
    }

    #[test]
    fn the_place_is_sent_again_after_a_character_of_disputed_width() {
        let plain = Style::new();
        assert_eq!(escapes(&[], &[(0, 0, "a\u{e9}b", plain)]), "^[1;1Ha\u{e9}^[1;3Hb");
        assert_eq!(escapes(&[], &[(0, 0, "a\u{2588}b", plain)]), "^[1;1Ha\u{2588}b");
    }
}
