//! Panel *Needs you*: a line for each object that waits for a person, with the keys that act on it.

use cketerm_model::entry::QueueKind;
use ratatui::{style::Style, text::Span};
use unicode_width::UnicodeWidthStr;

use super::{PanelLine, folded::Folded, text};
use crate::{
    keys::{self, Command, TABLE},
    state::{
        App, View,
        needs_you::NeedsYou,
        object::Object,
        overview::OverviewRow,
        queries,
        short_text::{self, Forms},
        when,
    },
    views::panel::Panel,
};

/// Widest name, on narrow and on wide screens.
const NAME_WIDTHS: [usize; 2] = [14, 24];
/// Width from which a line has room for longer names and several keys.
const WIDE: usize = 90;
/// Width of the age.
const AGE_WIDTH: usize = 5;
/// Most keys of a line.
const MAX_KEYS: usize = 2;

/// Returns the title with the number of lines.
pub(super) fn title(app: &App) -> Panel {
    let (theme, lines) = (&app.config.theme, &app.knowledge.needs_you);
    let style = lines.first().map_or(theme.title, |line| theme.severity(line.severity()));
    let panel = Panel::new(vec![text(format!("Needs you ({})", lines.len()), theme.title.patch(style))]);
    let next = app.config.keymap.key("trouble").map(|key| format!("{} next", keys::title(key)));
    match next.filter(|_| lines.len() > 1) {
        Some(next) => panel.note(text(next, Style::new())),
        None => panel,
    }
}

/// Returns the objects that the visible lines are about: the first ones, or those around the cursor.
pub(super) fn visible(app: &App, height: usize) -> &[NeedsYou] {
    let all = &app.knowledge.needs_you;
    let cursor = match &app.lists.overview_rows.cursor {
        Some(OverviewRow::NeedsYou(object)) => all.iter().position(|line| line.object == *object),
        _ => None,
    };
    let top = cursor.map_or(0, |at| (at + 1).saturating_sub(height)).min(all.len().saturating_sub(height));
    all.get(top..all.len().min(top + height)).unwrap_or_default()
}

/// Returns the visible lines.
pub(super) fn lines(app: &App, width: usize, height: usize) -> Vec<PanelLine> {
    let theme = &app.config.theme;
    if app.knowledge.needs_you.is_empty() {
        let sign = if app.config.blocks { "\u{25cf} " } else { "* " };
        return vec![vec![text(format!("{sign}nothing needs you"), theme.good)]];
    }
    folded(app, width, height).into_iter().flat_map(Folded::into_lines).collect()
}

/// Returns the objects of the visible lines; `None` for a line that goes on with the text of the one above.
pub(super) fn rows(app: &App, width: usize, height: usize) -> Vec<Option<OverviewRow>> {
    let visible = visible(app, height).iter().zip(folded(app, width, height));
    let rows = visible.flat_map(|(line, folded)| {
        let own = Some(OverviewRow::NeedsYou(line.object.clone()));
        std::iter::once(own).chain(folded.more.into_iter().map(|_| None))
    });
    rows.collect()
}

/// Returns the number of lines that the texts take, at most `most`.
pub(super) fn height(app: &App, width: usize, most: usize) -> usize {
    folded(app, width, most).into_iter().map(|folded| 1 + folded.more.len()).sum()
}

/// Returns the visible lines. Where there is room, the texts that are cut go on in a second line.
fn folded(app: &App, width: usize, height: usize) -> Vec<Folded> {
    let shown = visible(app, height);
    let cursor = match &app.lists.overview_rows.cursor {
        Some(OverviewRow::NeedsYou(object)) => Some(object),
        _ => None,
    };
    let most = NAME_WIDTHS[usize::from(width >= WIDE)];
    let name_width = shown.iter().map(|line| line.title_within(most).width()).max().unwrap_or(0).min(most);
    // the keys of all lines begin in one column
    let hint_width = |line: &NeedsYou| -> usize {
        shown_keys(app, line, width).iter().map(|(key, word)| key.width() + word.width() + 3).sum()
    };
    let hint_width = shown.iter().map(hint_width).max().unwrap_or(0);
    let lines = shown.iter().map(|line| {
        let selected = app.navigation.view == View::Overview && cursor == Some(&line.object);
        one(app, line, (width, name_width, hint_width), selected)
    });
    super::folded::within(lines.collect(), height)
}

/// Returns the keys of a line that are shown, each with its word.
fn shown_keys(app: &App, line: &NeedsYou, width: usize) -> Vec<(String, &'static str)> {
    let most = if width >= WIDE { MAX_KEYS } else { 1 };
    line.keys(app).into_iter().filter_map(|key| key_text(app, key, &line.object)).take(most).collect()
}

fn one(app: &App, line: &NeedsYou, (width, name_width, hint_width): (usize, usize, usize), selected: bool) -> Folded {
    let theme = &app.config.theme;
    let mut hints: Vec<Span<'static>> = Vec::new();
    for (key, word) in shown_keys(app, line, width) {
        let style = if selected { theme.key } else { Style::new() };
        hints.push(text(format!("  {key}"), style));
        hints.push(Span::raw(format!(" {word}")));
    }
    // ages of work stop while etcd is lost, the age of the loss does not
    let now = if matches!(line.object, Object::Source(_)) { app.now.wall } else { app.known() };
    let age = line.since.map(|at| when::age(at, now)).unwrap_or_default();
    let name = short_text::shorten_middle(&line.title_within(name_width), name_width);
    let what_width = width.saturating_sub(name_width + AGE_WIDTH + hint_width + 2).max(8);
    let more = match line.more_reasons.len() {
        0 => String::new(),
        n if width < WIDE => format!(" +{n}"),
        1 => " (+1 reason)".to_owned(),
        n => format!(" (+{n} reasons)"),
    };
    let room = what_width.saturating_sub(more.width());
    let fitting = short_text::fitting(&line.what, &line.shorter, room);
    let whole = if fitting.width() <= room { fitting } else { line.what.as_str() };
    let forms = Forms { whole: whole.to_owned(), shorter: line.shorter.clone() };
    Folded::with_end(&forms, &more, what_width, (name_width + 2, width), Style::new(), |what| {
        let mut spans = vec![
            text(format!("{name:<name_width$}  "), theme.severity(line.severity())),
            Span::raw(format!("{what:<what_width$}")),
            Span::raw(format!("{age:>AGE_WIDTH$}")),
        ];
        spans.extend(hints.iter().cloned());
        spans
    })
}

/// Returns a key and its word.
fn key_text(app: &App, command: Command, object: &Object) -> Option<(String, &'static str)> {
    let binding = TABLE.iter().find(|binding| binding.command == command)?;
    let key = app.config.keymap.key(binding.name)?;
    let word = match (command, object) {
        (Command::Cancel, Object::Entry(id)) if id.queue == QueueKind::Repair => "delete",
        (Command::Open, Object::Entry(id)) if queries::in_work(&app.seen, *id) => "pods",
        (Command::Unhold, Object::Batch(..)) => "resume",
        (Command::Hold, Object::Definition) => "stop applying",
        (Command::Unhold, Object::Definition) => "resume applying",
        (Command::Unhold, Object::Host(_)) => "release",
        _ if binding.hint.is_empty() => binding.name,
        _ => binding.hint,
    };
    Some((keys::title(key), word))
}
