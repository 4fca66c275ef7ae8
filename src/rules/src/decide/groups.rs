//! Groups of the reboot queue: at most `limit` racks, zones or other groups are in progress at once (REB-18, policy
//! `groups`).
//!
//! A group is in progress while one of its machines is `draining` or `rebooting`. Its other machines then start before
//! those of other groups, whatever their index. A group does not count if all of its machines in progress are stuck.
//! The next group may then start, and the other machines of the stuck group wait until no other group has anything to
//! start.

use std::collections::BTreeMap;

use cketerm_model::{
    entry::{EntryId, QueueKind},
    names::Address,
    reason::Reason,
    reboot::RebootStatus,
};

use super::{
    Pass,
    attempts::CommandState,
    entry_context::{EntryContext, EntryKind},
};
use crate::outcomes::has_counted_as_stuck;

/// A group in progress.
#[derive(Clone, Copy)]
struct GroupWork {
    holder: EntryId,
    stuck: bool,
}

/// The groups of a pass.
pub(super) struct GroupSlots {
    /// Name of the policy's grouping, for messages.
    by: String,
    /// Maximum number of groups in progress that are not stuck.
    limit: usize,
    /// Groups in progress, by name.
    in_work: BTreeMap<String, GroupWork>,
    /// Group of each worker that is a candidate, by address.
    of: BTreeMap<Address, String>,
}

impl<'a> Pass<'a> {
    /// Returns the groups in progress and the groups of these workers, or `None` if the policy has no groups.
    pub(super) fn groups(&self, workers: &[EntryContext<'a>]) -> Option<GroupSlots> {
        let groups = self.policy.groups.as_ref()?;
        let mut in_work: BTreeMap<String, GroupWork> = BTreeMap::new();
        for (address, &holder) in &self.claims.workers {
            let Some(ctx) = self.context_of(holder, address) else { continue };
            let stuck = self.is_stuck(ctx);
            let group = in_work.entry(groups.of(&self.labels_of(ctx)));
            let known = group.or_insert(GroupWork { holder, stuck });
            if known.stuck && !stuck {
                *known = GroupWork { holder, stuck };
            }
        }
        let of = workers.iter().map(|w| (w.address.clone(), groups.of(&self.labels_of(*w)))).collect();
        // With 0 nothing would start. `policy set` refuses 0, but etcd may hold any value.
        let limit = usize::try_from(groups.limit.max(1)).unwrap_or(usize::MAX);
        Some(GroupSlots { by: groups.by.clone(), limit, in_work, of })
    }

    /// Returns the context of a reboot or maintenance, if it is readable and its machine is a member.
    pub(super) fn context_of(&self, id: EntryId, address: &Address) -> Option<EntryContext<'a>> {
        let (store, definition) = (&self.snap.store, self.definition?);
        let member = definition.members.by_address(&definition.cluster, address)?;
        match id.queue {
            QueueKind::Reboot => EntryContext::of_reboot(id, store.reboots.entries.get(&id.index)?, member),
            QueueKind::Maintenance => {
                EntryContext::of_maintenance(id, store.maintenance.entries.get(&id.index)?, member)
            }
            QueueKind::Repair => None,
        }
    }

    /// Reports whether the machine will probably not move by itself: it has been `rebooting` for `stuck_seconds`, or it
    /// waits for an operator.
    fn is_stuck(&self, ctx: EntryContext<'a>) -> bool {
        // A maintenance lasts as long as a person wants.
        if !matches!(ctx.kind, EntryKind::Reboot(entry) if entry.status == RebootStatus::Rebooting) {
            return false;
        }
        let since = ctx.since.unwrap_or(self.now.wall);
        if has_counted_as_stuck(&self.policy, since, self.now.wall) {
            return true;
        }
        let Some(command_spec) = self.command_spec(ctx) else { return false };
        match self.command_state(ctx.id, command_spec) {
            CommandState::Failed(_) | CommandState::NoAttempt => true,
            CommandState::Unknown(_) => self.running_attempt(ctx.id).is_none(),
            CommandState::Succeeded(_) | CommandState::TriesLeft(_) => false,
        }
    }
}

impl GroupSlots {
    /// Returns the reason that names the group for which one more machine waits, if it does.
    pub(super) fn blocker(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        let group = self.of.get(ctx.address).cloned().unwrap_or_default();
        let wait = |(name, work): (&String, &GroupWork)| Reason::WaitingForGroup {
            by: self.by.clone(),
            group: name.clone(),
            holder: work.holder,
        };
        let active_groups = || self.in_work.iter().filter(|(_, work)| !work.stuck);
        match self.in_work.get_key_value(&group) {
            Some((_, work)) if !work.stuck => None,
            own => {
                if active_groups().count() >= self.limit {
                    return active_groups().next().map(wait);
                }
                // A stuck group starts more only if no other group has a candidate.
                own.filter(|_| self.of.values().any(|other| *other != group && !self.is_stuck(other))).map(wait)
            }
        }
    }

    /// Counts a machine that starts, unless its group is in progress already.
    pub(super) fn enter(&mut self, ctx: EntryContext<'_>) {
        let group = self.of.get(ctx.address).cloned().unwrap_or_default();
        if self.in_work.get(&group).is_none_or(|work| work.stuck) {
            self.in_work.insert(group, GroupWork { holder: ctx.id, stuck: false });
        }
    }

    fn is_stuck(&self, group: &str) -> bool {
        self.in_work.get(group).is_some_and(|work| work.stuck)
    }
}
