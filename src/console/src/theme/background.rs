//! Detection of a light or dark terminal: a query by OSC 11, and its answer among the keys.
//!
//! The answer arrives in the same stream as the operator's input. Code that reads it before the key reader starts loses
//! what was typed meanwhile and takes an arrow key for a refusal. It also lets a late answer (over a slow link, after
//! the timeout) through as keys: `]11;rgb:…` would open views and the command line. So the console starts without
//! waiting. An [`AnswerFilter`] in front of the key table takes the answer, and nothing else, out of the keys whenever
//! it arrives. The crate `terminal-colorsaurus` has all three problems, so it is not used.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Query for the colour of the background.
pub const BACKGROUND_QUERY: &str = "\u{1b}]11;?\u{7}";
/// Time for which an answer is expected; no link is slower.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait at the console's end for an expected answer, which would otherwise be typed into the shell.
pub const EXIT_TIMEOUT: Duration = Duration::from_millis(150);
/// Beginning of every answer, after its escape.
const ANSWER_PREFIX: &str = "]11;";
/// Longest answer; a real one has 24 characters.
const MAX_ANSWER_LENGTH: usize = 64;

/// Kind of a background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Dark text can be read on it.
    Light,
    /// Light text can be read on it.
    Dark,
}

impl Background {
    /// Returns the theme for this background.
    pub fn theme(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// Reports whether the terminal may be queried. Terminals that print the query, or that pass it on to several others,
/// may not.
pub fn can_query(term: Option<&str>) -> bool {
    match term {
        None | Some("" | "dumb" | "linux" | "Eterm" | "screen" | "vt100" | "vt102" | "vt220") => false,
        Some(term) => !term.starts_with("screen."),
    }
}

/// Parses an answer, `rgb:RRRR/GGGG/BBBB` with one to four digits each.
pub fn parse(answer: &str) -> Option<Background> {
    let (kind, digits) = answer.split_once(':')?;
    let parts: Vec<&str> = digits.split('/').collect();
    if !matches!((kind, parts.len()), ("rgb", 3) | ("rgba", 4)) {
        return None;
    }
    let part = |text: &&str| {
        let max = match text.len() {
            1..=4 => (1_u32 << (4 * text.len())) - 1,
            _ => return None,
        };
        Some(f64::from(u32::from_str_radix(text, 16).ok()?) / f64::from(max))
    };
    let [red, green, blue]: [f64; 3] = parts.iter().take(3).map(part).collect::<Option<Vec<_>>>()?.try_into().ok()?;
    // luma as in television: perceived brightness
    let luma = 0.299 * red + 0.587 * green + 0.114 * blue;
    Some(if luma > 0.5 { Background::Light } else { Background::Dark })
}

/// Result of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterResult {
    /// Keys that the operator pressed, in their order.
    pub keys: Vec<KeyEvent>,
    /// The answer, if the key completed it.
    pub answer: Option<Background>,
}

/// Filter that takes the answer out of the keys.
#[derive(Clone, Debug, Default)]
pub struct AnswerFilter {
    /// Whether an answer is expected.
    open: bool,
    /// Keys that may be the beginning of an answer.
    pending_keys: Vec<KeyEvent>,
    /// Text of these keys.
    pending_text: String,
}

impl AnswerFilter {
    /// Creates a filter that expects an answer.
    pub fn open() -> Self {
        Self { open: true, ..Self::default() }
    }

    /// Reports whether an answer is still expected.
    pub fn is_waiting(&self) -> bool {
        self.open
    }

