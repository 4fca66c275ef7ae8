//! Machines, hosts and members that wait for a person, apart from their entries.

use cketerm_model::{entry::QueueKind, policy::RebootNeeded, reason::Reason};
use cketerm_rules::reboot_needed::list::{self as reboot_needed, State};
use jiff::SignedDuration;

use super::{NeedsYou, Urgency, stuck_after};
use crate::{
    keys::Command,
    state::{App, leaders, object::Object, queries, short_text},
};

/// Time for which a machine may be unhealthy in the registry after its reboot has ended.
const REGISTRY_LAG: SignedDuration = SignedDuration::from_secs(120);

/// Returns nodes that are unexpectedly away, members without a Node, and orphaned cordons.
pub(super) fn nodes(app: &App) -> Vec<NeedsYou> {
    let totals = &app.knowledge.totals;
    let mut lines = Vec::new();
    let patience = stuck_after(app);
    // a new member needs a while until it has joined
    let is_joining =
        |name: &&String| totals.joining.get(*name).is_some_and(|since| app.known().duration_since(*since) < patience);
    let missing: Vec<String> = totals.missing.iter().filter(|name| !is_joining(name)).cloned().collect();
    let absent =
        [(&totals.unready, "not Ready, and nothing restarts it"), (&missing, "in the definition, but has no Node")];
    for (names, what) in absent {
        // of several, the one that has been away longest
        let since = |name: &String| queries::node(&app.seen, name).filter(|row| !row.ready)?.ready_since;
        if let Some(first) = names.iter().min_by_key(|name| (since(name).is_none(), since(name))) {
            let line = NeedsYou::new(Object::Node(first.clone()), first.clone(), what, Urgency::Stuck);
            let line = line.others(names.iter().map(|name| (name.as_str(), Object::Node(name.clone()))));
            lines.push(line.since(since(first)).remedies(&[Command::Repair, Command::Reboot]));
        }
    }
    lines.extend(app.seen.orphans.iter().filter_map(|(name, why)| {
        let what = short_text::reason(why, app.known());
        // this one ends by itself if its machine boots
        let ends = matches!(why, Reason::OrphanedCordon { .. });
        let urgency = if ends { Urgency::Waits } else { Urgency::Stuck };
        let line = NeedsYou::new(Object::Node(name.to_string()), name.as_str(), what, urgency);
        let owner = queries::node(&app.seen, name.as_str()).and_then(|row| row.owner.as_ref()?.as_ref().ok()?.since);
        let is_recent = owner.is_some_and(|since| app.known().duration_since(since) < patience);
        (!ends || !is_recent).then(|| line.since(owner).remedies(&[Command::Release]))
    }));
    lines
}

/// Returns Nodes that need a reboot, by cause. Those that the leader queues by itself do not wait for a person.
pub(super) fn reboots(app: &App) -> Vec<NeedsYou> {
    let snap = &app.seen.snapshot;
    let is_automatic = snap.store.policy().reboot_needed == RebootNeeded::Queue && leaders::not_in_force(app).is_none();
    let mut lines: Vec<NeedsYou> = Vec::new();
    for row in reboot_needed::list(&snap.store, &snap.kube, &snap.reboot_signals, app.known()) {
        let (what, urgency, remedies) = match row.state {
            // machines on which it is still set have a line of their own
            State::Proposed | State::InVain { .. } if is_automatic => continue,
            State::Proposed
            | State::NotAgain { .. }
            | State::SoonAgain { .. }
            | State::Stopped { .. }
            | State::InVain { .. } => {
                (format!("needs a reboot: {}", row.cause), Urgency::Waits, [Command::Reboot].as_slice())
            }
            State::StillSet { .. } => {
                (format!("rebooted, but still set: {}", row.cause), Urgency::Stuck, [].as_slice())
            }
            State::Queued { .. } | State::Rebooted { .. } | State::NotMember => continue,
        };
        let line = NeedsYou::new(Object::Node(row.node.to_string()), row.node.as_str(), what, urgency);
        let line = line.since(row.since).remedies(remedies);
        match lines.iter_mut().find(|known| known.what == line.what) {
            Some(known) => known.add(line),
            None => lines.push(line),
        }
    }
    lines
}

/// Returns hosts with an error, and hosts that somebody holds off.
pub(super) fn hosts(app: &App) -> Vec<NeedsYou> {
    let hosts = &app.knowledge.totals.hosts;
    let mut lines: Vec<NeedsYou> = Vec::new();
    for id in &hosts.trouble {
        let what = short_text::host(&app.seen, id).0;
        let line = NeedsYou::new(Object::Host(id.clone()), id.1.clone(), what, Urgency::Stuck);
        let line = line.since(queries::host(&app.seen, id).and_then(|host| host.pending_reboot_since));
        let line = line.remedies(&[Command::Unhold, Command::HostPower]);
        match lines.iter_mut().find(|known| known.what == line.what) {
            Some(known) => known.add(line),
            None => lines.push(line),
        }
    }
    if let Some(first) = hosts.held.first() {
        let by = queries::host(&app.seen, first)
            .map(|host| host.asked.keys.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
        let what = format!("held off by {}", by.unwrap_or_default());
        let line = NeedsYou::new(Object::Host(first.clone()), first.1.clone(), what, Urgency::Waits);
        lines.push(
            line.others(hosts.held.iter().map(|id| (id.1.as_str(), Object::Host(id.clone()))))
                .remedies(&[Command::Unhold]),
        );
    }
    lines
}

/// Returns members that the registry reports as unhealthy, unless they are repaired or will be.
pub(super) fn machines(app: &App) -> Vec<NeedsYou> {
    let (seen, totals) = (&app.seen, &app.knowledge.totals);
    let repair = &seen.auto_repair;
    if seen.snapshot.store.auto_repair.enabled() && repair.off.is_none() && repair.plan.capped.is_none() {
        return Vec::new();
    }
    let mut lines: Vec<NeedsYou> = Vec::new();
    for address in &app.knowledge.registry.unhealthy {
        let name = seen.snapshot.machine(address);
        let handled = totals.unready.contains(&name)
            || totals.missing.contains(&name)
            || totals.entries_of(&name).any(|id| queries::in_work(seen, id) || id.queue == QueueKind::Repair);
        let Some(machine) = app.knowledge.registry.at(seen, address).filter(|_| !handled) else { continue };
        // the registry notices only after a while that a machine is up again
        if machine.since.is_some_and(|since| app.known().duration_since(since) < REGISTRY_LAG) {
            continue;
        }
        let what = format!("{} in the registry", machine.state);
        let line = NeedsYou::new(Object::Machine(address.clone()), name, what, Urgency::Stuck);
        let line = line.since(machine.since).remedies(&[Command::Repair]);
        match lines.iter_mut().find(|known| known.what == line.what) {
            Some(known) => known.add(line),
            None => lines.push(line),
        }
    }
    lines
}
