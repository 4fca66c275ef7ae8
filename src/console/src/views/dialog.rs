//! Drawing of a dialog in the middle of the screen, over everything else.

use ratatui::{
    Frame,
    buffer::Buffer,
    layout::{Position, Rect, Size},
    style::{Modifier, Style},
};
use tui_input::Input;
use unicode_width::UnicodeWidthStr;

use crate::{
    state::{
        App,
        dialog::{Dialog, Focus, ReasonPolicy},
        short_text,
    },
    table::{put, wrap},
};

/// Returns the dialog's area and its text.
fn dialog_area(app: &App, dialog: &Dialog, screen: Size) -> (Rect, Vec<String>) {
    let (width, fixed, max_lines) = measure(dialog, screen);
    let text = fit(app, dialog, usize::from(width.saturating_sub(4)), max_lines);
    let height = (fixed + u16::try_from(text.len()).unwrap_or(0)).min(screen.height);
    (Rect::new((screen.width - width) / 2, (screen.height - height) / 2, width, height), text)
}

/// Returns the button at this place.
pub fn button_at(app: &App, dialog: &Dialog, (x, y): (u16, u16)) -> Option<Focus> {
    let (area, _) = dialog_area(app, dialog, app.size);
    if y + 2 != area.bottom() || dialog.expired.is_some() {
        return None;
    }
    let (confirm, back) = button_labels(app, dialog);
    let length = |text: &str| u16::try_from(text.len()).unwrap_or(0);
    let at = area.x + 2;
    let second = at + length(&confirm) + 2;
    match x {
        x if (at..at + length(&confirm)).contains(&x) => Some(Focus::Confirm),
        x if (second..second + length(&back)).contains(&x) => Some(Focus::Back),
        _ => None,
    }
}

/// Draws the dialog: its question and the cluster's badge in the upper border, the keys in the lower one.
pub fn draw(app: &App, dialog: &Dialog, frame: &mut Frame) {
    let theme = &app.config.theme;
    let (area, text) = dialog_area(app, dialog, frame.area().as_size());
    let buffer = frame.buffer_mut();
    let dangerous = dialog.dangerous() || dialog.expired.is_some();
    outline(buffer, area, if dangerous { theme.danger } else { theme.border });
    borders(app, dialog, buffer, area);
    let (x, mut y) = (area.x + 2, area.y + 1);
    let line = area.width.saturating_sub(4);
    for text in &text {
        let style = if text.starts_with('!') { theme.trouble } else { Style::new() };
        put(buffer, x, y, line, text, style);
        y += 1;
    }
    let fields = field_lines(dialog);
    y += u16::from(fields > 0);
    let cursor = if fields > 0 { draw_fields(app, dialog, buffer, (x, y), line) } else { None };
    y += fields;
    // other messages stay at their usual place
    if let Some(message) = app.session.message.as_ref().filter(|message| message.about.is_here()) {
        let (sign, style) = if message.failed { ("! ", theme.danger) } else { ("", Style::new()) };
        put(buffer, x, y, line, &short_text::safe(&format!("{sign}{}", message.text)), style);
    }
    buttons(app, dialog, buffer, (x, y + 1), line);
    if let Some(cursor) = cursor {
        frame.set_cursor_position(cursor);
    }
}

/// Writes question and badge into the upper border, and the keys into the lower one.
fn borders(app: &App, dialog: &Dialog, buffer: &mut Buffer, area: Rect) {
    let theme = &app.config.theme;
    let badge =
        format!(" {} ", short_text::safe(app.config.badge.as_deref().or(app.cluster()).unwrap_or("no cluster")));
    let width = u16::try_from(badge.width()).unwrap_or(u16::MAX).min(area.width / 3);
    put(buffer, area.right().saturating_sub(width + 2), area.y, width, &badge, theme.badge);
    let style = if dialog.dangerous() { theme.danger } else { theme.title };
    let free_width = area.width.saturating_sub(width + 5);
    let title = format!(" {} ", short_text::safe(&dialog.title));
    put(buffer, area.x + 2, area.y, free_width, &title, style.add_modifier(Modifier::BOLD));
    let hints = format!(" {} ", hint(app, dialog, usize::from(area.width.saturating_sub(6))));
    put(buffer, area.x + 2, area.bottom().saturating_sub(1), area.width.saturating_sub(4), &hints, theme.key);
}

