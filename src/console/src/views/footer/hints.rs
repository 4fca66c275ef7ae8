//! Hints of the footer: keys and words, as many as fit.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::{WIDE, names_here};
use crate::{
    keys::{self, Binding, Command, Context, TABLE},
    state::{App, View, available},
};

/// Returns the hints of this context, as many as fit. The last line has the commands about the row, because the line
/// above it is used by messages; what does not fit goes there, behind the commands about the view. Help, the command line
/// and quit always fit.
pub(super) fn hint_lines(app: &App, width: usize) -> [Line<'static>; 2] {
    let names: Vec<&str> = match app.key_context() {
        Context::Detail if app.navigation.help.is_some() => vec!["close", "find"],
        Context::Table | Context::Detail => std::iter::once("undo").chain(names_here(app)).collect(),
        // dialogs and pickers name their keys themselves
        Context::Everywhere | Context::Dialog | Context::Field => return [Line::default(), Line::default()],
    };
    let always: Vec<Hint> = ["command", "help", "quit"].iter().filter_map(|name| hint(app, name)).collect();
    let mut below = Hints::new(width.saturating_sub(always.iter().map(|h| h.width).sum()));
    let mut above = Hints::new(width);
    let mut later = Vec::new();
    for hint in names.into_iter().filter_map(|name| hint(app, name)) {
        if below.has(&hint) || above.has(&hint) {
            continue;
        }
        // the commands about the view come first, so that a move of the cursor shifts none of them
        let line = if hint.is_of_row { &mut below } else { &mut above };
        later.extend(line.push(hint));
    }
    // each line of the Overview has other keys, and shows the first of them itself
    if app.navigation.view != View::Overview {
        for hint in later {
            // less important ones are left out
            let _ = above.push(hint);
        }
    }
    // what never changes stays in its place, so that a move of the cursor rewrites little
    let gap = Span::raw(" ".repeat(below.left));
    let below = below.spans(app).into_iter().chain([gap]).chain(spans(always, app));
    [Line::from(above.spans(app)), Line::from(below.collect::<Vec<_>>())]
}

/// Reports whether a command is about a row, so that it may come and go with every move of the cursor.
fn is_of_row(binding: &Binding) -> bool {
    binding.changes
        || matches!(
            binding.command,
            Command::Open
                | Command::Back
                | Command::Jump
                | Command::LogsOf
                | Command::Yaml
                | Command::Follow
                | Command::PreviousEntry
                | Command::NextEntry
                | Command::Undo
        )
}

/// Hints of one line.
struct Hints {
    shown: Vec<Hint>,
    /// Free columns.
    left: usize,
    /// Whether a hint did not fit; then no less important one follows.
    is_full: bool,
}

impl Hints {
    fn new(left: usize) -> Self {
        Self { shown: Vec::new(), left, is_full: false }
    }

    fn has(&self, hint: &Hint) -> bool {
        self.shown.iter().any(|shown| shown.key == hint.key)
    }

    /// Adds a hint, or returns it if there is no space.
    fn push(&mut self, hint: Hint) -> Option<Hint> {
        self.is_full |= hint.width > self.left;
        if self.is_full {
            return Some(hint);
        }
        self.left -= hint.width;
        self.shown.push(hint);
        None
    }

    fn spans(&mut self, app: &App) -> Vec<Span<'static>> {
        spans(std::mem::take(&mut self.shown), app)
    }
}

fn spans(hints: Vec<Hint>, app: &App) -> Vec<Span<'static>> {
    let each = hints.into_iter();
    each.flat_map(|h| [Span::styled(h.key, app.config.theme.key), Span::raw(format!(" {}  ", h.word))]).collect()
}

struct Hint {
    key: String,
    word: &'static str,
    width: usize,
    /// Whether the command is about a row.
    is_of_row: bool,
}

/// Returns a command's key and word. `None` if it is unbound, or would do nothing now.
fn hint(app: &App, name: &str) -> Option<Hint> {
    let binding = TABLE.iter().find(|b| b.name == name)?;
    if !available::here(app, binding.command) {
        return None;
    }
    let word = match (app.navigation.view, name) {
        (View::Audit, "jump") => "go to it",
        (View::History, "racks") if app.navigation.cke_records => "ended",
        (View::History, "racks") => "CKE's records",
        (View::Reboots | View::Repairs, "racks") if app.navigation.shows_batches() => "entries",
        (View::Reboots | View::Repairs, "racks") => "batches",
        (View::Reboots | View::Repairs, "hold") if app.navigation.shows_batches() => "pause",
        (View::Reboots | View::Repairs, "unhold") if app.navigation.shows_batches() => "resume",
        (View::Reboots | View::Repairs, "cancel") if app.navigation.shows_batches() => "cancel",
        (View::Nodes, "racks") if app.navigation.map.is_some() => "rows",
        (View::Hosts, "unhold") => "release",
        // it is about the definition, not about the row
        (View::Machines | View::Diff, "hold") => "stop applying",
        (View::Machines | View::Diff, "unhold") => "resume applying",
        (View::Repairs, "cancel") => "delete",
        (_, "quit") if app.navigation.has_layer() => "close",
        (_, "find") if app.navigation.help.is_none() && !app.navigation.searches_pane() => "filter",
        (View::Reboots | View::Repairs | View::Hosts | View::History | View::Machines | View::Diff, "jump") => "node",
        (View::Nodes, "jump") => "entry",

        (_, "trouble") if app.size.width >= WIDE => "next that needs you",
        (_, "trouble") => "next",
        (View::Overview, "open") if app.target().is_none() => "open",
        (View::Overview, "unhold") if app.acting_view() == View::Hosts => "release",
        (View::Overview, "unhold") if app.acts_on_batches() => "resume",
        (View::Overview, "hold") if app.acts_on_batches() => "pause",
        (View::Overview, "cancel") if app.acting_view() == View::Repairs => "delete",
        _ => binding.hint,
    };
    let key = keys::title(app.config.keymap.key(name)?);
    let width = key.width() + word.width() + 3;
    Some(Hint { key, word, width, is_of_row: is_of_row(binding) })
}
