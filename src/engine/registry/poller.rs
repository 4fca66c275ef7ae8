//! Asks sabakan and plans, off the loop: every `sabakan_poll_seconds`, by who leads and by consoles.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{sync::watch, task::JoinSet};

use super::{Asked, Basis, Good, Registry, propose};
use crate::{
    clock::Clock,
    engine::snapshot::secs,
    kubernetes::Live as KubeLive,
    model::{
        cluster::Taint,
        entry::Stored,
        kube::{Index, KubeView, NodeRow},
        policy::{Policy, Strategy},
    },
    net::Http,
    sabakan::{
        Machines,
        client::{self, AskError, Question},
        variables,
    },
    store::{live::Live, view::StoreView},
    tasks::held,
};

/// Asks and plans until it is dropped.
pub struct InventoryPoller {
    wanted: watch::Sender<Want>,
    seen: watch::Receiver<Arc<Registry>>,
    task: tokio::task::JoinHandle<()>,
}

/// What a plan of the definition is wanted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plans {
    /// Nothing: neither machines nor plans are kept.
    #[default]
    None,
    /// To be shown: it may be some seconds behind the machines in work.
    Shown,
    /// To be applied: it has to be of this moment.
    Applied,
}

/// What is wanted of sabakan.
#[derive(Clone, Copy, Default, PartialEq)]
struct Want {
    /// Anything at all.
    any: bool,
    /// The machines of a definition, and a plan of it.
    plans: Plans,
    /// An answer about broken machines that came after this boot time.
    broken_after: Option<f64>,
}

impl Drop for InventoryPoller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl InventoryPoller {
    /// Starts; nothing is asked before it is wanted.
    pub fn start(live: Arc<Live>, kube: Option<Arc<KubeLive>>, http: Http, clock: Clock) -> Self {
        let (wanted, want) = watch::channel(Want::default());
        let (publish, seen) = watch::channel(Arc::<Registry>::default());
        let keeping = Keeping {
            live,
            kube,
            http,
            clock,
            registry: Registry::default(),
            asks: JoinSet::new(),
            asking: Vec::new(),
            planned: None,
            planned_at: 0.0,
            nodes: None,
            publish,
        };
        Self { wanted, seen, task: crate::tasks::spawn(keeping.run(want)) }
    }

    /// Whether anybody wants to know at all, what plans of the definition are wanted for, and whether an answer about
    /// broken machines must be newer than this boot time.
    pub fn want(&self, any: bool, plans: Plans, broken_after: Option<f64>) {
        self.wanted.send_if_modified(|was| {
            let want = Want { any, plans, broken_after };
            std::mem::replace(was, want) != want
        });
    }

    /// What is known now.
    pub fn seen(&self) -> Arc<Registry> {
        self.seen.borrow().clone()
    }

    /// The same, to be looked at later.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Registry>> {
        self.seen.clone()
    }

    /// Resolves when something new is known.
    pub async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// An answer, what was asked, when, and with which revisions of URL and variables.
type Answered = (Question, (i64, i64), Timestamp, Result<Machines, AskError>);

struct Keeping {
    live: Arc<Live>,
    kube: Option<Arc<KubeLive>>,
    http: Http,
    clock: Clock,
    registry: Registry,
    asks: JoinSet<Answered>,
    asking: Vec<Question>,
    /// What the last plan was made from.
    planned: Option<PlannedFrom>,
    /// Boot-time seconds at which it was made.
    planned_at: f64,
    /// The Nodes' taints, and the Nodes from which they were taken.
    nodes: Option<(Nodes, Arc<Taints>)>,
    publish: watch::Sender<Arc<Registry>>,
}

/// By name.
type Nodes = Index<Arc<NodeRow>>;

/// The revisions and machines in work, the time of the answer, the Nodes' taints.
type PlannedFrom = (Basis, f64, Option<Arc<Taints>>);

/// Seconds between two plans that differ by the machines in work alone.
const REST: f64 = 5.0;

/// Of the Nodes, by name.
type Taints = BTreeMap<String, Vec<Taint>>;

fn wanted_nodes(policy: &Policy) -> bool {
    policy.strategy == Strategy::AllHealthy
}

