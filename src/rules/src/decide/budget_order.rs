//! Order of workers that respects budgets (policy `worker_order: budgets`, REB-68). No node starts whose pods share a
//! budget with a node in progress, unless the budget allows all of them at once. Such a node is overtaken by later ones,
//! but not by those whose index is more than `max_overtakes` above its own: so no entry is overtaken more often.

use std::collections::BTreeMap;

use cketerm_model::{
    entry::{EntryId, QueueKind},
    kube::BudgetRow,
    names::NodeName,
    policy::WorkerOrder,
    reason::Reason,
};

use super::{
    Pass,
    budget_room::BudgetUse,
    entry_context::EntryContext,
    pods::{PodVerdict, classify_pod},
};

/// Most candidates beyond the free slots whose pods are watched.
const MAX_LOOKAHEAD: u64 = 30;

/// First entry of each queue that waits for a budget of a node in progress.
type FirstHeld = BTreeMap<QueueKind, EntryId>;

/// Budgets of the machines in progress, for the choice of further ones.
pub(super) struct BudgetOrder<'a> {
    /// Pods that are still to be evicted from draining nodes, by budget, and one of the entries.
    in_work: BTreeMap<String, (i32, EntryId)>,
    /// A draining node whose pods are not listed, so that it is not known which budgets they share.
    unlisted: Option<(EntryContext<'a>, NodeName)>,
    /// Evictions under way.
    used: BudgetUse,
    max_overtakes: u64,
    first_held: FirstHeld,
    /// Number of further candidates whose pods are watched.
    lookahead: usize,
}

impl<'a> Pass<'a> {
    /// Returns the budgets of the draining nodes, or `None` if the policy keeps the order of the queue.
    pub(super) fn budget_order(&self, free: usize) -> Option<BudgetOrder<'a>> {
        if self.policy.worker_order != WorkerOrder::Budgets {
            return None;
        }
        let max_overtakes = self.policy.max_overtakes;
        let ahead = usize::try_from(max_overtakes.min(MAX_LOOKAHEAD)).unwrap_or(0);
        let mut order = BudgetOrder {
            in_work: BTreeMap::new(),
            unlisted: None,
            used: BudgetUse::of(self.snap),
            max_overtakes,
            first_held: FirstHeld::new(),
            lookahead: free.saturating_add(ahead),
        };
        for (address, id) in &self.claims.machines {
            let Some(ctx) = self.context_of(*id, address).filter(EntryContext::is_draining) else { continue };
            let Some(node) = self.node_of(ctx) else { continue };
            match self.demand(&node.name, id.queue) {
                Some(demand) => order.add(demand, *id),
                None => order.unlisted = Some((ctx, node.name.clone())),
            }
        }
        Some(order)
    }

    /// Returns the number of pods to evict from a node for each budget; none while its pods are not listed.
    fn demand(&self, node: &NodeName, queue: QueueKind) -> Option<BTreeMap<String, i32>> {
        let kube = &self.snap.kube;
        let pods = kube.pods.get(node).filter(|pods| pods.synced)?;
        let rules = self.definition?.cluster.eviction(queue);
        let mut demand = BTreeMap::new();
        for pod in pods.pods.values() {
            if matches!(classify_pod(pod, rules, kube), PodVerdict::Evict { protected: true }) {
                for budget in kube.budgets_of(pod).filter(|budget| budget.judges(pod)) {
                    *demand.entry(budget.full_name()).or_default() += 1;
                }
            }
        }
        Some(demand)
    }

    /// Watches the pods of a worker that waits for a slot, so that they are listed when one is free.
    pub(super) fn look_ahead(&mut self, order: &mut BudgetOrder<'a>, ctx: EntryContext<'a>) {
        if order.lookahead > 0
            && let Some(node) = self.node_of(ctx)
        {
            order.lookahead -= 1;
            self.out.watch_pods.insert(node.name.clone());
        }
    }

    /// Admits one more worker, or returns the reason why it does not start yet.
    pub(super) fn admit_by_budgets(&mut self, order: &mut BudgetOrder<'a>, ctx: EntryContext<'a>) -> Option<Reason> {
        if let Some((draining, node)) = &order.unlisted {
            return Some(self.pods_not_listed(*draining, node));
        }
        let first = order.first_held.get(&ctx.queue()).copied();
        let is_bound = |first: &EntryId| ctx.id.index > first.index.saturating_add(order.max_overtakes);
        if let Some(first) = first.filter(|first| is_bound(first) || order.lookahead == 0) {
            return Some(Reason::WaitingForBudget { budget: String::new(), holder: first, overtaken: true });
        }
        let node = self.node_of(ctx)?.name.clone();
        self.look_ahead(order, ctx);
        let Some(demand) = self.demand(&node, ctx.queue()) else {
            return Some(self.pods_not_listed(ctx, &node));
        };
        if let Some((budget, holder)) = order.conflict(&demand, |name| self.budget_row(name)) {
            order.first_held.entry(ctx.queue()).or_insert(ctx.id);
            return Some(Reason::WaitingForBudget { budget, holder, overtaken: false });
        }
        order.add(demand, ctx.id);
        None
    }

    pub(super) fn budget_row(&self, full_name: &str) -> Option<&BudgetRow> {
        let (namespace, name) = full_name.split_once('/')?;
        self.snap.kube.budgets.get(&(namespace.to_owned(), name.to_owned())).map(AsRef::as_ref)
    }
}

impl BudgetOrder<'_> {
    fn add(&mut self, demand: BTreeMap<String, i32>, id: EntryId) {
        for (budget, n) in demand {
            let known = self.in_work.entry(budget).or_insert((0, id));
            known.0 = known.0.saturating_add(n);
        }
    }

    /// Returns the first budget that does not allow these pods and those of the nodes in progress at once, with the
    /// entry of such a node.
    fn conflict<'b>(
        &self,
        demand: &BTreeMap<String, i32>,
        row: impl Fn(&str) -> Option<&'b BudgetRow>,
    ) -> Option<(String, EntryId)> {
        demand.iter().find_map(|(name, wanted)| {
            let (in_work, holder) = self.in_work.get(name).filter(|(n, _)| *n > 0)?;
            let row = row(name)?;
            let room = row.allowed.saturating_sub(self.used.of_budget(row));
            (room < in_work.saturating_add(*wanted)).then(|| (name.clone(), *holder))
        })
    }
}
