//! Answers to whether this console may lead (policy `console_leads`).

use cketerm_model::entry::Stored;
use cketerm_rules::console_leads::{LeadAnswer, NotCampaigning};

use crate::{
    dialogs,
    state::{App, event::Effect, settings::Change},
};

/// Returns the UID of the cluster, if an engine has recorded it.
fn cluster_uid(app: &App) -> Option<String> {
    app.seen.snapshot.store.identity.as_ref().and_then(Stored::get).map(|identity| identity.uid.clone())
}

/// Answers the engine that waits for it: by the answer that is kept on this host, else by a dialog, once. The dialog
/// opens only in a bare view, where it interrupts nothing.
pub(super) fn follow(app: &mut App) {
    let waits = app.seen.snapshot.engine.not_campaigning == Some(NotCampaigning::Unasked);
    if !waits || app.session.lead_answered || app.read_only() {
        return;
    }
    let Some(uid) = cluster_uid(app) else { return };
    if let Some(yes) = app.session.lead_answers.get(&uid) {
        let answer = if *yes { LeadAnswer::Yes } else { LeadAnswer::No };
        app.session.lead_answered = true;
        app.session.effects.push(Effect::AnswerLead(answer));
        return;
    }
    let typing = app.typing.filter.is_some() || app.typing.line.is_some();
    if app.dialog.is_some() || app.picker.is_some() || typing || app.navigation.has_layer() {
        return;
    }
    app.session.lead_answered = true;
    app.dialog = dialogs::lead::first(app);
}

/// Opens the dialog of the key.
pub(super) fn begin(app: &mut App) -> Vec<Effect> {
    if app.read_only() {
        app.print_error("this console was started read-only: start it without --read-only to let it lead");
        return Vec::new();
    }
    match dialogs::lead::open(app) {
        Ok(opened) => super::verbs::show(app, opened),
        Err(why) => app.print_error(why),
    }
    Vec::new()
}

/// Takes the answer of a dialog. The answer to the dialog that opened by itself is kept on this host.
pub(super) fn answered(app: &mut App, first: bool, yes: bool) -> Vec<Effect> {
    if !first && !yes {
        return Vec::new();
    }
    let mut effects = Vec::new();
    if first && let Some(uid) = cluster_uid(app) {
        app.session.lead_answers.insert(uid.clone(), yes);
        if app.config.saves_settings {
            effects.push(Effect::SaveSettings(Change::Lead(uid, yes)));
        }
    }
    if yes {
        app.print("campaigning: this console leads in a moment");
    }
    effects.push(Effect::AnswerLead(match (yes, first) {
        (true, true) => LeadAnswer::Yes,
        (true, false) => LeadAnswer::ThisSession,
        (false, _) => LeadAnswer::No,
    }));
    effects
}
