//! Footer: the last message, and the hints from the key table.

use ratatui::{
    Frame,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use tui_input::Input;
use unicode_width::UnicodeWidthStr;

use super::{palette, tour};
use crate::{
    keys::{self, Binding, Command, Context, TABLE},
    state::{App, View, available, command_line, object::Object, overview::OverviewRow, short_text},
    table::{cut, put},
};

/// Width from which hints are whole phrases.
const WIDE: u16 = 100;
/// Most lines of a message.
const MAX_MESSAGE_LINES: usize = 3;

/// Returns the lines of the message and whether it is an error: the error of the text being typed, in full, else the
/// last message.
fn message(app: &App) -> (Vec<String>, bool) {
    let typed = app.typing.line.as_ref().and_then(|line| line.error.as_deref());
    let typed = typed.or_else(|| {
        app.typing.filter.as_ref().filter(|_| app.navigation.help.is_none()).and_then(|_| app.list().filter_error())
    });
    // A message about an open dialog is shown in the dialog.
    let shown = app.session.message.as_ref().filter(|message| app.dialog.is_none() || !message.about.is_here());
    let (text, failed) = match (typed, shown) {
        (Some(why), _) => (why, true),
        (None, Some(message)) => {
            let without_undo = message.without_undo.as_deref().filter(|_| !app.can_undo());
            (without_undo.unwrap_or(message.text.as_str()), message.failed)
        }
        (None, None) => return (Vec::new(), false),
    };
    let text = if failed { format!("! {text}") } else { text.to_owned() };
    (cut(&short_text::safe(&text), usize::from(app.size.width), MAX_MESSAGE_LINES), failed)
}

/// Returns the number of lines: at least one for the message, and one for the hints.
pub fn height(app: &App) -> u16 {
    let tour = match &app.session.tour {
        Some(_) => tour::LINES,
        None => u16::from(app.session.tour_offered),
    };
    u16::try_from(message(app).0.len().max(1)).unwrap_or(1) + 1 + tour
}

/// Draws the footer.
pub fn draw(app: &App, frame: &mut Frame, area: Rect) {
    let theme = &app.config.theme;
    let area = match &app.session.tour {
        Some(tour) => {
            tour::draw(app, tour, frame.buffer_mut(), Rect { height: tour::LINES.min(area.height), ..area });
            Rect { y: area.y + tour::LINES, height: area.height.saturating_sub(tour::LINES), ..area }
        }
        None if app.session.tour_offered => {
            tour::draw_offer(app, frame.buffer_mut(), area);
            Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area }
        }
        None => area,
    };
    let (lines, failed) = message(app);
    let style = if failed { theme.danger } else { Style::new() };
    let hints = area.bottom().saturating_sub(1);
    for (y, line) in (area.y..hints).zip(lines) {
        put(frame.buffer_mut(), area.x, y, area.width, &line, style);
    }
    if let Some(line) = &app.typing.line {
        palette::draw(app, line, frame.buffer_mut(), area);
        let annotation = match &line.error {
            Some(_) => (String::new(), theme.muted),
            // The list above shows the meaning of every command.
            None if line.suggestions.before.is_empty() && !line.suggestions.words.is_empty() => {
                (String::new(), theme.muted)
            }
            None => (command_line::meaning(line.input.value()).unwrap_or_default(), theme.muted),
        };
        return prompt(app, frame, (area, hints), ":", &line.input, annotation);
    }
    if let Some((input, _)) = &app.typing.filter {
        let [keep, drop] = ["accept", "drop"].map(|name| app.key(name));
        let finds = app.navigation.help.is_some() || app.navigation.searches_pane();
        let label = if finds { "find: " } else { "filter: " };
        let annotation = match app.list().filter_error() {
            Some(_) if !finds => (format!("{drop} drop"), theme.muted),
            _ if app.typing.replace_on_typing => {
                (format!("letters replace it, End edits it  {keep} keep"), theme.muted)
            }
            _ => (format!("{keep} keep  {drop} drop"), theme.muted),
        };
        return prompt(app, frame, (area, hints), label, input, annotation);
    }
    if !app.typing.chord.is_empty() {
        let prefix = app
            .typing
            .chord
            .iter()
            .map(|stroke| keys::title(&keys::stroke_name(*stroke)))
            .collect::<Vec<_>>()
            .join(" ");
        let mut on: Vec<String> = app
            .config
            .keymap
            .chords(&app.typing.chord)
            .into_iter()
            .map(|(keys, name)| format!("{keys} {name}"))
            .collect();
        on.push("Esc cancels".to_owned());
        put(frame.buffer_mut(), area.x, hints, area.width, &format!("{prefix} ...  {}", on.join("  ")), theme.key);
        return;
    }
    if let Some(notice) = app.typing.notice.as_ref().filter(|_| app.dialog.is_none() && app.picker.is_none()) {
        put(frame.buffer_mut(), area.x, hints, area.width, &short_text::safe(notice), theme.key);
        return;
    }
    let [above, below] = hint_lines(app, usize::from(area.width));
    frame.buffer_mut().set_line(area.x, hints, &below, area.width);
    // the line of the message has the other hints while there is none
    if app.session.message.is_none() && hints > area.y {
        frame.buffer_mut().set_line(area.x, hints - 1, &above, area.width);
    }
}

