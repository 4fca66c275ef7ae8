//! Background queries of sabakan and planning, every `sabakan_poll_seconds`, for the leader and for consoles (SAB-64).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_clients::{
    kubernetes::Live as KubeLive,
    net::Http,
    sabakan as client,
    sabakan::{QueryError, Question},
    store::live::Live,
};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    clock::Clock,
    cluster::Taint,
    entry::Stored,
    kube::{Index, KubeView, NodeRow},
    names::NodeName,
    policy::{Membership, Policy, Strategy},
    stored::view::StoreView,
};
use cketerm_rules::registry::{Basis, GoodAnswer, Proposal, QueryState, Registry, propose};
use cketerm_runtime::tasks::{OwnedTask, held};
use cketerm_sabakan::{
    Machines,
    unchanged::{PlannedMachines, give_the_same_plan},
    variables,
};
use jiff::Timestamp;
use tokio::{sync::watch, task::JoinSet};

use crate::node_membership::NodeMembership;

/// Background task that queries and plans until it is dropped.
pub struct InventoryPoller {
    wanted: watch::Sender<Demand>,
    seen: watch::Receiver<Arc<Registry>>,
    _task: OwnedTask,
}

/// Purpose of a plan of the definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plans {
    /// None: neither machines nor plans are kept.
    #[default]
    None,
    /// Display. The plan may be some seconds behind the machines in progress.
    Shown,
    /// Application. The plan must be up to date.
    Applied,
}

/// Purpose of the queries.
#[derive(Clone, Copy, Default, PartialEq)]
struct Demand {
    /// Whether anything is wanted at all.
    any: bool,
    /// Purpose of the plan, for which the definition's machines are queried.
    plans: Plans,
    /// Boot time after which an answer about broken machines is wanted.
    broken_after: Option<BootTime>,
}

impl InventoryPoller {
    /// Starts the task. It sends no query before one is wanted.
    pub fn start(live: Arc<Live>, kube: Option<Arc<KubeLive>>, http: Http, clock: Clock) -> Self {
        let (wanted, want) = watch::channel(Demand::default());
        let (publish, seen) = watch::channel(Arc::<Registry>::default());
        let poller_task = PollerTask::new(live, kube, http, clock, publish);
        Self { wanted, seen, _task: OwnedTask::spawn(poller_task.run(want)) }
    }

    /// Sets whether anything is wanted at all, the purpose of plans, and the boot time after which an answer about
    /// broken machines is wanted.
    pub fn want(&self, any: bool, plans: Plans, broken_after: Option<BootTime>) {
        self.wanted.send_if_modified(|was| {
            let want = Demand { any, plans, broken_after };
            std::mem::replace(was, want) != want
        });
    }

    /// Returns the current state.
    pub fn seen(&self) -> Arc<Registry> {
        self.seen.borrow().clone()
    }

    /// Subscribes to the state.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Registry>> {
        self.seen.clone()
    }

    /// Resolves when the state has changed.
    pub async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// An answer, with its query, the time of the request, and the revisions of URL and variables.
type Answered = (Question, (i64, i64), Timestamp, Result<Machines, QueryError>);

struct PollerTask {
    live: Arc<Live>,
    kube: Option<Arc<KubeLive>>,
    http: Http,
    clock: Clock,
    registry: Registry,
    asks: JoinSet<Answered>,
    asking: Vec<Question>,
    /// Inputs of the last plan.
    planned: Option<PlannedFrom>,
    /// Boot time of the last plan.
    planned_at: BootTime,
    /// Machines and wall time of the last plan, or of the last check that it still holds.
    planned_machines: Option<(Arc<Machines>, Timestamp)>,
    /// Taints of the Nodes, and the Nodes that they were taken from.
    nodes: Option<(Nodes, Arc<Taints>)>,
    /// Members without a Node, if the definition follows the Nodes.
    membership: NodeMembership,
    publish: watch::Sender<Arc<Registry>>,
}

/// Nodes by name.
type Nodes = Index<NodeName, Arc<NodeRow>>;

/// Revisions and machines in progress, time of the answer, taints of the Nodes.
type PlannedFrom = (Basis, BootTime, Option<Arc<Taints>>);

/// Time between two plans that differ only by the machines in progress.
const CACHE_TIME: Seconds = Seconds::new(5.0);

/// Taints of the Nodes, by name.
type Taints = BTreeMap<NodeName, Vec<Taint>>;

fn needs_taints(policy: &Policy) -> bool {
    policy.strategy == Strategy::AllHealthy
}

fn needs_nodes(policy: &Policy) -> bool {
    needs_taints(policy) || policy.membership == Membership::Nodes
}

