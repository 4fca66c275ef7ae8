//! Corrections of a drawn screen before it is sent. They replace wide characters that another cell covers by half and,
//! if the terminal cannot show them, box drawing and other scripts.

use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr;

use super::display::Switch;

/// Characters that the terminal can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// All characters.
    #[default]
    All,
    /// Letters, borders and blocks, but no other signs, which fonts of simple consoles lack.
    WithoutSigns,
    /// All characters, but the operator wants lines and borders in ASCII.
    AsciiBorders,
    /// ASCII only: any other character becomes `?`.
    Ascii,
}

impl Charset {
    /// Returns the charset of a terminal that draws blocks and borders wider than one cell.
    #[must_use]
    pub fn without_blocks(self) -> Self {
        match self {
            Self::All | Self::WithoutSigns | Self::AsciiBorders => Self::AsciiBorders,
            Self::Ascii => Self::Ascii,
        }
    }

    /// Returns the charset on this terminal, by the value of `TERM`.
    #[must_use]
    pub fn on_terminal(self, term: Option<&str>) -> Self {
        match self {
            Self::All if !has_blocks(term) => Self::WithoutSigns,
            Self::All | Self::WithoutSigns | Self::AsciiBorders | Self::Ascii => self,
        }
    }

    /// Chooses the charset by the setting and by the locale in the environment.
    pub fn of(ascii: Switch, environment: impl Fn(&str) -> Option<String>) -> Self {
        match (ascii, utf8(environment)) {
            (_, false) => Self::Ascii,
            (Switch::On, true) => Self::AsciiBorders,
            (Switch::Auto | Switch::Off, true) => Self::All,
        }
    }
}

/// Reports whether a terminal may be asked for the cursor's position.
pub fn can_report_position(term: Option<&str>) -> bool {
    !matches!(term, None | Some("" | "dumb"))
}

/// Returns true if the locale is UTF-8, by the first of its variables that is set. Returns true if none is set: so it
/// is in containers and under sudo, whose terminals are UTF-8 all the same.
fn utf8(environment: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| environment(name).filter(|v| !v.is_empty()));
    set.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Reports whether a UTF-8 terminal has the eight block characters. Some console fonts are known to lack them.
fn has_blocks(term: Option<&str>) -> bool {
    !matches!(term, None | Some("linux" | "dumb" | "vt100" | "vt220"))
}

/// Applies the corrections to a screen.
pub fn apply_charset(buffer: &mut Buffer, charset: Charset) {
    let width = usize::from(buffer.area.width);
    for at in 0..buffer.content.len() {
        let symbol = buffer.content[at].symbol();
        if symbol.is_ascii() {
            continue;
        }
        if symbol.width() > 1 {
            let last = (at + 1) % width == 0;
            if last || buffer.content.get(at + 1).is_some_and(|next| next.symbol() != " ") {
                buffer.content[at].set_symbol("~");
                continue;
            }
        }
        let symbol = buffer.content[at].symbol();
        let plain = match charset {
            Charset::All => continue,
            Charset::WithoutSigns => ascii_sign(symbol),
            Charset::AsciiBorders => ascii_sign(symbol).or_else(|| ascii_border(symbol)),
            Charset::Ascii => {
                Some(ascii_sign(symbol).or_else(|| ascii_border(symbol)).unwrap_or_else(|| ascii_letter(symbol)))
            }
        };
        if let Some(plain) = plain {
            buffer.content[at].set_char(plain);
        }
    }
}

/// Returns the ASCII replacement of a sign: of a severity (`theme::Severity`), a slot, an order.
fn ascii_sign(symbol: &str) -> Option<char> {
    match symbol.chars().next()? {
        '\u{25cf}' => Some('*'),
        '\u{25cb}' => Some('.'),
        '\u{2713}' => Some('+'),
        '\u{25b2}' | '\u{2191}' => Some('^'),
        '\u{2193}' => Some('v'),
        '\u{25ae}' | '\u{25a0}' => Some('#'),
        '\u{25af}' => Some('-'),
        _ => None,
    }
}

/// Returns the ASCII replacement of a box-drawing character, a block or a sign of an interval.
fn ascii_border(symbol: &str) -> Option<char> {
    match symbol.chars().next()? {
        '\u{2013}' | '\u{2500}' | '\u{2501}' | '\u{2504}' | '\u{2505}' | '\u{2508}' | '\u{2509}' | '\u{2550}'
        | '\u{2591}' => Some('-'),
        '\u{2502}' | '\u{2503}' | '\u{2506}' | '\u{2507}' | '\u{250a}' | '\u{250b}' | '\u{2551}' | '\u{258c}'
        | '\u{2590}' => Some('|'),
        '\u{250c}'..='\u{257f}' => Some('+'),
        // machines on the map of the racks and parts of bars (`views/gauge.rs`) stay distinct
        '\u{2580}' => Some('^'),
        '\u{2584}' => Some('_'),
        '\u{2592}' => Some(':'),
        '\u{2593}' => Some('='),
        '\u{2581}'..='\u{259f}' => Some('#'),
        // `\u{b1}` and `\u{2013}`: intervals and ranges, `07:41Z ~ 6m`, `20-40s`
        '\u{2026}' | '\u{b1}' => Some('~'),
        _ => None,
    }
}

