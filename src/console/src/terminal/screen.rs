//! One screen as text, for tests and for subcommands that print a frame.

use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Modifier};

use crate::{state::App, views};

/// Draws the state into a buffer of the console's size.
pub fn buffer(app: &App) -> Buffer {
    let backend = TestBackend::new(app.size.width, app.size.height);
    let drawn = Terminal::new(backend).and_then(|mut terminal| {
        terminal.draw(|frame| views::draw(app, frame))?;
        Ok(terminal.backend().buffer().clone())
    });
    match drawn {
        Ok(buffer) => buffer,
        Err(never) => match never {},
    }
}

/// Returns the screen's lines, without trailing blanks.
pub fn text(app: &App) -> String {
    let buffer = buffer(app);
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        for x in 0..buffer.area.width {
            line.push_str(buffer[(x, y)].symbol());
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Returns the number of cells with a colour, and the modifiers in use, to test `NO_COLOR`.
pub fn colours(app: &App) -> (usize, Modifier) {
    let buffer = buffer(app);
    let coloured =
        buffer.content.iter().filter(|c| c.fg != ratatui::style::Color::Reset || c.bg != ratatui::style::Color::Reset);
    let modifiers = buffer.content.iter().fold(Modifier::empty(), |all, c| all | c.modifier);
    (coloured.count(), modifiers)
}
