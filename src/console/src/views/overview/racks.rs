//! Machines by rack: a sign for each machine, and the legend.

use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::{PanelLine, info, text};
use crate::state::{
    App,
    overview::OverviewRow,
    racks::{State, shown},
    severity, short_text,
};

/// Widest name of a rack.
const NAME_WIDTH: usize = 10;
/// Most machines of one rack that fit a line; the others are counted.
const GAP: usize = 3;

/// Returns the sign of a machine. A ready API server is a letter.
fn sign(state: State, api_server: bool) -> char {
    if api_server && state == State::Ready { 'A' } else { state.sign() }
}

/// Returns the width of a rack and the number of racks side by side.
fn grid(app: &App, width: usize) -> (usize, usize, usize) {
    let racks = &app.knowledge.summary.racks.racks;
    let label = racks.iter().map(|(name, _)| shown(name).width()).max().unwrap_or(0).min(NAME_WIDTH);
    let widest = racks.iter().map(|(_, machines)| machines.len()).max().unwrap_or(0);
    let one = (label + 1 + widest).min(width).max(1);
    (label, one, ((width + GAP) / (one + GAP)).max(1))
}

/// Returns the number of lines that all racks and the legend need. 0 if no rack is shown.
pub(super) fn height(app: &App, width: usize) -> usize {
    let racks = app.knowledge.summary.racks.racks.len();
    if racks == 0 { 0 } else { racks.div_ceil(grid(app, width).2) + 1 }
}

/// Returns the racks, and the legend in the last line.
pub(super) fn lines(app: &App, width: usize, height: usize) -> Vec<PanelLine> {
    let (theme, racks) = (&app.config.theme, &app.knowledge.summary.racks.racks);
    let (label, one, beside) = grid(app, width);
    let mut lines: Vec<PanelLine> = Vec::new();
    for line in racks.chunks(beside) {
        let mut spans: Vec<Span<'static>> = Vec::new();
        for (name, machines) in line {
            if !spans.is_empty() {
                spans.push(Span::raw(" ".repeat(GAP)));
            }
            let name = short_text::shorten_middle(shown(name), label);
            spans.push(text(format!("{name:<label$} "), theme.title));
            let room = one.saturating_sub(label + 1);
            let hidden = machines.len().saturating_sub(room);
            let drawn = machines.len() - hidden;
            spans.extend(signs(app, machines.get(..drawn).unwrap_or_default()));
            spans.push(Span::raw(" ".repeat(room.saturating_sub(drawn))));
        }
        lines.push(PanelLine { row: Some(OverviewRow::Racks), spans });
    }
    let legend = info(legend(app));
    if lines.len() >= height {
        lines.truncate(height.saturating_sub(1));
    }
    lines.push(legend);
    lines
}

/// Returns the machines, with one span for each run of equal ones.
fn signs(app: &App, machines: &[(State, bool)]) -> Vec<Span<'static>> {
    let runs = machines.chunk_by(|a, b| a == b);
    let span = |run: &[(State, bool)]| {
        let (state, api_server) = run.first().copied().unwrap_or((State::Unknown, false));
        let sign = sign(state, api_server);
        text(
            std::iter::repeat_n(sign, run.len()).collect::<String>(),
            app.config.theme.shape(severity::of_machine(state)),
        )
    };
    runs.map(span).collect()
}

/// Returns the legend of the states that occur, with the number of machines.
fn legend(app: &App) -> Vec<Span<'static>> {
    let (theme, racks) = (&app.config.theme, &app.knowledge.summary.racks.racks);
    let mut counts: std::collections::BTreeMap<State, usize> = std::collections::BTreeMap::new();
    for (state, _) in racks.iter().flat_map(|(_, machines)| machines) {
        *counts.entry(*state).or_default() += 1;
    }
    let mut spans = Vec::new();
    for (state, n) in counts.into_iter().rev() {
        if !spans.is_empty() {
            spans.push(Span::raw("  "));
        }
        spans.push(text(sign(state, false).to_string(), theme.shape(severity::of_machine(state))));
        spans.push(Span::raw(format!(" {n} {}", state.label())));
    }
    spans
}