/// Draws a text that is being typed, and a remark beside it.
fn prompt(
    app: &App,
    frame: &mut Frame,
    (area, y): (Rect, u16),
    label: &str,
    input: &Input,
    annotation: (String, Style),
) {
    let width = usize::from(area.width);
    let (annotation, style) = annotation;
    // The text gets at least a third of the line.
    let input_width = width.saturating_sub(annotation.width() + 2).max(width / 3);
    let scroll = input.visual_scroll(input_width.saturating_sub(label.len() + 1));
    let text: String = input.value().chars().skip(scroll).collect();
    let buffer = frame.buffer_mut();
    put(
        buffer,
        area.x,
        y,
        u16::try_from(input_width).unwrap_or(area.width),
        &format!("{label}{text}"),
        app.config.theme.key,
    );
    let annotation_width = u16::try_from(annotation.width().min(width.saturating_sub(input_width + 1))).unwrap_or(0);
    put(buffer, area.right().saturating_sub(annotation_width), y, annotation_width, &annotation, style);
    let column = label.len() + input.visual_cursor().saturating_sub(scroll);
    frame.set_cursor_position((area.x + u16::try_from(column).unwrap_or(0), y));
}

/// Returns the commands that the footer names in the open view, most important first.
fn view_hints(app: &App) -> &'static [&'static str] {
    match app.navigation.view {
        View::Overview => &[
            "open",
            "trouble",
            "retry",
            "done",
            "reset-backoff",
            "force",
            "hold",
            "unhold",
            "approve",
            "host-power",
            "release",
            "cancel",
            "repair",
            "reboot",
            "switch",
            "sort",
        ],
        View::Reboots | View::Repairs if app.navigation.batches => {
            &["open", "hold", "unhold", "cancel", "mark", "racks", "filter", "sort"]
        }
        View::Reboots => &[
            "open",
            "trouble",
            "mark",
            "cancel",
            "hold",
            "unhold",
            "filter",
            "retry",
            "done",
            "force",
            "reset-backoff",
            "switch",
            "jump",
            "sort",
            "logs-of",
            "yaml",
        ],
        View::Repairs => &[
            "open",
            "trouble",
            "mark",
            "cancel",
            "repair",
            "hold",
            "unhold",
            "retry",
            "done",
            "filter",
            "delete-finished",
            "force",
            "reset-backoff",
            "switch",
            "jump",
            "sort",
            "logs-of",
            "yaml",
        ],
        View::Nodes => &[
            "open",
            "trouble",
            "mark",
            "reboot",
            "repair",
            "filter",
            "racks",
            "keep-cordoned",
            "cancel",
            "jump",
            "sort",
            "logs-of",
            "yaml",
        ],
        // before sabakan is set up there is nothing to approve or to hold
        View::Machines | View::Diff if app.seen.snapshot.store.registry.url.is_none() => &["open", "trouble", "filter"],
        View::Machines => &[
            "open",
            "approve",
            "constraint",
            "hold",
            "unhold",
            "switch",
            "auto-repair",
            "racks",
            "repair",
            "mark",
            "filter",
            "trouble",
            "sort",
            "yaml",
        ],
        View::Diff => {
            &["open", "approve", "constraint", "hold", "unhold", "switch", "auto-repair", "racks", "filter", "sort"]
        }
        View::Hosts => {
            &["open", "host-power", "hold", "unhold", "fence", "mark", "jump", "filter", "trouble", "sort", "yaml"]
        }
        View::History if app.navigation.cke_records => &["open", "racks", "filter", "sort"],
        View::History => &["open", "racks", "reboot", "filter", "trouble", "sort", "jump", "logs-of"],
        View::Audit => &["open", "jump", "logs-of", "filter", "sort"],
        View::Logs => &["open", "filter", "trouble", "sort"],
    }
}

