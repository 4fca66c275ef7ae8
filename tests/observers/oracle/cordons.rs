//! Patches of Nodes as steps of the oracle's table.

use cketerm_model::entry::{EntryId, QueueKind};
use cketerm_oracle::{Cordon, Entry, Fact, Kind, Place, Step};

use super::{
    super::{
        cordon, power_log,
        record::Power,
        view::{Node, NodeWrite, View, in_progress, member},
    },
    reboot, repaired,
};

/// Patch of a Node as a step. None if the record on it cannot be read, or is of a maintenance.
pub(super) fn step(view: &View<'_>, write: &NodeWrite<'_>) -> Option<Step> {
    let readable = |n: &Node| !matches!(n.owner, Some(Err(())));
    let owners = [write.before.owner(), write.after.owner()];
    let maintains = owners.iter().flatten().any(|o| o.entry.queue == QueueKind::Maintenance);
    if maintains || !readable(&write.before) || !readable(&write.after) {
        return None;
    }
    let place = |n: &Node| match (n.unschedulable, n.owner.is_some(), n.marked) {
        (true, true, _) => Place::Owned,
        (true, false, true) => Place::Marked,
        (true, false, false) => Place::Foreign,
        (false, true, _) => Place::Uncordoned,
        (false, false, _) => Place::Free,
    };
    let entry = owners[1].or(owners[0]).map_or(EntryId::reboot(u64::MAX), |o| o.entry);
    let at = |n: &Node| Entry { place: place(n), address: write.name.clone(), ..Entry::default() };
    let cordon = |n: &Node, claimed: Fact| Cordon {
        owner: n.owner().map(|o| o.entry),
        schedulable_before: n.owner().is_some_and(|o| o.schedulable_before),
        repeated: n.owner().map_or(0, |o| o.recordoned),
        keep: n.keep,
        other_program: n.drained_by_other,
        claimed,
        back: came_back(view, write),
    };
    let cordons =
        (cordon(&write.before, Some(claimed(view, write))), cordon(&write.after, Some(works(view, write, entry))));
    Some(Step { kind: Kind::Node, cordon: cordons, ..Step::of(entry, at(&write.before), at(&write.after)) })
}

/// Reports whether this entry was in progress when the patch was decided.
fn works(view: &View<'_>, write: &NodeWrite<'_>, id: EntryId) -> bool {
    let (from, to) = (view.back(&write.request.by, write.request.at, view.max_kube_delay()), write.request.at);
    let claims =
        |entry: &Entry| matches!(entry.place, Place::Draining | Place::Rebooting | Place::Watching | Place::Unreadable);
    match id.queue {
        QueueKind::Repair => {
            view.repairs.get(&id.index).is_some_and(|l| l.sometime(from, to, |e| claims(&repaired(e))))
        }
        QueueKind::Reboot | QueueKind::Maintenance => {
            view.entries.get(&id.index).is_some_and(|l| l.sometime(from, to, |e| claims(&reboot(e))))
        }
    }
}

/// Reports whether an entry in progress claimed the Node all the time.
fn claimed(view: &View<'_>, write: &NodeWrite<'_>) -> bool {
    let (from, to) = (view.back(&write.request.by, write.request.at, view.max_kube_delay()), write.request.at);
    let named = |address: &str| {
        write.before.addresses.iter().any(|a| a == address)
            && view.clusters.throughout(from, to, |c| {
                c.and_then(|c| member(c, address)).is_some_and(|m| m.node_name() == write.name.as_str())
            })
    };
    let owns = |id: EntryId| write.before.owner().is_some_and(|o| o.entry == id);
    let reboots = view.entries.iter().any(|(index, line)| {
        line.throughout(from, to, |stored| {
            let entry = reboot(stored);
            let drains = entry.place == Place::Draining && owns(EntryId::reboot(*index));
            (drains || entry.place == Place::Rebooting) && named(&entry.address)
        })
    });
    let repairs = view.repairs.iter().any(|(index, line)| {
        line.throughout(from, to, |stored| {
            let entry = repaired(stored);
            let works = matches!(entry.place, Place::Draining | Place::Watching);
            works && owns(EntryId::repair(*index)) && named(&entry.address)
        })
    });
    reboots || repairs
}

/// Reports whether the machine is back from the last command of the record's entry (SAF-35).
fn came_back(view: &View<'_>, write: &NodeWrite<'_>) -> Fact {
    let owner = write.before.owner().filter(|o| o.entry.queue == QueueKind::Reboot)?;
    let own = |(index, p): &(u64, &Power)| *index == owner.entry.index && p.at <= write.request.at;
    let (index, begin) = power_log::begins(view).filter(own).last()?;
    let works = in_progress(view.entries.get(&index).and_then(|l| l.at(write.request.at)));
    // an entry in progress is the matter of another condition
    if works { None } else { Some(cordon::not_back(view, write, owner, begin.at).is_none()) }
}
