//! Header: the cluster, the tabs with counts, the state of the rows; and the banner, for example when a source is lost.

mod cluster;

use cketerm_model::{entry::Stored, policy::MemberSource};
use cketerm_rules::{preflight_fault::PreflightFault, publish::MAX_WAITING};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{
    state::{App, View, calendar, leaders, short_text, sources},
    table::{put, wrap},
};

/// Most lines of one text in the banner.
const MAX_BANNER_LINES: usize = 2;

/// Returns what must not be overlooked, wrapped: lost sources, the reason why this engine only observes, freezes, stops
/// and faults. Empty when all is well.
pub fn banner(app: &App) -> Vec<(String, Style)> {
    let (theme, engine) = (&app.config.theme, &app.seen.snapshot.engine);
    let mut texts = sources::banner(app);
    if app.seen.snapshot.store.synced && engine.leading.is_none() && !engine.observing.is_empty() {
        texts.push((
            format!("observing: {}", short_text::safe(&PreflightFault::joined(&engine.observing))),
            theme.trouble,
        ));
    }
    texts.extend(calendar::frozen(app).map(|text| (text, theme.danger)));
    if let Some(stopped) = app.seen.snapshot.store.stopped.as_ref().and_then(Stored::get) {
        let why = stopped.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let text = format!("STOPPED by {} since {}{why}; :resume", stopped.who, calendar::time(app, stopped.at));
        texts.push((short_text::safe(&text), theme.danger));
    }
    if app.navigation.view == View::Overview {
        // *Needs you* lists the rest
        return wrapped(app, texts);
    }
    // A reason that holds both queues is shown once.
    let mut held: Vec<(String, usize)> = Vec::new();
    for (id, n) in &app.knowledge.totals.holds {
        let Some(why) = app.seen.reasons.get(id).map(|why| short_text::safe(&why.to_string())) else { continue };
        match held.iter_mut().find(|(known, _)| *known == why) {
            Some((_, all)) => *all += n,
            None => held.push((why, *n)),
        }
    }
    for (why, n) in held {
        // A leader publishes only the first `MAX_WAITING` waiting entries to others.
        let more = if engine.leading.is_none() && n >= MAX_WAITING { " or more" } else { "" };
        let wait = if n == 1 { "1 entry waits".to_owned() } else { format!("{n}{more} entries wait") };
        texts.push((format!("! {wait}: {why}"), theme.trouble));
    }
    if let [first, rest @ ..] = app.knowledge.totals.faults.as_slice() {
        let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
        // no key repairs a stored definition
        let text =
            format!("! cluster definition: {}{more}; fix it with `cketerm cluster set`", short_text::safe(first));
        texts.push((text, theme.trouble));
    }
    wrapped(app, texts)
}

/// Wraps the texts to the screen, each to a few lines.
fn wrapped(app: &App, texts: Vec<(String, Style)>) -> Vec<(String, Style)> {
    let width = usize::from(app.size.width);
    let mut lines = Vec::new();
    for (text, style) in texts {
        let mut wrapped = wrap(&text, width.saturating_sub(1));
        if wrapped.len() > MAX_BANNER_LINES {
            wrapped.truncate(MAX_BANNER_LINES);
            if let Some(last) = wrapped.last_mut() {
                last.push('~');
            }
        }
        lines.extend(wrapped.into_iter().map(|line| (line, style)));
    }
    lines
}

/// Returns the number of lines: the cluster, the tabs, and in a table's view the state of its rows.
pub fn height(app: &App) -> u16 {
    if app.navigation.view == View::Overview { 2 } else { 3 }
}

/// Line of the tabs.
const TABS: u16 = 1;

/// Draws the header and the banner.
pub fn draw(app: &App, buffer: &mut Buffer, area: Rect, banner: Rect) {
    buffer.set_line(area.x, area.y, &cluster::line(app, usize::from(area.width)), area.width);
    let tabs: Line = tabs(app).into_iter().map(|(_, tab)| tab).collect();
    buffer.set_line(area.x, area.y + TABS, &tabs, area.width);
    if app.navigation.view != View::Overview && app.seen.snapshot.store.synced {
        rows_line(app, buffer, Rect { y: area.y + TABS + 1, height: 1, ..area });
    }
    for (y, (text, style)) in (banner.y..banner.bottom()).zip(self::banner(app)) {
        put(buffer, banner.x, y, banner.width, &text, style);
    }
}

