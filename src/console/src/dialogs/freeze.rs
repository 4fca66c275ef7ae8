//! Dialogs of `:freeze` and `:unfreeze`.

use cketerm_model::time::ahead_words;
use jiff::{Timestamp, tz::TimeZone};

use crate::state::{
    App, calendar,
    dialog::{Dialog, DialogAction, Precondition, ReasonPolicy},
    event::Action,
    totals::Counts,
    when,
};

/// Opens the dialog that freezes; the argument has the duration or the end, and the reason.
pub fn freeze(app: &App, argument: &str) -> Result<Dialog, String> {
    let now = app.now.wall;
    let (until, reason) = ahead_words(argument, now, &calendar::zone(app).unwrap_or(TimeZone::UTC))?;
    let reason = reason.trim().to_owned();
    if reason.is_empty() {
        return Err("freeze TIME REASON: the reason is missing, every header shows it".to_owned());
    }
    let title = format!("Freeze both queues until {}?", calendar::moment(app, until));
    let action = DialogAction::Act(Action::Freeze { until, reason: reason.clone() });
    let mut dialog = Dialog::new(title, "Freeze both queues", action);
    dialog.lines = lines(app, until);
    dialog.why = ReasonPolicy::Required;
    dialog.set_reason(reason);
    // bound to nothing: a stop has to succeed whatever was written meanwhile
    Ok(dialog)
}

/// Updates the counts.
pub fn follow(app: &App, dialog: &mut Dialog) {
    if let DialogAction::Act(Action::Freeze { until, .. }) = &dialog.action {
        dialog.lines = lines(app, *until);
    }
}

/// Returns the effects of a freeze on the queues' entries.
fn lines(app: &App, until: Timestamp) -> Vec<String> {
    let (reboots, repairs) = (&app.knowledge.totals.reboots, &app.knowledge.totals.repairs);
    let sum = |of: fn(&Counts) -> usize| of(reboots) + of(repairs);
    let mut lines = ends(app, until);
    lines.extend([
        "no drain, reboot or repair begins".to_owned(),
        format!("{} draining: stopped and uncordoned, backoff counts kept", sum(|c| c.draining)),
        format!("{} rebooting or watching: continue to their checks", sum(|c| c.after)),
    ]);
    lines.extend(calendar::frozen(app).map(|before| format!("! replaces: {before}")));
    lines
}

/// Returns the end of a freeze: how far it is away, and when it is, in the windows' zone and in UTC.
fn ends(app: &App, until: Timestamp) -> Vec<String> {
    let ahead = when::until(until, app.now.wall);
    let utc = until.strftime("%F %H:%M:%SZ");
    match calendar::zone(app) {
        Some(zone) => {
            let name = zone.iana_name().map(|name| format!(" ({name})")).unwrap_or_default();
            let local = until.to_zoned(zone).strftime("%F %H:%M:%S %Z").to_string();
            vec![format!("ends {ahead}: {local}{name}"), format!("in UTC: {utc}")]
        }
        None => vec![format!("ends {ahead}: {utc} (UTC: the windows have no time_zone)")],
    }
}

/// Opens the dialog that ends a freeze. The button is enough; a reason can be typed with the command.
pub fn unfreeze(app: &App, reason: &str) -> Result<Dialog, String> {
    let frozen = calendar::frozen(app).ok_or("nothing is frozen")?;
    let action = DialogAction::Act(Action::Unfreeze { reason: None });
    let mut dialog = Dialog::new("End the freeze?", "End the freeze", action);
    let waiting = app.knowledge.totals.reboots.queued + app.knowledge.totals.repairs.queued;
    dialog.lines = vec![frozen, format!("{waiting} queued: the next pass may start some")];
    if reason.is_empty() {
        dialog.why = ReasonPolicy::Never;
    } else {
        dialog.set_reason(reason.to_owned());
    }
    dialog.preconditions =
        vec![Precondition::Policy(app.seen.snapshot.store.policy.as_ref().map_or(0, |stored| stored.mod_revision))];
    Ok(dialog)
}
