//! Whether the terminal is light or dark: asked by OSC 11, heard among the keys.
//!
//! The answer comes down the same line as what a person types. Whoever reads it before the reader of keys starts loses
//! what was typed meanwhile, takes an arrow key for a refusal, and lets an answer that comes late (over a slow line,
//! after the patience of the asker) through as keys: `]11;rgb:…` would open views and the command line. So nobody waits
//! here: the console starts, and an [`Ear`] before the key table takes the answer out of the keys, whenever it comes, and
//! nothing else. That is why this is not done by the crate `terminal-colorsaurus`, which does all three.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The question: the colour of the background.
pub const QUESTION: &str = "\u{1b}]11;?\u{7}";
/// For how long a terminal is listened to: no line is that slow.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// How long an end of the console waits for an answer under way, which would else be typed into the shell.
pub const BUDGET: Duration = Duration::from_millis(150);
/// What every answer begins with, after its escape.
const HEAD: &str = "]11;";
/// An answer has 24 characters; what is longer is none.
const LONGEST: usize = 64;

/// What a background is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Dark text can be read on it.
    Light,
    /// Light text can be read on it.
    Dark,
}

impl Background {
    /// The theme for it.
    pub fn theme(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// Whether a terminal may be asked: one that is known to print the question, or to pass it on to several, may not.
pub fn may_ask(term: Option<&str>) -> bool {
    match term {
        None | Some("" | "dumb" | "linux" | "Eterm" | "screen" | "vt100" | "vt102" | "vt220") => false,
        Some(term) => !term.starts_with("screen."),
    }
}

/// What an answer says, `rgb:RRRR/GGGG/BBBB` with one to four digits each.
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
    // luma as television has it: what looks bright, not what is
    let luma = 0.299 * red + 0.587 * green + 0.114 * blue;
    Some(if luma > 0.5 { Background::Light } else { Background::Dark })
}

/// What became of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Keys that a person pressed, in their order.
    pub keys: Vec<KeyEvent>,
    /// The answer.
    pub answer: Option<Background>,
}

/// Takes the answer out of the keys.
#[derive(Clone, Debug, Default)]
pub struct Ear {
    /// An answer is expected.
    open: bool,
    /// Keys that may be an answer's beginning.
    held: Vec<KeyEvent>,
    /// What they spell.
    spelt: String,
}

impl Ear {
    /// One that expects an answer.
    pub fn open() -> Self {
        Self { open: true, ..Self::default() }
    }

    /// Whether an answer is still expected.
    pub fn expects(&self) -> bool {
        self.open
    }

    /// A key: a person's, or a letter of the answer.
    pub fn hear(&mut self, key: KeyEvent) -> Heard {
        if !self.open || key.kind == KeyEventKind::Release {
            return Heard { keys: vec![key], answer: None };
        }
        let inside = self.spelt.starts_with(HEAD);
        if inside && ends(key) {
            // whatever it says: it was the answer
            let answer = parse(&self.spelt[HEAD.len()..]);
            *self = Self::default();
            return Heard { keys: Vec::new(), answer };
        }
        let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        if inside {
            // what it says is the answer's until it ends, or until nothing comes any more; one that was cut off takes no more
            // of a person's keys than an answer has letters, and never one that is no letter
            return match key.code {
                KeyCode::Char(c) if plain && self.spelt.len() < LONGEST => {
                    self.spelt.push(c);
                    Heard::default()
                }
                // its own escape, where that came in another piece than what follows
                KeyCode::Esc => Heard::default(),
                _ => {
                    *self = Self::default();
                    Heard { keys: vec![key], answer: None }
                }
            };
        }
        // the escape before it is Alt on the bracket, or a key of its own where it came in another piece
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

    /// Nothing came for a while: what was held back is a person's after all; the rest of an answer is nobody's.
    pub fn let_go(&mut self) -> Vec<KeyEvent> {
        let inside = self.spelt.starts_with(HEAD);
        self.spelt.clear();
        let held = std::mem::take(&mut self.held);
        if inside { Vec::new() } else { held }
    }

    /// Something came that is no key: keys that were held back came before it. An answer that has begun goes on behind it.
    pub fn interrupted(&mut self) -> Vec<KeyEvent> {
        if self.spelt.starts_with(HEAD) { Vec::new() } else { self.let_go() }
    }

    /// No answer is expected any more.
    pub fn close(&mut self) -> Vec<KeyEvent> {
        self.open = false;
        self.let_go()
    }
}

/// BEL, or the backslash of ST, as the reader of keys has them; a bare backslash where its escape came in another piece.
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

    /// Keys as crossterm makes them of these bytes.
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

    /// What is typed, and what is answered.
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
