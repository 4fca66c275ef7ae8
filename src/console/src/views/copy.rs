//! Text that `copy` copies: the text of the open pane, or the name of the object under the cursor.

use cketerm_model::stored::keys::Folder;

use super::detail;
use crate::state::{App, Target, short_text};

/// Most bytes that are copied. Many terminals drop a sequence of 100,000 characters, and base64 turns three bytes into
/// four.
const MAX_BYTES: usize = 60_000;

/// Width for a pane's lines, so that they are not wrapped at the screen's edge.
const UNWRAPPED_WIDTH: u16 = 1000;

/// A text to copy. It is external text: it must contain no hidden newline, because it may be pasted into a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The text.
    pub text: String,
    /// Description of the text, for the message.
    pub what: String,
}

/// Returns the text that `copy` copies now: the whole text of an open pane, else the name of the object under the
/// cursor.
pub fn copy_of_selection(app: &App) -> Option<Copied> {
    let target = app.target()?;
    if let Some(pane) = &app.navigation.pane {
        let lines = detail::pane_lines(app, pane, UNWRAPPED_WIDTH);
        let mut text: String = lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect();
        text.insert_str(0, &format!("{}\n", detail::pane_title(app, pane)));
        let (text, all) = cut(text);
        let part = if all { "" } else { ", truncated" };
        return Some(Copied { text, what: format!("the pane's text ({} lines{part})", lines.len() + 1) });
    }
    let text = cut(short_text::safe(&name(app, &target)?)).0;
    Some(Copied { what: text.clone(), text })
}

/// Returns an object's name as it can be typed again, in `goto` or in a shell.
fn name(app: &App, target: &Target) -> Option<String> {
    Some(match target {
        Target::Entry(id) => id.to_string(),
        Target::Node(name) => name.clone(),
        Target::Machine(address) => address.to_string(),
        Target::Host((namespace, name)) => format!("{namespace}/{name}"),
        Target::Fold(what) => what.clone(),
        Target::Past(folder, id) => match app.knowledge.past.history.get(id) {
            Some(ended) if *folder == Folder::History => ended.entry.to_string(),
            _ => detail::title(app, &Target::Past(*folder, id.clone())),
        },
        Target::Line(id) => app.knowledge.logs.get(id)?.text.clone(),
    })
    .filter(|text| !text.is_empty())
}

/// Truncates a text to `MAX_BYTES` bytes. Returns it, and whether it is complete.
fn cut(mut text: String) -> (String, bool) {
    if text.len() <= MAX_BYTES {
        return (text, true);
    }
    let end = (0..=MAX_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    (text, false)
}