    /// Handles a key, which is the operator's or a letter of the answer.
    pub fn handle(&mut self, key: KeyEvent) -> FilterResult {
        if !self.open || key.kind == KeyEventKind::Release {
            return FilterResult { keys: vec![key], answer: None };
        }
        let in_answer = self.pending_text.starts_with(ANSWER_PREFIX);
        if in_answer && is_terminator(key) {
            // whatever its content, this was the answer
            let answer = parse(&self.pending_text[ANSWER_PREFIX.len()..]);
            *self = Self::default();
            return FilterResult { keys: Vec::new(), answer };
        }
        let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        if in_answer {
            // letters belong to the answer until it ends or nothing more arrives; a truncated answer takes at most as
            // many letters of the operator as an answer has, and no other keys
            return match key.code {
                KeyCode::Char(c) if plain && self.pending_text.len() < MAX_ANSWER_LENGTH => {
                    self.pending_text.push(c);
                    FilterResult::default()
                }
                // the answer's own escape, if it arrived separately from what follows
                KeyCode::Esc => FilterResult::default(),
                _ => {
                    *self = Self::default();
                    FilterResult { keys: vec![key], answer: None }
                }
            };
        }
        // the escape before it is Alt on the bracket, or a key of its own if it arrived separately
        let letter = match (key.code, self.pending_text.is_empty()) {
            (KeyCode::Char(']'), true) => Some(']'),
            (KeyCode::Char(c), false) if plain => Some(c),
            _ => None,
        };
        if let Some(letter) = letter {
            self.pending_text.push(letter);
            self.pending_keys.push(key);
            if ANSWER_PREFIX.starts_with(&self.pending_text) {
                return FilterResult::default();
            }
            return FilterResult { keys: self.flush(), answer: None };
        }
        let mut keys = self.flush();
        keys.push(key);
        FilterResult { keys, answer: None }
    }

    /// Returns the held keys after a pause: they were the operator's. The rest of an answer is dropped.
    pub fn flush(&mut self) -> Vec<KeyEvent> {
        let in_answer = self.pending_text.starts_with(ANSWER_PREFIX);
        self.pending_text.clear();
        let pending_keys = std::mem::take(&mut self.pending_keys);
        if in_answer { Vec::new() } else { pending_keys }
    }

    /// Returns the held keys before an event that is no key. An answer that has begun continues after it.
    pub fn flush_for_event(&mut self) -> Vec<KeyEvent> {
        if self.pending_text.starts_with(ANSWER_PREFIX) { Vec::new() } else { self.flush() }
    }