/// Draws choices and text fields, and the kept reason of an expired dialog. Returns the place of the terminal's cursor.
fn draw_fields(app: &App, dialog: &Dialog, buffer: &mut Buffer, (x, mut y): (u16, u16), line: u16) -> Option<Position> {
    let theme = &app.config.theme;
    if dialog.expired.is_some() {
        return field(buffer, (x, y), line, "  reason, kept for the next try: ", &dialog.reason, false, theme.muted);
    }
    let mut cursor = None;
    if let Some(pick) = &dialog.pick {
        let (first, second) = pick.short_labels();
        let first = format!("  {first}: ");
        let second = format!("  {second}: ");
        choice(buffer, (x, y), line, &first, &pick.type_field(), dialog.focus == Focus::Type, theme.key);
        y += 1;
        if pick.has_second() {
            let focus = dialog.focus == Focus::Operation;
            choice(buffer, (x, y), line, &second, &pick.operation_field(), focus, theme.key);
            y += 1;
        }
    }
    if let Some(value) = &dialog.value {
        let at = field(buffer, (x, y), line, "  value: ", value, dialog.focus == Focus::Value, theme.key);
        cursor = cursor.or(at);
        y += 1;
    }
    if dialog.why != ReasonPolicy::Never {
        let label = if dialog.why == ReasonPolicy::Required { "  reason (needed): " } else { "  reason (optional): " };
        let at = field(buffer, (x, y), line, label, &dialog.reason, dialog.focus == Focus::Reason, theme.key);
        cursor = cursor.or(at);
        y += 1;
    }
    if let Some(expect) = &dialog.expect {
        put(buffer, x, y, line, &format!("  to confirm, type  {expect}"), theme.danger);
        let at = field(buffer, (x, y + 1), line, "  typed: ", &dialog.typed, dialog.focus == Focus::Typed, theme.key);
        cursor = cursor.or(at);
    }
    cursor
}

/// Lines of every dialog: frame 2, a line for the message, buttons.
const FRAME_LINES: u16 = 4;

/// Returns the number of lines that choices and text fields take.
fn field_lines(dialog: &Dialog) -> u16 {
    if dialog.expired.is_some() {
        return u16::from(!dialog.reason.value().is_empty());
    }
    u16::from(dialog.why != ReasonPolicy::Never)
        + 2 * u16::from(dialog.expect.is_some())
        + dialog.pick.as_ref().map_or(0, |pick| 1 + u16::from(pick.has_second()))
        + u16::from(dialog.value.is_some())
}

/// Returns the dialog's width, its height without the text, and the most lines of text.
fn measure(dialog: &Dialog, screen: Size) -> (u16, u16, usize) {
    let fields = field_lines(dialog);
    // a line separates the text from the fields
    let fixed = FRAME_LINES + fields + u16::from(fields > 0);
    (screen.width.saturating_sub(4).min(90), fixed, usize::from(screen.height.saturating_sub(fixed + 2)))
}

/// Returns how far the text can be scrolled.
pub fn overflow(dialog: &Dialog, screen: Size) -> usize {
    let (width, _, max_lines) = measure(dialog, screen);
    let lines = wrapped(dialog, usize::from(width.saturating_sub(4))).len();
    if lines > max_lines { lines - max_lines.saturating_sub(1) } else { 0 }
}

/// Returns the number of lines of text that the screen shows, counted from the first line of the text.
pub fn shown_to(dialog: &Dialog, screen: Size) -> usize {
    let (width, _, max_lines) = measure(dialog, screen);
    let all = wrapped(dialog, usize::from(width.saturating_sub(4))).len();
    if all <= max_lines { all } else { (dialog.scroll + max_lines.saturating_sub(1)).min(all) }
}

