//! Leaving: asks only where this console leads and nobody stands by.

use super::{Dialog, DialogAction, Why};
use crate::console::{app::App, queries, sources};

/// The counts as they stand now. A question that is another one by now, or none, is not answered by a key that was meant for
/// this one.
pub fn follow(app: &App, dialog: &mut Dialog) {
    match open(app) {
        Some(now) if now.title == dialog.title => dialog.lines = now.lines,
        _ => dialog.expire(format!("this has changed meanwhile; {} asks what is to be asked now", app.key("quit"))),
    }
}

/// The question, or none where leaving harms nothing.
pub fn open(app: &App) -> Option<Dialog> {
    let alone = app.seen.snapshot.store.candidates.len() <= 1;
    let engine = &app.seen.snapshot.engine;
    // this console's engine stood for the lock, and whether another takes it up cannot be seen
    let blind = sources::leader_now(&app.seen, app.now.boot.as_secs_f64()) == queries::Leader::Unknown;
    if blind && !app.looks.sandbox && engine.observing.is_empty() && engine.standing_back.is_none() {
        let mut dialog = Dialog::new("Leave while etcd does not answer?", "Leave", DialogAction::Quit);
        dialog.lines = vec![
            "who leads is not known: this console may have led until etcd was lost".to_owned(),
            "if nobody else stands by, nothing moves when etcd is back".to_owned(),
        ];
        dialog.why = Why::Never;
        return Some(dialog);
    }
    if app.looks.sandbox || queries::leader(&app.seen) != queries::Leader::Us || !alone {
        return None;
    }
    let line = |queue: &str, after: &str, n: &queries::Counts| {
        format!("{queue}: {} draining, {} {after}, {} queued", n.draining, n.after, n.queued + n.backoff)
    };
    let mut dialog = Dialog::new("Leave? Nobody else stands by to lead", "Leave", DialogAction::Quit);
    dialog.lines = vec![
        line("reboots", "rebooting", &app.totals.reboots),
        line("repairs", "watching", &app.totals.repairs),
        "the queues stand still until another engine starts (`cketerm --daemon`)".to_owned(),
    ];
    dialog.why = Why::Never;
    Some(dialog)
}
