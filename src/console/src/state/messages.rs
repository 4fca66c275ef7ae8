//! Messages to the operator: one line that disappears after a while, and a list of the last ones.

use std::time::Duration;

use cketerm_model::boot_time::BootTime;

use super::{App, short_text};

/// Most messages that are kept.
const MAX_MESSAGES: usize = 200;
/// Longest message in bytes. A longer one is shortened to a quarter of this, because nobody reads more on a line.
const MAX_LENGTH: usize = 4000;

/// Outcome of the last action, or the reason why a key had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The text.
    pub text: String,
    /// Whether it is an error.
    pub failed: bool,
    /// Boot time of the message.
    pub at: BootTime,
    /// Whether it is about the open view, and disappears with it.
    pub here: bool,
}

impl Message {
    /// Returns how long the message is shown: by its length, and longer for an error.
    fn display_time(&self) -> Duration {
        let words = u64::try_from(self.text.len() / 16).unwrap_or(0);
        Duration::from_secs((if self.failed { 20 } else { 8 } + words).min(60))
    }
}

impl App {
    /// Shows an error or a refusal, with what to do.
    pub fn print_error(&mut self, text: impl Into<String>) {
        self.add_message(text.into(), true);
    }

    /// Shows an error about the open view. It disappears with the view.
    pub fn print_error_here(&mut self, text: impl Into<String>) {
        self.add_message(text.into(), true);
        if let Some(message) = &mut self.session.message {
            message.here = true;
        }
    }

    /// Shows a message about the open view. It disappears with the view.
    pub fn print_here(&mut self, text: impl Into<String>) {
        self.add_message(text.into(), false);
        if let Some(message) = &mut self.session.message {
            message.here = true;
        }
    }

    /// Shows a message.
    pub fn print(&mut self, text: impl Into<String>) {
        self.add_message(text.into(), false);
    }

    fn add_message(&mut self, text: String, failed: bool) {
        self.note(text, failed);
        self.session.message = self.session.messages.back().map(|(_, message)| message.clone());
    }

    /// Adds a message to the list without showing it.
    pub fn note(&mut self, text: String, failed: bool) {
        let text = if text.len() > MAX_LENGTH { short_text::shorten_middle(&text, MAX_LENGTH / 4) } else { text };
        let message = Message { text, failed, at: self.now.boot, here: false };
        self.session.messages.push_back((self.now.wall, message));
        while self.session.messages.len() > MAX_MESSAGES {
            self.session.messages.pop_front();
        }
    }

    /// Removes an old message from the screen, except while an action is in progress.
    pub fn expire_message(&mut self) {
        let old = |m: &Message| self.now.boot.saturating_duration_since(m.at) > m.display_time();
        if self.session.busy == 0 && self.session.message.as_ref().is_some_and(old) {
            self.session.message = None;
        }
    }
}
