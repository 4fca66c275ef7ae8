//! One frame without a terminal: the state after some keys, as text, as escape sequences, or as a picture. No key
//! executes an action.

use std::{fmt::Write as _, sync::Arc};

use cketerm_clients::{kubernetes::Kube, store::Store};
use cketerm_model::{clock::Now, text::visible};
use cketerm_rules::seen::Seen;
use crossterm::event::KeyEvent;
use ratatui::{
    buffer::Buffer,
    layout::Size,
    style::{Color, Modifier},
};

use super::{options::ConsoleOptions, screen};
use crate::{
    effects::reader,
    input::update,
    keys,
    state::{
        App,
        event::{Effect, Event},
        past::{ReadRequest, ReadResponse},
    },
    views,
};

/// Most rounds of answers that lead to further reads.
const MAX_ROUNDS: usize = 8;

/// Parses key presses in the key table's notation, separated by white space. Text to type is in double quotes.
pub fn presses(text: &str) -> Result<Vec<KeyEvent>, String> {
    let mut presses = Vec::new();
    let mut press = |name: &str| {
        let (code, modifiers) = keys::parse(name).ok_or_else(|| {
            format!("{name:?} is not a key: write j, X, enter, space, ctrl-f, pgdn, and text to type in double quotes")
        })?;
        presses.push(KeyEvent::new(code, modifiers));
        Ok::<(), String>(())
    };
    if text.matches('"').count() % 2 == 1 {
        return Err(format!("{text:?}: a closing double quote is missing"));
    }
    for (i, part) in text.split('"').enumerate() {
        if i % 2 == 0 {
            part.split_whitespace().try_for_each(&mut press)?;
        } else {
            part.chars().try_for_each(|c| press(&if c == ' ' { "space".to_owned() } else { c.to_string() }))?;
        }
    }
    Ok(presses)
}

/// Returns the console's state after these keys. Reads are executed; actions are not.
pub async fn after(
    options: &ConsoleOptions,
    size: Size,
    seen: Arc<Seen>,
    now: Now,
    presses: &[KeyEvent],
    (store, kube): (&Store, Option<&Kube>),
) -> Result<App, String> {
    let mut app = App::new(options.config()?, options.view, now);
    app.size = size;
    let first = [Event::Seen(seen), Event::Tick(now)];
    for event in first.into_iter().chain(presses.iter().map(|key| Event::Key(*key))) {
        let mut events = vec![event];
        for _ in 0..MAX_ROUNDS {
            let mut answers = Vec::new();
            for event in events {
                for effect in update(&mut app, event) {
                    match effect {
                        // A picture does not query permissions.
                        Effect::Ask(ReadRequest::Rights)
                        | Effect::Suspend
                        | Effect::Repaint
                        | Effect::SaveSettings(_)
                        | Effect::AnswerLead(_)
                        | Effect::Mouse(_)
                        | Effect::Copy(_) => {}
                        Effect::ReadThemes(name) => answers.push(Event::ThemesRead(name, options.themes()())),
                        Effect::Ask(ReadRequest::Logs(after)) => {
                            let lines = options.logs.as_ref().map(|ring| ring.after(after)).unwrap_or_default();
                            // The console would immediately read again for newer lines; there are none.
                            if !lines.is_empty() {
                                answers.push(Event::ReadFinished(Box::new(ReadResponse::Logs(lines))));
                            }
                        }
                        Effect::Ask(read_request) => {
                            let seen = Arc::clone(&app.seen);
                            let answer = reader::read(store, kube, &seen, read_request).await;
                            answers.push(Event::ReadFinished(Box::new(answer)));
                        }
                        Effect::Act(_) => {
                            answers.push(Event::Done(Err("action skipped: a screenshot never writes".to_owned())));
                        }
                        Effect::Quit => return Err("these keys quit the console".to_owned()),
                    }
                }
            }
            events = answers;
            if events.is_empty() {
                break;
            }
        }
    }
    if views::is_preview_due(&app) {
        update(&mut app, Event::Rested);
    }
    Ok(app)
}

/// Adjacent cells with the same style.
struct Run {
    column: u16,
    width: u16,
    text: String,
    fg: Color,
    bg: Color,
    style: Modifier,
}

fn runs(buffer: &Buffer, row: u16) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::new();
    for column in 0..buffer.area.width {
        let cell = &buffer[(column, row)];
        match out.last_mut() {
            Some(run) if (run.fg, run.bg, run.style) == (cell.fg, cell.bg, cell.modifier) => {
                run.text.push_str(cell.symbol());
                run.width += 1;
            }
            _ => out.push(Run {
                column,
                width: 1,
                text: cell.symbol().to_owned(),
                fg: cell.fg,
                bg: cell.bg,
                style: cell.modifier,
            }),
        }
    }
    out
}

/// A frame for a terminal. Only [`picture`] creates one, so its escape sequences are cketerm's own.
#[derive(Debug)]
pub struct AnsiFrame(String);