/// Draws the state of the open view's rows: counts, then filter, order and marks, which have priority.
fn rows_line(app: &App, buffer: &mut Buffer, area: Rect) {
    let (counts, status) = (counts(app), status(app));
    buffer.set_line(area.x, area.y, &counts, area.width);
    let width = u16::try_from(status.width()).unwrap_or(area.width).min(area.width);
    if width > 0 {
        let at = u16::try_from(counts.width()).unwrap_or(area.width).min(area.width - width);
        buffer.set_line(area.x + at, area.y, &status, width);
    }
}

/// Returns the counts of the open view, the most important first.
fn counts(app: &App) -> Line<'static> {
    let (theme, store) = (&app.config.theme, &app.seen.snapshot.store);
    let mut spans = vec![Span::raw(" ")];
    if app.navigation.view.registry() {
        if let Some(hold) = &store.registry.hold {
            let who = hold.get().map(|hold| format!(" by {}", short_text::safe(&hold.who.user))).unwrap_or_default();
            let not = leaders::not_in_force(app).map(|_| " (NOT IN FORCE)").unwrap_or_default();
            spans.push(Span::styled(format!("applying ON HOLD{who}{not}  "), theme.danger));
        }
        let repair = if store.auto_repair.enabled() { "automatic repair enabled" } else { "automatic repair DISABLED" };
        spans.push(Span::raw(repair));
        if let Some(good) = &app.seen.snapshot.registry.members.good {
            spans.push(Span::styled(format!("  {} machines", good.machines.list.len()), theme.muted));
        }
        return Line::from(spans);
    }
    let queue = app.navigation.view.queue();
    let (switch, counts) = (store.switch(queue), app.knowledge.totals.counts(queue));
    if let Some(odd) = switch.odd() {
        spans.push(Span::styled(format!("(bad value {:?})  ", short_text::safe(odd)), theme.trouble));
    }
    let bad = [(counts.failed, "failed", theme.danger), (counts.broken, "broken", theme.danger)];
    let states = [
        (counts.draining, "draining", theme.draining),
        (counts.after, queue.status_after_command(), theme.rebooting),
        (counts.backoff, "backoff", theme.trouble),
        (counts.queued, "queued", Style::new()),
        (counts.succeeded, "succeeded", theme.good),
    ];
    let span = |(n, what, style): (usize, &str, Style)| Span::styled(format!("{n} {what}  "), style);
    let is_shown = |part: &(usize, &str, Style)| part.0 > 0;
    spans.extend(bad.into_iter().filter(is_shown).map(span));
    if let Some((text, open)) = calendar::window(app, queue) {
        let style = if open { theme.muted } else { theme.trouble };
        spans.push(Span::styled(format!("{text}  "), style));
    }
    spans.extend(states.into_iter().filter(is_shown).map(span));
    if spans.len() == 1 {
        spans.push(Span::styled(format!("no {queue} is queued"), theme.muted));
    }
    Line::from(spans)
}

/// Text of the tabs, from the most to the least. Each has the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TabDetail {
    /// Names.
    Full,
    /// Short names.
    Short,
    /// Short names, and counts of thousands in short.
    ShortCounts,
    /// The same without spaces after the keys, and without names of views that count nothing.
    Keys,
}

