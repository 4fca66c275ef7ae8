//! Messages to the operator: one line that stays until a key does something, and a list of the last ones.

use std::time::Duration;

use cketerm_model::boot_time::BootTime;

use super::{App, short_text};

/// Most messages that are kept.
const MAX_MESSAGES: usize = 200;
/// Longest message in bytes. A longer one is shortened to a quarter of this, because nobody reads more on a line.
const MAX_LENGTH: usize = 4000;

/// Subject of a message, with which it disappears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// An action: it stays until a key does something.
    Action,
    /// The open view.
    View,
    /// The list of *Needs you* in the open view.
    NeedsYou,
}

impl About {
    /// Reports whether it disappears with the open view.
    pub fn is_here(self) -> bool {
        match self {
            Self::Action => false,
            Self::View | Self::NeedsYou => true,
        }
    }
}

/// Outcome of the last action, or the reason why a key had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The text.
    pub text: String,
    /// Whether it is an error.
    pub failed: bool,
    /// Boot time of the message.
    pub at: BootTime,
    /// Subject of the message, with which it disappears.
    pub about: About,
    /// Whether it announces the action of somebody else, so that the next announcement may take its place at once.
    pub announced: bool,
    /// The text without the offer to undo, for the time when the undo is not possible any more.
    pub without_undo: Option<String>,
}

impl Message {
    /// Returns how long it takes to notice and read the message.
    pub fn reading_time(&self) -> Duration {
        let characters = u64::try_from(self.text.len()).unwrap_or(u64::MAX);
        Duration::from_millis(characters.saturating_mul(40).saturating_add(1_500).min(10_000))
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
            message.about = About::View;
        }
    }

    /// Shows a message about the open view. It disappears with the view.
    pub fn print_here(&mut self, text: impl Into<String>) {
        self.add_message(text.into(), false);
        if let Some(message) = &mut self.session.message {
            message.about = About::View;
        }
    }

    /// Shows a message about the list of *Needs you*. It disappears with the view, and when the list changes.
    pub fn print_of_needs(&mut self, text: impl Into<String>) {
        self.print(text);
        if let Some(message) = &mut self.session.message {
            message.about = About::NeedsYou;
        }
    }

    /// Removes a message about the list of *Needs you* from the screen, because the list is another one now.
    pub fn dismiss_message_about_needs(&mut self) {
        self.session.message.take_if(|message| message.about == About::NeedsYou);
    }

    /// Shows an announcement of somebody else's action.
    pub fn announce(&mut self, text: impl Into<String>) {
        self.add_message(text.into(), false);
        if let Some(message) = &mut self.session.message {
            message.announced = true;
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
        let message =
            Message { text, failed, at: self.now.boot, about: About::Action, announced: false, without_undo: None };
        self.session.messages.push_back((self.now.wall, message));
        while self.session.messages.len() > MAX_MESSAGES {
            self.session.messages.pop_front();
        }
    }

    /// Returns true if the message on the screen could not be read yet.
    pub fn has_unread_message(&self) -> bool {
        let is_new = |m: &Message| self.now.boot.saturating_duration_since(m.at) < m.reading_time();
        self.session.message.as_ref().is_some_and(is_new)
    }

    /// Removes the message from the screen, because a key does something. A message that could not be read yet stays,
    /// and so does that of an action in progress. No timer removes one: the operator may look away.
    pub fn dismiss_message(&mut self) {
        if self.session.busy == 0 && !self.has_unread_message() {
            self.session.message = None;
        }
    }
}
