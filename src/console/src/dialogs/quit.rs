//! Dialog for leaving. It is shown only if this console leads with work in progress and there is no other candidate.

use cketerm_model::entry::QueueKind;

use crate::state::{
    App,
    dialog::{Dialog, DialogAction, ReasonPolicy},
    queries, sources,
    totals::Counts,
};

/// Updates the counts. If the question has changed or is no longer needed, the dialog expires, so that a key that was
/// meant for the old question does not answer it.
pub fn follow(app: &App, dialog: &mut Dialog) {
    match open(app) {
        Some(now) if now.title == dialog.title => dialog.lines = now.lines,
        _ => dialog.expire(format!("the state has changed meanwhile; press {} again", app.key("quit"))),
    }
}

/// Returns the dialog, or `None` if leaving does no harm.
pub fn open(app: &App) -> Option<Dialog> {
    let no_standby = app.seen.snapshot.store.candidates.len() <= 1;
    let engine = &app.seen.snapshot.engine;
    // this console's engine has campaigned, and it is unknown whether another engine takes the lead
    let leader_unknown = sources::current_leader(&app.seen, app.now.boot) == queries::Leader::Unknown;
    if leader_unknown && !app.config.sandbox && engine.observing.is_empty() && engine.standing_back.is_none() {
        let mut dialog = Dialog::new("Quit while etcd does not answer?", "Quit", DialogAction::Quit);
        dialog.lines = vec![
            "the leader is unknown: this console may have led until etcd was lost".to_owned(),
            "if no other engine stands by, nothing runs when etcd is back".to_owned(),
        ];
        dialog.why = ReasonPolicy::Never;
        return Some(dialog);
    }
    let works = QueueKind::QUEUES.into_iter().any(|queue| {
        let counts = app.knowledge.totals.counts(queue);
        let waits = counts.queued + counts.backoff > 0 && app.seen.snapshot.store.switch(queue).enabled();
        counts.draining + counts.after > 0 || waits
    });
    let owed = app.seen.orphans.len();
    if queries::leader(&app.seen) != queries::Leader::Us || !no_standby || !works && owed == 0 {
        return None;
    }
    let line = |queue: &str, after: &str, n: &Counts| {
        format!("{queue}: {} draining, {} {after}, {} queued", n.draining, n.after, n.queued + n.backoff)
    };
    let title = if app.config.sandbox { "Quit? The sandbox ends" } else { "Quit? No other engine stands by" };
    let mut dialog = Dialog::new(title, "Quit", DialogAction::Quit);
    let after = if app.config.sandbox {
        "the simulated data centre ends with this console; the next start begins anew"
    } else {
        "nothing runs until another engine starts (`cketerm --daemon`)"
    };
    dialog.lines = vec![
        line("reboots", "rebooting", &app.knowledge.totals.reboots),
        line("repairs", "watching", &app.knowledge.totals.repairs),
    ];
    if owed > 0 {
        let nodes = if owed == 1 { "1 node stays".to_owned() } else { format!("{owed} nodes stay") };
        dialog.lines.push(format!("! {nodes} cordoned after entries that have ended"));
    }
    dialog.lines.push(after.to_owned());
    dialog.why = ReasonPolicy::Never;
    Some(dialog)
}
