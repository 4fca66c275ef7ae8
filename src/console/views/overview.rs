//! The Overview: in five seconds, is it moving, what is stuck and on what, who leads, how long to go.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use unicode_width::UnicodeWidthStr;

use crate::{
    console::{
        app::App,
        bar::spark,
        brief, calendar,
        facts::{self, Counts, Leader},
        overview::{Spot, Stuck, Work, standing_by},
        pace::Tone,
        sources, when,
    },
    model::{
        entry::{EntryId, QueueKind},
        ours::Audit,
    },
    store::view::Switch,
};

/// Columns of the labels.
const LABEL: usize = 9;
/// From so many lines on, long ones may take two, and the last day is told.
const ROOM: usize = 18;
/// From this width on the past stands beside the present.
const TWO: u16 = 150;

/// One line: what Enter opens on it, and its text.
struct Told {
    spot: Option<Spot>,
    label: &'static str,
    spans: Vec<Span<'static>>,
}

fn said(label: &'static str, spans: Vec<Span<'static>>) -> Told {
    Told { spot: None, label, spans }
}

fn text(text: impl Into<String>, style: Style) -> Span<'static> {
    Span::styled(text.into(), style)
}

/// The lines of both columns; the right one is empty on a narrow screen.
fn columns(app: &App, area: Rect) -> (Vec<Told>, Vec<Told>) {
    let room = usize::from(area.height);
    let mut left = vec![said("Reboots", queue(app, QueueKind::Reboot)), said("Repairs", queue(app, QueueKind::Repair))];
    // where there is room, what is long goes on in a second line
    let width = if room < ROOM { usize::MAX } else { usize::from(left_width(area)).saturating_sub(LABEL + 2) };
    left.extend(to_go(app).into_iter().flat_map(|line| folded(line, width)));
    let told = [said("Waiting", waiting(app)), said("Leads", leads(app)), said("Data", data(app))];
    left.extend(told.into_iter().flat_map(|line| folded(line, width)));
    left.extend(switches(app, area.width).into_iter().map(|spans| said("", spans)));
    if room >= ROOM {
        left.extend(day(app));
    }
    left.extend(blocks(app));
    let (work, stuck) = (work(app), stuck(app));
    let (ended, deeds) = (ended(app), deeds(app));
    if area.width >= TWO {
        let rest = room.saturating_sub(left.len());
        let parts = shares(rest, &[work.len(), stuck.len()]);
        left.extend(part("In work", work, parts[0]));
        left.extend(part("Stuck", stuck, parts[1]));
        let parts = shares(room, &[ended.len(), deeds.len()]);
        let mut right = part("Ended", ended, parts[0]);
        right.extend(part("Actions", deeds, parts[1]));
        return (left, right);
    }
    let rest = room.saturating_sub(left.len());
    let parts = shares(rest, &[stuck.len(), work.len(), ended.len(), deeds.len()]);
    left.extend(part("In work", work, parts[1]));
    left.extend(part("Stuck", stuck, parts[0]));
    left.extend(part("Ended", ended, parts[2]));
    left.extend(part("Actions", deeds, parts[3]));
    (left, Vec::new())
}

/// Divides lines: one for each, then what each needs, the first ones first but leaving two to the others.
fn shares(room: usize, needs: &[usize]) -> Vec<usize> {
    let mut parts = vec![0; needs.len()];
    let mut left = room;
    for fair in [1, 3, room] {
        for (part, need) in parts.iter_mut().zip(needs) {
            let more = need.min(&fair).saturating_sub(*part).min(left);
            *part += more;
            left -= more;
        }
    }
    parts
}

/// The first lines of a section under its label; how many are left out stands on the last.
fn part(label: &'static str, lines: Vec<Told>, room: usize) -> Vec<Told> {
    let hidden = lines.len().saturating_sub(room);
    let mut shown: Vec<Told> = lines.into_iter().take(room).collect();
    if let Some(first) = shown.first_mut() {
        first.label = label;
    }
    if hidden > 0
        && let Some(last) = shown.last_mut()
    {
        last.spans.insert(0, text(format!("(+{hidden}) "), Style::new()));
    }
    shown
}

