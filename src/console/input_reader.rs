//! Input from the terminal, in order: keys, clicks, pastes, sizes and, among the keys, the terminal's answer about its
//! background.

use std::{collections::VecDeque, time::Duration};

use crossterm::event::{Event as TerminalEvent, EventStream};
use futures::StreamExt;
use tokio::time::Instant;

use super::{
    event::Event,
    theme::{
        Theme,
        background::{self, Background, Ear},
    },
};

/// Time after the query during which an answer may still arrive.
const HEAR_OUT: Duration = Duration::from_secs(2);

/// Themes of `auto`. They are read in advance, because no file is read while keys are answered.
#[derive(Debug, Default)]
pub struct Themes {
    /// For a light background.
    pub light: Option<Theme>,
    /// For a dark background.
    pub dark: Option<Theme>,
}

/// Reads the terminal's input.
pub struct InputReader {
    /// `None` only while the process is about to stop.
    input: Option<EventStream>,
    /// Separates the terminal's answer about its background from the keys.
    ear: Ear,
    /// Time of the query, and of the last key.
    asked: Instant,
    pressed: Instant,
    /// Decoded events that nobody has taken yet.
    heard: VecDeque<Event>,
    themes: Themes,
}

impl InputReader {
    /// Starts to read.
    pub fn new(themes: Themes) -> Self {
        Self { input: Some(EventStream::new()), ..Self::deaf(themes) }
    }

    fn deaf(themes: Themes) -> Self {
        let now = Instant::now();
        Self { input: None, ear: Ear::default(), asked: now, pressed: now, heard: VecDeque::new(), themes }
    }

    /// Expects the terminal's answer: the query was just sent.
    pub fn expect_answer(&mut self) {
        self.ear = Ear::open();
        self.asked = Instant::now();
    }

    /// Returns the next event. `None` if the terminal is gone. Cancel-safe: no event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.heard.pop_front() {
                return Some(event);
            }
            let event = next(&mut self.input).await?.ok()?;
            self.hear(event);
        }
    }

    /// Queues an event as if the terminal had sent it.
    pub fn push(&mut self, event: Event) {
        self.heard.push_back(event);
    }

    /// Releases the terminal's input: another program reads it from now on.
    pub fn end(&mut self) {
        self.input = None;
        // The end of the reader leaves a wake-up for the next poll. If it were left for the next reader, it would hide
        // the first key that arrives with it. Crossterm reads on edges, and forgets the rest of a batch after a
        // wake-up.
        let _ = crossterm::event::poll(Duration::ZERO);
    }

    /// Reads the terminal's input again.
    pub fn begin(&mut self) {
        self.input = Some(EventStream::new());
    }

    fn hear(&mut self, event: TerminalEvent) {
        let event = match event {
            TerminalEvent::Key(key) => {
                self.pressed = Instant::now();
                let heard = self.ear.hear(key);
                self.heard.extend(heard.keys.into_iter().map(Event::Key));
                let theme = match heard.answer {
                    Some(Background::Light) => self.themes.light.take(),
                    Some(Background::Dark) => self.themes.dark.take(),
                    None => None,
                };
                self.heard.extend(theme.map(|theme| Event::Themed(Box::new(theme))));
                return;
            }
            TerminalEvent::Paste(text) => Event::Paste(text),
            TerminalEvent::Mouse(event) => Event::Mouse(event),
            TerminalEvent::Resize(columns, rows) => Event::Resize(columns, rows),
            TerminalEvent::FocusGained | TerminalEvent::FocusLost => return,
        };
        // A key that was held back came before it.
        self.heard.extend(self.ear.interrupted().into_iter().map(Event::Key));
        self.heard.push_back(event);
    }

    /// Releases keys that were held back for an answer which did not continue: the operator typed them. Called once a
    /// second.
    pub fn let_go(&mut self) {
        let keys = if self.asked.elapsed() > background::TIMEOUT {
            self.ear.close()
        } else if self.pressed.elapsed() >= background::BUDGET {
            self.ear.let_go()
        } else {
            return;
        };
        self.heard.extend(keys.into_iter().map(Event::Key));
    }

    /// Waits a moment for an answer that is still arriving. Otherwise the shell would read it as typed text.
    pub async fn hear_out(&mut self) {
        let answered = async {
            while self.ear.expects() {
                match next(&mut self.input).await {
                    Some(Ok(TerminalEvent::Key(key))) => drop(self.ear.hear(key)),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        };
        // A terminal that has not answered by now does not support the query.
        if self.asked.elapsed() < HEAR_OUT {
            let _ = tokio::time::timeout(background::BUDGET, answered).await;
        }
    }
}

async fn next(input: &mut Option<EventStream>) -> Option<std::io::Result<TerminalEvent>> {
    match input {
        Some(input) => input.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    fn key(letter: char) -> TerminalEvent {
        TerminalEvent::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE))
    }

    fn taken(input_reader: &mut InputReader) -> Vec<String> {
        let name = |event: Event| match event {
            Event::Key(key) => key.code.to_string(),
            Event::Paste(text) => format!("paste {text}"),
            Event::Themed(_) => "theme".to_owned(),
            other => format!("{other:?}"),
        };
        input_reader.heard.drain(..).map(name).collect()
    }

    /// Without this order, `/foo]` and a paste of `bar` gave `foobar]`.
    #[tokio::test]
    async fn a_paste_does_not_overtake_a_key_that_is_held_back_for_an_answer() {
        let mut input_reader = InputReader::deaf(Themes::default());
        input_reader.expect_answer();
        input_reader.hear(key(']'));
        assert_eq!(taken(&mut input_reader), [""; 0], "it may be an answer's");
        input_reader.hear(TerminalEvent::Paste("bar".into()));
        assert_eq!(taken(&mut input_reader), ["]", "paste bar"]);
        // Keys in the middle of an answer are never the operator's.
        "]11;rgb:ff".chars().for_each(|c| input_reader.hear(key(c)));
        input_reader.hear(TerminalEvent::Resize(90, 30));
        assert_eq!(taken(&mut input_reader), ["Resize(90, 30)"]);
        "ff/ffff/ffff\\".chars().for_each(|c| input_reader.hear(key(c)));
        assert_eq!(taken(&mut input_reader), [""; 0]);
        assert!(!input_reader.ear.expects(), "the answer came to its end");
    }

    /// Themes are read before the answer arrives, so no file is read between two keys.
    #[tokio::test]
    async fn the_theme_of_an_answer_was_read_before_it_came() {
        let dark = Some(Theme::bare());
        let mut input_reader = InputReader::deaf(Themes { light: None, dark });
        input_reader.expect_answer();
        "]11;rgb:0000/0000/0000\\".chars().for_each(|c| input_reader.hear(key(c)));
        assert_eq!(taken(&mut input_reader), ["theme"]);
    }
}
