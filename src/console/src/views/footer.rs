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
    keys::{self, Binding, Context, TABLE},
    state::{App, View, command_line, leaders, related, short_text},
    table::{cut, put},
};

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
    let shown = app.session.message.as_ref().filter(|message| app.dialog.is_none() || !message.here);
    let (text, failed) = match (typed, shown) {
        (Some(why), _) => (why, true),
        (None, Some(message)) => (message.text.as_str(), message.failed),
        (None, None) => return (Vec::new(), false),
    };
    let text = if failed { format!("! {text}") } else { text.to_owned() };
    (cut(&short_text::safe(&text), usize::from(app.size.width), MAX_MESSAGE_LINES), failed)
}

/// Returns the number of lines: at least one for the message, and one for the hints.
pub fn height(app: &App) -> u16 {
    let tour = app.session.tour.as_ref().map_or(0, |_| tour::LINES);
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
        let label = if app.navigation.help.is_some() { "find: " } else { "filter: " };
        let annotation = match app.list().filter_error() {
            Some(_) if app.navigation.help.is_none() => (format!("{drop} drop"), theme.muted),
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
    let line = hint_line(app, usize::from(area.width));
    frame.buffer_mut().set_line(area.x, hints, &line, area.width);
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
        View::Overview => &["open", "cancel", "switch", "reboots", "nodes", "repairs", "history", "logs-of"],
        View::Reboots => &[
            "open",
            "cancel",
            "mark",
            "hold",
            "unhold",
            "trouble",
            "filter",
            "retry",
            "done",
            "force",
            "reset-backoff",
            "switch",
            "jump",
            "sort",
            "logs-of",
        ],
        View::Repairs => &[
            "open",
            "cancel",
            "mark",
            "repair",
            "trouble",
            "delete-finished",
            "filter",
            "hold",
            "unhold",
            "retry",
            "done",
            "force",
            "reset-backoff",
            "switch",
            "jump",
            "sort",
            "logs-of",
        ],
        View::Nodes => &[
            "open",
            "mark",
            "reboot",
            "repair",
            "trouble",
            "filter",
            "racks",
            "keep-cordoned",
            "cancel",
            "jump",
            "sort",
            "logs-of",
        ],
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
        ],
        View::Diff => {
            &["open", "approve", "constraint", "hold", "unhold", "switch", "auto-repair", "racks", "filter", "sort"]
        }
        View::Hosts => &["open", "host-power", "hold", "unhold", "fence", "mark", "jump", "filter", "trouble", "sort"],
        View::History if app.navigation.cke_records => &["open", "racks", "filter", "sort"],
        View::History => &["open", "racks", "reboot", "filter", "trouble", "sort", "jump", "logs-of"],
        View::Audit => &["open", "jump", "logs-of", "filter", "sort"],
        View::Logs => &["open", "filter", "trouble", "sort"],
    }
}

/// Returns the commands of the view below the overlay, most important first.
pub(super) fn names_here(app: &App) -> Vec<&'static str> {
    if app.navigation.pane.is_none() {
        return view_hints(app).to_vec();
    }
    // A pane names the commands of its object itself.
    let of_view = view_hints(app).iter().copied().skip(1);
    ["close", "jump", "logs-of"].into_iter().chain(of_view).chain(["yaml", "previous-entry", "next-entry"]).collect()
}

/// Returns the hints of this context, as many as fit. Help, the command line and quit always fit.
fn hint_line(app: &App, width: usize) -> Line<'static> {
    let here = app.key_context();
    let names: Vec<&str> = match here {
        Context::Detail if app.navigation.help.is_some() => vec!["close", "find"],
        Context::Table | Context::Detail => names_here(app),
        Context::Everywhere | Context::Dialog | Context::Field => Vec::new(),
    };
    let always: Vec<Hint> = ["command", "help", "quit"].iter().filter_map(|name| hint(app, name)).collect();
    let mut left = width.saturating_sub(always.iter().map(|h| h.width).sum());
    let mut shown: Vec<Hint> = Vec::new();
    let undo_available =
        matches!(here, Context::Table | Context::Detail) && app.navigation.help.is_none() && app.can_undo();
    for name in undo_available.then_some("undo").into_iter().chain(names) {
        let ignored = |b: &Binding| {
            leaders::requested(b.command, app.navigation.view)
                .is_some_and(|requested| leaders::refusal(app, requested).is_some())
        };
        let forbidden =
            |b: &Binding| b.changes && (app.read_only() || app.forbidden(b.command).is_some() || ignored(b));
        let refused = TABLE.iter().any(|b| b.name == name && forbidden(b));
        let Some(hint) = hint(app, name).filter(|_| !refused) else { continue };
        if shown.iter().any(|h| h.key == hint.key) {
            continue;
        }
        if hint.width > left {
            break;
        }
        left -= hint.width;
        shown.push(hint);
    }
    let spans = shown
        .into_iter()
        .chain(always)
        .flat_map(|h| [Span::styled(h.key, app.config.theme.key), Span::raw(format!(" {}  ", h.word))]);
    Line::from(spans.collect::<Vec<_>>())
}

struct Hint {
    key: String,
    word: &'static str,
    width: usize,
}

/// Returns a command's key and word. `None` if it is unbound or cannot be used now.
fn hint(app: &App, name: &str) -> Option<Hint> {
    match name {
        // The footer does not offer a command that would only report why it cannot run.
        "jump" if app.navigation.pane.is_some() || app.navigation.view == View::Audit => {
            drop(related::counterpart(app)?);
        }
        "logs-of" if app.navigation.pane.is_some() || app.navigation.view == View::Audit => {
            drop(related::log_filter(app)?);
        }
        _ => {}
    }
    let word = match (app.navigation.view, name) {
        (View::Audit, "jump") => "go to it",
        (View::History, "racks") if app.navigation.cke_records => "ended",
        (View::History, "racks") => "CKE's records",
        (View::Nodes, "racks") if app.navigation.map.is_some() => "rows",
        (View::Hosts, "unhold") => "release",
        (View::Repairs, "cancel") => "delete",
        (_, "quit") if app.navigation.has_layer() => "close",
        (View::Reboots | View::Repairs, "jump") => "node",
        (View::Nodes, "jump") => "entry",

        (View::History | View::Logs, "trouble") => "next bad",
        (_, "overview" | "reboots" | "nodes" | "repairs" | "history") => {
            TABLE.iter().find(|b| b.name == name).map_or("", |b| b.name)
        }
        _ => TABLE.iter().find(|b| b.name == name)?.hint,
    };
    let key = keys::title(app.config.keymap.key(name)?);
    let width = key.width() + word.width() + 3;
    Some(Hint { key, word, width })
}