/// The lines that can be opened, in the order of the screen.
pub fn spots(app: &App, area: Rect) -> Vec<Spot> {
    let (left, right) = columns(app, area);
    left.into_iter().chain(right).filter_map(|line| line.spot).collect()
}

/// Columns of the left half, or of all.
fn left_width(area: Rect) -> u16 {
    if area.width >= TWO { split(area).saturating_sub(1) } else { area.width }
}

/// A line that is too long goes on below itself; what is too long for that too is cut.
fn folded(line: Told, width: usize) -> Vec<Told> {
    let long = line.spans.iter().map(Span::width).sum::<usize>() > width;
    if !long {
        return vec![line];
    }
    let (mut first, mut second, mut used) = (Vec::new(), Vec::new(), 0);
    for span in line.spans {
        let style = span.style;
        for word in span.content.split_inclusive(' ') {
            if second.is_empty() && used + word.trim_end().width() <= width {
                used += word.width();
                first.push(text(word.to_owned(), style));
            } else {
                second.push(text(word.to_owned(), style));
            }
        }
    }
    if let Some(last) = first.last_mut() {
        *last = text(last.content.trim_end().to_owned(), last.style);
    }
    vec![Told { spans: first, ..line }, said("", second)]
}

/// What can be opened at this place of the screen.
pub(super) fn spot_at(app: &App, area: Rect, x: u16, y: u16) -> Option<Spot> {
    let (left, right) = columns(app, area);
    let lines = if area.width >= TWO && x >= area.x + split(area) { right } else { left };
    let nth = usize::from(y.checked_sub(area.y).filter(|nth| *nth < area.height)?);
    lines.into_iter().nth(nth)?.spot
}

/// Where the right column begins.
fn split(area: Rect) -> u16 {
    if area.width >= TWO { area.width * 11 / 20 } else { area.width }
}

/// Draws it.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if let Some(lines) = super::connecting(app) {
        super::say_empty(buffer, area, &lines, app);
        return;
    }
    let (left, right) = columns(app, area);
    let split = split(area);
    column(app, buffer, Rect { width: left_width(area), ..area }, left, stale);
    column(app, buffer, Rect { x: area.x + split, width: area.width - split, ..area }, right, stale);
}

fn column(app: &App, buffer: &mut Buffer, area: Rect, lines: Vec<Told>, stale: bool) {
    let theme = &app.looks.theme;
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        let at_cursor = line.spot.is_some() && line.spot == app.spots.cursor;
        let mut spans = vec![text(format!("{:<LABEL$}", line.label), theme.title)];
        spans.push(if at_cursor { text("> ", theme.cursor) } else { Span::raw("  ") });
        spans.extend(line.spans.into_iter().map(|span| if stale { span.style(theme.muted) } else { span }));
        let line = Line::from(spans);
        let long = line.width() > usize::from(area.width);
        buffer.set_line(area.x, y, &line, area.width);
        if long {
            buffer.set_stringn(area.right().saturating_sub(1), y, "~", 1, theme.muted);
        }
    }
}

