//! Overview. It shows within five seconds whether work moves, what is stuck and on what, who leads, and how long it
//! takes.

mod columns;
mod past;

use cketerm_model::{
    boot_time::BootTime,
    entry::{EntryId, QueueKind},
    stored::keys::SwitchName,
};
use cketerm_rules::trouble;
use ratatui::{style::Style, text::Span};

pub use self::columns::overview_rows;
pub(super) use self::columns::{draw, overview_row_at};
use crate::state::{
    App, HostId, calendar,
    eta::Tone,
    overview::{OverviewRow, Stuck, standby_engines},
    queries::{self, Leader},
    short_text, sources, when,
};

/// Width of the labels.
const LABEL_WIDTH: usize = 9;

/// One line: the target that Enter opens, and the text.
struct OverviewLine {
    overview_row: Option<OverviewRow>,
    label: &'static str,
    spans: Vec<Span<'static>>,
}

fn info_line(label: &'static str, spans: Vec<Span<'static>>) -> OverviewLine {
    OverviewLine { overview_row: None, label, spans }
}

fn text(text: impl Into<String>, style: Style) -> Span<'static> {
    Span::styled(text.into(), style)
}

/// Returns the progress of a queue: slots, and the entries by state.
fn queue(app: &App, queue: QueueKind) -> Vec<Span<'static>> {
    let (theme, store) = (&app.config.theme, &app.seen.snapshot.store);
    let (switch, counts, after) =
        (store.switch(queue), app.knowledge.totals.counts(queue), queue.status_after_command());
    let work = app.knowledge.summary.work_of(queue);
    let (remaining, held) = (work.left.left, work.left.held);
    // work in progress that moves
    let moving = work.used.saturating_sub(work.used_stuck);
    let waits = work.used_waits > 0 && moving == work.used_waits;
    let idle = work.used == 0 && work.left.is_empty();
    let boot = app.now.boot;
    let lost = queries::etcd_lost(&app.seen, boot).is_some();
    let window_closed =
        calendar::window_state(app, &store.policy(), queue).is_some_and(|window_state| !window_state.open);
    let (state, style) = match sources::current_leader(&app.seen, boot) {
        Leader::Unknown => ("unknown, etcd is lost; last seen", theme.danger),
        _ if idle && switch.enabled() => ("nothing to do", theme.muted),
        _ if !switch.enabled() && work.used > 0 => ("DISABLED, finishing work", theme.danger),
        _ if !switch.enabled() => ("DISABLED", theme.danger),
        Leader::Nobody => ("NOT moving, nobody leads", theme.danger),
        _ if moving == 0 && remaining > 0 && calendar::freeze(app).is_some() => ("FROZEN", theme.danger),
        _ if moving == 0 && remaining > 0 && window_closed => ("waits for the window", theme.trouble),
        _ if remaining == 0 && held > 0 && work.left.stalled() == 0 => ("ON HOLD", theme.trouble),
        _ if work.used > 0 && (remaining == 0 || moving == 0) => ("STUCK", theme.trouble),
        _ if work.used > 0 && queries::kube_lost(&app.seen, boot).is_some() => {
            ("blocked, Kubernetes is lost", theme.trouble)
        }
        _ if waits => ("blocked", theme.trouble),
        _ if work.used > 0 => ("moving", theme.good),
        _ if remaining == 0 && work.left.stuck == 0 => ("in backoff", theme.trouble),
        _ if remaining == 0 => ("STUCK", theme.trouble),
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
    let separator = if states.is_empty() { "" } else { ": " };
    // the current state is unknown
    let (seen_at, style) = if lost {
        (format!("as of {}: ", calendar::time(app, app.known())), theme.danger)
    } else {
        (String::new(), style)
    };
    let by = (!switch.enabled()).then(|| who_disabled(app, queue, switch.mod_revision)).flatten().unwrap_or_default();
    let mut spans = vec![text(format!("{seen_at}{state}"), style), text(by, theme.trouble)];
    // the most important part comes first, because narrow screens cut the end
    for (n, what) in [(counts.failed, "failed"), (counts.broken, "broken")] {
        if n > 0 {
            spans.push(text(format!(", {n} {what}"), theme.danger));
        }
    }
    spans.push(Span::raw(format!("{slots}{separator}{}", states.join(", "))));
    spans
}