/// Drops the accent of an ASCII letter. Anything else becomes `?`.
fn ascii_letter(symbol: &str) -> char {
    symbol.chars().next().filter(char::is_ascii).unwrap_or('?')
}

#[cfg(test)]
mod tests {
    use ratatui::{layout::Rect, style::Style};

    use super::*;
    use crate::theme::Severity;

    fn row(text: &str, charset: Charset) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_stringn(0, 0, text, 12, Style::new());
        apply_charset(&mut buffer, charset);
        buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    }

    #[test]
    fn borders_become_ascii_and_other_scripts_only_without_utf8() {
        let text = "\u{250c}\u{2500}\u{2502}\u{2026} \u{e9}e\u{301} \u{65e5}\u{672c}";
        assert_eq!(row(text, Charset::AsciiBorders), "+-|~ \u{e9}e\u{301} \u{65e5} \u{672c}");
        assert_eq!(row(text, Charset::Ascii), "+-|~ ?e ? ?");
        assert_eq!(row("\u{2502}", Charset::All), "\u{2502}");
    }

    #[test]
    fn the_signs_of_the_severities_stay_distinct_in_ascii() {
        let signs = |charset| Severity::ALL.map(|severity| row(severity.sign(), charset));
        assert_eq!(signs(Charset::Ascii), ["+", ".", "*", "*", "^", "!"]);
        for charset in [Charset::AsciiBorders, Charset::WithoutSigns] {
            assert_eq!(signs(charset), signs(Charset::Ascii));
        }
        assert_eq!(row("\u{2588}\u{2588}\u{2591} 2/3", Charset::Ascii), "##- 2/3");
    }

    /// East Asian terminals draw ambiguous characters two cells wide: the probe has to ask about one of each kind.
    #[test]
    fn signs_are_one_cell_wide_unless_ambiguous_ones_are_wide() {
        let signs = Severity::ALL.map(Severity::sign);
        assert!(signs.iter().all(|sign| sign.width() == 1));
        let ambiguous: Vec<&str> = signs.iter().copied().filter(|sign| sign.width_cjk() == 2).collect();
        assert_eq!(ambiguous, ["\u{25cb}", "\u{25cf}", "\u{25cf}", "\u{25b2}"]);
        assert!(ambiguous.iter().all(|sign| ascii_sign(sign).is_some()));
    }

    #[test]
    fn the_linux_console_has_borders_and_blocks_but_no_signs() {
        let on = |term| Charset::All.on_terminal(Some(term));
        assert_eq!((on("linux"), on("xterm-256color")), (Charset::WithoutSigns, Charset::All));
        assert_eq!(Charset::Ascii.on_terminal(Some("linux")), Charset::Ascii);
        assert_eq!(row("\u{2502}\u{2588}\u{25cf}\u{2713}\u{25ae}", Charset::WithoutSigns), "\u{2502}\u{2588}*+#");
    }

    #[test]
    fn intervals_keep_their_meaning_in_ascii() {
        assert_eq!(row("20\u{2013}40s \u{b1} 6m", Charset::Ascii), "20-40s ~ 6m");
        assert_eq!(row("20\u{2013}40s \u{b1} 6m", Charset::AsciiBorders), "20-40s ~ 6m");
    }

    #[test]
    fn a_wide_character_overlapped_by_a_border_is_replaced() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 1));
        buffer.set_stringn(0, 0, "\u{65e5}\u{672c}", 4, Style::new());
        buffer[(1, 0)].set_symbol("\u{2502}");
        apply_charset(&mut buffer, Charset::All);
        let symbols: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        assert_eq!(symbols, ["~", "\u{2502}", "\u{672c}", " "]);
    }

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
        let of = |pairs: &'static [(&str, &str)], ascii| {
            Charset::of(ascii, |name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(of(&[("LANG", "de_DE.UTF-8")], Switch::Auto), Charset::All);
        assert_eq!(of(&[("LANG", "C.utf8")], Switch::On), Charset::AsciiBorders);
        assert_eq!(of(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")], Switch::Off), Charset::Ascii);
        assert_eq!(of(&[("LC_ALL", ""), ("LC_CTYPE", "ja_JP.eucJP")], Switch::Auto), Charset::Ascii);
        assert_eq!(of(&[], Switch::Auto), Charset::All);
    }
}