/// Is it moving: slots, and the entries by state.
fn queue(app: &App, queue: QueueKind) -> Vec<Span<'static>> {
    let (theme, store) = (&app.looks.theme, &app.seen.snapshot.store);
    let (switch, counts, work, after): (&Switch, &Counts, &Work, _) = match queue {
        QueueKind::Reboot => (&store.reboots.switch, &app.facts.reboots, &app.summary.reboots, "rebooting"),
        QueueKind::Repair => (&store.repairs.switch, &app.facts.repairs, &app.summary.repairs, "watching"),
    };
    let (going, held) = (work.left.left, work.left.held);
    // what is in work and goes on
    let moves = work.used.saturating_sub(work.used_stuck);
    let idle = work.used + going + held + work.left.stuck == 0;
    let shut = calendar::stands(app, &store.policy(), queue).is_some_and(|stands| !stands.open);
    let (state, style) = match sources::leader_now(&app.seen, app.now.boot.as_secs_f64()) {
        Leader::Unknown => ("NOT known, etcd is lost; last seen", theme.danger),
        _ if idle && switch.enabled() => ("nothing to do", theme.muted),
        _ if !switch.enabled() && work.used > 0 => ("DISABLED, ends what runs", theme.danger),
        _ if !switch.enabled() => ("DISABLED", theme.danger),
        Leader::Nobody => ("NOT moving, nobody leads", theme.danger),
        _ if moves == 0 && going > 0 && calendar::freeze(app).is_some() => ("FROZEN", theme.danger),
        _ if moves == 0 && going > 0 && shut => ("waits for the window", theme.trouble),
        _ if going == 0 && held > 0 && work.left.stuck == 0 => ("ON HOLD", theme.trouble),
        _ if work.used > 0 && (going == 0 || moves == 0) => ("STUCK", theme.trouble),
        _ if work.used > 0 => ("moving", theme.good),
        _ if going == 0 => ("STUCK", theme.trouble),
        _ => ("waiting", theme.trouble),
    };
    let slots = work.slots.filter(|_| !idle).map(|n| format!(", {} of {n} slots", work.used)).unwrap_or_default();
    let states = [
        (counts.draining, "draining"),
        (counts.after, after),
        (counts.queued, "queued"),
        (counts.backoff, "backoff"),
        (counts.succeeded, "succeeded"),
    ];
    let states = states.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect::<Vec<_>>();
    let gap = if states.is_empty() { "" } else { ": " };
    let mut spans = vec![text(state, style)];
    // what a person has to see comes first: narrow screens cut the end
    for (n, what) in [(counts.failed, "failed"), (counts.broken, "broken")] {
        if n > 0 {
            spans.push(text(format!(", {n} {what}"), theme.danger));
        }
    }
    spans.push(Span::raw(format!("{slots}{gap}{}", states.join(", "))));
    spans
}

/// How long to go, and from what that is known: a line for each queue that has something left.
fn to_go(app: &App) -> Vec<Told> {
    let theme = &app.looks.theme;
    let clock = |at| calendar::moment(app, at);
    let mut lines = Vec::new();
    for (work, what) in [(&app.summary.reboots, "reboot"), (&app.summary.repairs, "repair")] {
        let spans = work.left.said(what, clock).into_iter().map(|(said, tone)| match tone {
            Tone::Plain => Span::raw(said),
            Tone::Trouble => text(said, theme.trouble),
            Tone::Aside => text(said, theme.muted),
        });
        let spans: Vec<Span<'static>> = spans.collect();
        if !spans.is_empty() {
            lines.push(said(if lines.is_empty() { "To go" } else { "" }, spans));
        }
    }
    if lines.is_empty() {
        lines.push(said("To go", vec![text("both queues are through", theme.muted)]));
    }
    lines
}

/// The last day at a glance: what ended in each hour, and how long the machines were away.
fn day(app: &App) -> Option<Told> {
    let (theme, day) = (&app.looks.theme, &app.summary.day);
    let all: u64 = day.ended.iter().sum();
    if all == 0 {
        return None;
    }
    let blocks = app.looks.blocks;
    let known = day.ended.get(day.unread..).unwrap_or_default();
    let hours = if day.unread == 0 { "24h".to_owned() } else { format!("{}h", known.len()) };
    let mut spans = vec![Span::raw(format!("{hours} {} {all} ended", spark(known, blocks)))];
    if day.bad > 0 {
        spans.push(text(format!(", {} failed", day.bad), theme.trouble));
    }
    if let (Some(least), Some(most), true) = (day.boots.iter().min(), day.boots.iter().max(), day.boots.len() > 2) {
        let span = |s: &u64| when::span(jiff::SignedDuration::from_secs(i64::try_from(*s).unwrap_or(0)));
        let boots = format!("; away {} {} to {}", spark(&day.boots, blocks), span(least), span(most));
        spans.push(text(boots, theme.muted));
    }
    Some(said("By hour", spans))
}

/// Most machines that are named of those that the same thing blocks.
const NAMES: usize = 4;

