//! The `?` overlay, from the key table.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::console::{
    app::{App, Sheet},
    blockers, brief, calendar,
    event::count,
    keys::{Context, TABLE},
    line::{self, WORDS},
    table::{cut, put, wrap},
};

fn lines(app: &App) -> Vec<Line<'static>> {
    match app.sheet {
        Sheet::Help => keys(app),
        Sheet::Messages => messages(app),
        Sheet::Blockers => holders(app),
    }
}

/// The last messages, the newest first.
fn messages(app: &App) -> Vec<Line<'static>> {
    let theme = &app.looks.theme;
    let mut lines = Vec::new();
    for (at, message) in app.messages.iter().rev() {
        let mut label = format!("{:<12}", calendar::short(app, *at));
        let style = if message.failed { theme.danger } else { Style::new() };
        for text in wrap(&brief::safe(&message.text), usize::from(app.size.width).saturating_sub(15)) {
            let label = std::mem::replace(&mut label, " ".repeat(12));
            lines.push(Line::from(vec![Span::styled(label, theme.muted), Span::styled(text, style)]));
        }
    }
    if lines.is_empty() {
        lines.push(Line::from("nothing was said yet"));
    }
    lines
}

/// What keeps pods, the most nodes first.
fn holders(app: &App) -> Vec<Line<'static>> {
    let theme = &app.looks.theme;
    let width = usize::from(app.size.width).saturating_sub(8);
    let mut lines = Vec::new();
    for holder in blockers::all(app) {
        let count = format!("{}  ", count(holder.nodes.len(), "node"));
        lines.push(Line::from(vec![
            Span::styled(count, theme.title),
            Span::styled(brief::safe(&holder.what), theme.trouble),
        ]));
        let list = |of: &std::collections::BTreeSet<String>| of.iter().cloned().collect::<Vec<_>>().join(", ");
        let pods = (!holder.pods.is_empty()).then(|| format!("pods: {}", list(&holder.pods)));
        for text in std::iter::once(format!("nodes: {}", list(&holder.nodes))).chain(pods) {
            lines.extend(cut(&brief::safe(&text), width, 3).into_iter().map(|line| Line::from(format!("    {line}"))));
        }
    }
    if lines.is_empty() {
        lines.push(Line::from("nothing keeps a pod on a node that is to go"));
    }
    lines
}

fn keys(app: &App) -> Vec<Line<'static>> {
    let theme = &app.looks.theme;
    let mut lines = Vec::new();
    for (title, context, changes) in [
        ("Changing the cluster (the same key in every view; a dialog confirms)", Context::Everywhere, true),
        ("In tables", Context::Table, false),
        ("Everywhere", Context::Everywhere, false),
        ("In dialogs", Context::Dialog, false),
    ] {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::styled(title, theme.title));
        for b in TABLE.iter().filter(|b| b.context == context && b.changes == changes) {
            let mut keys = format!("  {:<16}", app.looks.keymap.all(b));
            for help in wrap(b.help, usize::from(app.size.width).saturating_sub(20)) {
                let keys = std::mem::replace(&mut keys, " ".repeat(18));
                lines.push(Line::from(vec![Span::styled(keys, theme.key), Span::raw(help)]));
            }
        }
    }
    lines.push(Line::default());
    lines.push(Line::styled("On the command line, beside every name of docs/keys.md", theme.title));
    for word in WORDS {
        let mut label = format!("  {:<16}", format!(":{}", word.name));
        let help = format!("{} {}", word.argument, word.help);
        for help in wrap(help.trim(), usize::from(app.size.width).saturating_sub(20)) {
            let label = std::mem::replace(&mut label, " ".repeat(18));
            lines.push(Line::from(vec![Span::styled(label, theme.key), Span::raw(help)]));
        }
    }
    let reason = format!("[{} REASON]", line::REASON);
    let on_rows = format!("[ROWS] {reason}  {}", line::ON_ROWS.join(", "));
    let others = line::verb_forms().filter(|(form, _)| !form.contains("ROWS"));
    let others = others.filter_map(|(form, _)| form.split(' ').next().map(str::to_owned)).collect::<Vec<_>>();
    let others = format!("{reason}  {}", others.join(", "));
    for (label, text) in [("  :VERB", on_rows.as_str()), ("  :VERB", &others), ("", line::ROWS)] {
        let mut label = format!("{label:<18}");
        for text in wrap(text, usize::from(app.size.width).saturating_sub(20)) {
            let label = std::mem::replace(&mut label, " ".repeat(18));
            lines.push(Line::from(vec![Span::styled(label, theme.key), Span::raw(text)]));
        }
    }
    lines
}

/// How far the help can be scrolled.
pub fn overflow(app: &App) -> usize {
    let parts = super::parts(app);
    let shown = parts.table.union(parts.pane).union(parts.banner).height.saturating_sub(1);
    lines(app).len().saturating_sub(usize::from(shown))
}

/// Draws it over the body.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect) {
    let lines = lines(app);
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buffer[(x, y)].reset();
        }
    }
    let rule = "\u{2500}".repeat(usize::from(area.width));
    put(buffer, area.x, area.y, area.width, &rule, app.looks.theme.muted);
    let what = match app.sheet {
        Sheet::Help => "Keys",
        Sheet::Messages => "Messages",
        Sheet::Blockers => "What blocks",
    };
    let [down, up, back] = ["down", "up", "back"].map(|name| app.key(name));
    let title = format!(" {what}: {down} {up} scroll, {back} closes ");
    put(buffer, area.x + 2, area.y, 60, &title, app.looks.theme.title);
    let from = app.help.unwrap_or(0);
    for (y, line) in (area.y + 1..area.bottom()).zip(lines.iter().skip(from)) {
        buffer.set_line(area.x + 1, y, line, area.width.saturating_sub(1));
    }
}