/// Returns the tabs of the views, with as much text as fits.
fn tabs(app: &App) -> Vec<(View, Span<'static>)> {
    let width = usize::from(app.size.width);
    let fits = |line: &Vec<(View, Span<'static>)>| line.iter().map(|(_, tab)| tab.width()).sum::<usize>() <= width;
    let details = [TabDetail::Full, TabDetail::Short, TabDetail::ShortCounts];
    let line = details.into_iter().map(|detail| tab_line(app, detail)).find(fits);
    line.unwrap_or_else(|| tab_line(app, TabDetail::Keys))
}

/// Returns the view whose tab is at this position.
pub fn tab_at(app: &App, x: u16, y: u16) -> Option<View> {
    let mut left = usize::from(x);
    tabs(app).into_iter().filter(|_| y == TABS).find_map(|(view, tab)| match left.checked_sub(tab.width()) {
        Some(rest) => {
            left = rest;
            None
        }
        None => Some(view),
    })
}

/// Returns a count in at most four characters: `999`, `12k`.
fn short_count(n: usize) -> String {
    if n < 1000 { n.to_string() } else { format!("{}k", n / 1000) }
}

/// Returns the tabs with this much text. The open view's tab always has a name.
fn tab_line(app: &App, detail: TabDetail) -> Vec<(View, Span<'static>)> {
    let theme = &app.config.theme;
    let store = &app.seen.snapshot.store;
    let mut spans = Vec::new();
    for view in View::ALL {
        let open = app.navigation.view == view;
        let shown = match view {
            // Without a machine registry these views are useless; without Metal3, so is Hosts.
            View::Machines => store.registry.url.is_some() || app.navigation.view.registry(),
            View::Diff => store.member_source() != MemberSource::Operators || app.navigation.view.registry(),
            View::Hosts => app.lists.hosts.total > 0 || open,
            _ => true,
        };
        if !shown {
            continue;
        }
        let total = match view {
            View::Reboots => Some(app.lists.reboots.total),
            View::Nodes => Some(app.lists.nodes.total),
            View::Repairs => Some(app.lists.repairs.total),
            View::Machines => Some(app.lists.machines.total),
            View::Diff => Some(app.lists.diff.total),
            View::Hosts => Some(app.lists.hosts.total),
            View::Overview | View::History | View::Audit | View::Logs => None,
        };
        // a number is a count, a mark is a line of *Needs you*: the key of the next one leads to it
        let trouble = total.is_some() && app.knowledge.needs_you.iter().any(|line| line.is_of(view));
        let name = view.title();
        let name = match detail {
            TabDetail::Full => name,
            TabDetail::Short if open => name,
            TabDetail::Keys if open => name.get(..3).unwrap_or(name),
            TabDetail::Keys if total.is_none() => "",
            TabDetail::Short | TabDetail::ShortCounts | TabDetail::Keys => name.get(..3).unwrap_or(name),
        };
        let space = if detail == TabDetail::Keys { "" } else { " " };
        let key = app.config.keymap.key(view.name()).map(|key| format!("{key}{space}")).unwrap_or_default();
        let total = total.map(|n| match detail {
            TabDetail::Full | TabDetail::Short => format!(" {n}"),
            TabDetail::ShortCounts | TabDetail::Keys => format!(" {}", short_count(n)),
        });
        let mark = if trouble { "!" } else { "" };
        let text = format!("{key}{name}{}{mark}", total.unwrap_or_default());
        let style = if trouble { theme.trouble } else { Style::new() };
        let tab = match (open, detail) {
            (true, _) => Span::styled(format!("[{text}]"), theme.tab),
            (false, TabDetail::Full) => Span::styled(format!(" {text} "), style),
            (false, TabDetail::Short | TabDetail::ShortCounts | TabDetail::Keys) => {
                Span::styled(format!(" {text}"), style)
            }
        };
        spans.push((view, tab));
    }
    spans
}

/// Returns how the open view is filtered, sorted and marked.
fn status(app: &App) -> Line<'static> {
    let theme = &app.config.theme;
    let mut spans = Vec::new();
    let list = app.list();
    let (filter, (shown, total), marks) = (list.filter(), list.counts(), list.marked());
    if matches!(app.navigation.view, View::History | View::Audit) && list.above() > 0 {
        spans.push(Span::styled(format!("  {} newer above ({})", list.above(), app.key("top")), theme.key));
    }
    if !filter.is_empty() {
        spans.push(Span::styled(format!("  filter {:?} {shown}/{total}", short_text::safe(filter)), theme.key));
    }
    if let Some((column, largest_first)) = list.sort() {
        spans.push(Span::styled(format!("  by {column}{}", if largest_first { " desc" } else { "" }), theme.key));
    }
    if marks > 0 {
        let hidden = list.hidden_marks();
        let hidden = if hidden > 0 { format!(", {hidden} not shown") } else { String::new() };
        spans.push(Span::styled(format!("  {marks} marked{hidden}"), theme.mark));
    }
    Line::from(spans)
}