/// What blocks several drains at once.
fn blocks(app: &App) -> Option<Told> {
    let (theme, all) = (&app.looks.theme, &app.summary.blocks);
    let most = all.first()?;
    let first = most.drains.first()?;
    let mut names: Vec<String> = most.drains.iter().map(|id| name(app, *id)).collect();
    // a machine may be in both queues
    names.dedup();
    let more = if names.len() > NAMES { " ..." } else { "" };
    names.truncate(NAMES);
    let pods = match (most.pods.len(), most.pods.first()) {
        (1, Some(pod)) => format!("pod {pod}, "),
        (0, _) | (_, None) => String::new(),
        (n, _) => format!("{n} pods, "),
    };
    let others = if all.len() > 1 { format!("; {} others block more than one", all.len() - 1) } else { String::new() };
    let what = format!("{} blocks {} drains ({pods}{}{more}){others}", most.what, most.drains.len(), names.join(" "));
    Some(Told {
        spot: Some(Spot::Blocks(most.what.clone(), *first)),
        label: "Blocks",
        spans: vec![text(brief::safe(&what), theme.trouble)],
    })
}

/// What waits without being stuck, and who for longest.
fn waiting(app: &App) -> Vec<Span<'static>> {
    let (theme, sums) = (&app.looks.theme, &app.summary);
    let Some((id, since)) = sums.oldest else { return vec![text("nothing", theme.muted)] };
    let waits: Vec<String> = sums.waits.iter().map(|(what, n)| format!("{n} for {what}")).collect();
    let oldest = format!("; longest {} {id} {}", when::age(since, app.now.wall), name(app, id));
    vec![Span::raw(waits.join(", ")), text(oldest, theme.muted)]
}

fn name(app: &App, id: EntryId) -> String {
    brief::squeezed(&facts::machine(&app.seen, id).unwrap_or_default(), 24)
}

/// Who leads, since when, and who would follow.
fn leads(app: &App) -> Vec<Span<'static>> {
    let (theme, engine) = (&app.looks.theme, &app.seen.snapshot.engine);
    let mut spans = vec![match sources::leader_now(&app.seen, app.now.boot.as_secs_f64()) {
        Leader::Us => {
            let since = engine.leading.as_ref().map(|l| app.now.boot.as_secs_f64() - l.since);
            let since = since.map(|s| format!(" since {}", when::seconds(s))).unwrap_or_default();
            text(format!("this console{since}"), theme.good)
        }
        Leader::Other(host) => Span::raw(format!("{} (another cketerm)", brief::safe(&host))),
        Leader::Cke(host) => Span::raw(format!("{} (CKE: its guarantees, not ours)", brief::safe(&host))),
        Leader::Nobody => text("NOBODY: nothing moves", theme.danger),
        Leader::Unknown => text("not known, etcd is lost", theme.danger),
    }];
    let others = standing_by(&app.seen);
    spans.push(match others.as_slice() {
        [] => text("; no other stands by", theme.muted),
        some => Span::raw(format!("; {} by: {}", if some.len() == 1 { "stands" } else { "stand" }, some.join(", "))),
    });
    let ours = &engine.observing;
    if let (Some(why), true) = (ours.first().or(engine.standing_back.as_ref()), engine.leading.is_none()) {
        spans.push(text(format!("; here: {}", brief::safe(why)), theme.trouble));
    }
    spans
}

/// How old what is shown is.
fn data(app: &App) -> Vec<Span<'static>> {
    let (theme, boot) = (&app.looks.theme, app.now.boot.as_secs_f64());
    let snap = &app.seen.snapshot;
    let mut spans = Vec::new();
    let mut source = |name: &str, lost: Option<f64>, known: bool| {
        let gap = if spans.is_empty() { "" } else { "  " };
        spans.push(match lost {
            Some(heard) => text(format!("{gap}{name} LOST for {}", when::seconds(boot - heard)), theme.danger),
            None if known => Span::raw(format!("{gap}{name} live")),
            None => text(format!("{gap}{name} not heard yet"), theme.trouble),
        });
    };
    source("etcd", facts::etcd_lost(&app.seen, boot).and_then(|l| l.heard), snap.store.synced);
    let nodes = snap.kube.sources.get("nodes").is_some_and(|s| s.synced);
    source("Kubernetes", facts::kube_lost(&app.seen, boot).and_then(|l| l.heard), nodes);
    if snap.store.registry.url.is_some() {
        let members = &snap.registry.members;
        let age = members.good.as_ref().map(|good| when::coarse(boot - good.at));
        spans.push(match (&members.error, age) {
            (None, Some(age)) => Span::raw(format!("  sabakan asked {age} ago")),
            (None, None) => text("  sabakan not asked yet", theme.muted),
            (Some(why), age) => {
                let age = age.map(|age| format!(" for {age}")).unwrap_or_default();
                text(format!("  sabakan LOST{age}: {}", brief::safe(why)), theme.danger)
            }
        });
    }
    spans
}

