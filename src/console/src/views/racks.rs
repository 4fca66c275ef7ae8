//! Map of the racks: each machine is a sign, with its name where there is room. Below it are the machine under the
//! cursor and the legend.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr;

use crate::{
    state::{
        App, queries,
        racks::{Grid, Machine, Map, State, shown},
        severity, short_text,
    },
    table::{cut, put},
    theme::Severity,
};

/// Most lines of the legend.
const MAX_LEGEND_LINES: usize = 3;
/// Most lines below the map: a blank one, the machine under the cursor, the legend.
pub(super) const MAX_LINES_BELOW: usize = 2 + MAX_LEGEND_LINES;
/// Sign beside a machine that runs an API server, so that the colour is not the only difference.
const API_SERVER: char = '\u{258c}';

/// Returns the text about the machine under the cursor.
fn cursor_line(app: &App) -> Line<'static> {
    let Some(name) = &app.lists.nodes.cursor else { return Line::default() };
    let (theme, (state, trouble)) = (&app.config.theme, short_text::node_state(app, name));
    let (role, rack) = (queries::role(&app.seen, name), queries::rack(&app.seen, name));
    let address = queries::member(&app.seen, name).map(|member| format!("  {}", member.address)).unwrap_or_default();
    let text = short_text::safe(&format!("{name} ({role}, rack {}){address}: {state}", shown(rack)));
    let style = if trouble.is_some() { theme.trouble } else { Style::new() };
    let text = cut(&text, usize::from(app.size.width).saturating_sub(4), 1).into_iter().next().unwrap_or_default();
    Line::from(vec![sign(app, State::of(app, name), false), Span::styled(format!(" {text}"), style)])
}

fn sign(app: &App, state: State, is_stale: bool) -> Span<'static> {
    let theme = &app.config.theme;
    let style = if is_stale { theme.muted } else { theme.shape(severity::of_machine(state)) };
    Span::styled(state.sign().to_string(), style)
}

/// Returns the legend of the signs, with the number of machines for each.
fn legend(app: &App, map: &Map, width: usize) -> Vec<Line<'static>> {
    let states = State::ALL.into_iter().filter_map(|state| Some((state, *map.counts.get(&state)?)));
    let mut parts: Vec<Vec<Span<'static>>> =
        states.map(|(state, n)| vec![sign(app, state, false), Span::raw(format!(" {n} {}", state.label()))]).collect();
    if map.api_servers {
        parts.push(vec![Span::raw(format!("{API_SERVER} API server"))]);
    }
    let mut lines: Vec<Line<'static>> = Vec::new();
    for part in parts {
        let part_width: usize = part.iter().map(|span| span.content.width()).sum();
        match lines.last_mut() {
            Some(line) if line.width() + 3 + part_width <= width => {
                line.push_span(Span::raw("   "));
                line.extend(part);
            }
            Some(_) | None => lines.push(Line::from(part)),
        }
    }
    lines.truncate(MAX_LEGEND_LINES);
    lines
}

/// Returns the lines below the map: the machine under the cursor, the legend.
fn lines_below_map(app: &App, map: &Map) -> Vec<Line<'static>> {
    let width = usize::from(app.size.width).saturating_sub(4);
    std::iter::once(cursor_line(app)).chain(legend(app, map, width)).collect()
}

/// Returns the lines of the screen that the map may use.
fn room(app: &App, map: &Map, area: Rect) -> usize {
    usize::from(area.height).saturating_sub(lines_below_map(app, map).len()).max(1)
}

/// Returns the arrangement of the map in this area.
pub(super) fn grid(app: &App, map: &Map, area: Rect) -> Grid {
    map.grid((usize::from(area.width), room(app, map, area)))
}

/// Returns the number of lines of the map that are visible.
pub(super) fn height(app: &App, area: Rect) -> usize {
    let Some(map) = &app.navigation.map else { return 1 };
    (room(app, map, area) / grid(app, map, area).spacing).max(1)
}

/// Returns the visible machines, each with the left end of its tile and its line.
fn tiles<'m>(app: &App, map: &'m Map, area: Rect) -> Vec<(u16, u16, &'m Machine)> {
    let grid = grid(app, map, area);
    let rows = u16::try_from(room(app, map, area)).unwrap_or(area.height).min(area.height);
    let rack_width = u16::try_from(map.rack_width(grid)).unwrap_or(area.width);
    let (label, tile) = (u16::try_from(map.label).unwrap_or(0), u16::try_from(grid.tile).unwrap_or(1));
    let mut tiles = Vec::new();
    for (y, line) in (area.y..area.y + rows).step_by(grid.spacing).zip(map.top..) {
        for (nth, (at, range)) in (0_u16..).zip(map.line(line, grid)) {
            let first = area.x + nth * rack_width + 2 + label;
            let machines = map.racks.get(at).and_then(|rack| rack.machines.get(range)).unwrap_or_default();
            let placed = (0_u16..).zip(machines).map(|(place, machine)| (first + place * tile, y, machine));
            tiles.extend(placed.take_while(|(x, ..)| x + 2 < area.right()));
        }
    }
    tiles
}

