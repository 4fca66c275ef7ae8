//! Machines by rack: a sign for each machine, and the legend. In large clusters the racks are counted instead, those with
//! machines that are not ready first.

use std::collections::BTreeMap;

use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::{PanelLine, text};
use crate::{
    state::{
        App,
        overview::{CountedRack, OverviewRow},
        racks::{State, shown},
        severity, short_text,
    },
    views::gauge,
};

/// Widest name of a rack.
const NAME_WIDTH: usize = 10;
/// Space between two racks in a line.
const GAP: usize = 3;
/// Width of the bar of a counted rack.
const BAR_WIDTH: usize = 10;

/// Returns the sign of a machine. A ready API server is a letter.
fn sign(state: State, api_server: bool) -> char {
    if api_server && state == State::Ready { 'A' } else { state.sign() }
}

/// Returns the width of the names, the width of a rack, and the number of racks that fit side by side.
fn grid(app: &App, width: usize) -> (usize, usize, usize) {
    let racks = &app.knowledge.summary.racks.racks;
    let label = racks.iter().map(|(name, _)| shown(name).width()).max().unwrap_or(0).min(NAME_WIDTH);
    let widest = racks.iter().map(|(_, machines)| machines.len()).max().unwrap_or(0);
    let one = (label + 1 + widest).min(width).max(1);
    (label, one, ((width + GAP) / (one + GAP)).max(1))
}

/// Returns the number of lines that the racks and the legend take: a line for each rack if at most `most` lines suffice,
/// else as few as possible. 0 if no rack is shown.
pub(super) fn height(app: &App, width: usize, most: usize) -> usize {
    let all = &app.knowledge.summary.racks;
    let legend = legend(app, width).len();
    match (all.racks.len(), all.counted.len()) {
        (0, 0) => 0,
        (0, counted) => (counted + legend).min(most.max(1 + legend)),
        (racks, _) if racks + legend <= most => racks + legend,
        (racks, _) => racks.div_ceil(grid(app, width).2) + legend,
    }
}

/// Returns the rows of the lines.
pub(super) fn rows(app: &App, width: usize, height: usize) -> Vec<Option<OverviewRow>> {
    let (racks, legend) = shape(app, width, height);
    let mut rows = vec![None; racks + legend];
    // all racks are one place to go to; the cursor marks the first
    if let Some(first) = rows.first_mut() {
        *first = Some(OverviewRow::Racks);
    }
    rows
}

/// Returns the number of lines with racks, and of lines of the legend.
fn shape(app: &App, width: usize, height: usize) -> (usize, usize) {
    let all = &app.knowledge.summary.racks;
    let legend = legend(app, width).len();
    let room = height.saturating_sub(legend);
    let racks =
        if all.racks.is_empty() { all.counted.len() } else { all.racks.len().div_ceil(beside(app, width, room)) };
    (racks.min(room), legend.min(height))
}

/// Returns the number of racks side by side: one, if there is a line for each.
fn beside(app: &App, width: usize, room: usize) -> usize {
    if app.knowledge.summary.racks.racks.len() <= room { 1 } else { grid(app, width).2 }
}

/// Returns the racks, and the legend in the last lines.
pub(super) fn lines(app: &App, width: usize, height: usize) -> Vec<PanelLine> {
    let all = &app.knowledge.summary.racks;
    let (shown_lines, legend_lines) = shape(app, width, height);
    let mut lines = if all.racks.is_empty() {
        counted(app, &all.counted, shown_lines)
    } else {
        let (label, one, _) = grid(app, width);
        let beside = beside(app, width, height.saturating_sub(legend_lines));
        let visible = all.racks.chunks(beside).take(shown_lines);
        visible.map(|line| line_of(app, line, (label, one))).collect()
    };
    lines.extend(legend(app, width).into_iter().take(legend_lines));
    lines
}

fn line_of(app: &App, racks: &[crate::state::overview::Rack], (label, one): (usize, usize)) -> PanelLine {
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (name, machines) in racks {
        if !spans.is_empty() {
            spans.push(Span::raw(" ".repeat(GAP)));
        }
        let name = short_text::shorten_middle(shown(name), label);
        spans.push(text(format!("{name:<label$} "), app.config.theme.title));
        let room = one.saturating_sub(label + 1);
        let hidden = machines.len().saturating_sub(room);
        let drawn = machines.len() - hidden;
        spans.extend(signs(app, machines.get(..drawn).unwrap_or_default()));
        spans.push(Span::raw(" ".repeat(room.saturating_sub(drawn))));
    }
    spans
}

/// Returns a line for each of the first racks: its ready machines as a bar, and the number in each other state.
fn counted(app: &App, racks: &[CountedRack], most: usize) -> Vec<PanelLine> {
    let theme = &app.config.theme;
    let visible = || racks.iter().take(most);
    let label = visible().map(|(name, _)| shown(name).width()).max().unwrap_or(0).min(NAME_WIDTH);
    let line = |(name, states): &CountedRack| {
        let name = short_text::shorten_middle(shown(name), label);
        let all: usize = states.values().sum();
        let ready = states.get(&State::Ready).copied().unwrap_or(0);
        let (done, rest) =
            (theme.shape(severity::of_machine(State::Ready)), theme.shape(severity::of_machine(State::Queued)));
        let mut spans = vec![text(format!("{name:<label$} "), theme.title)];
        spans.extend(gauge::done_of(ready, all, BAR_WIDTH, done, rest, app.config.blocks));
        spans.push(Span::raw(format!(" {ready}/{all}")));
        for (state, n) in states.iter().filter(|(state, _)| **state != State::Ready) {
            spans.push(text(format!("  {} {n}", state.sign()), theme.shape(severity::of_machine(*state))));
        }
        spans
    };
    visible().map(line).collect()
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

/// Returns the legend of the states that occur, with the number of machines, folded between its fields.
fn legend(app: &App, width: usize) -> Vec<PanelLine> {
    let (theme, all) = (&app.config.theme, &app.knowledge.summary.racks);
    let mut counts: BTreeMap<State, usize> = BTreeMap::new();
    for (state, n) in all.counted.iter().flat_map(|(_, states)| states) {
        *counts.entry(*state).or_default() += n;
    }
    let machines = || all.racks.iter().flat_map(|(_, machines)| machines);
    for (state, _) in machines() {
        *counts.entry(*state).or_default() += 1;
    }
    let field = |(state, n): (State, usize)| {
        let sign = text(sign(state, false).to_string(), theme.shape(severity::of_machine(state)));
        vec![sign, Span::raw(format!(" {n} {}", state.label()))]
    };
    let mut fields: Vec<PanelLine> = counts.into_iter().rev().map(field).collect();
    if machines().any(|machine| *machine == (State::Ready, true)) {
        let sign = text("A", theme.shape(severity::of_machine(State::Ready)));
        fields.push(vec![sign, Span::raw(" ready API server")]);
    }
    let width_of = |spans: &PanelLine| spans.iter().map(Span::width).sum::<usize>();
    let mut lines: Vec<PanelLine> = Vec::new();
    for field in fields {
        match lines.last_mut().filter(|line| width_of(line) + 2 + width_of(&field) <= width) {
            Some(line) => {
                line.push(Span::raw("  "));
                line.extend(field);
            }
            None => lines.push(field),
        }
    }
    lines
}