/// What is switched off, or set otherwise than by default; a line where there is something, or where there is room.
fn switches(app: &App, width: u16) -> Option<Vec<Span<'static>>> {
    let (theme, store) = (&app.looks.theme, &app.seen.snapshot.store);
    let policy = store.policy();
    let mut spans = Vec::new();
    let mut add = |span: Span<'static>| {
        if !spans.is_empty() {
            spans.push(Span::raw("  "));
        }
        spans.push(span);
    };
    let registry = store.registry.url.is_some();
    if registry {
        add(match (store.sabakan.enabled(), &store.registry.hold) {
            (false, _) => text("sabakan DISABLED", theme.trouble),
            (true, Some(_)) => text("sabakan ON HOLD", theme.trouble),
            (true, None) => Span::raw("sabakan on"),
        });
        add(match &app.seen.auto_repair.off {
            _ if !store.auto_repair.enabled() => text("automatic repair DISABLED", theme.trouble),
            // switched on: what keeps it from adding is not its switch
            Some(why) => text(format!("automatic repair waits: {}", brief::safe(why)), theme.muted),
            None => Span::raw("automatic repair on"),
        });
    }
    let engine = serde_json::to_value(policy.engine).ok().and_then(|v| v.as_str().map(str::to_owned));
    add(Span::raw(format!("engine: {}", engine.unwrap_or_default())));
    // the freeze itself stands in the banner of every view
    if let Some((told, open)) = calendar::window(app, QueueKind::Reboot) {
        add(text(told, if open { Style::new() } else { theme.trouble }));
    }
    if let Some(groups) = &policy.groups {
        add(Span::raw(brief::safe(&format!("{} {} at a time", groups.limit.max(1), groups.by))));
    }
    if policy.metal3_controller {
        add(Span::raw("metal3 controller"));
    }
    (width >= 100 || registry || spans.len() > 1).then_some(spans)
}

/// What is in work, longest first.
fn work(app: &App) -> Vec<Told> {
    let (seen, theme, now) = (&app.seen, &app.looks.theme, app.now.wall);
    let mut lines: Vec<Told> = Vec::new();
    for id in &app.summary.work {
        let status = match (facts::entry(seen, *id), facts::repair(seen, *id)) {
            (Some(entry), _) => brief::status(entry, now).to_owned(),
            (_, Some(entry)) => format!("{} {}", brief::step(seen, entry), brief::repair_status(entry, now)),
            _ => continue,
        };
        let since = facts::since(seen, *id).map(|at| when::age(at, now)).unwrap_or_default();
        let (pods, why) = (brief::pods(seen, *id), seen.reasons.get(id));
        let why = why.map(|why| brief::reason(why, now)).unwrap_or_default();
        let style = if facts::in_trouble(seen, *id) { theme.trouble } else { Style::new() };
        let pods = if pods.is_empty() { pods } else { format!("{pods} ") };
        lines.push(Told {
            spot: Some(Spot::Work(*id)),
            label: "",
            spans: vec![Span::raw(format!("{since:>5} {} {status} {pods} ", name(app, *id))), text(why, style)],
        });
    }
    if lines.is_empty() {
        lines.push(said("", vec![text("nothing", theme.muted)]));
    }
    lines
}

