//! Footer: the last message, and the hints from the key table.

mod commands;
mod hints;

use ratatui::{Frame, layout::Rect, style::Style};
use tui_input::Input;
use unicode_width::UnicodeWidthStr;

pub(in crate::views) use self::commands::names_here;
use self::hints::hint_lines;
use super::{palette, tour};
use crate::{
    keys,
    state::{App, command_line, short_text},
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
