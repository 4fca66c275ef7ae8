//! Map of the racks with one letter per machine. Below it are the machine under the cursor and the legend.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use crate::{
    state::{
        App, queries,
        racks::{Map, State, shown},
        short_text,
    },
    table::{cut, put},
};

/// Most lines of the legend, and of the text about the machine under the cursor.
const MAX_LINES: usize = 2;

/// Returns the lines below the map: the machine under the cursor, the legend.
fn lines_below_map(app: &App, map: &Map) -> Vec<(String, Style)> {
    let (theme, width) = (&app.config.theme, usize::from(app.size.width));
    let mut lines = Vec::new();
    if let Some(name) = &app.lists.nodes.cursor {
        let (state, trouble) = short_text::node_state(app, name);
        let role = queries::role(&app.seen, name);
        let rack = queries::rack(&app.seen, name);
        let style = if trouble.is_some() { theme.trouble } else { Style::new() };
        let text = short_text::safe(&format!("{name} ({role}, rack {}): {state}", shown(rack)));
        lines.extend(cut(&text, width, 1).into_iter().map(|line| (line, style)));
    }
    lines.extend(cut(&map.legend(), width, MAX_LINES).into_iter().map(|line| (line, theme.muted)));
    lines
}

/// Returns the number of lines of the map itself.
pub(super) fn height(app: &App, area: Rect) -> usize {
    let lines_below_map = app.navigation.map.as_ref().map_or(0, |map| lines_below_map(app, map).len());
    usize::from(area.height).saturating_sub(lines_below_map).max(1)
}

/// Draws the map.
pub(super) fn draw(app: &App, map: &Map, buffer: &mut Buffer, area: Rect, is_stale: bool) {
    let width = usize::from(area.width);
    let (per_line, _) = map.grid(width);
    let height = u16::try_from(height(app, area)).unwrap_or(area.height).min(area.height);
    let block = u16::try_from(per_line + map.label + 4).unwrap_or(area.width);
    let cursor = app.lists.nodes.cursor.as_deref();
    for (y, line) in (area.y..area.y + height).zip(map.top..) {
        for (nth, (at, range)) in (0_u16..).zip(map.line(line, width)) {
            let Some(rack) = map.racks.get(at) else { continue };
            let x = area.x + nth * block;
            let machines = rack.machines.get(range.clone()).unwrap_or_default();
            let has_cursor = machines.iter().any(|m| Some(m.name.as_str()) == cursor);
            let theme = &app.config.theme;
            if has_cursor {
                put(buffer, x, y, 1, ">", theme.cursor);
            }
            let label =
                if range.start == 0 { short_text::shorten_middle(shown(&rack.name), map.label) } else { String::new() };
            put(buffer, x + 2, y, u16::try_from(map.label).unwrap_or(0), &label, theme.title);
            let first = x + 3 + u16::try_from(map.label).unwrap_or(0);
            for (x, machine) in (first..area.right()).zip(machines) {
                let mut style = match machine.state {
                    _ if is_stale => theme.muted,
                    State::Stuck | State::NotReady => theme.danger,
                    State::Held | State::Backoff | State::NoNode | State::Unknown => theme.trouble,
                    state if state.is_active() => theme.good,
                    _ => Style::new(),
                };
                if app.lists.nodes.marks.contains(&machine.name) {
                    style = style.patch(theme.mark).add_modifier(Modifier::UNDERLINED);
                }
                if Some(machine.name.as_str()) == cursor {
                    style = style.add_modifier(Modifier::REVERSED);
                }
                buffer[(x, y)].set_char(machine.state.letter(machine.api_server)).set_style(style);
            }
        }
    }
    for (y, (text, style)) in (area.y + height..area.bottom()).zip(lines_below_map(app, map)) {
        put(buffer, area.x, y, area.width, &text, style);
    }
}
