//! Detection of a light or dark terminal: a query by OSC 11, and its answer among the keys.
//!
//! The answer arrives in the same stream as the operator's input. Code that reads it before the key reader starts loses
//! what was typed meanwhile and takes an arrow key for a refusal. It also lets a late answer (over a slow link, after
//! the timeout) through as keys: `]11;rgb:…` would open views and the command line. So the console starts without
//! waiting. An [`Ear`] in front of the key table takes the answer, and nothing else, out of the keys whenever it
//! arrives. The crate `terminal-colorsaurus` has all three problems, so it is not used.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Query for the colour of the background.
pub const QUESTION: &str = "\u{1b}]11;?\u{7}";
/// Time for which an answer is expected; no link is slower.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait at the console's end for an expected answer, which would otherwise be typed into the shell.
pub const BUDGET: Duration = Duration::from_millis(150);
/// Beginning of every answer, after its escape.
const HEAD: &str = "]11;";
/// Longest answer; a real one has 24 characters.
const LONGEST: usize = 64;

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
pub fn may_ask(term: Option<&str>) -> bool {
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
        let most = match text.len() {
            1..=4 => (1_u32 << (4 * text.len())) - 1,
            _ => return None,
        };
        Some(f64::from(u32::from_str_radix(text, 16).ok()?) / f64::from(most))
    };
    let [red, green, blue]: [f64; 3] = parts.iter().take(3).map(part).collect::<Option<Vec<_>>>()?.try_into().ok()?;
    // luma as in television: perceived brightness
    let luma = 0.299 * red + 0.587 * green + 0.114 * blue;
    Some(if luma > 0.5 { Background::Light } else { Background::Dark })
}

/// Result of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Keys that the operator pressed, in their order.
    pub keys: Vec<KeyEvent>,
    /// The answer, if the key completed it.
    pub answer: Option<Background>,
}

/// Filter that takes the answer out of the keys.
#[derive(Clone, Debug, Default)]
pub struct Ear {
    /// Whether an answer is expected.
    open: bool,
    /// Keys that may be the beginning of an answer.
    held: Vec<KeyEvent>,
    /// Text of these keys.
    spelt: String,
}

impl Ear {
    /// Creates a filter that expects an answer.
    pub fn open() -> Self {
        Self { open: true, ..Self::default() }
    }

    /// Reports whether an answer is still expected.
    pub fn expects(&self) -> bool {
        self.open
    }

    /// Handles a key, which is the operator's or a letter of the answer.
    pub fn hear(&mut self, key: KeyEvent) -> Heard {
        if !self.open || key.kind == KeyEventKind::Release {
            return Heard { keys: vec![key], answer: None };
        }
        let inside = self.spelt.starts_with(HEAD);
        if inside && ends(key) {
            // whatever its content, this was the answer
            let answer = parse(&self.spelt[HEAD.len()..]);
            *self = Self::default();
            return Heard { keys: Vec::new(), answer };
        }
        let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        if inside {
            // letters belong to the answer until it ends or nothing more arrives; a truncated answer takes at most as
            // many letters of the operator as an answer has, and no other keys
            return match key.code {
                KeyCode::Char(c) if plain && self.spelt.len() < LONGEST => {
                    self.spelt.push(c);
                    Heard::default()
                }
                // the answer's own escape, if it arrived separately from what follows
                KeyCode::Esc => Heard::default(),
                _ => {
                    *self = Self::default();
                    Heard { keys: vec![key], answer: None }
                }
            };
        }
        // the escape before it is Alt on the bracket, or a key of its own if it arrived separately
        let letter = match (key.code, self.spelt.is_empty()) {
            (KeyCode::Char(']'), true) => Some(']'),
            (KeyCode::Char(c), false) if plain => Some(c),
            _ => None,
        };
        if let Some(letter) = letter {
            self.spelt.push(letter);
            self.held.push(key);
            if HEAD.starts_with(&self.spelt) {
                return Heard::default();
            }
            return Heard { keys: self.let_go(), answer: None };
        }
        let mut keys = self.let_go();
        keys.push(key);
        Heard { keys, answer: None }
    }

    /// Returns the held keys after a pause: they were the operator's. The rest of an answer is dropped.
    pub fn let_go(&mut self) -> Vec<KeyEvent> {
        let inside = self.spelt.starts_with(HEAD);
        self.spelt.clear();
        let held = std::mem::take(&mut self.held);
        if inside { Vec::new() } else { held }
    }

