//! Conditions and a taint on Nodes that tell other programs and people of the work (policies `node_conditions` and
//! `planned_taint_waves`; I67, I68). No rule depends on them, and no drain waits for them.
//!
//! A pass compares what the entries justify with what the Nodes carry, and plans only the differences. A new leader
//! starts from the Nodes alone, so it removes whatever no entry justifies.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    cketerm_records::Verb,
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    fault,
    kube::{ConditionChange, ConditionContent, LifecycleCondition, NodeRow, condition_reason, is_planned_taint},
    maintenance::MaintenanceStatus,
    names::{Address, NodeName},
    policy::ApiServerOrder,
    reboot::RebootStatus,
    repair::StepStatus,
};

use super::{Effect, Guard, Pass, attempts, entry_context::EntryContext};
use crate::snapshot::NodeUpkeep;

/// Number of waves of reboots to come whose Nodes get the condition `MaintenancePlanned`. A queue of thousands would
/// otherwise change as many Nodes at once, and every program that watches Nodes would hear of each.
const PLANNED_WAVES: usize = 2;
/// Maximum number of waves whose Nodes get the taint, whatever the policy says.
const MAX_TAINT_WAVES: u64 = 5;
/// Maximum number of Nodes whose signs are changed at once by a leader that resigns, which has only seconds for it.
const CLEARED_AT_ONCE: usize = 64;

/// Phase of the work on a machine, as far as the conditions tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkPhase {
    /// An entry waits for its turn.
    Planned,
    /// The Node is being drained.
    Draining,
    /// A command runs or has run, and the machine has not recovered.
    InWork {
        /// Whether the Node was drained for it.
        drained: bool,
    },
}

impl WorkPhase {
    /// Reports whether a condition holds in this phase.
    fn has(self, condition: LifecycleCondition) -> bool {
        match condition {
            LifecycleCondition::MaintenancePlanned => self == Self::Planned,
            LifecycleCondition::DrainInProgress => self == Self::Draining,
            LifecycleCondition::Drained => self == Self::InWork { drained: true },
            LifecycleCondition::MaintenanceInProgress => matches!(self, Self::InWork { .. }),
        }
    }
}

/// Work to come that the signs announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    /// That of the next waves.
    NextWaves,
    /// That which they announce already: this leader may start nothing now.
    Known,
    /// None: this leader resigns.
    Nothing,
}

/// Signs that one Node should carry.
#[derive(Clone, Debug, Default)]
struct WantedSigns {
    /// The entry and its phase; none = no condition.
    work: Option<(EntryId, WorkPhase)>,
    /// Whether the Node should have the taint.
    taint: bool,
}

type Wanted<'a> = BTreeMap<&'a NodeName, WantedSigns>;