/// Resolves when the Nodes may have changed; never where there are none.
async fn changed(nodes: Option<&mut watch::Receiver<Arc<KubeView>>>) {
    let Some(nodes) = nodes else { return std::future::pending().await };
    if nodes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Keeping {
    async fn run(mut self, mut want: watch::Receiver<Want>) {
        let mut store_changed = self.live.subscribe();
        let mut nodes_changed = self.kube.as_ref().map(|kube| kube.subscribe());
        loop {
            // only one strategy looks at the Nodes
            let by_nodes = wanted_nodes(&store_changed.borrow().policy());
            let view = store_changed.borrow_and_update().clone();
            let wanted = *want.borrow_and_update();
            let mut sleep = Duration::from_hours(1);
            if wanted.any && view.synced {
                sleep = self.ask_what_is_due(&view, wanted);
                match wanted.plans {
                    Plans::None => self.forget_members(),
                    plans => sleep = sleep.min(self.plan(&view, plans)),
                }
            }
            tokio::select! {
                biased;
                Some(done) = self.asks.join_next() => {
                    if let Ok(answered) = done {
                        self.take(answered);
                    }
                }
                gone = want.changed() => if gone.is_err() { return },
                gone = store_changed.changed() => if gone.is_err() { return },
                () = changed(nodes_changed.as_mut()), if by_nodes => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Asks what is due and is not being asked; how long until the next is.
    fn ask_what_is_due(&mut self, view: &StoreView, want: Want) -> Duration {
        let (now, settings) = (secs(self.clock.boot()), &view.registry);
        let Some(url) = settings.url.as_ref() else { return Duration::from_hours(1) };
        let poll = Duration::from_secs(view.policy().sabakan_poll_seconds.max(1)).as_secs_f64();
        let mut next = poll;
        for (question, stored) in
            [(Question::Members, &settings.variables), (Question::Broken, &settings.repair_variables)]
        {
            if question == Question::Members && want.plans == Plans::None {
                continue;
            }
            let with = (url.mod_revision, stored.as_ref().map_or(0, |s| s.mod_revision));
            let mut due = self.due(question, with, view, now, poll);
            let older = |after: f64| self.asked(question).at.is_none_or(|at| at < after);
            if question == Question::Broken && want.broken_after.is_some_and(older) {
                due = now;
            }
            if due > now {
                next = next.min(due - now);
                continue;
            }
            if question == Question::Broken
                && !(view.auto_repair.enabled() && view.constraints().maximum_repair_queue_entries > 0)
            {
                continue;
            }
            if self.asking.contains(&question) {
                continue;
            }
            self.asked_mut(question).at = Some(now);
            let text = stored.as_ref().and_then(Stored::get).cloned();
            let parsed = text.map_or_else(|| Ok(serde_json::Map::new()), |t| variables::parse(&t));
            let (http, url, asked) = (self.http.clone(), url.get().cloned().unwrap_or_default(), self.clock.wall());
            match parsed {
                Ok(parsed) => {
                    self.asking.push(question);
                    self.asks.spawn(held(async move {
                        (question, with, asked, client::ask(&http, &url, question, &parsed).await)
                    }));
                }
                Err(why) => {
                    let slot = self.asked_mut(question);
                    slot.error = Some(format!("{why}; set them again with `set-variables`"));
                    self.tell();
                }
            }
        }
        Duration::try_from_secs_f64(next.max(0.05)).unwrap_or(Duration::from_secs(1))
    }

    /// When (boot time) the next question is due: after the poll, at once with another URL or other variables, and
    /// soon when an approval names what we do not know.
    fn due(&self, question: Question, with: (i64, i64), view: &StoreView, now: f64, poll: f64) -> f64 {
        let asked = self.asked(question);
        let Some(at) = asked.at else { return now };
        let another = asked.good.as_ref().is_some_and(|g| g.with != with) && at + 1.0 <= now;
        let unknown = question == Question::Members && {
            let digest = self.registry.proposal.as_ref().and_then(|p| p.outcome.as_ref().ok()).map(|p| &p.digest);
            let newer = asked.good.as_ref().map(|g| g.asked);
            view.registry
                .approvals
                .iter()
                .any(|(d, a)| Some(d) != digest && a.get().is_some_and(|a| newer.is_none_or(|asked| a.at > asked)))
        };
        if another || (unknown && at + 1.0 <= now) {
            now
        } else if unknown {
            at + 1.0
        } else {
            at + poll
        }
    }

    fn asked(&self, question: Question) -> &Asked {
        match question {
            Question::Members => &self.registry.members,
            Question::Broken => &self.registry.broken,
        }
    }

    fn asked_mut(&mut self, question: Question) -> &mut Asked {
        match question {
            Question::Members => &mut self.registry.members,
            Question::Broken => &mut self.registry.broken,
        }
    }

    fn take(&mut self, (question, with, asked, answer): Answered) {
        let (at, wall) = (secs(self.clock.boot()), self.clock.wall());
        self.asking.retain(|q| *q != question);
        if question == Question::Members {
            let began = self.registry.members.at.unwrap_or(at);
            self.registry.took = Duration::try_from_secs_f64(at - began).unwrap_or_default().as_secs();
        }
        let slot = self.asked_mut(question);
        slot.at = Some(at);
        match answer {
            Ok(machines) => {
                for warning in &machines.warnings {
                    tracing::warn!(warning, "sabakan");
                }
                slot.good = Some(Good { machines: Arc::new(machines), at, wall, asked, with });
                slot.error = None;
            }
            Err(e) => {
                let why = e.to_string();
                tracing::warn!(why, "sabakan is not understood, the last good answer is kept and not acted on");
                slot.error = Some(why);
            }
        }
        self.tell();
    }

    /// Plans anew where what it is made from has changed; how long until it is to be looked at again.
    fn plan(&mut self, view: &StoreView, plans: Plans) -> Duration {
        const NEVER: Duration = Duration::MAX;
        let Some(good) = self.registry.members.good.clone() else { return NEVER };
        let basis = Basis::of(view);
        let taints = if wanted_nodes(&view.policy()) { self.taints() } else { None };
        let from = (basis, good.at, taints);
        if good.with != from.0.question || self.planned.as_ref() == Some(&from) {
            return NEVER;
        }
        let now = secs(self.clock.boot());
        if let Some(rest) = self.may_rest(&from, plans, now) {
            return rest;
        }
        let proposal = propose(view, &good, from.2.as_deref(), self.clock.wall());
        self.planned = Some(from);
        self.planned_at = now;
        self.registry.proposal = Some(Arc::new(proposal));
        self.tell();
        NEVER
    }

    /// Machines that come into work and leave it are many, and seldom change what was settled: where nothing else has
    /// changed, a plan that changes nothing, or that nobody here applies, is made again after a rest, and this is what is
    /// left of it.
    fn may_rest(&self, from: &PlannedFrom, plans: Plans, now: f64) -> Option<Duration> {
        let changes = self.registry.proposal.as_ref()?.outcome.as_ref().map_or(true, |p| p.plan.changed);
        let (basis, at, taints) = self.planned.as_ref()?;
        let only_busy = (*at, taints) == (from.1, &from.2) && basis.but_for_busy(&from.0);
        rest(changes, plans, only_busy, now - self.planned_at)
    }

    /// Nobody wants a definition: nothing is kept of what one would be made of.
    fn forget_members(&mut self) {
        if self.registry.members.at.is_some() || self.registry.proposal.is_some() {
            self.registry.members = Asked::default();
            self.registry.proposal = None;
            self.planned = None;
            self.tell();
        }
    }

    /// The taints of the Nodes by name; `None` while Kubernetes has not told all of them.
    fn taints(&mut self) -> Option<Arc<Taints>> {
        let kube = self.kube.as_ref()?.borrow();
        if !kube.synced() {
            return None;
        }
        if let Some((rows, taints)) = self.nodes.as_ref().filter(|(rows, _)| rows.ptr_eq(&kube.by_name)) {
            debug_assert_eq!(rows.len(), taints.len());
            return Some(Arc::clone(taints));
        }
        let taints = kube.by_name.iter().map(|(n, row)| (n.clone(), row.described.taints.clone()));
        let taints = Arc::new(taints.collect::<Taints>());
        self.nodes = Some((kube.by_name.clone(), Arc::clone(&taints)));
        Some(taints)
    }

    fn tell(&self) {
        self.publish.send_replace(Arc::new(self.registry.clone()));
    }
}

/// How long a plan that is `old` seconds old still rests, though machines came into work or left it: never one that the
/// leader is to apply.
fn rest(changes: bool, plans: Plans, only_busy: bool, old: f64) -> Option<Duration> {
    let settled = !changes || plans != Plans::Applied;
    let left = REST - old;
    (settled && only_busy && left > 0.0).then(|| Duration::from_secs_f64(left.min(REST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Review 12 of the engineer: nothing failed where a leader that applies its plan rested.
    #[test]
    fn a_plan_that_the_leader_is_to_apply_is_made_anew_at_once_and_others_rest() {
        assert_eq!(rest(true, Plans::Applied, true, 0.0), None);
        let whole = Some(Duration::from_secs_f64(REST));
        assert_eq!(rest(false, Plans::Applied, true, 0.0), whole, "it changes nothing");
        assert_eq!(rest(true, Plans::Shown, true, 0.0), whole, "nobody here applies it");
        assert_eq!(rest(true, Plans::Shown, false, 0.0), None, "something else has changed too");
        assert_eq!(rest(true, Plans::Shown, true, REST), None, "it has rested");
        assert_eq!(rest(true, Plans::Shown, true, -9.0), whole, "a clock that went back");
    }
}