/// Returns who disabled a queue, when and why, if the audit has it: ` by bob at 09:17Z (storage incident)`. Only a
/// record of the same transaction counts, because `ckecli` and `etcdctl` write none.
fn who_disabled(app: &App, queue: QueueKind, switch_revision: i64) -> Option<String> {
    let on = SwitchName::from(queue).title();
    let read = app.knowledge.past.audit.rows.iter().filter(|(id, _)| id.revision.0 == switch_revision);
    let audit = read.filter_map(|(_, row)| row.as_ref().ok()).find(|a| a.on == on && a.what == "disable")?;
    let why =
        audit.reason.as_ref().map(|why| format!(" ({})", short_text::shorten_middle(why, 30))).unwrap_or_default();
    Some(short_text::safe(&format!(" by {} at {}{why}", audit.who.user, calendar::short(app, audit.at))))
}

/// Returns the remaining time and the basis of the estimate: one line for each queue with remaining work.
fn remaining_time(app: &App) -> Vec<OverviewLine> {
    let theme = &app.config.theme;
    let clock = |at| calendar::moment(app, at);
    let mut lines = Vec::new();
    for (work, what) in [(&app.knowledge.summary.reboots, "reboot"), (&app.knowledge.summary.repairs, "repair")] {
        let spans = work.left.described(what, clock).into_iter().map(|(phrase, tone)| match tone {
            Tone::Plain => Span::raw(phrase),
            Tone::Trouble => text(phrase, theme.trouble),
            Tone::Aside => text(phrase, theme.muted),
        });
        let spans: Vec<Span<'static>> = spans.collect();
        if !spans.is_empty() {
            lines.push(info_line(if lines.is_empty() { "To go" } else { "" }, spans));
        }
    }
    if lines.is_empty() {
        lines.push(info_line("To go", vec![text("both queues are done", theme.muted)]));
    }
    lines
}

/// Most machines that are named for one common blocker.
const MAX_NAMES: usize = 4;

/// Returns what blocks several drains at once.
fn blocks(app: &App) -> Option<OverviewLine> {
    let (theme, all) = (&app.config.theme, &app.knowledge.summary.blocks);
    let most = all.first()?;
    let first = most.drains.first()?;
    let mut names: Vec<String> = most.drains.iter().map(|id| name(app, *id)).collect();
    // a machine may be in both queues
    names.dedup();
    let more = if names.len() > MAX_NAMES { " ..." } else { "" };
    names.truncate(MAX_NAMES);
    let pods = match (most.pods.len(), most.pods.first()) {
        (1, Some(pod)) => format!("pod {pod}, "),
        (0, _) | (_, None) => String::new(),
        (n, _) => format!("{n} pods, "),
    };
    let others = if all.len() > 1 { format!("; {} others block several drains", all.len() - 1) } else { String::new() };
    let what = format!("{} blocks {} drains ({pods}{}{more}){others}", most.what, most.drains.len(), names.join(" "));
    Some(OverviewLine {
        overview_row: Some(OverviewRow::Blocks(most.what.clone(), *first)),
        label: "Blocks",
        spans: vec![text(short_text::safe(&what), theme.trouble)],
    })
}

/// Returns trouble that no queue shows: nodes that are not Ready, members without a Node, hosts that need attention or
/// are held off. Empty if there is none.
fn machines(app: &App) -> Vec<OverviewLine> {
    let (theme, hosts) = (&app.config.theme, &app.knowledge.totals.hosts);
    let mut lines = Vec::new();
    let kinds = [("NotReady", &app.knowledge.totals.unready), ("without a Node", &app.knowledge.totals.missing)];
    let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    let notes =
        kinds.map(|(what, all)| format!("{} {what}: {}", all.len(), first_names(all.iter().map(String::as_str))));
    let notes: Vec<String> = notes.collect();
    if !notes.is_empty() {
        let spans = vec![text(short_text::safe(&notes.join("; ")), theme.trouble)];
        lines.push(OverviewLine { overview_row: Some(OverviewRow::Unready), label: "Nodes", spans });
    }
    let names = |all: &[HostId]| first_names(all.iter().map(|id| id.1.as_str()));
    let mut notes = Vec::new();
    match hosts.trouble.as_slice() {
        [] => {}
        [one] => notes.push(format!("{}: {}", one.1, short_text::host(&app.seen, one).0)),
        all => notes.push(format!("{} to check: {}", all.len(), names(all))),
    }
    let mut spans: Vec<Span> = notes.iter().map(|note| text(short_text::safe(note), theme.trouble)).collect();
    if !hosts.held.is_empty() {
        let separator = if spans.is_empty() { "" } else { "; " };
        spans.push(Span::raw(short_text::safe(&format!(
            "{separator}{} held off: {}",
            hosts.held.len(),
            names(&hosts.held)
        ))));
    }
    if !spans.is_empty() {
        lines.push(OverviewLine { overview_row: Some(OverviewRow::Hosts), label: "Hosts", spans });
    }
    lines
}

