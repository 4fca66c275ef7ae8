//! Groups: at most so many racks, zones or the like in work at once, in the reboot queue (policy `groups`).
//!
//! A group is in work while a machine of it is `draining` or `rebooting`. Its further machines go on before others, whatever
//! their index: "one rack at a time". A group all of whose machines in work are stuck does not count: the next one's turn
//! has come, and its own further machines wait until no other group has anything to start.

use std::collections::BTreeMap;

use super::{Pass, attempts::After, entry_context::EntryContext};
use crate::model::{entry::EntryId, reason::Reason, reboot::RebootStatus, time::seconds_between};

/// One group in work.
#[derive(Clone, Copy)]
struct InWork {
    holder: EntryId,
    stuck: bool,
}

/// The groups of a pass.
pub(super) struct InGroups {
    by: String,
    limit: usize,
    in_work: BTreeMap<String, InWork>,
    /// The group of each of those that may start, by address.
    of: BTreeMap<String, String>,
}

impl<'a> Pass<'a> {
    /// The groups in work, and those of these workers; none where the policy has no groups.
    pub(super) fn groups(&self, workers: &[EntryContext<'a>]) -> Option<InGroups> {
        let groups = self.policy.groups.as_ref()?;
        let mut in_work: BTreeMap<String, InWork> = BTreeMap::new();
        for (address, &holder) in &self.claims.workers {
            let Some(case) = self.case_of(holder, address) else { continue };
            let stuck = self.is_stuck(case);
            let group = in_work.entry(groups.of(&self.labels_of(case)));
            let known = group.or_insert(InWork { holder, stuck });
            if known.stuck && !stuck {
                *known = InWork { holder, stuck };
            }
        }
        let of = workers.iter().map(|w| (w.address.to_owned(), groups.of(&self.labels_of(*w)))).collect();
        // 0 would let nothing start: what a person sets is judged, what lies in etcd is not
        let limit = usize::try_from(groups.limit.max(1)).unwrap_or(usize::MAX);
        Some(InGroups { by: groups.by.clone(), limit, in_work, of })
    }

    fn case_of(&self, id: EntryId, address: &str) -> Option<EntryContext<'a>> {
        let stored = self.snap.store.reboots.entries.get(&id.index).filter(|_| id == EntryId::reboot(id.index))?;
        let definition = self.definition?;
        EntryContext::of_reboot(id, stored, definition.members.by_address(&definition.cluster, address)?)
    }

    /// Nothing will move it by itself, as far as can be told: rebooting for longer than `stuck_seconds`, or waiting for a
    /// person.
    fn is_stuck(&self, case: EntryContext<'a>) -> bool {
        let entry = self.snap.store.reboots.entries.get(&case.id.index).and_then(|s| s.get());
        if entry.is_none_or(|e| e.status != RebootStatus::Rebooting) {
            return false;
        }
        let since = case.since.unwrap_or(self.now.wall);
        #[allow(clippy::cast_precision_loss)] // seconds
        if seconds_between(since, self.now.wall) >= self.policy.stuck_seconds as f64 {
            return true;
        }
        let Some(task) = self.task(case) else { return false };
        match self.what_came_of(case.id, task) {
            After::Failed(_) | After::NoAttempt => true,
            After::Unknown(_) => self.running_attempt(case.id).is_none(),
            After::Succeeded(_) | After::TriesLeft(_) => false,
        }
    }
}

impl InGroups {
    /// Lets one more machine in, or says which group it waits for.
    pub(super) fn enter(&mut self, case: EntryContext<'_>) -> Option<Reason> {
        let group = self.of.get(case.address).cloned().unwrap_or_default();
        let wait = |(name, held): (&String, &InWork)| Reason::WaitingForGroup {
            by: self.by.clone(),
            group: name.clone(),
            holder: held.holder,
        };
        let moving = || self.in_work.iter().filter(|(_, held)| !held.stuck);
        match self.in_work.get_key_value(&group) {
            Some((_, held)) if !held.stuck => return None,
            own => {
                if moving().count() >= self.limit {
                    return moving().next().map(wait);
                }
                // the next group's turn has come, as long as there is one
                if let Some(own) = own
                    && self.of.values().any(|other| *other != group && !self.is_stuck(other))
                {
                    return Some(wait(own));
                }
            }
        }
        self.in_work.insert(group, InWork { holder: case.id, stuck: false });
        None
    }

    fn is_stuck(&self, group: &str) -> bool {
        self.in_work.get(group).is_some_and(|held| held.stuck)
    }
}
