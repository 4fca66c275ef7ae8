//! Panel of queues without work: the next step, and what still happens after the last entry.

use cketerm_model::reason::Reason;
use ratatui::text::Span;

use super::{PanelLine, text};
use crate::state::{App, queries::Leader, short_text, sources};

/// Returns the state of the leader if nobody leads because this engine waits, the cordons that end later, and the next
/// step while nothing is queued.
pub(super) fn lines(app: &App) -> Vec<PanelLine> {
    let theme = &app.config.theme;
    let fault = app.seen.snapshot.engine.standing_back.as_ref();
    let nobody = fault.filter(|_| sources::current_leader(&app.seen, app.now.boot) == Leader::Nobody);
    let nobody = nobody.map(|fault| vec![text(short_text::safe(fault), theme.trouble)]);
    let key = |name: &str| text(app.key(name), theme.key);
    let first = match cordons(app) {
        Some(cordons) => vec![Span::raw("both queues are empty; "), cordons],
        None => vec![text("nothing is queued or in work", theme.good)],
    };
    let second = vec![
        Span::raw("to reboot machines: "),
        key("nodes"),
        Span::raw(" nodes, "),
        key("mark"),
        Span::raw(" marks some, "),
        key("reboot"),
        Span::raw(" queues them and shows first what would happen"),
    ];
    nobody.into_iter().chain([first, second]).collect()
}

/// Returns the cordons whose entries have ended before the machines booted: `worker-5 is uncordoned after its boot`.
pub(super) fn cordons(app: &App) -> Option<Span<'static>> {
    let ends = app.seen.orphans.iter().filter(|(_, why)| matches!(why, Reason::OrphanedCordon { .. }));
    let names: Vec<&str> = ends.map(|(name, _)| name.as_str()).collect();
    let phrase = match names.as_slice() {
        [] => return None,
        [name] => format!("{} is uncordoned after its boot", short_text::safe(name)),
        names => format!("{} nodes are uncordoned after their boots", names.len()),
    };
    Some(text(phrase, app.config.theme.trouble))
}
