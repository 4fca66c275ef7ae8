//! Dialogs of `:maintenance` and `:end-maintenance`.

use cketerm_model::{names::Address, time::ahead_words};
use jiff::tz::TimeZone;

use crate::state::{
    App, calendar,
    dialog::{Dialog, DialogAction, Precondition, ReasonPolicy},
    event::{Action, count},
    queries, short_text, when,
};

/// Opens the dialog that takes the chosen nodes out for maintenance; the argument has the duration or the end, and the reason.
pub fn begin(app: &App, argument: &str) -> Result<Dialog, String> {
    let now = app.now.wall;
    let (until, reason) = ahead_words(argument, now, &calendar::zone(app).unwrap_or(TimeZone::UTC))?;
    let reason = reason.trim().to_owned();
    if reason.is_empty() {
        return Err("maintenance TIME REASON: the reason is missing, everybody sees it".to_owned());
    }
    let nodes = chosen(app)?;
    let (mut addresses, mut lines, mut preconditions) = (Vec::new(), Vec::new(), Vec::new());
    for name in &nodes {
        let Some(member) = queries::member(&app.seen, name) else {
            return Err(format!("{name} is not in the cluster definition"));
        };
        if let Some(id) = app.knowledge.totals.maintenance_of(name) {
            return Err(format!("{name} is in maintenance already ({id}): end it first"));
        }
        let uid = queries::node(&app.seen, name).map_or("", |node| node.uid.as_str());
        preconditions.push(Precondition::Node(name.clone(), uid.to_owned()));
        addresses.push(member.address.clone());
        let role = if member.control_plane { "  API server: no other one is rebooted meanwhile" } else { "" };
        lines.push(format!("{name}  {}{role}", member.address));
    }
    lines.push(format!("ends {}: {}", when::until(until, now), calendar::moment(app, until)));
    lines.push("drained by the rules of a reboot, kept cordoned, not rebooted".to_owned());
    let what = count(nodes.len(), "node");
    let action = Action::Maintenance { addresses, until, reason: reason.clone() };
    let mut dialog = Dialog::new(
        format!("Take {what} out for maintenance?"),
        format!("Drain and keep {what}"),
        DialogAction::Act(action),
    );
    dialog.lines = lines;
    dialog.why = ReasonPolicy::Required;
    dialog.set_reason(reason);
    dialog.preconditions = preconditions;
    Ok(dialog)
}

/// Opens the dialog that ends the maintenance of the chosen nodes. The button is enough; a reason can be typed with the
/// command.
pub fn end(app: &App, reason: &str) -> Result<Dialog, String> {
    let mut addresses: Vec<Address> = Vec::new();
    let mut lines = Vec::new();
    for name in chosen(app)? {
        let maintenance = app.knowledge.totals.maintenance_of(&name).and_then(|id| queries::maintenance(&app.seen, id));
        let Some(entry) = maintenance else { return Err(format!("{name} is not in maintenance")) };
        addresses.push(entry.node.clone());
        lines.push(format!("{name}  {}", short_text::maintenance_state(entry, app.now.wall)));
    }
    lines.push("each is uncordoned once it is Ready".to_owned());
    let what = count(addresses.len(), "node");
    let action = Action::EndMaintenance { addresses, reason: None };
    let mut dialog =
        Dialog::new(format!("End the maintenance of {what}?"), "End the maintenance", DialogAction::Act(action));
    dialog.lines = lines;
    if reason.is_empty() {
        dialog.why = ReasonPolicy::Never;
    } else {
        dialog.set_reason(reason.to_owned());
    }
    Ok(dialog)
}

fn chosen(app: &App) -> Result<Vec<String>, String> {
    let nodes = app.chosen_nodes();
    if nodes.is_empty() { Err(app.nothing_selected("node")) } else { Ok(nodes) }
}
