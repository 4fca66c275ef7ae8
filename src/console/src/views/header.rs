//! Header: cluster, leader, mode and counts; and the banner, for example when a source is lost.

use cketerm_model::{
    cketerm_records::MissingSetting,
    entry::{QueueKind, Stored},
};
use cketerm_rules::{decide::ApplyState, preflight_fault::PreflightFault, publish::MAX_WAITING};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{
    state::{App, View, calendar, leaders, queries::Leader, short_text, sources},
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
        let text =
            format!("! cluster definition: {}{more}; fix it with `cketerm cluster set`", short_text::safe(first));
        texts.push((text, theme.trouble));
    }
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

/// Draws the three header lines and the banner.
pub fn draw(app: &App, buffer: &mut Buffer, area: Rect, banner: Rect) {
    buffer.set_line(area.x, area.y, &counts(app), area.width);
    let (leader, status) = (leader(app), status(app));
    buffer.set_line(area.x, area.y + 1, &leader, area.width);
    // If both do not fit, the status of the rows below has priority over the leader.
    let width = u16::try_from(status.width()).unwrap_or(area.width).min(area.width);
    if width > 0 {
        let at = u16::try_from(leader.width()).unwrap_or(area.width).min(area.width - width);
        buffer.set_line(area.x + at, area.y + 1, &status, width);
    }
    let tabs: Line = tabs(app).into_iter().map(|(_, tab)| tab).collect();
    buffer.set_line(area.x, area.y + 2, &tabs, area.width);
    for (y, (text, style)) in (banner.y..banner.bottom()).zip(self::banner(app)) {
        put(buffer, banner.x, y, banner.width, &text, style);
    }
}

fn counts(app: &App) -> Line<'static> {
    let theme = &app.config.theme;
    let word = app.config.badge.as_deref().or(app.cluster()).unwrap_or("no cluster");
    let mut spans = vec![Span::styled(format!(" {} ", short_text::safe(word)), theme.badge), Span::raw(" ")];
    let store = &app.seen.snapshot.store;
    if !store.synced {
        spans.push(Span::raw(if app.config.sandbox { "starting ..." } else { "connecting ..." }));
        return Line::from(spans);
    }
    if app.navigation.view == View::Overview {
        for (switch, what) in [(&store.reboots.switch, "reboots"), (&store.repairs.switch, "repairs")] {
            let (state, style) = match (switch.enabled(), calendar::freeze(app)) {
                (false, _) => ("DISABLED", theme.danger),
                (true, Some(_)) => ("FROZEN", theme.trouble),
                (true, None) => ("enabled", theme.good),
            };
            spans.push(Span::styled(format!("{what} {state}  "), style));
        }
        spans.push(Span::styled(calendar::moment(app, app.now.wall), theme.muted));
        return Line::from(spans);
    }
    if matches!(app.navigation.view, View::Machines | View::Diff) {
        spans.push(if store.sabakan.enabled() {
            Span::styled("sabakan integration enabled", theme.good)
        } else {
            Span::styled("sabakan integration DISABLED", theme.danger)
        });
        if let Some(hold) = &store.registry.hold {
            let who = hold.get().map(|hold| format!(" by {}", short_text::safe(&hold.who.user))).unwrap_or_default();
            let not = leaders::not_in_force(app).map(|_| " (NOT IN FORCE)").unwrap_or_default();
            spans.push(Span::styled(format!("  applying ON HOLD{who}{not}"), theme.danger));
        }
        let repair =
            if store.auto_repair.enabled() { "  automatic repair enabled" } else { "  automatic repair DISABLED" };
        spans.push(Span::raw(repair));
        if let Some(good) = &app.seen.snapshot.registry.members.good {
            spans.push(Span::styled(format!("  {} machines", good.machines.list.len()), theme.muted));
        }
        return Line::from(spans);
    }
    let queue = app.navigation.view.queue();
    let (switch, other, counts) =
        (store.switch(queue), store.switch(queue.other()), app.knowledge.totals.counts(queue));
    if switch.enabled() && calendar::freeze(app).is_some() {
        spans.push(Span::styled(format!("{queue}s FROZEN"), theme.trouble));
    } else if switch.enabled() {
        spans.push(Span::styled(format!("{queue}s enabled"), theme.good));
    } else {
        spans.push(Span::styled(format!("{queue}s DISABLED"), theme.danger));
    }
    if let Some(odd) = switch.odd() {
        spans.push(Span::styled(format!(" (bad value {:?})", short_text::safe(odd)), theme.trouble));
    }
    let after = queue.status_after_command();
    let mut states = Vec::new();
    for (n, what) in
        [(counts.queued, "queued"), (counts.draining, "draining"), (counts.after, after), (counts.backoff, "backoff")]
    {
        // The repair queue has more states than fit in 80 columns.
        if n > 0 || queue == QueueKind::Reboot || app.lists.repairs.total == 0 {
            states.push((n, what, if n == 0 { theme.muted } else { Style::new() }));
        }
    }
    let bad = [(counts.failed, "failed", theme.danger), (counts.broken, "broken", theme.danger)];
    let bad = bad.into_iter().filter(|(n, ..)| *n > 0);
    let good = (counts.succeeded > 0).then_some((counts.succeeded, "succeeded", theme.good));
    let off = (!other.enabled()).then(|| {
        let text = if queue == QueueKind::Reboot { "  repairs DISABLED" } else { "  reboots DISABLED" };
        Span::styled(text, theme.trouble)
    });
    let span = |(n, what, style): (usize, &str, Style)| Span::styled(format!("  {n} {what}"), style);
    let mut line = Line::from(spans.clone());
    line.extend(states.iter().copied().chain(bad.clone()).chain(good).map(span).chain(off.clone()));
    if line.width() <= usize::from(app.size.width) {
        return line;
    }
    // The counts that an operator must see come first; zero counts are left out.
    let mut line = Line::from(spans);
    let nonzero_states = states.into_iter().filter(|(n, ..)| *n > 0);
    line.extend(bad.map(span).chain(off).chain(nonzero_states.chain(good).map(span)));
    line
}

