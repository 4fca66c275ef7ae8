//! Lines of a preview that need no query: waves, start and duration of the work.

use cketerm_model::{entry::QueueKind, names::Address, policy::ApiServerOrder};
use cketerm_rules::{forecast::forecast, start::Bar};

use crate::state::{
    App, calendar,
    dialog::{Dialog, DialogAction},
    eta::sequential_count,
    event::{Action, count},
    overview::{control_plane, start, throughput_of},
    when,
};

/// Repeats the query while the dialog stays open, and shows the answer's age if there is no new one.
pub fn renew(app: &App, dialog: &mut Dialog) {
    if let Some(plan) = &mut dialog.plan {
        plan.renew(app.now, |at| calendar::time(app, at));
    }
}

/// Updates the lines that need no query. The durations of similar entries are read while the dialog is open.
pub fn refresh(app: &App, dialog: &mut Dialog) {
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
    let slots = app.seen.snapshot.store.definition().map(|d| d.cluster.repair.concurrency());
    let mut lines = estimate_lines(app, QueueKind::Repair, slots, addresses);
    lines.push("for the steps that drain:".to_owned());
    lines
}

/// Returns the start of the work and its duration on its own, based on entries that ended recently.
fn estimate_lines(app: &App, queue: QueueKind, slots: Option<i64>, addresses: &[Address]) -> Vec<String> {
    let start = start(app, queue, addresses);
    let clock = |at| calendar::moment(app, at);
    // the dialog itself shows that the queue is disabled, with the key that enables it
    let bar = start.bar.iter().filter(|bar| **bar != Bar::Disabled);
    let mut lines: Vec<String> = bar.map(|bar| format!("! nothing starts {}", bar.described(clock))).collect();
    lines.extend(throughput_of(app, queue, slots, start.bar.is_some()).map(|throughput| {
        // repairs have no rule of their own for API servers
        let api_server = |address: &&Address| queue == QueueKind::Reboot && control_plane(app, address);
        let alone = addresses.iter().filter(api_server).count();
        let slots = slots.and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
        let total_time = when::span(throughput.total_time(sequential_count(addresses.len(), alone, slots)));
        format!(
            "about {total_time} for them alone, one every {} like the last {}",
            when::span(throughput.interval),
            throughput.of
        )
    }));
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
    lines.extend(estimate_lines(app, QueueKind::Reboot, Some(slots), addresses));
    lines
}
