//! Leaving: asks only where this console leads and nobody stands by.

use super::{Deed, Dialog, Why};
use crate::console::{app::App, facts};

/// The question, or none where leaving harms nothing.
pub fn open(app: &App) -> Option<Dialog> {
    let alone = app.seen.snapshot.store.candidates.len() <= 1;
    if app.looks.sandbox || facts::leader(&app.seen) != facts::Leader::Us || !alone {
        return None;
    }
    let line = |queue: &str, after: &str, n: &facts::Counts| {
        format!("{queue}: {} draining, {} {after}, {} queued", n.draining, n.after, n.queued + n.backoff)
    };
    let mut dialog = Dialog::new("Leave? Nobody else stands by to lead", "Leave", Deed::Quit);
    dialog.lines = vec![
        line("reboots", "rebooting", &app.facts.reboots),
        line("repairs", "watching", &app.facts.repairs),
        "the queues stand still until another engine starts (`cketerm --daemon`)".to_owned(),
    ];
    dialog.why = Why::Never;
    Some(dialog)
}
