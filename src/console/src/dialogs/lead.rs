//! Dialog that lets this console lead. It opens by itself the first time that a console of this host could campaign, and
//! by a key when nobody leads.

use cketerm_model::entry::QueueKind;
use cketerm_rules::{console_leads::NotCampaigning, preflight_fault::PreflightFault};

use crate::state::{
    App,
    dialog::{Dialog, DialogAction, ReasonPolicy},
    event::count,
    queries, sources,
};

/// Opens the dialog that asks once, if the engine waits for the answer.
pub fn first(app: &App) -> Option<Dialog> {
    let waits = app.seen.snapshot.engine.not_campaigning == Some(NotCampaigning::Unasked);
    waits.then(|| dialog(app, true))
}

/// Opens the dialog of the key, or returns the reason why this console cannot campaign now.
pub fn open(app: &App) -> Result<Dialog, String> {
    let engine = &app.seen.snapshot.engine;
    match sources::current_leader(&app.seen, app.now.boot) {
        queries::Leader::Us => return Err("this console leads already".to_owned()),
        queries::Leader::Other(host) => return Err(format!("cketerm on {host} leads: nothing has to be done")),
        queries::Leader::Cke(host) => {
            return Err(format!("CKE on {host} leads: `cketerm engine take` hands the queues over"));
        }
        queries::Leader::Unknown => return Err("etcd does not answer: the leader is unknown".to_owned()),
        queries::Leader::Nobody => {}
    }
    match &engine.not_campaigning {
        Some(why) if why.can_lead_now() => Ok(dialog(app, false)),
        Some(_) => Err("policy console_leads is `never`: change it, or start `cketerm --daemon`".to_owned()),
        None if !engine.observing.is_empty() => {
            Err(format!("this console only observes: {}", PreflightFault::joined(&engine.observing)))
        }
        None => Err(match (&engine.standing_back, engine.lease) {
            (Some(why), _) => why.clone(),
            (None, 0) => "this console does not campaign: start it without --observe and --read-only".to_owned(),
            (None, _) => "this console campaigns already: it leads in a moment".to_owned(),
        }),
    }
}

/// Updates the counts. The dialog expires when somebody leads, or when the engine needs no answer any more.
pub fn follow(app: &App, dialog: &mut Dialog) {
    if app.seen.snapshot.engine.not_campaigning.as_ref().is_some_and(NotCampaigning::can_lead_now) {
        dialog.lines = lines(app);
    } else {
        dialog.expire("it is no longer open whether this console leads: nothing was done".to_owned());
    }
}

fn dialog(app: &App, first: bool) -> Dialog {
    let mut dialog = Dialog::new("Let this console lead?", "Let this console lead", DialogAction::Lead { first });
    dialog.lines = lines(app);
    dialog.notes = if first {
        vec!["asked once: the answer is kept on this host, for this cluster".to_owned()]
    } else {
        vec!["for this session; the policy console_leads decides for every console".to_owned()]
    };
    dialog.why = ReasonPolicy::Never;
    dialog
}

/// Returns what leading means, and what waits for it.
fn lines(app: &App) -> Vec<String> {
    let work = QueueKind::QUEUES.map(|queue| {
        let counts = app.knowledge.totals.counts(queue);
        let noun = match queue {
            QueueKind::Reboot => "reboot",
            QueueKind::Repair => "repair",
            QueueKind::Maintenance => "maintenance",
        };
        count(counts.queued + counts.backoff + counts.draining + counts.after, noun)
    });
    let daemon = match app.seen.snapshot.store.daemon_seen() {
        Some(host) => format!("! a daemon has registered on {host}: it leads too once it is started again"),
        None => "no daemon has ever registered for this cluster".to_owned(),
    };
    vec![
        daemon,
        format!("{} and {} in the queues", work[0], work[1]),
        "leading: this process drains nodes and runs the definition's commands until you quit it".to_owned(),
        "back: it only observes; the queues wait until an engine leads".to_owned(),
    ]
}
