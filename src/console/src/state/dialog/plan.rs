//! Preview of a bulk action. Waves and throughput are shown at once, pods and blockers after Kubernetes has answered.

use std::time::Duration;

use cketerm_actions::plan::Drains;
use cketerm_model::{clock::Now, entry::QueueKind};
use jiff::Timestamp;

use crate::state::event::count;

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

    /// Repeats the query while the dialog stays open. If there is no new answer, it shows the age of the last one, as
    /// `time` formats it.
    pub fn renew(&mut self, now: Now, time: impl Fn(Timestamp) -> String) {
        let Some(checked_at) = self.checked_at else { return };
        let age = now.boot.saturating_duration_since(checked_at.boot);
        if age > STALE_AFTER {
            self.stale_since = Some(time(checked_at.wall));
        } else if age > RENEW_INTERVAL && self.stale_since.is_none() && self.requested && self.renewals < MAX_RENEWALS {
            // once for each answer
            let again = self.last_renewed == Some(checked_at);
            self.requested = again;
            self.last_renewed = Some(checked_at);
            self.renewals += u8::from(!again);
        }
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
