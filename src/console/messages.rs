//! What is said to whoever sits here: one line, which goes after a while, and a list that keeps the last ones.

use std::time::Duration;

use super::{app::App, short_text};

/// Messages that are kept.
const MESSAGES: usize = 200;
/// Bytes of a message, above which it is shortened to a quarter: nobody reads more of it on a line.
const LONGEST: usize = 4000;

/// How the last action ended, or why a key did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What.
    pub text: String,
    /// Whether it went wrong.
    pub failed: bool,
    /// Boot time at which it came.
    pub at: Duration,
    /// It tells of what is on the screen: it goes with its view.
    pub here: bool,
}

impl Message {
    /// For how long it is shown: long enough to be read, and longer where something went wrong.
    fn shown_for(&self) -> Duration {
        let words = u64::try_from(self.text.len() / 16).unwrap_or(0);
        Duration::from_secs((if self.failed { 20 } else { 8 } + words).min(60))
    }
}

impl App {
    /// Says that something went wrong or cannot be done, with what to do.
    pub fn refuse(&mut self, text: impl Into<String>) {
        self.tell(text.into(), true);
    }

    /// The same of what is on the screen now: it goes with it.
    pub fn refuse_here(&mut self, text: impl Into<String>) {
        self.tell(text.into(), true);
        if let Some(message) = &mut self.message {
            message.here = true;
        }
    }

    /// Says what is so of the view that is open, and of no other.
    pub fn say_here(&mut self, text: impl Into<String>) {
        self.tell(text.into(), false);
        if let Some(message) = &mut self.message {
            message.here = true;
        }
    }

    /// Says what happened.
    pub fn say(&mut self, text: impl Into<String>) {
        self.tell(text.into(), false);
    }

    fn tell(&mut self, text: String, failed: bool) {
        self.note(text, failed);
        self.message = self.messages.back().map(|(_, message)| message.clone());
    }

    /// Keeps a message for whoever looks for it, without showing it now.
    pub fn note(&mut self, text: String, failed: bool) {
        let text = if text.len() > LONGEST { short_text::squeezed(&text, LONGEST / 4) } else { text };
        let message = Message { text, failed, at: self.now.boot, here: false };
        self.messages.push_back((self.now.wall, message));
        while self.messages.len() > MESSAGES {
            self.messages.pop_front();
        }
    }

    /// Takes the message away once it has stood for long enough; never while what it tells of is under way.
    pub fn expire_message(&mut self) {
        let old = |m: &Message| self.now.boot.saturating_sub(m.at) > m.shown_for();
        if self.busy == 0 && self.message.as_ref().is_some_and(old) {
            self.message = None;
        }
    }
}
