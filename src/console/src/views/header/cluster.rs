//! First line of the header: the cluster, who leads, the switches, what needs a person, the clock. A narrow screen drops
//! the parts that report nothing unusual.

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::MissingSetting,
    entry::{QueueKind, Stored},
    policy::MemberSource,
};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use crate::state::{
    App, calendar,
    queries::{self, Leader},
    short_text, sources, when,
};

/// Importance of a part. The least important is dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Always shown.
    Always,
    /// Something is unusual.
    Unusual,
    /// The usual state of a queue.
    Usual,
    /// Other facts.
    Aside,
}

/// A part of the line.
struct Part {
    rank: Rank,
    span: Span<'static>,
}

fn part(rank: Rank, text: impl Into<String>, style: Style) -> Part {
    Part { rank, span: Span::styled(text.into(), style) }
}

/// Space between two parts.
const GAP: &str = "  ";

/// Returns the line for this width.
pub(super) fn line(app: &App, width: usize) -> Line<'static> {
    let theme = &app.config.theme;
    let badge = app.config.badge.as_deref().or(app.cluster()).unwrap_or("no cluster");
    let badge = Span::styled(format!(" {} ", short_text::safe(badge)), theme.badge);
    if !app.seen.snapshot.store.synced {
        let state = if app.config.sandbox { "starting ..." } else { "connecting ..." };
        return Line::from(vec![badge, Span::raw(" "), Span::raw(state)]);
    }
    let mut right = right(app);
    let width_of = |spans: &[Span<'static>]| spans.iter().map(Span::width).sum::<usize>();
    let mut parts = leader(app);
    parts.extend(mode(app));
    parts.extend(switches(app));
    parts.extend(engine(app));
    let left_width =
        |parts: &[Part]| badge.width() + 1 + parts.iter().map(|part| part.span.width() + GAP.len()).sum::<usize>();
    // the clock says least: it stays only where everything else has room, or where it takes no other part's place
    let clock = right.pop();
    while left_width(&parts) + width_of(&right) > width {
        let droppable = parts.iter().enumerate().filter(|(_, part)| part.rank != Rank::Always);
        let Some((last, _)) = droppable.max_by_key(|(at, part)| (part.rank, *at)) else { break };
        parts.remove(last);
    }
    let clock = clock.filter(|clock| left_width(&parts) + width_of(&right) + clock.width() <= width);
    right.extend(clock);
    let gap = width.saturating_sub(left_width(&parts) + width_of(&right));
    let mut spans = vec![badge, Span::raw(" ")];
    for part in parts {
        spans.push(part.span);
        spans.push(Span::raw(GAP));
    }
    spans.push(Span::raw(" ".repeat(gap)));
    spans.extend(right);
    Line::from(spans)
}

/// Returns what stands at the right: the number of lines of *Needs you* with their key, and the time.
fn right(app: &App) -> Vec<Span<'static>> {
    let theme = &app.config.theme;
    let mut spans = Vec::new();
    if let Some(first) = app.knowledge.needs_you.first() {
        let n = app.knowledge.needs_you.len();
        let verb = if n == 1 { "needs" } else { "need" };
        let style = theme.severity(first.severity());
        spans.push(Span::styled(format!("{n} {verb} you"), style));
        spans.push(Span::styled(format!(" ({})", app.key("trouble")), theme.key));
        spans.push(Span::raw("  "));
    }
    spans.push(Span::raw(calendar::moment(app, app.now.wall)));
    spans
}

/// Returns who leads. The sign keeps its meaning without colours.
fn leader(app: &App) -> Vec<Part> {
    let theme = &app.config.theme;
    let sign = if app.config.blocks { "\u{25cf}" } else { "*" };
    let part = |text: String, style| part(Rank::Always, text, style);
    let mut parts = vec![match sources::current_leader(&app.seen, app.now.boot) {
        Leader::Us => {
            let since = app.seen.snapshot.engine.leading.as_ref().map(|l| app.now.boot - l.since);
            let since = since.map(|since| {
                if since < Seconds::new(60.0) {
                    // the seconds would rewrite the header each time
                    " <1m".to_owned()
                } else {
                    format!(" {}", when::seconds(since))
                }
            });
            part(format!("{sign} leading{}", since.unwrap_or_default()), theme.good)
        }
        Leader::Other(host) => part(format!("{sign} {} leads", short_text::shorten_middle(&host, 20)), Style::new()),
        Leader::Cke(host) => {
            part(format!("{sign} CKE on {} leads", short_text::shorten_middle(&host, 16)), Style::new())
        }
        Leader::Nobody => part("! NOBODY LEADS".to_owned(), theme.danger),
        Leader::Unknown => part("? leader unknown, etcd is lost".to_owned(), theme.danger),
    }];
    if let Some(lease) = queries::cke_lease(&app.seen) {
        // the last digits tell two programs of one host apart
        let rank = if queries::leader_shares_its_host(&app.seen) { Rank::Always } else { Rank::Usual };
        parts.push(self::part(rank, format!("lease {}", queries::lease_end(&lease)), Style::new()));
        let status = app.seen.snapshot.store.status.as_ref().and_then(Stored::get);
        parts.extend(status.map(|s| self::part(Rank::Usual, short_text::safe(&s.phase), Style::new())));
    }
    parts
}

