//! The `?` overlay, from the key table.

use std::borrow::Cow;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use unicode_width::UnicodeWidthStr;

use crate::{
    keys::{Binding, Context, TABLE},
    state::{
        App, Sheet, blockers, calendar,
        command_line::{self, ARGUMENT_COMMANDS},
        event::count,
        queries, short_text, when,
    },
    table::{cut, put, wrap},
};

/// Width of the keys in columns.
const LABEL_WIDTH: usize = 15;

fn lines(app: &App) -> Vec<Line<'static>> {
    let lines = match app.navigation.sheet {
        Sheet::Help => keys(app),
        Sheet::Messages => messages(app),
        Sheet::Blockers => blocker_lines(app),
    };
    if lines.is_empty() {
        return vec![Line::from(match app.navigation.sheet {
            _ if !app.navigation.search_text.is_empty() => {
                format!("nothing here matches {:?}", short_text::safe(&app.navigation.search_text))
            }
            Sheet::Blockers if app.seen.snapshot.store.leader().is_none() => {
                let why = app.seen.snapshot.store.leadership().message;
                format!("{}: what blocks a drain is not evaluated", short_text::safe(&why))
            }
            Sheet::Blockers => "nothing blocks a drain".to_owned(),
            Sheet::Help | Sheet::Messages => "no messages yet".to_owned(),
        })];
    }
    lines
}

/// Reports whether a text contains all searched words.
fn matches_search(app: &App, text: &str) -> bool {
    let text = text.to_lowercase();
    app.navigation.search_text.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

/// Returns the last messages, newest first.
fn messages(app: &App) -> Vec<Line<'static>> {
    let theme = &app.config.theme;
    let mut lines = Vec::new();
    for (at, message) in app.session.messages.iter().rev().filter(|(_, message)| matches_search(app, &message.text)) {
        let mut label = format!("{:<12}", calendar::short(app, *at));
        let style = if message.failed { theme.danger } else { Style::new() };
        for text in wrap(&short_text::safe(&message.text), usize::from(app.size.width).saturating_sub(15)) {
            let label = std::mem::replace(&mut label, " ".repeat(12));
            lines.push(Line::from(vec![Span::styled(label, theme.muted), Span::styled(text, style)]));
        }
    }
    lines
}

/// Returns what blocks pods, with the most affected nodes first.
fn blocker_lines(app: &App) -> Vec<Line<'static>> {
    let theme = &app.config.theme;
    let width = usize::from(app.size.width).saturating_sub(8);
    let mut lines = Vec::new();
    for blocker in blockers::all(app) {
        let names = blocker.nodes.iter().chain(&blocker.pods).map(String::as_str).collect::<Vec<_>>().join(" ");
        if !matches_search(app, &format!("{} {names}", blocker.what)) {
            continue;
        }
        let count = format!("{}  ", count(blocker.nodes.len(), "node"));
        let what = short_text::safe(&blocker.what);
        let mut what = cut(&what, width.saturating_sub(count.width()), 3).into_iter();
        let first = what.next().unwrap_or_default();
        lines.push(Line::from(vec![Span::styled(count, theme.title), Span::styled(first, theme.trouble)]));
        lines.extend(what.map(|line| Line::styled(format!("    {line}"), theme.trouble)));
        let list = |of: &std::collections::BTreeSet<String>| of.iter().cloned().collect::<Vec<_>>().join(", ");
        let pods = (!blocker.pods.is_empty()).then(|| format!("pods: {}", list(&blocker.pods)));
        let tried = blocker.tried.map(|at| format!("when a drain was last tried, {} ago", when::age(at, app.known())));
        for text in tried.into_iter().chain([format!("nodes: {}", list(&blocker.nodes))]).chain(pods) {
            lines.extend(
                cut(&short_text::safe(&text), width, 3).into_iter().map(|line| Line::from(format!("    {line}"))),
            );
        }
    }
    lines
}

