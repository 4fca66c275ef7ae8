//! Copying through the terminal (OSC 52). It works over SSH, where no other clipboard is in reach.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Returns the escape sequence that copies a text.
pub fn osc52_sequence(text: &str) -> String {
    format!("\u{1b}]52;c;{}\u{7}", STANDARD.encode(text))
}