/// Returns whether this console may write.
fn mode(app: &App) -> Option<Part> {
    let theme = &app.config.theme;
    match app.session.writes_until {
        _ if app.read_only() => Some(part(Rank::Unusual, "read-only", theme.trouble)),
        Some((_, end)) => Some(part(Rank::Always, format!("WRITES until {}", calendar::time(app, end)), theme.danger)),
        None if app.knowledge.rights.is_read_only() => {
            Some(part(Rank::Unusual, "this etcd user is read-only", theme.trouble))
        }
        None => None,
    }
}

/// Returns the queues and the sabakan integration. A frozen queue is not shown as working.
fn switches(app: &App) -> Vec<Part> {
    let (theme, store) = (&app.config.theme, &app.seen.snapshot.store);
    let frozen = calendar::freeze(app).is_some();
    let mut parts = Vec::new();
    for queue in QueueKind::QUEUES {
        let (state, style, rank) = match (store.switch(queue).enabled(), frozen) {
            (false, _) => ("DISABLED", theme.danger, Rank::Unusual),
            // once is enough on a narrow screen
            (true, true) if queue == QueueKind::Reboot => ("FROZEN", theme.trouble, Rank::Always),
            (true, true) => ("FROZEN", theme.trouble, Rank::Unusual),
            (true, false) => ("on", theme.good, Rank::Usual),
        };
        parts.push(part(rank, format!("{queue}s {state}"), style));
    }
    if store.member_source() == MemberSource::Nodes {
        parts.push(match (&store.registry.hold, &*app.seen.applying) {
            (Some(_), _) => part(Rank::Unusual, "members ON HOLD", theme.danger),
            (None, cketerm_rules::decide::ApplyState::Approval(..)) => {
                part(Rank::Unusual, "members gated", theme.trouble)
            }
            (None, _) => part(Rank::Aside, "members follow the Nodes", Style::new()),
        });
    } else if store.registry.url.is_some() {
        parts.push(match (store.sabakan.enabled(), &store.registry.hold, &*app.seen.applying) {
            // never set up: the switch has no key
            (false, ..) if store.sabakan.mod_revision == 0 => part(Rank::Aside, "sabakan off", Style::new()),
            // a standing decision is dropped before the state of the queues
            (false, ..) => part(Rank::Aside, "sabakan DISABLED", theme.trouble),
            (true, Some(_), _) => part(Rank::Unusual, "sabakan ON HOLD", theme.danger),
            (true, None, cketerm_rules::decide::ApplyState::Approval(..)) => {
                part(Rank::Unusual, "sabakan gated", theme.trouble)
            }
            (true, None, _) => part(Rank::Usual, "sabakan on", theme.good),
        });
    }
    parts
}

/// Returns the state of this process's own engine, and what this host lacks.
fn engine(app: &App) -> Vec<Part> {
    let (theme, engine) = (&app.config.theme, &app.seen.snapshot.engine);
    let mut parts = Vec::new();
    if let Some(why) = &engine.resigning {
        parts.push(part(Rank::Unusual, format!("resigning: {}", short_text::safe(why)), theme.trouble));
    } else if let Some(why) = &engine.migrating {
        let text = format!("migrating records of an older version: {}", short_text::safe(why));
        parts.push(part(Rank::Unusual, text, theme.trouble));
    } else if !engine.observing.is_empty() {
        parts.push(part(Rank::Unusual, "observing", theme.trouble));
    } else if engine.leading.is_none() && engine.lease != 0 {
        parts.push(part(Rank::Aside, "standing by", Style::new()));
    }
    let settings = engine.bmcs.missing_settings();
    let settings = settings.iter().map(MissingSetting::short).map(str::to_owned);
    let missing: Vec<String> = engine.missing_programs.iter().cloned().chain(settings).collect();
    if !missing.is_empty() {
        let text = format!("missing here: {}", short_text::safe(&missing.join(", ")));
        parts.push(part(Rank::Unusual, text, theme.trouble));
    }
    parts
}
