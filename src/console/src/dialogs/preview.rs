//! Lines of a preview that need no query: waves, start and duration of the work.

use cketerm_model::{entry::QueueKind, names::Address, policy::ApiServerOrder};
use cketerm_rules::{eta::text::Detail, forecast::forecast, start::Bar};

use crate::state::{
    App, calendar,
    dialog::{Dialog, DialogAction, plan::Plan},
    eta,
    event::{Action, count},
    overview::{control_plane, start},
    when,
};

/// Repeats the query while the dialog stays open, and shows the answer's age if there is no new one.
pub fn renew(app: &App, dialog: &mut Dialog) {
    if let Some(plan) = &mut dialog.plan {
        plan.renew(app.now, |at| calendar::time(app, at));
    }
}

/// Updates the lines that need no query, but not at every change. The durations of similar entries are read while the
/// dialog is open.
pub fn refresh(app: &App, dialog: &mut Dialog) {
    let store = &app.seen.snapshot.store;
    let is_due = |plan: &mut Plan| plan.renews_known(app.now, store, &app.knowledge.usual);
    if !dialog.plan.as_mut().is_some_and(is_due) {
        return;
    }
    let known = match &dialog.action {
        DialogAction::Act(Action::AddReboots { addresses, .. }) => reboots(app, addresses),
        DialogAction::Act(Action::AddRepairs { addresses, .. }) => repairs(app, addresses),
        _ => return,
    };
    if let Some(plan) = &mut dialog.plan {
        plan.known = known;
    }
}

/// Returns the preview of repairs of these addresses.
pub fn repairs(app: &App, addresses: &[Address]) -> Vec<String> {
    let mut lines = estimate_lines(app, QueueKind::Repair, addresses);
    lines.push("for the steps that drain:".to_owned());
    lines
}

/// Returns the start of the work and its end, based on entries that ended recently.
fn estimate_lines(app: &App, queue: QueueKind, addresses: &[Address]) -> Vec<String> {
    let start = start(app, queue, addresses);
    let clock = |at| calendar::moment(app, at);
    // the dialog itself shows that the queue is disabled, with the key that enables it
    let bar = start.bar.iter().filter(|bar| **bar != Bar::Disabled);
    let mut lines: Vec<String> = bar.map(|bar| format!("! nothing starts {}", bar.described(clock))).collect();
    let unknown = start.bar.as_ref().is_some_and(|bar| !matches!(bar, Bar::Before(..)));
    if let Some(Ok(estimate)) = eta::answers(app, queue, &start, addresses, 1, &|_| None).first() {
        let end = if unknown {
            format!("about {} once it starts", when::span(estimate.planned().likely.duration_since(estimate.at)))
        } else {
            estimate.described(Detail::Full, clock)
        };
        lines.push(format!("{end}, after what is queued, like the last {}", estimate.samples));
    }
    lines
}

/// Returns the preview of reboots of these addresses: waves, and the duration based on entries that ended recently.
pub fn reboots(app: &App, addresses: &[Address]) -> Vec<String> {
    let snap = &app.seen.snapshot;
    let Some(definition) = snap.store.definition() else { return Vec::new() };
    let slots = definition.cluster.reboot.concurrency();
    let mut lines = Vec::new();
    let queue_forecast = (!snap.kube.nodes.is_empty())
        .then(|| forecast(&snap.store, &snap.kube, addresses, app.now))
        .flatten()
        .unwrap_or_default();
    if queue_forecast.waves() > 1 {
        let first = snap.store.policy().api_server_order == ApiServerOrder::First;
        let order = if first { ", API servers first and alone" } else { ", API servers last and alone" };
        let order = if addresses.iter().any(|address| control_plane(app, address)) { order } else { "" };
        lines.push(format!("{} of at most {slots} at once{order}", count(queue_forecast.waves(), "wave")));
    }
    lines.extend(estimate_lines(app, QueueKind::Reboot, addresses));
    lines
}