    /// Returns the held keys before an event that is no key. An answer that has begun continues after it.
    pub fn interrupted(&mut self) -> Vec<KeyEvent> {
        if self.spelt.starts_with(HEAD) { Vec::new() } else { self.let_go() }
    }

    /// Stops expecting an answer.
    pub fn close(&mut self) -> Vec<KeyEvent> {
        self.open = false;
        self.let_go()
    }
}

/// Reports whether a key ends the answer: BEL, or the backslash of ST as the key reader delivers them. The backslash is
/// bare if its escape arrived separately.
fn ends(key: KeyEvent) -> bool {
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
    fn hear(ear: &mut Ear, all: Vec<KeyEvent>) -> (String, Option<Background>) {
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
            let heard = ear.hear(key);
            answer = answer.or(heard.answer);
            note(heard.keys);
        }
        note(ear.let_go());
        (typed, answer)
    }

    #[test]
    fn light_and_dark_are_told_apart() {
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
    fn an_answer_is_taken_out_of_what_is_typed_around_it_and_nothing_else_is() {
        for end in ["\u{7}", "\u{1b}\\"] {
            let mut ear = Ear::open();
            let typed = keys(&format!("2j\u{1b}]11;rgb:ffff/ffff/ffff{end}/web]x"));
            assert_eq!(hear(&mut ear, typed), ("2j/web]x".to_owned(), Some(Background::Light)));
            assert!(!ear.expects());
        }
    }

    #[test]
    fn an_escape_that_comes_alone_is_a_key_and_the_rest_is_still_no_typing() {
        let mut ear = Ear::open();
        let mut typed = vec![KeyEvent::from(KeyCode::Esc)];
        typed.extend(keys("]11;rgb:0000/0000/0000"));
        typed.extend([
            KeyEvent::from(KeyCode::Esc),
            KeyEvent::from(KeyCode::Char('\\')),
            KeyEvent::from(KeyCode::Char('j')),
        ]);
        assert_eq!(hear(&mut ear, typed), ("~j".to_owned(), Some(Background::Dark)));
    }

    #[test]
    fn garbage_in_an_answer_is_swallowed_and_answers_nothing() {
        let mut ear = Ear::open();
        assert_eq!(hear(&mut ear, keys("\u{1b}]11;DELETE * X y\u{7}k")), ("k".to_owned(), None));
        let mut ear = Ear::open();
        let endless = format!("\u{1b}]11;{}", "X".repeat(5 * LONGEST));
        let rest = "X".repeat(5 * LONGEST - (LONGEST - HEAD.len()));
        assert_eq!(hear(&mut ear, keys(&endless)), (rest, None), "no more than an answer has letters");
        assert!(!ear.expects());
        let mut ear = Ear::open();
        hear(&mut ear, keys("\u{1b}]11;rgb:0"));
        assert_eq!(hear(&mut ear, keys("j")).0, "j", "after a silence keys are keys");
    }

    #[test]
    fn an_answer_that_is_cut_off_swallows_no_key_that_is_no_letter() {
        let quit = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [quit, KeyEvent::from(KeyCode::Down), KeyEvent::from(KeyCode::Enter)] {
            let mut ear = Ear::open();
            for one in keys("\u{1b}]11;rgb:0000/00") {
                assert_eq!(ear.hear(one).keys, []);
            }
            assert_eq!(ear.hear(key).keys, [key]);
            assert_eq!(hear(&mut ear, keys("jX")).0, "jX");
        }
    }

    #[test]
    fn what_only_begins_like_an_answer_is_a_persons() {
        for typed in ["]", "]1", "]]11", "]12;x", "j]k", "11;"] {
            assert_eq!(hear(&mut Ear::open(), keys(typed)), (typed.to_owned(), None), "{typed}");
        }
        let mut closed = Ear::default();
        assert_eq!(hear(&mut closed, keys("]11;rgb:0/0/0")).0, "]11;rgb:0/0/0");
    }

    #[test]
    fn terminals_that_would_print_the_question_are_not_asked() {
        assert!(may_ask(Some("xterm-256color")) && may_ask(Some("tmux-256color")) && may_ask(Some("screen-256color")));
        assert!(!may_ask(Some("dumb")) && !may_ask(Some("linux")) && !may_ask(Some("screen.xterm")) && !may_ask(None));
    }
}
