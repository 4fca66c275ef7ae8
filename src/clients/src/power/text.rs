//! Text of a BMC or a program for messages: short, on one line, and without secrets.

use cketerm_model::secret;

/// Number of characters that are kept in logs, states and statuses.
const MAX_CHARACTERS: usize = 300;

/// Returns the beginning of a text, on one line and with secrets masked.
pub(super) fn shorten(text: &str) -> String {
    let beginning = secret::beginning(text.as_bytes(), MAX_CHARACTERS);
    beginning.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the printable part of an unreadable address, without anything that may be a password.
pub(super) fn shown(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, after)) => format!("…@{}", shorten(after)),
        None => shorten(text),
    }
}