/// Returns a section of the help: its title, and the text of each key or command that matches the search, or nothing.
/// The search also matches the names used in the configuration (`hold`, `done`, `force`).
fn section<'a>(
    app: &App,
    title: &str,
    rows: impl Iterator<Item = (String, Cow<'a, str>, &'a str)>,
) -> Vec<Line<'static>> {
    let theme = &app.config.theme;
    let mut lines = vec![Line::default(), Line::styled(title.to_owned(), theme.title)];
    for (label, text, _) in rows.filter(|(label, text, name)| matches_search(app, &format!("{label} {text} {name}"))) {
        // a long name has a line of its own
        if label.width() > LABEL_WIDTH {
            lines.push(Line::styled(format!("  {label}"), theme.key));
        }
        let label_or_space = if label.width() > LABEL_WIDTH { "" } else { &label };
        let mut label = format!("  {label_or_space:<LABEL_WIDTH$} ");
        for text in wrap(&text, usize::from(app.size.width).saturating_sub(LABEL_WIDTH + 5)) {
            let label = std::mem::replace(&mut label, " ".repeat(LABEL_WIDTH + 3));
            lines.push(Line::from(vec![Span::styled(label, theme.key), Span::raw(text)]));
        }
    }
    if lines.len() > 2 { lines } else { Vec::new() }
}

/// Groups of the help, in their order: the title, and the names of the commands. Commands that change the cluster have
/// a group of their own.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Moving",
        &[
            "down",
            "up",
            "half-page-down",
            "half-page-up",
            "page-down",
            "page-up",
            "top",
            "bottom",
            "left",
            "right",
            "previous-entry",
            "next-entry",
        ],
    ),
    (
        "Views",
        &[
            "next-view",
            "previous-view",
            "overview",
            "reboots",
            "nodes",
            "repairs",
            "machines",
            "diff",
            "hosts",
            "history",
            "audit",
            "logs",
            "racks",
        ],
    ),
    (
        "Looking",
        &[
            "open",
            "close",
            "yaml",
            "logs-of",
            "follow",
            "jump",
            "trouble",
            "blockers",
            "filter",
            "find",
            "sort",
            "reverse",
            "choose-columns",
            "mark",
            "mark-all",
            "copy",
            "messages",
        ],
    ),
    ("Console", &["command", "help", "back", "undo", "tour", "mouse", "repaint", "suspend", "quit"]),
];

/// Returns the keys: those of the context first, then all by group.
fn keys(app: &App) -> Vec<Line<'static>> {
    let row = |b: &'static Binding| (app.config.keymap.all(b), Cow::from(b.help), b.name);
    let named = |name: &&str| TABLE.iter().find(|b| b.name == *name);
    let of = |context: Context| TABLE.iter().filter(move |b| b.context == context && !b.changes).map(row);
    let mut lines = Vec::new();
    if app.navigation.search_text.is_empty() {
        let here = super::footer::names_here(app);
        let title = format!("Here: {}", app.navigation.view.title());
        let title = if app.navigation.pane.is_some() { format!("{title}, its pane") } else { title };
        lines.extend(section(app, &title, here.iter().filter_map(named).map(row)));
    }
    let changing = "Changing the cluster (the same key in every view)";
    lines.extend(section(app, changing, TABLE.iter().filter(|b| b.changes).map(row)));
    for (title, names) in GROUPS {
        lines.extend(section(app, title, names.iter().filter_map(named).map(row)));
    }
    let grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = [Context::Table, Context::Detail, Context::Everywhere];
    let others = TABLE.iter().filter(|b| others.contains(&b.context) && !b.changes && !grouped(b.name));
    lines.extend(section(app, "More", others.map(row)));
    lines.extend(section(app, "In dialogs", of(Context::Dialog)));
    lines.extend(section(app, "While text is typed", of(Context::Field)));
    lines.extend(section(app, "On the screen", signs(app)));
    lines.extend(section(app, "On the command line, besides every name in docs/keys.md", command_rows()));
    // the first section has the frame above it
    lines.drain(..lines.len().min(1));
    lines
}