/// Returns the line with the leader and this console's mode.
fn leader(app: &App) -> Line<'static> {
    let (theme, engine) = (&app.config.theme, &app.seen.snapshot.engine);
    let mut spans = Vec::new();
    if !app.seen.snapshot.store.synced {
        return Line::default();
    }
    match sources::current_leader(&app.seen, app.now.boot) {
        Leader::Us => spans.push(Span::styled("leader: this console", theme.good)),
        Leader::Other(host) => spans.push(Span::raw(format!("leader: {} (another cketerm)", short_text::safe(&host)))),
        Leader::Cke(host) => {
            spans.push(Span::raw(format!("leader: {} (CKE; its guarantees hold)", short_text::safe(&host))));
        }
        Leader::Nobody => spans.push(Span::styled("leader: NONE, nothing moves", theme.danger)),
        Leader::Unknown => spans.push(Span::styled("leader: unknown, etcd is lost", theme.danger)),
    }
    match app.session.writes_until {
        _ if app.read_only() => spans.push(Span::styled("  read-only", theme.trouble)),
        Some((_, end)) => {
            let text = format!("  WRITES until {}", calendar::time(app, end));
            spans.push(Span::styled(text, theme.danger));
        }
        None if app.knowledge.rights.is_read_only() => {
            spans.push(Span::styled("  this etcd user is read-only", theme.trouble));
        }
        None => {}
    }
    if let Some(why) = &engine.resigning {
        spans.push(Span::styled(format!("  resigning: {}", short_text::safe(why)), theme.trouble));
    } else if let Some(why) = &engine.migrating {
        let what = "  migrating records of an older version: ";
        spans.push(Span::styled(format!("{what}{}", short_text::safe(why)), theme.trouble));
    } else if !engine.observing.is_empty() {
        spans.push(Span::styled("  observing", theme.trouble));
    } else if engine.leading.is_none() && engine.lease != 0 {
        spans.push(Span::raw("  standing by"));
    }
    if let Some((text, open)) = calendar::window(app, app.navigation.view.queue()) {
        let style = if open { theme.muted } else { theme.trouble };
        spans.push(Span::styled(format!("  {text}"), style));
    }
    if !engine.missing_programs.is_empty() {
        let text = format!("  missing here: {}", short_text::safe(&engine.missing_programs.join(", ")));
        spans.push(Span::styled(text, theme.trouble));
    }
    let settings: Vec<&str> = engine.bmcs.missing_settings().iter().map(MissingSetting::short).collect();
    if !settings.is_empty() {
        spans.push(Span::styled(format!("  missing here: {}", settings.join(", ")), theme.trouble));
    }
    Line::from(spans)
}

/// Text of the tabs, from the most to the least.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TabDetail {
    /// Names and counts.
    Full,
    /// Short names and counts.
    Short,
    /// Short names; counts only where something needs an operator.
    ShortTroubled,
    /// Short names, and marks where something needs an operator.
    Marks,
}

