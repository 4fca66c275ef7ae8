//! Panel about the cluster: who leads and who stands by, the age of the data, and the switches.

use cketerm_model::{boot_time::BootTime, entry::Stored, policy::MemberSource};
use ratatui::text::Span;

use super::{PanelLine, folded, text};
use crate::state::{
    App,
    overview::standby_engines,
    queries::{self, Leader},
    short_text, sources, when,
};

/// Width of the labels.
const LABEL_WIDTH: usize = 7;

/// Returns the lines.
pub(super) fn lines(app: &App, width: usize) -> Vec<PanelLine> {
    let mut lines = Vec::new();
    for (label, spans) in [("leads", leadership(app)), ("data", data(app)), ("rules", switches(app))] {
        let mut labelled = vec![text(format!("{label:<LABEL_WIDTH$}"), app.config.theme.muted)];
        labelled.extend(spans);
        lines.extend(folded::spans(&labelled, width, LABEL_WIDTH));
    }
    lines
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
        Leader::Cke(host) => Span::raw(format!(
            "{} (CKE, lease {}{}); reasons{}",
            short_text::safe(&host),
            queries::cke_lease(&app.seen).unwrap_or_default(),
            phase(app),
            queries::reading_label(&app.seen)
        )),
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

/// Returns the phase that CKE's leader published last, with a comma before it.
fn phase(app: &App) -> String {
    let status = app.seen.snapshot.store.status.as_ref().and_then(Stored::get);
    status.map(|status| format!(", {}", short_text::safe(&status.phase))).unwrap_or_default()
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
fn switches(app: &App) -> Vec<Span<'static>> {
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
    if store.member_source() == MemberSource::Nodes {
        add(match &store.registry.hold {
            Some(_) => text("members ON HOLD", theme.trouble),
            None => Span::raw("members follow the Nodes"),
        });
    } else if registry {
        add(match (store.sabakan.enabled(), &store.registry.hold) {
            (false, _) if store.sabakan.mod_revision == 0 => Span::raw("sabakan off"),
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
    if let Some(groups) = &policy.groups {
        add(Span::raw(short_text::safe(&format!("{} {} at a time", groups.limit.max(1), groups.by))));
    }
    if policy.metal3_controller {
        add(Span::raw("metal3 controller"));
    }
    spans
}