/// Resolves when the Nodes may have changed; never without Kubernetes.
async fn changed(nodes: Option<&mut watch::Receiver<Arc<KubeView>>>) {
    let Some(nodes) = nodes else { return std::future::pending().await };
    if nodes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl PollerTask {
    fn new(
        live: Arc<Live>,
        kube: Option<Arc<KubeLive>>,
        http: Http,
        clock: Clock,
        publish: watch::Sender<Arc<Registry>>,
    ) -> Self {
        Self {
            live,
            kube,
            http,
            clock,
            registry: Registry::default(),
            asks: JoinSet::new(),
            asking: Vec::new(),
            planned: None,
            planned_at: BootTime::ZERO,
            planned_machines: None,
            nodes: None,
            membership: NodeMembership::default(),
            publish,
        }
    }

    async fn run(mut self, mut want: watch::Receiver<Demand>) {
        let mut store_changed = self.live.subscribe();
        let mut nodes_changed = self.kube.as_ref().map(|kube| kube.subscribe());
        loop {
            // Only one strategy and one source of members use the Nodes.
            let by_nodes = needs_nodes(&store_changed.borrow().policy());
            let view = store_changed.borrow_and_update().clone();
            let wanted = *want.borrow_and_update();
            let mut sleep = Duration::from_hours(1);
            if wanted.any && view.synced {
                sleep = self.send_due_queries(&view, wanted);
                match (wanted.plans, view.policy().membership) {
                    (Plans::None, _) => self.forget_members(),
                    (_, Membership::Nodes) => sleep = sleep.min(self.plan_from_nodes(&view)),
                    (plans, _) => sleep = sleep.min(self.plan(&view, plans)),
                }
            }
            tokio::select! {
                biased;
                Some(done) = self.asks.join_next() => {
                    if let Ok(answered) = done {
                        self.accept_answer(answered);
                    }
                }
                gone = want.changed() => if gone.is_err() { return },
                gone = store_changed.changed() => if gone.is_err() { return },
                () = changed(nodes_changed.as_mut()), if by_nodes => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Sends the queries that are due and not under way; returns the time until the next one.
    fn send_due_queries(&mut self, view: &StoreView, want: Demand) -> Duration {
        let (now, settings) = (self.clock.boot(), &view.registry);
        let Some(url) = settings.url.as_ref() else { return Duration::from_hours(1) };
        let poll = Seconds::from(view.policy().sabakan_poll_seconds.max(1));
        let mut next = poll;
        for (question, stored) in
            [(Question::Members, &settings.variables), (Question::Broken, &settings.repair_variables)]
        {
            if question == Question::Members && want.plans == Plans::None {
                continue;
            }
            let with = (url.mod_revision, stored.as_ref().map_or(0, |s| s.mod_revision));
            let mut due = self.due(question, with, view, now, poll);
            let older = |after: BootTime| self.query_state(question).at.is_none_or(|at| at < after);
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
            self.query_state_mut(question).at = Some(now);
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
                    let slot = self.query_state_mut(question);
                    slot.error = Some(format!("{why}; set them again with `set-variables`"));
                    self.publish_state();
                }
            }
        }
        next.max(Seconds::new(0.05)).into()
    }

    /// Returns the boot time at which the next query is due. It is due after the poll interval, at once after a change
    /// of URL or variables, and soon if an approval names an unknown change.
    fn due(&self, question: Question, with: (i64, i64), view: &StoreView, now: BootTime, poll: Seconds) -> BootTime {
        let state = self.query_state(question);
        let Some(at) = state.at else { return now };
        let soon = at + Seconds::new(1.0);
        let another = state.good.as_ref().is_some_and(|g| g.with != with) && soon <= now;
        let unknown = question == Question::Members && {
            let digest = self.registry.proposal.as_ref().and_then(|p| p.outcome.as_ref().ok()).map(|p| &p.digest);
            let newer = state.good.as_ref().map(|g| g.asked);
            view.registry
                .approvals
                .iter()
                .any(|(d, a)| Some(d) != digest && a.get().is_some_and(|a| newer.is_none_or(|asked| a.at > asked)))
        };
        if another || (unknown && soon <= now) {
            now
        } else if unknown {
            soon
        } else {
            at + poll
        }
    }

    fn query_state(&self, question: Question) -> &QueryState {
        match question {
            Question::Members => &self.registry.members,
            Question::Broken => &self.registry.broken,
        }
    }

    fn query_state_mut(&mut self, question: Question) -> &mut QueryState {
        match question {
            Question::Members => &mut self.registry.members,
            Question::Broken => &mut self.registry.broken,
        }
    }

    fn accept_answer(&mut self, (question, with, asked, answer): Answered) {
        let (at, wall) = (self.clock.boot(), self.clock.wall());
        self.asking.retain(|q| *q != question);
        if question == Question::Members {
            let began = self.registry.members.at.unwrap_or(at);
            self.registry.took = at.saturating_duration_since(began).as_secs();
        }
        let slot = self.query_state_mut(question);
        slot.at = Some(at);
        match answer {
            Ok(machines) => {
                for warning in &machines.warnings {
                    tracing::warn!(warning, "sabakan");
                }
                slot.good = Some(GoodAnswer { machines: Arc::new(machines), at, wall, asked, with });
                slot.error = None;
            }
            Err(e) => {
                let why = e.to_string();
                tracing::warn!(why, "sabakan's answer is invalid; the last good one is only displayed");
                slot.error = Some(why);
            }
        }
        self.publish_state();
    }

    /// Plans again if the inputs have changed; returns the time until the next check.
    fn plan(&mut self, view: &StoreView, plans: Plans) -> Duration {
        const NEVER: Duration = Duration::MAX;
        let Some(good) = self.registry.members.good.clone() else { return NEVER };
        let basis = Basis::of(view);
        let taints = if needs_taints(&view.policy()) { self.taints() } else { None };
        let from = (basis, good.at, taints);
        if good.with != from.0.question || self.planned.as_ref() == Some(&from) {
            return NEVER;
        }
        let now = self.clock.boot();
        if let Some(remaining_cache_time) = self.cache_time(&from, plans, now) {
            return remaining_cache_time;
        }
        let wall = self.clock.wall();
        let proposal = match self.plan_that_still_holds(&from, &good, view, wall) {
            Some(held) => Proposal { asked: good.asked, ..held },
            None => propose(view, &good, from.2.as_deref(), wall),
        };
        self.planned_machines = Some((Arc::clone(&good.machines), wall));
        self.planned = Some(from);
        self.planned_at = now;
        self.registry.proposal = Some(Arc::new(proposal));
        self.publish_state();
        NEVER
    }

    /// Returns the last plan if it changes nothing, has no warning, and would be the same from this answer. Answers
    /// seldom differ by more than durations, so that most of them cost no plan.
    fn plan_that_still_holds(
        &self,
        from: &PlannedFrom,
        good: &GoodAnswer,
        view: &StoreView,
        wall: Timestamp,
    ) -> Option<Proposal> {
        let (basis, _, taints) = self.planned.as_ref()?;
        let (machines, planned_at) = self.planned_machines.as_ref()?;
        let last = self.registry.proposal.as_ref()?;
        let is_quiet = last.outcome.as_ref().is_ok_and(|p| !p.plan.changed && p.plan.warnings.is_empty());
        let was = PlannedMachines { machines: &machines.list, now: *planned_at };
        let is = PlannedMachines { machines: &good.machines.list, now: wall };
        let wait = Seconds::from(view.policy().removal_wait_seconds);
        let holds = is_quiet && (basis, taints) == (&from.0, &from.2) && give_the_same_plan(was, is, wait);
        holds.then(|| Proposal::clone(last))
    }

    /// Plans from the Nodes; returns the time until the next look.
    fn plan_from_nodes(&mut self, view: &StoreView) -> Duration {
        let Some(kube) = self.kube.as_ref().map(|kube| kube.borrow()) else { return Duration::MAX };
        let look = self.membership.look(view, &kube, self.clock.boot(), self.clock.wall());
        if let Some(proposal) = look.proposal {
            let same = |old: &Arc<Proposal>| old.basis == proposal.basis && old.outcome == proposal.outcome;
            if !self.registry.proposal.as_ref().is_some_and(same) {
                self.registry.proposal = Some(Arc::new(proposal));
                self.publish_state();
            }
        }
        look.next.into()
    }

    /// Returns how long a plan may still be kept although the machines in progress have changed. They change often, and
    /// that seldom changes the result. If nothing else has changed, the plan is kept for a while, provided that it
    /// changes nothing or that this engine does not apply it.
    fn cache_time(&self, from: &PlannedFrom, plans: Plans, now: BootTime) -> Option<Duration> {
        let changes = self.registry.proposal.as_ref()?.outcome.as_ref().map_or(true, |p| p.plan.changed);
        let (basis, at, taints) = self.planned.as_ref()?;
        let only_busy = (*at, taints) == (from.1, &from.2) && basis.equals_ignoring_busy(&from.0);
        remaining_cache_time(changes, plans, only_busy, now - self.planned_at)
    }

    /// Drops the members and the plan when no plan is wanted.
    fn forget_members(&mut self) {
        self.membership = NodeMembership::default();
        if self.registry.members.at.is_some() || self.registry.proposal.is_some() {
            self.registry.members = QueryState::default();
            self.registry.proposal = None;
            self.planned = None;
            self.planned_machines = None;
            self.publish_state();
        }
    }

    /// Returns the taints of the Nodes by name; `None` until Kubernetes has listed all Nodes.
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

    fn publish_state(&self) {
        self.publish.send_replace(Arc::new(self.registry.clone()));
    }
}

/// Returns how long a plan of the age `old` may be kept although the machines in progress have changed. A plan
/// that the leader applies is never kept.
fn remaining_cache_time(changes: bool, plans: Plans, only_busy: bool, old: Seconds) -> Option<Duration> {
    let settled = !changes || plans != Plans::Applied;
    let left = CACHE_TIME - old;
    (settled && only_busy && left > Seconds::ZERO).then(|| left.min(CACHE_TIME).into())
}

#[cfg(test)]
mod tests;