/// What is stuck, oldest first, by what it is stuck on.
fn stuck(app: &App) -> Vec<Told> {
    let theme = &app.looks.theme;
    let mut lines: Vec<Told> = Vec::new();
    if let Some(why) = &app.summary.gate {
        lines.push(Told { spot: Some(Spot::Gate), label: "", spans: vec![text(brief::safe(why), theme.danger)] });
    }
    lines.extend(app.summary.stuck.iter().map(|group| stuck_line(app, group)));
    if lines.is_empty() {
        lines.push(said("", vec![text("nothing", theme.good)]));
    }
    lines
}

fn stuck_line(app: &App, group: &Stuck) -> Told {
    let (theme, now) = (&app.looks.theme, app.now.wall);
    let since = group.since.map(|at| when::age(at, now)).unwrap_or_default();
    let why = group.entry.and_then(|id| app.seen.reasons.get(&id)).map(|why| brief::reason(why, now));
    let node = group.node.as_deref().map(|n| brief::squeezed(n, 24)).filter(|n| !n.is_empty());
    let first = node.or_else(|| group.entry.map(|id| id.to_string())).unwrap_or_default();
    // one alone says it in full, with its pod
    let words = match group.count {
        1 => format!("{first}: {}", why.unwrap_or_else(|| group.on.clone())),
        n => format!("{n}x {}: {first} ...", group.on),
    };
    Told {
        spot: Some(Spot::Stuck(group.on.clone(), group.entry, group.node.clone())),
        label: "",
        spans: vec![Span::raw(format!("{since:>5} ")), text(words, theme.trouble)],
    }
}

/// What ended last.
fn ended(app: &App) -> Vec<Told> {
    let theme = &app.looks.theme;
    let read = &app.past.history;
    let mut lines: Vec<Told> = Vec::new();
    for id in &app.summary.ended {
        let Some(e) = read.get(id) else { continue };
        // a machine was away from its command on; without one, it waited from the request on
        let took = match (e.commanded, &e.request) {
            (Some(began), _) => Some(format!(" in {}", when::age(began, e.at))),
            (None, Some(r)) => Some(format!(" after {}", when::age(r.at, e.at))),
            (None, None) => None,
        };
        let by = e.request.as_ref().map(|r| format!(" ({})", brief::safe(&r.who.user))).unwrap_or_default();
        let node = brief::squeezed(&app.seen.snapshot.machine(&e.address), 24);
        let style = super::history::style(app, e);
        lines.push(Told {
            spot: Some(Spot::Ended(id.clone())),
            label: "",
            spans: vec![
                Span::raw(format!("{} {node} ", calendar::short(app, e.at))),
                text(brief::safe(&e.outcome), style),
                text(format!("{}{by}", took.unwrap_or_default()), theme.muted),
            ],
        });
    }
    if lines.is_empty() {
        lines.push(said("", vec![nothing_read(app, read.begun, read.error.as_ref())]));
    }
    lines
}

/// What people did last.
fn deeds(app: &App) -> Vec<Told> {
    let read = &app.past.audit;
    let mut lines: Vec<Told> = Vec::new();
    for id in &app.summary.deeds {
        let Some(audit) = read.get(id) else { continue };
        lines.push(Told {
            spot: Some(Spot::Deed(id.clone())),
            label: "",
            spans: vec![Span::raw(format!("{} {}", calendar::short(app, audit.at), deed(audit)))],
        });
    }
    if lines.is_empty() {
        lines.push(said("", vec![nothing_read(app, read.begun, read.error.as_ref())]));
    }
    lines
}

fn deed(audit: &Audit) -> String {
    let why = audit.reason.as_ref().map(|why| format!(" \"{why}\"")).unwrap_or_default();
    brief::safe(&format!("{}: {} {}{why}", audit.who.user, audit.what, audit.on))
}

fn nothing_read(app: &App, begun: bool, error: Option<&String>) -> Span<'static> {
    let theme = &app.looks.theme;
    match error {
        Some(why) => text(format!("not read: {}", brief::safe(why)), theme.trouble),
        None if begun => text("nothing yet", theme.muted),
        None => text("reading ...", theme.muted),
    }
}
