//! Dialogs that stop both queues, or resume the stopped ones.

use cketerm_model::{
    cketerm_records::Stopped,
    entry::{QueueKind, Stored},
};

use super::switch::{drains_at_disable, drains_at_enable};
use crate::state::{
    App,
    dialog::{Dialog, DialogAction},
    event::{Action, count},
    short_text, when,
};

/// Opens the dialog that stops. It is bound to nothing: a stop means both queues, whatever was switched meanwhile.
pub fn stop(app: &App) -> Dialog {
    let mut dialog =
        Dialog::new("Stop both queues?", "Stop both queues", DialogAction::Act(Action::Stop { reason: None }));
    dialog.lines = lines(app);
    dialog
}

/// Updates the counts.
pub fn follow(app: &App, dialog: &mut Dialog) {
    dialog.lines = lines(app);
}

/// Updates the counts of the dialog that resumes.
pub fn follow_resume(app: &App, dialog: &mut Dialog) {
    let stopped = app.seen.snapshot.store.stopped.as_ref().and_then(Stored::get);
    if let Some(stopped) = stopped {
        dialog.lines = resume_lines(app, stopped);
    }
}

fn lines(app: &App) -> Vec<String> {
    let store = &app.seen.snapshot.store;
    let mut lines: Vec<String> = QueueKind::QUEUES
        .into_iter()
        .map(|queue| {
            let (switch, counts) = (store.switch(queue), app.knowledge.totals.counts(queue));
            let was =
                if switch.enabled() { "will be disabled" } else { "is disabled already, and stays so after resume" };
            format!("{queue} queue {was}: {} draining, {} after their command", counts.draining, counts.after)
        })
        .collect();
    let draining: usize = QueueKind::QUEUES.into_iter().map(|queue| app.knowledge.totals.counts(queue).draining).sum();
    if draining > 0 {
        lines.push(drains_at_disable(app, draining));
    }
    lines.push(format!("works under every leader; :resume undoes it ({})", store.leadership().message));
    lines
}

/// Opens the dialog that resumes, or returns that nothing is stopped.
pub fn resume(app: &App) -> Result<Dialog, String> {
    let store = &app.seen.snapshot.store;
    let record = store.stopped.as_ref().ok_or("nothing is stopped: there is nothing to resume")?;
    let stopped =
        record.get().ok_or_else(|| format!("{} cannot be read: `cketerm resume` shows how to fix it", record.key))?;
    let verb = format!("Resume {}", count(stopped.queues.len(), "queue"));
    let mut dialog = Dialog::new(format!("{verb}?"), verb, DialogAction::Act(Action::Resume { reason: None }));
    dialog.lines = resume_lines(app, stopped);
    Ok(dialog)
}

fn resume_lines(app: &App, stopped: &Stopped) -> Vec<String> {
    let why = stopped.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let mut lines = vec![
        short_text::safe(&format!("stopped by {} {} ago{why}", stopped.who, when::age(stopped.at, app.now.wall))),
        match stopped.queues.as_slice() {
            [] => "no queue was enabled then".to_owned(),
            some => format!(
                "will be enabled again: {}",
                some.iter().map(|queue| format!("{queue} queue")).collect::<Vec<_>>().join(", ")
            ),
        },
    ];
    let draining = stopped.queues.iter().map(|queue| app.knowledge.totals.counts(*queue).draining).sum();
    lines.extend(drains_at_enable(app, draining));
    lines.push("a queue that somebody changed since stays as it is".to_owned());
    lines
}
