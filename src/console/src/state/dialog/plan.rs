//! Preview of a bulk action. Waves and throughput are shown at once, pods and blockers after Kubernetes has answered.

use std::{sync::Arc, time::Duration};

use cketerm_actions::plan::{Drains, LandingCheck};
use cketerm_model::{clock::Now, entry::QueueKind, stored::view::StoreView};
use cketerm_rules::usual::UsualTimes;
use jiff::Timestamp;

use crate::state::{estimate_inputs, event::count};

/// Age of an answer after which it is queried again.
const RENEW_INTERVAL: Duration = Duration::from_secs(15);
/// Limit of these queries, so that a forgotten dialog does not query pods all night.
const MAX_RENEWALS: u8 = 8;
/// Age of an answer from which it is shown.
const STALE_AFTER: Duration = Duration::from_secs(45);
/// Number of nodes that are named with their blockers.
const MAX_NAMED: usize = 12;

/// Shortest and longest time between two updates of the lines that need no query. They play many possible futures of the
/// queue.
const KNOWN_INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// State that the lines were made from which need no query.
#[derive(Clone, Debug, PartialEq)]
struct KnownOf {
    at: Now,
    /// The copy of etcd.
    store: Arc<StoreView>,
    usual: Arc<UsualTimes>,
}

/// A preview in progress.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Number of the dialog; an answer for another one is dropped.
    pub number: u64,
    /// Queue whose rules apply.
    pub queue: QueueKind,
    /// Nodes whose drains are previewed.
    pub nodes: Vec<String>,
    /// Whether the dialog names work on one of the machines that is held up now.
    is_held: bool,
    /// Whether Kubernetes was queried.
    pub requested: bool,
    /// Lines that need no query.
    pub known: Vec<String>,
    /// State that these lines were made from.
    known_of: Option<KnownOf>,
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
            is_held: false,
            requested: false,
            known,
            known_of: None,
            pod_lines: None,
            checked_at: None,
            last_renewed: None,
            renewals: 0,
            stale_since: None,
        }
    }

    /// Notes whether the dialog names work on one of the machines that is held up now.
    #[must_use]
    pub fn with_held(self, is_held: bool) -> Self {
        Self { is_held, ..self }
    }

    /// Reports whether the lines that need no query are to be made again, and notes that they are.
    pub fn renews_known(&mut self, now: Now, store: &Arc<StoreView>, usual: &Arc<UsualTimes>) -> bool {
        let (shortest, longest) = KNOWN_INTERVALS;
        let is_fresh = self.known_of.as_ref().is_some_and(|of| {
            let age = now.boot.saturating_duration_since(of.at.boot);
            Arc::ptr_eq(&of.usual, usual)
                && (age < shortest || (age < longest && estimate_inputs::are_same(&of.store, store)))
        });
        if !is_fresh {
            self.known_of = Some(KnownOf { at: now, store: Arc::clone(store), usual: Arc::clone(usual) });
        }
        !is_fresh
    }

    /// Takes over an answer.
    pub fn take(&mut self, answer: Result<Drains, String>, now: Now) {
        (self.checked_at, self.stale_since) = (Some(now), None);
        self.pod_lines = Some(match answer {
            Ok(drains) => lines(&drains, self.is_held),
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

fn lines(drains: &Drains, is_held: bool) -> Vec<String> {
    let mut lines = vec![format!(
        "pods on {} now: {} to evict, {} to delete, {} stay{}",
        count(drains.nodes, "node"),
        drains.evict,
        drains.delete,
        drains.stay,
        if drains.more > 0 { format!("; {} more not checked", count(drains.more, "node")) } else { String::new() },
    )];
    if drains.blocked.is_empty() && drains.unread.is_empty() {
        lines.push(if is_held { "nothing else blocks a drain now" } else { "nothing blocks a drain now" }.to_owned());
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
    if drains.unexplained > 0 {
        lines.push(format!("the cause behind {} was not looked up", count(drains.unexplained, "more budget")));
    }
    lines.extend(landing_lines(&drains.landing));
    for (name, why) in drains.unread.iter().take(3) {
        lines.push(format!("! {name}: pods not read: {why}"));
    }
    lines
}

/// Returns the lines about the landing check: what it found, or why it was not made.
fn landing_lines(check: &LandingCheck) -> Vec<String> {
    match check {
        LandingCheck::NotMade => Vec::new(),
        LandingCheck::TooLarge { most } => {
            vec![format!("where pods can land was not checked here: over {most} Nodes; `cketerm rq plan` reads more")]
        }
        LandingCheck::Failed(why) => vec![format!("! where pods can land was not checked: {why}")],
        LandingCheck::Made { all, mutual, too_many, unchecked } => {
            let mut lines: Vec<String> = mutual.iter().take(MAX_NAMED).map(|nodes| format!("! {nodes}")).collect();
            if mutual.len() > MAX_NAMED {
                lines.push(format!("! {} more pairs of nodes wait for each other", mutual.len() - MAX_NAMED));
            }
            lines.extend(too_many.iter().take(MAX_NAMED).map(|wave| format!("! {wave}")));
            if too_many.len() > MAX_NAMED {
                lines
                    .push(format!("! {} lack capacity for their pods", count(too_many.len() - MAX_NAMED, "more wave")));
            }
            if !all.pods.is_empty() {
                lines.push(format!("landing check: {}", all.summary()));
                lines.extend(all.lines().iter().map(|line| line.replacen(' ', "   ", 1)));
            }
            if *unchecked > 0 {
                let waves = count(*unchecked, "more wave");
                lines.push(format!("where the pods of {waves} can land was not checked"));
            }
            lines
        }
    }
}

#[cfg(test)]
mod tests {
    use cketerm_model::{
        boot_time::{BootTime, Seconds},
        entry::Stored,
    };

    use super::*;

    #[test]
    fn the_lines_that_need_no_query_are_made_at_most_once_a_second() {
        let mut plan = Plan::new(QueueKind::Reboot, Vec::new(), Vec::new());
        let now = |boot: f64| Now { boot: BootTime::new(0.0) + Seconds::new(boot), wall: Timestamp::UNIX_EPOCH };
        let store = |policy: i64| {
            let policy = Stored { key: "p".into(), mod_revision: policy, value: Err("not read".into()) };
            Arc::new(StoreView { policy: Some(policy), ..StoreView::default() })
        };
        let usual = Arc::default();
        let mut renewals = 0;
        for change in 0_u16..100 {
            renewals += u32::from(plan.renews_known(now(f64::from(change) / 50.0), &store(i64::from(change)), &usual));
        }
        assert_eq!(renewals, 2);
        assert!(!plan.renews_known(now(4.0), &store(50), &usual), "the policy of the last time");
        assert!(plan.renews_known(now(6.5), &store(50), &usual), "time passes");
        assert!(plan.renews_known(now(6.6), &store(50), &Arc::default()), "the history was read");
    }
}