/// Returns the commands of the view below the overlay, most important first.
pub(super) fn names_here(app: &App) -> Vec<&'static str> {
    let context = if app.navigation.pane.is_some() { Context::Detail } else { Context::Table };
    let names: Vec<&'static str> = match (context, &app.lists.overview_rows.cursor) {
        (Context::Detail, _) => {
            let of_view = view_hints(app).iter().copied().filter(|name| !matches!(*name, "jump" | "logs-of" | "yaml"));
            let first = ["close", "follow", "previous-entry", "next-entry"];
            first.into_iter().chain(of_view).chain(["jump", "logs-of", "yaml", "find"]).collect()
        }
        (_, Some(row)) if app.navigation.view == View::Overview => overview_hints(app, row),
        _ => view_hints(app).to_vec(),
    };
    names.into_iter().filter(|name| is_bound(name, context)).collect()
}

/// Reports whether a command has its key in this context.
fn is_bound(name: &str, context: Context) -> bool {
    TABLE.iter().any(|b| b.name == name && (b.context == context || b.context == Context::Everywhere))
}

/// Returns the commands that the footer names for a line of the Overview: those of its object, then the others.
fn overview_hints(app: &App, row: &OverviewRow) -> Vec<&'static str> {
    let name_of = |command| TABLE.iter().find(|b| b.command == command).map(|b| b.name);
    let keys = match row {
        OverviewRow::NeedsYou(object) => {
            let line = app.knowledge.needs_you.iter().find(|line| line.object == *object);
            line.map(|line| line.keys(app)).unwrap_or_default()
        }
        OverviewRow::Progress(_)
        | OverviewRow::Batch(..)
        | OverviewRow::Work(_)
        | OverviewRow::Racks
        | OverviewRow::Day
        | OverviewRow::Ended(_)
        | OverviewRow::Action(_) => Vec::new(),
    };
    let mut names = vec!["open", "trouble"];
    // on a narrow screen the line itself shows its first key
    let from = usize::from(app.size.width < WIDE);
    names.extend(keys.into_iter().filter_map(name_of).skip(from).filter(|name| *name != "open"));
    let verbs = match row {
        // nothing but its own keys ends what is not a row of a table
        OverviewRow::NeedsYou(Object::Source(_) | Object::Leadership | Object::Definition) => [].as_slice(),
        _ => view_hints(app),
    };
    let verbs = verbs.iter().copied();
    names.extend(verbs.filter(|name| *name != "open"));
    names.dedup();
    names
}

/// Returns the hints of this context, as many as fit. The last line has the commands about the row, because the line
/// above it is used by messages; what does not fit goes there, behind the commands about the view. Help, the command line
/// and quit always fit.
fn hint_lines(app: &App, width: usize) -> [Line<'static>; 2] {
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
        (View::Reboots | View::Repairs, "racks") if app.navigation.batches => "entries",
        (View::Reboots | View::Repairs, "racks") => "batches",
        (View::Reboots | View::Repairs, "hold") if app.navigation.batches => "pause",
        (View::Reboots | View::Repairs, "unhold") if app.navigation.batches => "resume",
        (View::Reboots | View::Repairs, "cancel") if app.navigation.batches => "cancel",
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
        (View::Overview, "cancel") if app.acting_view() == View::Repairs => "delete",
        _ => binding.hint,
    };
    let key = keys::title(app.config.keymap.key(name)?);
    let width = key.width() + word.width() + 3;
    Some(Hint { key, word, width, is_of_row: is_of_row(binding) })
}
