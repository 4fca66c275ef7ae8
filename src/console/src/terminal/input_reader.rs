//! Input from the terminal, in order: keys, clicks, pastes, sizes and, among the keys, the terminal's answer about its
//! background.

use std::{collections::VecDeque, time::Duration};

use crossterm::event::{Event as TerminalEvent, EventStream};
use futures::StreamExt;
use tokio::time::Instant;

use crate::{
    state::event::Event,
    theme::{
        Theme,
        background::{self, AnswerFilter, Background},
    },
};

/// Time after the query during which an answer may still arrive.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

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
    /// `None` only while the process is about to stop, or while the width of symbols is probed.
    input: Option<EventStream>,
    /// Separates the terminal's answer about its background from the keys.
    answer_filter: AnswerFilter,
    /// Time of the query, and of the last key.
    queried_at: Instant,
    last_key_at: Instant,
    /// Decoded events that nobody has taken yet.
    received: VecDeque<Event>,
    themes: Themes,
}

impl InputReader {
    /// Starts to read.
    pub fn new(themes: Themes) -> Self {
        Self { input: Some(EventStream::new()), ..Self::without_input(themes) }
    }

    fn without_input(themes: Themes) -> Self {
        let now = Instant::now();
        Self {
            input: None,
            answer_filter: AnswerFilter::default(),
            queried_at: now,
            last_key_at: now,
            received: VecDeque::new(),
            themes,
        }
    }

    /// Expects the terminal's answer: the query was just sent.
    pub fn expect_answer(&mut self) {
        self.answer_filter = AnswerFilter::open();
        self.queried_at = Instant::now();
    }

    /// Returns the next event. `None` if the terminal is gone. Cancel-safe: no event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.received.pop_front() {
                return Some(event);
            }
            let event = next(&mut self.input).await?.ok()?;
            self.handle(event);
        }
    }

    /// Queues an event as if the terminal had sent it.
    pub fn push(&mut self, event: Event) {
        self.received.push_back(event);
    }

    /// Releases the terminal's input: another program reads it from now on.
    pub fn end(&mut self) {
        self.input = None;
        // The end of the reader leaves a wake-up for the next poll. If it were left for the next reader, it would hide
        // the first key that arrives with it. Crossterm reads on edges, and forgets the rest of a batch after a
        // wake-up.
        let _ = crossterm::event::poll(Duration::ZERO);
    }

    /// Hands over the stream of keys. No key arrives until it is [`attached`](Self::attach) again.
    pub fn detach(&mut self) -> Option<EventStream> {
        self.input.take()
    }

    /// Takes the stream of keys back.
    pub fn attach(&mut self, input: EventStream) {
        self.input = Some(input);
    }

    /// Reads the terminal's input again.
    pub fn begin(&mut self) {
        self.input = Some(EventStream::new());
    }

    fn handle(&mut self, event: TerminalEvent) {
        let event = match event {
            TerminalEvent::Key(key) => {
                self.last_key_at = Instant::now();
                let received = self.answer_filter.handle(key);
                self.received.extend(received.keys.into_iter().map(Event::Key));
                let theme = match received.answer {
                    Some(Background::Light) => self.themes.light.take(),
                    Some(Background::Dark) => self.themes.dark.take(),
                    None => None,
                };
                self.received.extend(theme.map(|theme| Event::ThemeDetected(Box::new(theme))));
                return;
            }
            TerminalEvent::Paste(text) => Event::Paste(text),
            TerminalEvent::Mouse(event) => Event::Mouse(event),
            TerminalEvent::Resize(columns, rows) => Event::Resize(columns, rows),
            TerminalEvent::FocusGained | TerminalEvent::FocusLost => return,
        };
        // A key that was held back came before it.
        self.received.extend(self.answer_filter.flush_for_event().into_iter().map(Event::Key));
        self.received.push_back(event);
    }

    /// Releases keys that were held back for an answer which did not continue: the operator typed them. Called once a
    /// second.
    pub fn flush(&mut self) {
        let keys = if self.queried_at.elapsed() > background::TIMEOUT {
            self.answer_filter.close()
        } else if self.last_key_at.elapsed() >= background::EXIT_TIMEOUT {
            self.answer_filter.flush()
        } else {
            return;
        };
        self.received.extend(keys.into_iter().map(Event::Key));
    }

    /// Waits a moment for an answer that is still arriving. Otherwise the shell would read it as typed text.
    pub async fn drain_answer(&mut self) {
        let answered = async {
            while self.answer_filter.is_waiting() {
                match next(&mut self.input).await {
                    Some(Ok(TerminalEvent::Key(key))) => drop(self.answer_filter.handle(key)),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        };
        // A terminal that has not answered by now does not support the query.
        if self.queried_at.elapsed() < DRAIN_LIMIT {
            let _ = tokio::time::timeout(background::EXIT_TIMEOUT, answered).await;
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

    fn drain_names(input_reader: &mut InputReader) -> Vec<String> {
        let name = |event: Event| match event {
            Event::Key(key) => key.code.to_string(),
            Event::Paste(text) => format!("paste {text}"),
            Event::ThemeDetected(_) => "theme".to_owned(),
            other => format!("{other:?}"),
        };
        input_reader.received.drain(..).map(name).collect()
    }

    /// Without this order, `/foo]` and a paste of `bar` gave `foobar]`.
    #[tokio::test]
    async fn a_paste_does_not_overtake_keys_held_back_by_the_answer_filter() {
        let mut input_reader = InputReader::without_input(Themes::default());
        input_reader.expect_answer();
        input_reader.handle(key(']'));
        assert_eq!(drain_names(&mut input_reader), [""; 0], "the key may belong to a terminal response");
        input_reader.handle(TerminalEvent::Paste("bar".into()));
        assert_eq!(drain_names(&mut input_reader), ["]", "paste bar"]);
        // Keys in the middle of a terminal response never reach the console.
        "]11;rgb:ff".chars().for_each(|c| input_reader.handle(key(c)));
        input_reader.handle(TerminalEvent::Resize(90, 30));
        assert_eq!(drain_names(&mut input_reader), ["Resize(90, 30)"]);
        "ff/ffff/ffff\\".chars().for_each(|c| input_reader.handle(key(c)));
        assert_eq!(drain_names(&mut input_reader), [""; 0]);
        assert!(!input_reader.answer_filter.is_waiting(), "the response is complete");
    }

    /// Themes are read before the answer arrives, so no file is read between two keys.
    #[tokio::test]
    async fn the_background_answer_selects_a_preloaded_theme() {
        let dark = Some(Theme::bare());
        let mut input_reader = InputReader::without_input(Themes { light: None, dark });
        input_reader.expect_answer();
        "]11;rgb:0000/0000/0000\\".chars().for_each(|c| input_reader.handle(key(c)));
        assert_eq!(drain_names(&mut input_reader), ["theme"]);
    }
}