impl<'a> Pass<'a> {
    /// Plans the changes of conditions and taints. `waiting`: the queued reboots in the order of the queue.
    pub(super) fn plan_node_signs(&mut self, waiting: &[EntryContext<'a>]) {
        let kube = &self.snap.kube;
        let is_off = !self.policy.node_conditions && self.policy.planned_taint_waves == 0;
        if is_off && kube.signed.is_empty() {
            return;
        }
        // With an old copy of etcd it is unknown which entries are in progress.
        if !self.leading() || !self.etcd_synced() || !self.etcd_copy_is_fresh() || !self.kube_synced {
            return;
        }
        // Nor is it known without a definition. But all signs go if both policies are off.
        if self.definition.is_none() && !is_off {
            return;
        }
        let announced = match self.leadership_blocker() {
            None => Announced::NextWaves,
            // The next leader may not know the signs, so none stays for work to come.
            Some(_) if self.snap.engine.resigning.is_some() => Announced::Nothing,
            Some(_) => Announced::Known,
        };
        fault!(SignsOutliveLeader if announced == Announced::Nothing => return);
        let mut wanted = Wanted::new();
        if self.policy.node_conditions {
            self.want_conditions_of_work(announced, &mut wanted);
            self.want_conditions_of_waiting(announced, waiting, &mut wanted);
        }
        self.want_taints(announced, waiting, &mut wanted);
        let nothing = WantedSigns::default();
        let without = kube.signed.iter().filter(|name| !wanted.contains_key(*name)).map(|name| (name, &nothing));
        let most = if announced == Announced::Nothing { CLEARED_AT_ONCE } else { NodeUpkeep::Signs.most_at_once() };
        let mut free = self.free_upkeep(NodeUpkeep::Signs, most);
        for (name, signs) in without.chain(wanted.iter().map(|(name, signs)| (*name, signs))) {
            if free == 0 {
                return;
            }
            free -= usize::from(self.plan_signs_of(name, signs));
        }
    }

    /// Plans the changes of one Node. Returns false if there are none, or if they have to wait.
    fn plan_signs_of(&mut self, name: &NodeName, wanted: &WantedSigns) -> bool {
        let Some(node) = self.snap.kube.by_name.get(name) else { return false };
        // An entry that cannot be read may be in progress, so its conditions stay.
        let is_unreadable = |id| self.snap.store.stored_entry(id).is_some_and(|stored| stored.get().is_none());
        let is_unclear = self.policy.node_conditions
            && wanted.work.is_none()
            && node.owner().is_some_and(|o| is_unreadable(o.entry));
        let conditions = if is_unclear { Vec::new() } else { self.condition_changes(node, wanted.work) };
        let taint = self.taint_change(node, wanted.taint);
        if conditions.is_empty() && taint.is_none() {
            return false;
        }
        fault!(SignsStay if wanted.work.is_none() && !wanted.taint => return false);
        if self.is_about_to_change(name) {
            return false;
        }
        let stored = wanted.work.and_then(|(id, _)| Some((id, self.snap.store.stored_entry(id)?.mod_revision)));
        let guard = stored.map_or_else(Guard::default, |(id, revision)| Guard::of_entry(id, revision));
        let effect = Effect::SetNodeSigns { node: Arc::clone(node), conditions, taint };
        // The effect belongs to no entry: its failure is no reason for the entry to wait.
        self.plan(&NodeUpkeep::Signs.key(name), None, guard, effect)
    }

    /// Returns the conditions of a Node that have to change. Those of other programs stay as they are.
    fn condition_changes(&self, node: &NodeRow, work: Option<(EntryId, WorkPhase)>) -> Vec<ConditionChange> {
        let mut changes = Vec::new();
        for (condition, _) in LifecycleCondition::NAMES {
            let found = node.lifecycle_condition(condition);
            let is_foreign = found.is_some_and(|found| !found.is_own());
            fault!(ForeignConditionTaken => is_foreign = false);
            if is_foreign {
                continue;
            }
            let holds = work.filter(|(_, phase)| phase.has(condition));
            let content = holds.map(|(id, phase)| ConditionContent {
                begins: found.is_none_or(|found| &*found.status != "True"),
                reason: condition_reason(id.queue),
                message: self.condition_message(id, phase),
            });
            let is_same = match (found, &content) {
                (None, None) => true,
                (Some(found), Some(content)) => {
                    !content.begins && *found.reason == *content.reason && *found.message == *content.message
                }
                (None, Some(_)) | (Some(_), None) => false,
            };
            if !is_same {
                changes.push(ConditionChange { condition, content });
            }
        }
        changes
    }

    /// Returns the message of a condition: the action, the entry, and who requested it.
    fn condition_message(&self, id: EntryId, phase: WorkPhase) -> String {
        let request = self.snap.store.requests.get(&id).and_then(Stored::get);
        let requested = request.map_or_else(String::new, |request| {
            let why = request.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!(", requested by {}{why}", request.who)
        });
        match phase {
            WorkPhase::Planned => format!("{id} waits for its turn{requested}"),
            WorkPhase::Draining => format!("cketerm drains the Node for {id}{requested}"),
            WorkPhase::InWork { .. } => format!("cketerm works on the machine for {id}{requested}"),
        }
    }

    /// Returns whether the taint has to be set or removed; none = it is as it should be.
    fn taint_change(&self, node: &NodeRow, wanted: bool) -> Option<bool> {
        let has = node.has_planned_taint();
        fault!(PlannedTaintStays if has => return None);
        // A definition that sets the same taint owns it.
        let defines = || {
            let member = self.definition.and_then(|d| d.members.by_name(&d.cluster, &node.name));
            member.is_some_and(|member| member.node().taints.iter().flatten().any(is_planned_taint))
        };
        (has != wanted && !defines()).then_some(wanted)
    }

    /// Adds the conditions of all machines with work in progress, also while a Node is still cordoned for an entry that is
    /// gone, and of queued repairs.
    fn want_conditions_of_work(&self, announced: Announced, wanted: &mut Wanted<'a>) {
        let snap = self.snap;
        for (address, &id) in &self.claims.machines {
            let Some((node, phase)) = snap.node_of(address).zip(self.phase_in_work(id, address)) else { continue };
            let is_other_node =
                || self.context_of(id, address).is_some_and(|ctx| self.wrong_node(ctx, Some(node)).is_some());
            let shows = match phase {
                WorkPhase::Planned => announced != Announced::Nothing && !is_other_node(),
                WorkPhase::Draining => !is_other_node(),
                WorkPhase::InWork { .. } => true,
            };
            if shows {
                wanted.entry(&node.name).or_default().work = Some((id, phase));
            }
        }
        for node in snap.kube.marked.iter().filter_map(|name| snap.kube.by_name.get(name)) {
            let gone = node.owner().map(|owner| owner.entry).filter(|id| !attempts::has_live_entry(snap, *id));
            if let Some(id) = gone.filter(|id| node.unschedulable && attempts::any_command_began(snap, *id)) {
                let signs = wanted.entry(&node.name).or_default();
                signs.work = signs.work.or_else(|| Some((id, self.begun_work(id, node))));
            }
        }
        for (&index, stored) in &snap.store.repairs.entries {
            let id = EntryId::repair(index);
            let Some(entry) = stored.get().filter(|entry| entry.unfinished() && !entry.claims_machine()) else {
                continue;
            };
            let Some(node) = snap.node_of(&entry.address).filter(|_| !self.is_entry_withheld(id)) else { continue };
            if announced.includes(true, has_planned_condition(node)) {
                wanted.entry(&node.name).or_default().work.get_or_insert((id, WorkPhase::Planned));
            }
        }
    }

    /// Adds the conditions of the next waves of reboots. A queued entry that left them keeps its condition, so that a queue in
    /// motion makes none flap.
    fn want_conditions_of_waiting(&self, announced: Announced, waiting: &[EntryContext<'a>], wanted: &mut Wanted<'a>) {
        let kube = &self.snap.kube;
        let is_first = |ctx: &&EntryContext<'_>| match self.policy.api_server_order {
            ApiServerOrder::Last => !ctx.control_plane(),
            ApiServerOrder::First => ctx.control_plane(),
        };
        let later = waiting.iter().filter(|ctx| !is_first(ctx));
        let in_turn = waiting.iter().filter(is_first).chain(later);
        let mut places = self.wave_size() * PLANNED_WAVES;
        for &ctx in in_turn {
            if places == 0 && kube.signed.is_empty() {
                return;
            }
            let Some(node) = self.node_of(ctx) else { continue };
            let has = kube.signed.contains(&node.name) && has_planned_condition(node);
            if (places == 0 && !has) || self.is_withheld(ctx) || self.wrong_node(ctx, Some(node.as_ref())).is_some() {
                continue;
            }
            let is_next = places > 0;
            places -= usize::from(is_next);
            if announced.includes(is_next, has) {
                let signs = wanted.entry(&node.name).or_default();
                signs.work = signs.work.or(Some((ctx.id, WorkPhase::Planned)));
            }
        }
    }

    /// Returns the phase of the work that has claimed a machine; none = the entry is gone, and nothing runs.
    fn phase_in_work(&self, id: EntryId, address: &Address) -> Option<WorkPhase> {
        let in_work = || match self.snap.node_of(address) {
            Some(node) => self.begun_work(id, node),
            None => WorkPhase::InWork { drained: false },
        };
        match self.snap.store.entry(id).filter(|entry| entry.unfinished()) {
            Some(EntryRef::Reboot(entry)) => match entry.status {
                RebootStatus::Queued => Some(WorkPhase::Planned),
                RebootStatus::Draining => Some(WorkPhase::Draining),
                RebootStatus::Rebooting => Some(in_work()),
                RebootStatus::Cancelled => None,
            },
            Some(EntryRef::Repair(entry)) if !entry.claims_machine() => Some(WorkPhase::Planned),
            Some(EntryRef::Repair(entry)) => match entry.step_status {
                StepStatus::Waiting => Some(WorkPhase::Planned),
                StepStatus::Draining => Some(WorkPhase::Draining),
                StepStatus::Watching => Some(in_work()),
            },
            Some(EntryRef::Maintenance(entry)) => match entry.status {
                MaintenanceStatus::Queued => Some(WorkPhase::Planned),
                MaintenanceStatus::Draining => Some(WorkPhase::Draining),
                MaintenanceStatus::InMaintenance => Some(in_work()),
            },
            // A command outlives a cancelled entry.
            None => self.claims.commands_without_entry.contains_key(address).then(in_work),
        }
    }

    /// Returns the phase of work whose command has begun.
    fn begun_work(&self, id: EntryId, node: &NodeRow) -> WorkPhase {
        let last = self.snap.store.attempts_of(id).next_back().and_then(Stored::get);
        let was_drained = last.is_none_or(|attempt| !attempt.forced && attempt.drain_start.is_some());
        WorkPhase::InWork { drained: node.unschedulable && was_drained }
    }

    /// Adds the taint of the next waves of workers. A Node keeps it for one wave longer, during a backoff and during its
    /// drain, so that it does not flap. During the reboot the cordon takes its place. Control planes get none: they go
    /// one at a time, and few pods can move to or from them.
    fn want_taints(&self, announced: Announced, waiting: &[EntryContext<'a>], wanted: &mut Wanted<'a>) {
        let waves = usize::try_from(self.policy.planned_taint_waves.min(MAX_TAINT_WAVES)).unwrap_or_default();
        if waves == 0 || announced == Announced::Nothing {
            return;
        }
        let snap = self.snap;
        for (address, &id) in &self.claims.workers {
            let is_draining = self.phase_in_work(id, address) == Some(WorkPhase::Draining);
            if let Some(node) = snap.node_of(address).filter(|node| is_draining && node.has_planned_taint()) {
                wanted.entry(&node.name).or_default().taint = true;
            }
        }
        let wave = self.wave_size();
        let mut turn = 0;
        for &ctx in waiting.iter().filter(|ctx| !ctx.control_plane()) {
            if turn == wave * (waves + 1) {
                return;
            }
            let claimed_by_other = self.claims.machines.get(ctx.address).is_some_and(|id| *id != ctx.id);
            if claimed_by_other || self.is_withheld(ctx) || self.drain_window_blocker(ctx).is_some() {
                continue;
            }
            let Some(node) = self.node_of(ctx) else { continue };
            let backs_off = ctx.backoff.1.is_some_and(|until| until > self.now.wall);
            let is_next = turn < wave * waves && !backs_off;
            turn += usize::from(!backs_off);
            let is_new = is_next && !node.unschedulable && self.wrong_node(ctx, Some(node.as_ref())).is_none();
            if announced.includes(is_new, node.has_planned_taint()) {
                wanted.entry(&node.name).or_default().taint = true;
            }
        }
    }

    /// Returns the number of reboots that may be in progress at once.
    fn wave_size(&self) -> usize {
        let limit = self.definition.map_or(0, |definition| definition.cluster.reboot.concurrency());
        usize::try_from(limit).unwrap_or(0)
    }

    /// Reports whether an operator withholds the entry: by a hold, a paused batch, the queue's switch or a freeze.
    fn is_withheld(&self, ctx: EntryContext<'_>) -> bool {
        self.is_entry_withheld(ctx.id) || self.batch_blocker(ctx).is_some()
    }

    fn is_entry_withheld(&self, id: EntryId) -> bool {
        let is_frozen = self.policy.freeze.as_ref().is_some_and(|freeze| freeze.holds(self.now.wall));
        is_frozen
            || !self.queue_enabled(id.queue)
            || self.order(id, 0, Verb::Hold).is_some() // a hold is valid for every revision
            || self.snap.store.paused_batch(id).is_some()
    }
}

impl Announced {
    /// Reports whether work to come is announced. `is_next`: it is in the next waves. `has`: it is announced already.
    fn includes(self, is_next: bool, has: bool) -> bool {
        match self {
            Self::NextWaves => is_next || has,
            Self::Known => has,
            Self::Nothing => false,
        }
    }
}

fn has_planned_condition(node: &NodeRow) -> bool {
    node.lifecycle_condition(LifecycleCondition::MaintenancePlanned).is_some()
}
