//! Preview of a bulk action. Waves and throughput are shown at once, pods and blockers after Kubernetes has answered.

use std::time::Duration;

use cketerm_actions::plan::Drains;
use cketerm_model::{clock::Now, entry::QueueKind, policy::ApiServerOrder};
use cketerm_rules::{forecast::forecast, start::Bar};

use super::{Dialog, DialogAction};
use crate::{
    app::App,
    calendar,
    eta::sequential_count,
    event::{Action, count},
    overview::{control_plane, start, throughput_of},
    when,
};

/// Age of an answer after which it is queried again.
const RENEW_INTERVAL: Duration = Duration::from_secs(15);
/// Limit of these queries, so that a forgotten dialog does not query pods all night.
const MAX_RENEWALS: u8 = 8;
/// Age of an answer from which it is shown.
const STALE_AFTER: Duration = Duration::from_secs(45);
/// Number of nodes that are named with their blockers.
const MAX_NAMED: usize = 12;

/// A preview in progress.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Number of the dialog; an answer for another one is dropped.
    pub number: u64,
    /// Queue whose rules apply.
    pub queue: QueueKind,
    /// Nodes whose drains are previewed.
    pub nodes: Vec<String>,
    /// Whether Kubernetes was queried.
    pub requested: bool,
    /// Lines that need no query.
    pub known: Vec<String>,
    /// Answer of Kubernetes, in lines.
    pub pod_lines: Option<Vec<String>>,
    /// Time of the answer.
    pub checked_at: Option<Now>,
    /// Time of the answer after which the query was repeated.
    last_renewed: Option<Now>,
    /// Number of repeated queries.
    renewals: u8,
    /// Time of the answer, once it is old because the repeated query was not answered.
    pub stale_since: Option<String>,
}

impl Plan {
    /// Creates a preview of these drains.
    pub fn new(queue: QueueKind, nodes: Vec<String>, known: Vec<String>) -> Self {
        Self {
            number: 0,
            queue,
            nodes,
            requested: false,
            known,
            pod_lines: None,
            checked_at: None,
            last_renewed: None,
            renewals: 0,
            stale_since: None,
        }
    }

    /// Takes over an answer.
    pub fn take(&mut self, answer: Result<Drains, String>, now: Now) {
        (self.checked_at, self.stale_since) = (Some(now), None);
        self.pod_lines = Some(match answer {
            Ok(drains) => lines(&drains),
            Err(why) => vec![format!("! pods not checked: {why}")],
        });
    }

    /// Returns the dialog's lines about the preview.
    pub fn lines(&self) -> Vec<String> {
        let pods = match &self.pod_lines {
            Some(pod_lines) => pod_lines.clone(),
            None if self.nodes.is_empty() => Vec::new(),
            None => vec![format!("pods on {}: asking Kubernetes ...", count(self.nodes.len(), "node"))],
        };
        let why = if self.renewals < MAX_RENEWALS {
            "Kubernetes has not answered since"
        } else {
            "reopen the dialog to refresh"
        };
        let stale_since = self.stale_since.iter().map(|at| format!("! pods as of {at}: {why}"));
        self.known.iter().cloned().chain(stale_since).chain(pods).collect()
    }
}

fn lines(drains: &Drains) -> Vec<String> {
    let mut lines = vec![format!(
        "pods on {} now: {} to evict, {} to delete, {} stay{}",
        count(drains.nodes, "node"),
        drains.evict,
        drains.delete,
        drains.stay,
        if drains.more > 0 { format!("; {} more not checked", count(drains.more, "node")) } else { String::new() },
    )];
    if drains.blocked.is_empty() && drains.unread.is_empty() {
        lines.push("nothing blocks a drain now".to_owned());
    }
    if !drains.blocked.is_empty() {
        lines.push(format!("! {} would be blocked now:", count(drains.blocked.len(), "node")));
    }
    for (name, blockers) in drains.blocked.iter().take(MAX_NAMED) {
        let more = if blockers.len() > 1 { format!(" (and {} more)", blockers.len() - 1) } else { String::new() };
        let first = blockers.first().map(|b| format!("{}: {}", b.pod, b.why)).unwrap_or_default();
        lines.push(format!("!   {name}: {first}{more}"));
    }
    if drains.blocked.len() > MAX_NAMED {
        lines.push(format!("!   and {} more", drains.blocked.len() - MAX_NAMED));
    }
    for (name, why) in drains.unread.iter().take(3) {
        lines.push(format!("! {name}: pods not read: {why}"));
    }
    lines
}

/// Repeats the query while the dialog stays open, and shows the answer's age if there is no new one.
pub fn renew(app: &App, dialog: &mut Dialog) {
    let Some(plan) = &mut dialog.plan else { return };
    let Some(checked_at) = plan.checked_at else { return };
    let age = app.now.boot.saturating_sub(checked_at.boot);
    if age > STALE_AFTER {
        plan.stale_since = Some(calendar::time(app, checked_at.wall));
    } else if age > RENEW_INTERVAL && plan.stale_since.is_none() && plan.requested && plan.renewals < MAX_RENEWALS {
        // once for each answer
        let again = plan.last_renewed == Some(checked_at);
        plan.requested = again;
        plan.last_renewed = Some(checked_at);
        plan.renewals += u8::from(!again);
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
pub fn repairs(app: &App, addresses: &[String]) -> Vec<String> {
    let slots = app.seen.snapshot.store.definition().map(|d| d.cluster.repair.concurrency());
    let mut lines = estimate_lines(app, QueueKind::Repair, slots, addresses);
    lines.push("for the steps that drain:".to_owned());
    lines
}

/// Returns the start of the work and its duration on its own, based on entries that ended recently.
fn estimate_lines(app: &App, queue: QueueKind, slots: Option<i64>, addresses: &[String]) -> Vec<String> {
    let start = start(app, queue, addresses.iter().map(String::as_str));
    let clock = |at| calendar::moment(app, at);
    // the dialog itself shows that the queue is disabled, with the key that enables it
    let bar = start.bar.iter().filter(|bar| **bar != Bar::Disabled);
    let mut lines: Vec<String> = bar.map(|bar| format!("! nothing starts {}", bar.described(clock))).collect();
    lines.extend(throughput_of(app, queue, slots, start.bar.is_some()).map(|throughput| {
        // repairs have no rule of their own for API servers
        let api_server = |address: &&String| queue == QueueKind::Reboot && control_plane(app, address);
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
pub fn reboots(app: &App, addresses: &[String]) -> Vec<String> {
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