/// Returns the first few of several names.
fn first_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = if names.len() > MAX_NAMES { " ..." } else { "" };
    let first: Vec<String> = names.take(MAX_NAMES).map(|name| short_text::shorten_middle(name, 24)).collect();
    format!("{}{more}", first.join(" "))
}

/// Returns what waits without being stuck, and the entry that has waited longest.
fn waiting(app: &App) -> Vec<Span<'static>> {
    let (theme, summary) = (&app.config.theme, &app.knowledge.summary);
    let Some((id, since)) = summary.oldest else { return vec![text("nothing", theme.muted)] };
    let waits: Vec<String> = summary.waits.iter().map(|(what, n)| format!("{n} for {what}")).collect();
    let oldest = format!("; longest {} {id} {}", when::age(since, app.known()), name(app, id));
    vec![Span::raw(waits.join(", ")), text(oldest, theme.muted)]
}

fn name(app: &App, id: EntryId) -> String {
    short_text::shorten_middle(&queries::machine(&app.seen, id).unwrap_or_default(), 24)
}

/// Returns the leader, the time since it leads, and the next candidates.
fn leadership(app: &App) -> Vec<Span<'static>> {
    let (theme, engine) = (&app.config.theme, &app.seen.snapshot.engine);
    let mut spans = vec![match sources::current_leader(&app.seen, app.now.boot) {
        Leader::Us => {
            let since = engine.leading.as_ref().map(|l| app.now.boot - l.since);
            let since = since.map(|s| format!(" since {}", when::seconds(s))).unwrap_or_default();
            text(format!("this console{since}"), theme.good)
        }
        Leader::Other(host) => Span::raw(format!("{} (another cketerm)", short_text::safe(&host))),
        Leader::Cke(host) => Span::raw(format!("{} (CKE: its guarantees hold)", short_text::safe(&host))),
        Leader::Nobody => text("NOBODY: nothing moves", theme.danger),
        Leader::Unknown => text("unknown, etcd is lost", theme.danger),
    }];
    let others = standby_engines(&app.seen);
    spans.push(match others.as_slice() {
        [] => text("; no standby", theme.muted),
        some => Span::raw(format!("; {} by: {}", if some.len() == 1 { "stands" } else { "stand" }, some.join(", "))),
    });
    let fault = engine.observing.first().map(ToString::to_string);
    if let (Some(why), true) = (fault.or_else(|| engine.standing_back.clone()), engine.leading.is_none()) {
        spans.push(text(format!("; here: {}", short_text::safe(&why)), theme.trouble));
    }
    spans
}

/// Returns the age of the displayed data.
fn data(app: &App) -> Vec<Span<'static>> {
    let (theme, boot) = (&app.config.theme, app.now.boot);
    let snap = &app.seen.snapshot;
    let mut spans = Vec::new();
    let mut source = |name: &str, lost: Option<BootTime>, known: bool, last_seen: BootTime| {
        let separator = if spans.is_empty() { "" } else { "  " };
        spans.push(match lost {
            Some(last_seen) => {
                text(format!("{separator}{name} LOST for {}", when::seconds(boot - last_seen)), theme.danger)
            }
            None if known && boot - last_seen > sources::SILENT_AFTER => {
                text(format!("{separator}{name} silent for {}", when::seconds(boot - last_seen)), theme.trouble)
            }
            None if known => Span::raw(format!("{separator}{name} live")),
            None => text(format!("{separator}{name} no data yet"), theme.trouble),
        });
    };
    source(
        "etcd",
        queries::etcd_lost(&app.seen, boot).and_then(|l| l.last_seen),
        snap.store.synced,
        snap.store.last_seen,
    );
    let nodes = snap.kube.sources.get("nodes");
    let (known, last_seen) = (nodes.is_some_and(|s| s.synced), nodes.map_or(boot, |s| s.last_seen));
    source("Kubernetes", queries::kube_lost(&app.seen, boot).and_then(|l| l.last_seen), known, last_seen);
    if snap.store.registry.url.is_some() {
        let members = &snap.registry.members;
        let age = members.good.as_ref().map(|good| when::coarse(boot - good.at));
        spans.push(match (&members.error, age) {
            (None, Some(age)) => Span::raw(format!("  sabakan asked {age} ago")),
            (None, None) => text("  sabakan not asked yet", theme.muted),
            (Some(why), age) => {
                let age = age.map(|age| format!(" for {age}")).unwrap_or_default();
                text(format!("  sabakan LOST{age}: {}", short_text::safe(why)), theme.danger)
            }
        });
    }
    spans
}