/// Returns the machine at this place of the screen.
pub(super) fn machine_at<'m>(app: &App, map: &'m Map, area: Rect, (x, y): (u16, u16)) -> Option<&'m str> {
    let grid = grid(app, map, area);
    let (tile, lines) = (u16::try_from(grid.tile).unwrap_or(1), if grid.has_states() { 2 } else { 1 });
    let holds = |left: u16, top: u16| (left..left + tile).contains(&x) && (top..top + lines).contains(&y);
    tiles(app, map, area)
        .into_iter()
        .find(|(left, top, _)| holds(*left, *top))
        .map(|(.., machine)| machine.name.as_str())
}

/// Draws the map.
pub(super) fn draw(app: &App, map: &Map, buffer: &mut Buffer, area: Rect, is_stale: bool) {
    let grid = grid(app, map, area);
    let rows = u16::try_from(room(app, map, area)).unwrap_or(area.height).min(area.height);
    let rack_width = u16::try_from(map.rack_width(grid)).unwrap_or(area.width);
    let label_width = u16::try_from(map.label).unwrap_or(0);
    let cursor = app.lists.nodes.cursor.as_deref();
    for (y, line) in (area.y..area.y + rows).step_by(grid.spacing).zip(map.top..) {
        for (nth, (at, range)) in (0_u16..).zip(map.line(line, grid)) {
            let Some(rack) = map.racks.get(at) else { continue };
            let x = area.x + nth * rack_width;
            let machines = rack.machines.get(range.clone()).unwrap_or_default();
            if machines.iter().any(|machine| Some(machine.name.as_str()) == cursor) {
                put(buffer, x, y, 1, ">", app.config.theme.cursor);
            }
            if range.start == 0 {
                let label = short_text::shorten_middle(shown(&rack.name), map.label);
                put(buffer, x + 2, y, label_width, &label, app.config.theme.title);
            }
        }
    }
    let tiles = tiles(app, map, area);
    for (left, y, machine) in &tiles {
        draw_machine(app, machine, buffer, (*left, *y), grid, is_stale);
    }
    // the brackets lie between machines, over the mark of an API server
    if let Some((left, y, _)) = tiles.iter().find(|(.., machine)| Some(machine.name.as_str()) == cursor) {
        let style = app.config.theme.cursor.add_modifier(Modifier::REVERSED);
        let right = left + u16::try_from(grid.tile).unwrap_or(1);
        put(buffer, *left, *y, 1, "[", style);
        put(buffer, right.min(area.right() - 1), *y, 1, "]", style);
    }
    for (y, line) in (area.y + rows..area.bottom()).zip(lines_below_map(app, map)) {
        buffer.set_line(area.x + 2, y, &line, area.width.saturating_sub(2));
    }
}

/// Draws a machine: its sign, the mark of an API server or of the operator, and its name.
fn draw_machine(app: &App, machine: &Machine, buffer: &mut Buffer, (x, y): (u16, u16), grid: Grid, is_stale: bool) {
    let theme = &app.config.theme;
    let sign = sign(app, machine.state, is_stale);
    let is_marked = app.lists.nodes.marks.contains(&machine.name);
    put(buffer, x + 1, y, 1, &sign.content, sign.style);
    match (is_marked, machine.api_server) {
        (true, _) => put(buffer, x + 2, y, 1, "*", theme.mark),
        (false, true) => put(buffer, x + 2, y, 1, &API_SERVER.to_string(), sign.style),
        (false, false) => {}
    }
    if let Ok(width @ 1..) = u16::try_from(grid.name_width()) {
        let name = short_text::shorten_middle(&machine.name, usize::from(width));
        let style = match severity::of_machine(machine.state) {
            _ if is_stale => theme.muted,
            Severity::Done | Severity::Waiting | Severity::Draining => Style::new(),
            severity @ (Severity::Rebooting | Severity::Slow | Severity::Failed) => theme.severity(severity),
        };
        put(buffer, x + 3, y, width, &name, style);
        if grid.has_states() {
            // a block twice as high, and the state in words unless all is well
            if machine.state.is_block() {
                put(buffer, x + 1, y + 1, 1, &sign.content, sign.style);
            }
            // a cut word says less than the sign
            if machine.state != State::Ready && machine.state.label().len() <= usize::from(width) {
                put(buffer, x + 3, y + 1, width, machine.state.label(), style);
            }
        }
    }
}