impl AnsiFrame {
    /// Returns the text to print.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the screen's lines with escape sequences for colours.
pub fn picture(app: &App) -> AnsiFrame {
    AnsiFrame(ansi(app))
}

fn ansi(app: &App) -> String {
    let buffer = screen::buffer(app);
    let mut out = String::new();
    for row in 0..buffer.area.height {
        for run in runs(&buffer, row) {
            let mut codes = vec!["0".to_owned()];
            let styles =
                [(Modifier::BOLD, "1"), (Modifier::DIM, "2"), (Modifier::UNDERLINED, "4"), (Modifier::REVERSED, "7")];
            codes.extend(
                styles.iter().filter(|(style, _)| run.style.contains(*style)).map(|(_, code)| (*code).to_owned()),
            );
            codes.extend(sgr(run.fg, 30));
            codes.extend(sgr(run.bg, 40));
            let _ = write!(out, "\x1b[{}m{}", codes.join(";"), visible(&run.text, false));
        }
        out.push_str("\x1b[0m\n");
    }
    out
}

/// Returns the code of a colour. `base` = the code of black.
fn sgr(colour: Color, base: u8) -> Option<String> {
    let index = match colour {
        Color::Reset => return None,
        Color::Rgb(r, g, b) => return Some(format!("{};2;{r};{g};{b}", base + 8)),
        Color::Indexed(n) => return Some(format!("{};5;{n}", base + 8)),
        named => ansi_index(named)?,
    };
    Some(if index < 8 { base + index } else { base + 60 + index - 8 }.to_string())
}

/// Returns the index of a named colour among the sixteen.
fn ansi_index(colour: Color) -> Option<u8> {
    let names = [
        Color::Black,
        Color::Red,
        Color::Green,
        Color::Yellow,
        Color::Blue,
        Color::Magenta,
        Color::Cyan,
        Color::Gray,
        Color::DarkGray,
        Color::LightRed,
        Color::LightGreen,
        Color::LightYellow,
        Color::LightBlue,
        Color::LightMagenta,
        Color::LightCyan,
        Color::White,
    ];
    names.iter().position(|name| *name == colour).and_then(|place| u8::try_from(place).ok())
}

/// The sixteen colours, as on a dark terminal.
const PALETTE: [&str; 16] = [
    "#1d1f21", "#cc6666", "#8fa876", "#de935f", "#81a2be", "#b294bb", "#8abeb7", "#c5c8c6", "#7c7f83", "#e07a7a",
    "#b5bd68", "#f0c674", "#9cc2e5", "#c9a6d4", "#9fd6cf", "#ffffff",
];
const BACKGROUND: &str = "#16181a";
const FOREGROUND: &str = "#d4d6d4";
/// Size of a cell, in pixels.
const CELL_WIDTH: f32 = 8.4;
const CELL_HEIGHT: f32 = 18.0;

/// Returns the screen as an SVG picture.
pub fn svg(app: &App) -> String {
    let buffer = screen::buffer(app);
    let (width, height) =
        (f32::from(buffer.area.width) * CELL_WIDTH + 16.0, f32::from(buffer.area.height) * CELL_HEIGHT + 16.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    );
    for row in 0..buffer.area.height {
        for run in runs(&buffer, row) {
            let (mut foreground, mut background) = (hex(run.fg, FOREGROUND), hex(run.bg, BACKGROUND));
            if run.style.contains(Modifier::REVERSED) {
                std::mem::swap(&mut foreground, &mut background);
            }
            let (x, y) = (8.0 + f32::from(run.column) * CELL_WIDTH, 8.0 + f32::from(row) * CELL_HEIGHT);
            let run_width = f32::from(run.width) * CELL_WIDTH;
            if background != BACKGROUND {
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{run_width:.1}\" height=\"{CELL_HEIGHT}\" fill=\"{background}\"/>"
                );
            }
            if run.text.trim().is_empty() {
                continue;
            }
            let bold = if run.style.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
            let dim = if run.style.contains(Modifier::DIM) { " opacity=\"0.65\"" } else { "" };
            let line = if run.style.contains(Modifier::UNDERLINED) { " text-decoration=\"underline\"" } else { "" };
            let text = run.text.replace('&', "&amp;").replace('<', "&lt;");
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{run_width:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
                 fill=\"{foreground}\" xml:space=\"preserve\"{bold}{dim}{line}>{text}</text>",
                y + 13.5
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

fn hex(colour: Color, other: &str) -> String {
    match colour {
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        Color::Indexed(n) if n < 16 => PALETTE[usize::from(n)].to_owned(),
        // The cube of 6×6×6 colours, then the greys.
        Color::Indexed(n @ 16..=231) => {
            let part = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let n = n - 16;
            format!("#{:02x}{:02x}{:02x}", part(n / 36), part(n / 6 % 6), part(n % 6))
        }
        Color::Indexed(n) => format!("#{0:02x}{0:02x}{0:02x}", 8 + (n.saturating_sub(232)) * 10),
        named => ansi_index(named).map_or_else(|| other.to_owned(), |n| PALETTE[usize::from(n)].to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers};

    use super::*;

    #[test]
    fn keys_are_parsed_in_the_notation_of_the_key_table() {
        let keys = presses("j X ctrl-f \"a b\" enter").unwrap();
        let codes: Vec<KeyCode> = keys.iter().map(|k| k.code).collect();
        let chars = |text: &str| text.chars().map(KeyCode::Char).collect::<Vec<_>>();
        assert_eq!(codes, [chars("jXfa b"), vec![KeyCode::Enter]].concat());
        assert_eq!(keys[2].modifiers, KeyModifiers::CONTROL);
        assert!(presses("j nope").unwrap_err().contains("\"nope\" is not a key"));
        assert!(presses("/ \"rack").unwrap_err().contains("closing double quote"));
        assert_eq!(presses("").unwrap(), []);
    }

    #[test]
    fn colours_map_to_sgr_codes_and_hex() {
        assert_eq!((sgr(Color::Red, 30), sgr(Color::White, 30)), (Some("31".to_owned()), Some("97".to_owned())));
        assert_eq!(sgr(Color::Rgb(1, 2, 3), 40), Some("48;2;1;2;3".to_owned()));
        assert_eq!(
            (hex(Color::Indexed(16), FOREGROUND), hex(Color::Indexed(231), FOREGROUND)),
            ("#000000".into(), "#ffffff".into())
        );
        assert_eq!(hex(Color::Reset, FOREGROUND), FOREGROUND);
    }
}
