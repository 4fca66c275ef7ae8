//! The header: which cluster, who leads, what mode, how many of what; and the banner when a source is lost.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{
    app::{App, View},
    brief,
    facts::{self, Leader, Lost},
    table::{put, wrap},
    when,
};

/// Most lines that one text of the banner takes.
const MOST: usize = 2;

/// What must not be overlooked: lost sources, and why this engine only observes. Wrapped; empty when all is well.
pub fn banner(app: &App) -> Vec<(String, Style)> {
    let (theme, engine) = (&app.looks.theme, &app.seen.snapshot.engine);
    let mut texts: Vec<(String, Style)> = lost(app).iter().map(|l| (lost_text(app, l), theme.danger)).collect();
    if app.seen.snapshot.store.synced && engine.leading.is_none() && !engine.observing.is_empty() {
        texts.push((format!("observing: {}", brief::safe(&engine.observing.join("; "))), theme.trouble));
    }
    let width = usize::from(app.size.width);
    let mut lines = Vec::new();
    for (text, style) in texts {
        let mut wrapped = wrap(&text, width.saturating_sub(1));
        if wrapped.len() > MOST {
            wrapped.truncate(MOST);
            if let Some(last) = wrapped.last_mut() {
                last.push('~');
            }
        }
        lines.extend(wrapped.into_iter().map(|line| (line, style)));
    }
    lines
}

/// The sources that are lost.
fn lost(app: &App) -> Vec<Lost> {
    let boot = app.now.boot.as_secs_f64();
    [facts::etcd_lost(&app.seen, boot), facts::kube_lost(&app.seen, boot)].into_iter().flatten().collect()
}

/// Draws three lines and the banner.
pub fn draw(app: &App, buffer: &mut Buffer, area: Rect, banner: Rect) {
    buffer.set_line(area.x, area.y, &counts(app), area.width);
    buffer.set_line(area.x, area.y + 1, &leader(app), area.width);
    buffer.set_line(area.x, area.y + 2, &tabs(app), area.width);
    for (y, (text, style)) in (banner.y..banner.bottom()).zip(self::banner(app)) {
        put(buffer, banner.x, y, banner.width, &text, style);
    }
}

fn lost_text(app: &App, lost: &Lost) -> String {
    let silent = app.now.boot.as_secs_f64() - lost.heard;
    let since = app.now.wall.checked_sub(jiff::SignedDuration::try_from_secs_f64(silent).unwrap_or_default());
    let since = since.map(|at| when::moment(at, app.now.wall)).unwrap_or_default();
    let effect = if lost.source == "etcd" { "nothing is written; " } else { "" };
    let error = lost.error.as_deref().map(|e| format!(": {e}")).unwrap_or_default();
    let text =
        format!("! {} lost since {since}, data {} old; {effect}retrying{error}", lost.source, when::seconds(silent));
    brief::safe(&text)
}

fn counts(app: &App) -> Line<'static> {
    let (theme, facts) = (&app.looks.theme, &app.facts);
    let word = app.looks.badge.as_deref().or(app.cluster()).unwrap_or("no cluster");
    let mut spans = vec![Span::styled(format!(" {} ", brief::safe(word)), theme.badge), Span::raw(" ")];
    let store = &app.seen.snapshot.store;
    if !store.synced {
        spans.push(Span::raw("connecting ..."));
        return Line::from(spans);
    }
    let switch = &store.reboots.switch;
    if switch.enabled() {
        spans.push(Span::styled("queue enabled", theme.good));
    } else {
        spans.push(Span::styled("queue DISABLED", theme.danger));
    }
    if let Some(odd) = switch.odd() {
        spans.push(Span::styled(format!(" (odd value {:?})", brief::safe(odd)), theme.trouble));
    }
    for (n, what) in [
        (facts.queued, "queued"),
        (facts.draining, "draining"),
        (facts.rebooting, "rebooting"),
        (facts.backoff, "backoff"),
    ] {
        spans.push(Span::styled(format!("  {n} {what}"), if n == 0 { theme.muted } else { Style::new() }));
    }
    if facts.broken > 0 {
        spans.push(Span::styled(format!("  {} broken", facts.broken), theme.danger));
    }
    Line::from(spans)
}

/// Who leads and in what mode this console is.
fn leader(app: &App) -> Line<'static> {
    let (theme, engine) = (&app.looks.theme, &app.seen.snapshot.engine);
    let mut spans = Vec::new();
    if !app.seen.snapshot.store.synced {
        return Line::default();
    }
    match facts::leader(&app.seen) {
        Leader::Us => spans.push(Span::styled("leader: this console", theme.good)),
        Leader::Other(host) => spans.push(Span::raw(format!("leader: {} (another cketerm)", brief::safe(&host)))),
        Leader::Cke(host) => {
            spans.push(Span::raw(format!("leader: {} (CKE; its guarantees hold)", brief::safe(&host))));
        }
        Leader::Nobody => spans.push(Span::styled("leader: NONE, nothing moves", theme.danger)),
    }
    if app.looks.read_only {
        spans.push(Span::styled("  read-only", theme.trouble));
    }
    if let Some(why) = &engine.resigning {
        spans.push(Span::styled(format!("  resigning: {}", brief::safe(why)), theme.trouble));
    } else if !engine.observing.is_empty() {
        spans.push(Span::styled("  observing", theme.trouble));
    } else if engine.leading.is_none() && engine.lease != 0 {
        spans.push(Span::raw("  standing by"));
    }
    if !engine.missing_programs.is_empty() {
        let text = format!("  missing here: {}", brief::safe(&engine.missing_programs.join(", ")));
        spans.push(Span::styled(text, theme.trouble));
    }
    Line::from(spans)
}

fn tabs(app: &App) -> Line<'static> {
    let theme = &app.looks.theme;
    let tab = |view: View, text: String| {
        if app.view == view { Span::styled(format!("[{text}]"), theme.tab) } else { Span::raw(format!(" {text} ")) }
    };
    let mut spans = vec![
        tab(View::Reboots, format!("1 Reboots {}", app.reboots.total)),
        Span::raw(" "),
        tab(View::Nodes, format!("2 Nodes {}", app.nodes.total)),
    ];
    let (filter, shown, total, marks) = match app.view {
        View::Reboots => (&app.reboots.filter, app.reboots.rows.len(), app.reboots.total, app.reboots.marks.len()),
        View::Nodes => (&app.nodes.filter, app.nodes.rows.len(), app.nodes.total, app.nodes.marks.len()),
    };
    if app.facts.trouble > 0 {
        spans.push(Span::styled(format!("   ! {} blocked (n)", app.facts.trouble), theme.trouble));
    }
    if !filter.is_empty() {
        spans.push(Span::styled(format!("   filter {:?} {shown}/{total}", brief::safe(filter)), theme.key));
    }
    if marks > 0 {
        spans.push(Span::styled(format!("   {marks} marked"), theme.mark));
    }
    Line::from(spans)
}