/// Returns the tabs of the views, with as much text as fits.
fn tabs(app: &App) -> Vec<(View, Span<'static>)> {
    let width = usize::from(app.size.width);
    let fits = |line: &Vec<(View, Span<'static>)>| line.iter().map(|(_, tab)| tab.width()).sum::<usize>() <= width;
    let details = [TabDetail::Full, TabDetail::Short, TabDetail::ShortTroubled];
    let line = details.into_iter().map(|detail| tab_line(app, detail)).find(fits);
    line.unwrap_or_else(|| tab_line(app, TabDetail::Marks))
}

/// Returns the view whose tab is at this position.
pub fn tab_at(app: &App, x: u16, y: u16) -> Option<View> {
    let mut left = usize::from(x);
    tabs(app).into_iter().filter(|_| y == 2).find_map(|(view, tab)| match left.checked_sub(tab.width()) {
        Some(rest) => {
            left = rest;
            None
        }
        None => Some(view),
    })
}

/// Returns the tabs with this much text. The open view's tab always has its name and count.
fn tab_line(app: &App, detail: TabDetail) -> Vec<(View, Span<'static>)> {
    let theme = &app.config.theme;
    let (reboots, repairs) = (app.knowledge.totals.reboots.trouble, app.knowledge.totals.repairs.trouble);
    let waits = usize::from(matches!(*app.seen.applying, ApplyState::Approval(..) | ApplyState::Error(_)));
    let store = &app.seen.snapshot.store;
    let mut spans = Vec::new();
    for view in View::ALL {
        let open = app.navigation.view == view;
        let shown = match view {
            // Without a machine registry these views are useless; without Metal3, so is Hosts.
            View::Machines | View::Diff => store.registry.url.is_some() || app.navigation.view.registry(),
            View::Hosts => app.lists.hosts.total > 0 || open,
            _ => true,
        };
        if !shown {
            continue;
        }
        let (total, trouble) = match view {
            View::Reboots => (Some(app.lists.reboots.total), reboots),
            View::Nodes => {
                (Some(app.lists.nodes.total), app.knowledge.totals.unready.len() + app.knowledge.totals.missing.len())
            }
            View::Repairs => (Some(app.lists.repairs.total), repairs),
            View::Machines => (Some(app.lists.machines.total), 0),
            View::Diff => (Some(app.lists.diff.total), waits),
            View::Hosts => (Some(app.lists.hosts.total), app.knowledge.totals.hosts.trouble.len()),
            View::Overview | View::History | View::Audit | View::Logs => (None, 0),
        };
        let name = view.title();
        let name = if detail != TabDetail::Full && !open { name.get(..3).unwrap_or(name) } else { name };
        let key = app.config.keymap.key(view.name()).map(|key| format!("{key} ")).unwrap_or_default();
        let counted = match detail {
            TabDetail::Full | TabDetail::Short => true,
            TabDetail::ShortTroubled => open || trouble > 0,
            TabDetail::Marks => open,
        };
        let total = total.filter(|_| counted).map(|n| format!(" {n}")).unwrap_or_default();
        // Marks the tabs where something needs an operator.
        let mark = if trouble > 0 { "!" } else { "" };
        let text = format!("{key}{name}{total}{mark}");
        let tab = match (open, detail) {
            (true, _) => Span::styled(format!("[{text}]"), theme.tab),
            (false, TabDetail::Full) => Span::raw(format!(" {text} ")),
            (false, TabDetail::Short | TabDetail::ShortTroubled | TabDetail::Marks) => Span::raw(format!(" {text}")),
        };
        spans.push((view, tab));
    }
    spans
}

/// Returns what is stuck, filtered, sorted and marked in the open view.
fn status(app: &App) -> Line<'static> {
    let theme = &app.config.theme;
    let (reboots, repairs) = (app.knowledge.totals.reboots.trouble, app.knowledge.totals.repairs.trouble);
    let mut spans = Vec::new();
    let list = app.list();
    let (filter, (shown, total), marks) = (list.filter(), list.counts(), list.marked());
    let trouble = match app.navigation.view {
        View::Reboots => reboots,
        View::Repairs => repairs,
        View::Nodes => reboots + repairs,
        _ => 0,
    };
    if trouble > 0 {
        spans.push(Span::styled(format!("  ! {trouble} stuck ({})", app.key("trouble")), theme.trouble));
    }
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