    /// Stops expecting an answer.
    pub fn close(&mut self) -> Vec<KeyEvent> {
        self.open = false;
        self.flush()
    }
}

/// Reports whether a key ends the answer: BEL, or the backslash of ST as the key reader delivers them. The backslash is
/// bare if its escape arrived separately.
fn is_terminator(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('g') => key.modifiers.contains(KeyModifiers::CONTROL),
        KeyCode::Char('\\') => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the keys that crossterm makes of these bytes.
    fn keys(bytes: &str) -> Vec<KeyEvent> {
        let mut out = Vec::new();
        let mut chars = bytes.chars().peekable();
        while let Some(c) = chars.next() {
            out.push(match c {
                '\u{1b}' => match chars.next() {
                    Some(c) => KeyEvent::new(KeyCode::Char(c), KeyModifiers::ALT),
                    None => KeyEvent::from(KeyCode::Esc),
                },
                '\u{7}' => KeyEvent::new(KeyCode::Char('g'), KeyModifiers::CONTROL),
                c => KeyEvent::from(KeyCode::Char(c)),
            });
        }
        out
    }

    /// Returns the typed text and the answer.
    fn handle(answer_filter: &mut AnswerFilter, all: Vec<KeyEvent>) -> (String, Option<Background>) {
        let (mut typed, mut answer) = (String::new(), None);
        let mut note = |keys: Vec<KeyEvent>| {
            for key in keys {
                match key.code {
                    KeyCode::Char(c) => typed.push(c),
                    KeyCode::Esc => typed.push('~'),
                    _ => typed.push('?'),
                }
            }
        };
        for key in all {
            let result = answer_filter.handle(key);
            answer = answer.or(result.answer);
            note(result.keys);
        }
        note(answer_filter.flush());
        (typed, answer)
    }

    #[test]
    fn light_and_dark_backgrounds_are_distinguished() {
        use Background::{Dark, Light};
        for (answer, what) in [
            ("rgb:ffff/ffff/ffff", Some(Light)),
            ("rgb:fdfd/f6f6/e3e3", Some(Light)),
            ("rgb:0000/0000/0000", Some(Dark)),
            ("rgb:00/2b/36", Some(Dark)),
            ("rgb:f/f/f", Some(Light)),
            ("rgba:ffff/ffff/ffff/8000", Some(Light)),
            ("rgb:ffff/ffff", None),
            ("rgb:fffff/0/0", None),
            ("rgb:xx/yy/zz", None),
            ("?", None),
            ("", None),
        ] {
            assert_eq!(parse(answer), what, "{answer}");
        }
    }

    #[test]
    fn the_answer_is_filtered_out_of_typed_keys() {
        for end in ["\u{7}", "\u{1b}\\"] {
            let mut answer_filter = AnswerFilter::open();
            let typed = keys(&format!("2j\u{1b}]11;rgb:ffff/ffff/ffff{end}/web]x"));
            assert_eq!(handle(&mut answer_filter, typed), ("2j/web]x".to_owned(), Some(Background::Light)));
            assert!(!answer_filter.is_waiting());
        }
    }

    #[test]
    fn a_separate_escape_is_a_key_and_the_rest_of_the_answer_is_filtered() {
        let mut answer_filter = AnswerFilter::open();
        let mut typed = vec![KeyEvent::from(KeyCode::Esc)];
        typed.extend(keys("]11;rgb:0000/0000/0000"));
        typed.extend([
            KeyEvent::from(KeyCode::Esc),
            KeyEvent::from(KeyCode::Char('\\')),
            KeyEvent::from(KeyCode::Char('j')),
        ]);
        assert_eq!(handle(&mut answer_filter, typed), ("~j".to_owned(), Some(Background::Dark)));
    }

    #[test]
    fn an_invalid_answer_is_dropped_without_a_result() {
        let mut answer_filter = AnswerFilter::open();
        assert_eq!(handle(&mut answer_filter, keys("\u{1b}]11;DELETE * X y\u{7}k")), ("k".to_owned(), None));
        let mut answer_filter = AnswerFilter::open();
        let endless = format!("\u{1b}]11;{}", "X".repeat(5 * MAX_ANSWER_LENGTH));
        let rest = "X".repeat(5 * MAX_ANSWER_LENGTH - (MAX_ANSWER_LENGTH - ANSWER_PREFIX.len()));
        assert_eq!(handle(&mut answer_filter, keys(&endless)), (rest, None), "the dropped letters are limited");
        assert!(!answer_filter.is_waiting());
        let mut answer_filter = AnswerFilter::open();
        handle(&mut answer_filter, keys("\u{1b}]11;rgb:0"));
        assert_eq!(handle(&mut answer_filter, keys("j")).0, "j", "after a pause keys reach the console again");
    }

    #[test]
    fn a_truncated_answer_drops_only_letters() {
        let quit = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [quit, KeyEvent::from(KeyCode::Down), KeyEvent::from(KeyCode::Enter)] {
            let mut answer_filter = AnswerFilter::open();
            for one in keys("\u{1b}]11;rgb:0000/00") {
                assert_eq!(answer_filter.handle(one).keys, []);
            }
            assert_eq!(answer_filter.handle(key).keys, [key]);
            assert_eq!(handle(&mut answer_filter, keys("jX")).0, "jX");
        }
    }

    #[test]
    fn keys_that_only_resemble_an_answer_are_kept() {
        for typed in ["]", "]1", "]]11", "]12;x", "j]k", "11;"] {
            assert_eq!(handle(&mut AnswerFilter::open(), keys(typed)), (typed.to_owned(), None), "{typed}");
        }
        let mut closed = AnswerFilter::default();
        assert_eq!(handle(&mut closed, keys("]11;rgb:0/0/0")).0, "]11;rgb:0/0/0");
    }

    #[test]
    fn terminals_that_would_print_the_query_are_not_queried() {
        assert!(
            can_query(Some("xterm-256color")) && can_query(Some("tmux-256color")) && can_query(Some("screen-256color"))
        );
        assert!(
            !can_query(Some("dumb"))
                && !can_query(Some("linux"))
                && !can_query(Some("screen.xterm"))
                && !can_query(None)
        );
    }
}
