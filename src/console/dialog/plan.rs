//! The preview of a bulk action: waves and pace at once, pods and blockers as soon as Kubernetes has answered.

use std::time::Duration;

use super::{Dialog, DialogAction};
use crate::{
    actions::{forecast::forecast, plan::Drains, start::Bar},
    clock::Now,
    console::{
        app::App,
        calendar,
        eta::as_one_by_one,
        event::{Action, count},
        overview::{control_plane, pace_of, start},
        when,
    },
    model::{entry::QueueKind, policy::ApiServerOrder},
};

/// After so long an answer is asked for anew.
const RENEWED: Duration = Duration::from_secs(15);
/// So often: a dialog that was forgotten does not ask for pods all night.
const RENEWALS: u8 = 8;
/// After so long it is said how old it is.
const OLD: Duration = Duration::from_secs(45);
/// Nodes that are named with what blocks them.
const NAMED: usize = 12;

/// A preview under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which dialog asks: an answer for another one is thrown away.
    pub number: u64,
    /// By the rules of which queue.
    pub queue: QueueKind,
    /// The Nodes whose drains are previewed.
    pub nodes: Vec<String>,
    /// Kubernetes was asked.
    pub asked: bool,
    /// What is known without asking.
    pub known: Vec<String>,
    /// What was answered, in lines.
    pub told: Option<Vec<String>>,
    /// When that was.
    pub told_at: Option<Now>,
    /// The answer after which it was asked anew.
    renewed: Option<Now>,
    /// How often it was asked anew.
    renewals: u8,
    /// The hour of it, once that is long ago: the question that was to renew it has not been answered.
    pub old: Option<String>,
}

impl Plan {
    /// A preview of these drains.
    pub fn new(queue: QueueKind, nodes: Vec<String>, known: Vec<String>) -> Self {
        Self {
            number: 0,
            queue,
            nodes,
            asked: false,
            known,
            told: None,
            told_at: None,
            renewed: None,
            renewals: 0,
            old: None,
        }
    }

    /// Takes an answer in.
    pub fn take(&mut self, answer: Result<Drains, String>, now: Now) {
        (self.told_at, self.old) = (Some(now), None);
        self.told = Some(match answer {
            Ok(drains) => lines(&drains),
            Err(why) => vec![format!("! pods were not looked at: {why}")],
        });
    }

    /// What the dialog says of it.
    pub fn lines(&self) -> Vec<String> {
        let pods = match &self.told {
            Some(told) => told.clone(),
            None if self.nodes.is_empty() => Vec::new(),
            None => vec![format!("pods on {}: asking Kubernetes ...", count(self.nodes.len(), "node"))],
        };
        let why =
            if self.renewals < RENEWALS { "Kubernetes has not answered since" } else { "Esc and the key ask anew" };
        let old = self.old.iter().map(|at| format!("! pods as of {at}: {why}"));
        self.known.iter().cloned().chain(old).chain(pods).collect()
    }
}

fn lines(drains: &Drains) -> Vec<String> {
    let mut lines = vec![format!(
        "pods on {} now: {} to evict, {} to delete, {} stay{}",
        count(drains.nodes, "node"),
        drains.evict,
        drains.delete,
        drains.stay,
        if drains.more > 0 {
            format!("; {} more were not looked at", count(drains.more, "node"))
        } else {
            String::new()
        },
    )];
    if drains.blocked.is_empty() && drains.unread.is_empty() {
        lines.push("nothing blocks a drain now".to_owned());
    }
    if !drains.blocked.is_empty() {
        lines.push(format!("! {} would be held up now:", count(drains.blocked.len(), "node")));
    }
    for (name, blockers) in drains.blocked.iter().take(NAMED) {
        let more = if blockers.len() > 1 { format!(" (and {} more)", blockers.len() - 1) } else { String::new() };
        let first = blockers.first().map(|b| format!("{}: {}", b.pod, b.why)).unwrap_or_default();
        lines.push(format!("!   {name}: {first}{more}"));
    }
    if drains.blocked.len() > NAMED {
        lines.push(format!("!   and {} more", drains.blocked.len() - NAMED));
    }
    for (name, why) in drains.unread.iter().take(3) {
        lines.push(format!("! {name}: its pods were not read: {why}"));
    }
    lines
}

/// Asks anew what a dialog that stands open was told some time ago; says how old it is where no answer comes.
pub fn renew(app: &App, dialog: &mut Dialog) {
    let Some(plan) = &mut dialog.plan else { return };
    let Some(told_at) = plan.told_at else { return };
    let age = app.now.boot.saturating_sub(told_at.boot);
    if age > OLD {
        plan.old = Some(calendar::time(app, told_at.wall));
    } else if age > RENEWED && plan.old.is_none() && plan.asked && plan.renewals < RENEWALS {
        // once for each answer
        let again = plan.renewed == Some(told_at);
        plan.asked = again;
        plan.renewed = Some(told_at);
        plan.renewals += u8::from(!again);
    }
}

/// What is known without asking, anew: how long similar entries took is read while the dialog stands.
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

/// How repairs of these addresses would go.
pub fn repairs(app: &App, addresses: &[String]) -> Vec<String> {
    let slots = app.seen.snapshot.store.definition().map(|d| d.cluster.repair.concurrency());
    let mut lines = how_long(app, QueueKind::Repair, slots, addresses);
    lines.push("what steps that drain would meet:".to_owned());
    lines
}

/// From when on something starts, and how long so many take by themselves, by those that ended lately.
fn how_long(app: &App, queue: QueueKind, slots: Option<i64>, addresses: &[String]) -> Vec<String> {
    let start = start(app, queue, addresses.iter().map(String::as_str));
    let clock = |at| calendar::moment(app, at);
    // the dialog says by itself that the queue is disabled, with the key that enables it
    let bar = start.bar.iter().filter(|bar| **bar != Bar::Disabled);
    let mut lines: Vec<String> = bar.map(|bar| format!("! nothing starts {}", bar.said(clock))).collect();
    lines.extend(pace_of(app, queue, slots, start.bar.is_some()).map(|throughput| {
        // repairs have no rule of their own for API servers
        let api_server = |address: &&String| queue == QueueKind::Reboot && control_plane(app, address);
        let alone = addresses.iter().filter(api_server).count();
        let slots = slots.and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
        let through = when::span(throughput.through(as_one_by_one(addresses.len(), alone, slots)));
        format!(
            "about {through} for them alone, one every {} as the last {}",
            when::span(throughput.each),
            throughput.of
        )
    }));
    lines
}

/// How reboots of these addresses would go: waves, and how long at the pace of those that ended lately.
pub fn reboots(app: &App, addresses: &[String]) -> Vec<String> {
    let snap = &app.seen.snapshot;
    let Some(definition) = snap.store.definition() else { return Vec::new() };
    let slots = definition.cluster.reboot.concurrency();
    let mut lines = Vec::new();
    let line = (!snap.kube.nodes.is_empty())
        .then(|| forecast(&snap.store, &snap.kube, addresses, app.now))
        .flatten()
        .unwrap_or_default();
    if line.waves() > 1 {
        let first = snap.store.policy().api_server_order == ApiServerOrder::First;
        let order = if first { ", API servers first and alone" } else { ", API servers last and alone" };
        let order = if addresses.iter().any(|address| control_plane(app, address)) { order } else { "" };
        lines.push(format!("{} of at most {slots} at once{order}", count(line.waves(), "wave")));
    }
    lines.extend(how_long(app, QueueKind::Reboot, Some(slots), addresses));
    lines
}