/// Reports whether the dialog has warnings that the screen has not shown yet. Until then its button is not offered.
pub fn has_unread_warnings(dialog: &Dialog, screen: Size) -> bool {
    let (width, ..) = measure(dialog, screen);
    let warnings = dialog.notes.iter().chain(dialog.lines.iter().take_while(|line| line.starts_with('!')));
    let lines = warnings.map(|line| wrap(&short_text::safe(line), usize::from(width.saturating_sub(4))).len());
    dialog.expired.is_none() && lines.sum::<usize>() > dialog.shown_to
}

fn wrapped(dialog: &Dialog, width: usize) -> Vec<String> {
    if let Some(expired) = &dialog.expired {
        // the other lines were about the state before
        let next = if dialog.asks_again {
            "Enter asks again about the state of now, and keeps what you typed"
        } else {
            "close it, look again and press the key again"
        };
        let lines = [format!("! EXPIRED: {expired}"), next.to_owned()];
        return lines.iter().flat_map(|line| wrap(&short_text::safe(line), width)).collect();
    }
    // warnings first, then the preview, then each object
    let warnings = dialog.lines.iter().take_while(|line| line.starts_with('!')).count();
    let (warnings, rest) = dialog.lines.split_at(warnings);
    let plan = dialog.plan.iter().flat_map(crate::state::dialog::plan::Plan::lines);
    let all = dialog.notes.iter().cloned();
    let all = all.chain(warnings.iter().cloned()).chain(plan).chain(rest.iter().cloned());
    let steps = dialog.pick.iter().flat_map(|pick| pick.steps().iter().cloned());
    let all = all.chain(steps);
    all.flat_map(|l| wrap(&short_text::safe(&l), width)).collect()
}

/// Returns the wrapped text. Lines that do not fit are counted, never silently cut.
fn fit(app: &App, dialog: &Dialog, width: usize, max_lines: usize) -> Vec<String> {
    let mut lines = wrapped(dialog, width);
    if lines.len() > max_lines {
        let (all, shown) = (lines.len(), max_lines.saturating_sub(1));
        let from = dialog.scroll.min(all - shown);
        lines = lines.drain(from..from + shown).collect();
        let [down, up] = ["dialog-down", "dialog-up"].map(|name| app.key(name));
        lines.push(format!("... lines {} to {} of {all}: {down}, {up}", from + 1, from + shown));
    }
    lines
}

/// Draws an empty frame with rounded corners.
pub fn outline(buffer: &mut Buffer, area: Rect, style: Style) {
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buffer[(x, y)].reset();
            let (left, right) = (x == area.left(), x + 1 == area.right());
            let (top, bottom) = (y == area.top(), y + 1 == area.bottom());
            let line = match (left, right, top, bottom) {
                (true, _, true, _) => "\u{256d}",
                (_, true, true, _) => "\u{256e}",
                (true, _, _, true) => "\u{2570}",
                (_, true, _, true) => "\u{256f}",
                (_, _, true, _) | (_, _, _, true) => "\u{2500}",
                (true, ..) | (_, true, ..) => "\u{2502}",
                _ => continue,
            };
            buffer[(x, y)].set_symbol(line).set_style(style);
        }
    }
}

/// Draws a labelled text field. Returns the place of the terminal's cursor if the field has the focus.
fn field(
    buffer: &mut Buffer,
    (x, y): (u16, u16),
    width: u16,
    label: &str,
    input: &Input,
    focus: bool,
    style: Style,
) -> Option<Position> {
    put(buffer, x, y, width, label, if focus { style.add_modifier(Modifier::BOLD) } else { style });
    if focus {
        put(buffer, x, y, 1, ">", style.add_modifier(Modifier::BOLD));
    }
    let label = u16::try_from(label.len()).unwrap_or(0);
    let free_width = width.saturating_sub(label);
    let scroll = input.visual_scroll(usize::from(free_width.saturating_sub(1)));
    let text: String = input.value().chars().skip(scroll).collect();
    put(buffer, x + label, y, free_width, &text, Style::new().add_modifier(Modifier::UNDERLINED));
    let column = u16::try_from(input.visual_cursor().saturating_sub(scroll)).unwrap_or(0);
    focus.then_some(Position::new(x + label + column, y))
}