/// Returns what signs and numbers mean that every view shows.
fn signs(app: &App) -> impl Iterator<Item = (String, Cow<'static, str>, &'static str)> {
    let next = app.key("trouble");
    let rows = [
        (
            "2 Nodes 60!",
            format!("a tab: its key, the number of its rows; ! = something in it needs you ({next} goes there)"),
        ),
        ("done 07:41Z ± 2m", "four of five batches in which no more machine sticks end within the ±".to_owned()),
        ("90 % by 08:29Z", "nine of ten batches have ended by then, stuck machines included".to_owned()),
        ("usual boot", "median time from the command to the boot on the last day".to_owned()),
    ];
    rows.into_iter().map(|(label, text)| (label.to_owned(), Cow::from(text), ""))
}

/// Returns the commands that are typed with arguments.
fn command_rows() -> impl Iterator<Item = (String, Cow<'static, str>, &'static str)> {
    let reason = format!("[{} REASON]", command_line::REASON);
    let on_rows = format!("[ROWS] {reason}  {}", command_line::ROW_COMMANDS.join(", "));
    let others = command_line::verb_usages().filter(|(form, _)| !form.contains("ROWS"));
    let others = others.filter_map(|(form, _)| form.split(' ').next().map(str::to_owned)).collect::<Vec<_>>();
    let others = format!("{reason}  {}", others.join(", "));
    let words = ARGUMENT_COMMANDS.iter().map(|word| {
        let help = format!("{} {}", word.argument, word.help);
        (format!(":{}", word.name), Cow::from(help.trim().to_owned()), "")
    });
    let verbs = [(":VERB", on_rows), (":VERB", others), ("", command_line::ROWS_HELP.to_owned())];
    words.chain(verbs.into_iter().map(|(label, text)| (label.to_owned(), Cow::from(text), "")))
}

/// Returns how far the help can be scrolled.
pub fn overflow(app: &App) -> usize {
    let layout = super::layout(app);
    let shown = layout.table.union(layout.pane).union(layout.banner).height.saturating_sub(1);
    lines(app).len().saturating_sub(usize::from(shown))
}

/// Draws the help over the body.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect) {
    let lines = lines(app);
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buffer[(x, y)].reset();
        }
    }
    let rule = "\u{2500}".repeat(usize::from(area.width));
    put(buffer, area.x, area.y, area.width, &rule, app.config.theme.muted);
    let what = match app.navigation.sheet {
        Sheet::Help => "Keys",
        Sheet::Messages => "Messages",
        Sheet::Blockers => &format!("Drain blockers{}", queries::reading_label(&app.seen)),
    };
    let [down, up, find, back] = ["down", "up", "find", "back"].map(|name| app.key(name));
    let title = match app.navigation.search_text.as_str() {
        "" => {
            // the way back is never cut
            let scroll = format!(" {what}: {down} {up} scroll, {find} finds, {back} closes ");
            let forms = [scroll, format!(" {what}: {find} finds, {back} closes "), format!(" {what}: {back} closes ")];
            let room = usize::from(area.width.saturating_sub(4));
            let fits = forms.iter().find(|form| form.width() <= room).or(forms.last());
            fits.cloned().unwrap_or_default()
        }
        search_text => format!(" {what} with {:?}: {back} shows all ", short_text::safe(search_text)),
    };
    put(buffer, area.x + 2, area.y, area.width.saturating_sub(4), &title, app.config.theme.title);
    let from = app.navigation.help.unwrap_or(0);
    for (y, line) in (area.y + 1..area.bottom()).zip(lines.iter().skip(from)) {
        buffer.set_line(area.x + 1, y, line, area.width.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_names_existing_commands_once() {
        let names: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for name in &names {
            assert!(TABLE.iter().any(|b| b.name == *name && !b.changes), "{name}");
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
    }
}