/// Returns what is disabled or differs from its default.
fn switches(app: &App, width: u16) -> Option<Vec<Span<'static>>> {
    let (theme, store) = (&app.config.theme, &app.seen.snapshot.store);
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
            // it is enabled: what keeps it from adding is not its switch
            Some(why) => text(format!("automatic repair waits: {}", short_text::safe(why)), theme.muted),
            None => Span::raw("automatic repair on"),
        });
    }
    let engine = serde_json::to_value(policy.engine).ok().and_then(|v| v.as_str().map(str::to_owned));
    add(Span::raw(format!("engine: {}", engine.unwrap_or_default())));
    // the freeze itself is in the banner of every view
    if let Some((notes, open)) = calendar::window(app, QueueKind::Reboot) {
        add(text(notes, if open { Style::new() } else { theme.trouble }));
    }
    if let Some(groups) = &policy.groups {
        add(Span::raw(short_text::safe(&format!("{} {} at a time", groups.limit.max(1), groups.by))));
    }
    if policy.metal3_controller {
        add(Span::raw("metal3 controller"));
    }
    (width >= 100 || registry || spans.len() > 1).then_some(spans)
}

/// Returns work in progress, longest first.
fn work(app: &App) -> Vec<OverviewLine> {
    let (seen, theme, now) = (&app.seen, &app.config.theme, app.known());
    let mut lines: Vec<OverviewLine> = Vec::new();
    for id in &app.knowledge.summary.work {
        let status = match (queries::entry(seen, *id), queries::repair(seen, *id)) {
            (Some(entry), _) => short_text::status(entry, now).to_owned(),
            (_, Some(entry)) => format!("{} {}", short_text::step(seen, entry), short_text::repair_status(entry, now)),
            _ => continue,
        };
        let since = queries::since(seen, *id).map(|at| when::age(at, now)).unwrap_or_default();
        let (pods, why) = (short_text::pods(seen, *id), seen.reasons.get(id));
        let why = why.map(|why| short_text::reason(why, now)).unwrap_or_default();
        let style = if trouble::of(seen, *id).is_some() { theme.trouble } else { Style::new() };
        let pods = if pods.is_empty() { pods } else { format!("{pods} ") };
        lines.push(OverviewLine {
            overview_row: Some(OverviewRow::Work(*id)),
            label: "",
            spans: vec![Span::raw(format!("{since:>5} {} {status} {pods} ", name(app, *id))), text(why, style)],
        });
    }
    if lines.is_empty() {
        lines.push(info_line("", vec![text("nothing", theme.muted)]));
    }
    lines
}

/// Returns stuck entries, oldest first, grouped by the blocker.
fn stuck(app: &App) -> Vec<OverviewLine> {
    let theme = &app.config.theme;
    let mut lines: Vec<OverviewLine> = Vec::new();
    if let Some(why) = &app.knowledge.summary.gate {
        lines.push(OverviewLine {
            overview_row: Some(OverviewRow::Gate),
            label: "",
            spans: vec![text(short_text::safe(why), theme.danger)],
        });
    }
    lines.extend(app.knowledge.summary.stuck.iter().map(|group| {
        let overview_row = OverviewRow::Stuck(group.on.clone(), group.entry, group.node.clone());
        stuck_line(app, group, overview_row)
    }));
    if lines.is_empty() {
        lines.push(info_line("", vec![text("nothing", theme.good)]));
    }
    lines
}

/// Returns what entries wait on that may pass by itself, oldest first.
fn waits_on(app: &App) -> Vec<OverviewLine> {
    let overview_row = |group: &Stuck| Some(OverviewRow::WaitsOn(group.on.clone(), group.entry?));
    app.knowledge
        .summary
        .waits_on
        .iter()
        .filter_map(|group| Some(stuck_line(app, group, overview_row(group)?)))
        .collect()
}

fn stuck_line(app: &App, group: &Stuck, overview_row: OverviewRow) -> OverviewLine {
    let (theme, now) = (&app.config.theme, app.known());
    let since = group.since.map(|at| when::age(at, now)).unwrap_or_default();
    let why = group.entry.and_then(|id| app.seen.reasons.get(&id)).map(|why| short_text::reason(why, now));
    let node = group.node.as_deref().map(|n| short_text::shorten_middle(n, 24)).filter(|n| !n.is_empty());
    let first = node.or_else(|| group.entry.map(|id| id.to_string())).unwrap_or_default();
    // a single entry shows its full reason with the pod
    let words = match group.count {
        1 => format!("{first}: {}", why.unwrap_or_else(|| group.on.clone())),
        n => format!("{n}x {}: {first} ...", group.on),
    };
    OverviewLine {
        overview_row: Some(overview_row),
        label: "",
        spans: vec![Span::raw(format!("{since:>5} ")), text(words, theme.trouble)],
    }
}