/// Draws a labelled choice.
fn choice(buffer: &mut Buffer, (x, y): (u16, u16), width: u16, label: &str, shown: &str, focus: bool, style: Style) {
    let bold = style.add_modifier(Modifier::BOLD);
    put(buffer, x, y, width, label, if focus { bold } else { style });
    if focus {
        put(buffer, x, y, 1, ">", bold);
    }
    let label = u16::try_from(label.len()).unwrap_or(0);
    let button_style = if focus { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    put(buffer, x + label, y, width.saturating_sub(label), &short_text::safe(shown), button_style);
}

/// Returns the labels of the two buttons: the effect, and the way back.
fn button_labels(app: &App, dialog: &Dialog) -> (String, String) {
    let bracket = |text: &str, focus: bool| if focus { format!("[>{text}<]") } else { format!("[ {text} ]") };
    let confirm = if has_unread_warnings(dialog, app.size) {
        format!("( {}: more warnings )", app.key("dialog-down"))
    } else {
        bracket(&dialog.verb, dialog.focus == Focus::Confirm)
    };
    (confirm, bracket("Back", dialog.focus == Focus::Back))
}

fn buttons(app: &App, dialog: &Dialog, buffer: &mut Buffer, (x, y): (u16, u16), width: u16) {
    if dialog.expired.is_some() {
        return;
    }
    let face = if dialog.dangerous() { app.config.theme.danger } else { Style::new() };
    let button_style =
        |face: Style, focus: bool| if focus { face.add_modifier(Modifier::REVERSED | Modifier::BOLD) } else { face };
    let (confirm, back) = button_labels(app, dialog);
    put(buffer, x, y, width, &confirm, button_style(face, dialog.focus == Focus::Confirm));
    let at = x + u16::try_from(confirm.width()).unwrap_or(0) + 2;
    let free_width = (x + width).saturating_sub(at);
    put(buffer, at, y, free_width, &back, button_style(Style::new(), dialog.focus == Focus::Back));
}

/// Returns the hint about the keys at the current focus. The way out is always shown, the rest if there is space.
fn hint(app: &App, dialog: &Dialog, free_width: usize) -> String {
    let key_hint = |name: &str, word: &str| format!("{} {word}", app.key(name));
    if dialog.expired.is_some() {
        let close = format!("{} or q closes", app.key("no"));
        return if dialog.asks_again {
            format!("{}  {close}", key_hint("press", "asks again"))
        } else {
            format!("{close}; no other key acts")
        };
    }
    let out = key_hint(if dialog.typing() { "drop" } else { "no" }, "back");
    let mut hints = match dialog.focus {
        Focus::Reason | Focus::Typed | Focus::Value => vec![key_hint("accept", "next")],
        Focus::Type | Focus::Operation => {
            let choose = format!("{} {} choose", app.key("next-option"), app.key("previous-option"));
            vec![choose, key_hint("press", "next")]
        }
        Focus::Confirm => {
            vec![format!("{}, {} do it", app.key("press"), app.key("yes")), key_hint("next-field", "next")]
        }
        Focus::Back => vec![key_hint("yes", "do it"), key_hint("next-field", "next")],
    };
    let fits = |hints: &[String]| hints.iter().map(|hint| hint.chars().count() + 2).sum::<usize>() <= free_width + 2;
    while !hints.is_empty() && !fits(&[&hints[..], std::slice::from_ref(&out)].concat()) {
        hints.pop();
    }
    hints.push(out);
    hints.join("  ")
}
