//! Panel of the sandbox tour, above the footer.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use crate::{
    state::{
        App,
        tour::{self, Tour},
    },
    table::{put, wrap},
};

/// Lines of the panel.
pub const LINES: u16 = 4;

/// Draws the line that offers the tour.
pub fn draw_offer(app: &App, buffer: &mut Buffer, area: Rect) {
    let [line, back] = ["command", "back"].map(|name| app.key(name));
    let text = format!(" A simulated data centre: {line}tour shows the first steps; {back} hides this line");
    put(buffer, area.x, area.y, area.width, &text, app.config.theme.title);
}

/// Draws the panel.
pub fn draw(app: &App, progress: &Tour, buffer: &mut Buffer, area: Rect) {
    let theme = &app.config.theme;
    let rule = "\u{2500}".repeat(usize::from(area.width));
    put(buffer, area.x, area.y, area.width, &rule, theme.muted);
    let title = format!(" Tour {} of {}, :tour ends it ", progress.at + 1, progress.steps().len());
    put(buffer, area.x + 2, area.y, area.width.saturating_sub(2), &title, theme.title);
    let lines = wrap(&tour::text(app, progress), usize::from(area.width.saturating_sub(2)));
    for (y, line) in (area.y + 1..area.bottom()).zip(lines) {
        put(buffer, area.x + 1, y, area.width.saturating_sub(1), &line, Style::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{keys::TABLE, state::tour::Kind};

    #[test]
    fn every_tour_step_names_existing_commands_and_fits_the_panel() {
        for step in Kind::ALL.into_iter().flat_map(Kind::steps) {
            let names = step.text.split('{').skip(1).filter_map(|part| part.split('}').next());
            for name in names {
                assert!(TABLE.iter().any(|b| b.name == name), "{name}");
            }
            assert!(wrap(step.text, 60).len() <= 4 && wrap(step.text, 78).len() <= 3, "{}", step.text);
        }
    }
}
