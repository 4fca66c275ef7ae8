//! Invariants of every state and every step. The codes are those of `docs/spec/invariants.md`.

use std::fmt;

use cketerm_model::{
    any::QueueEntry,
    attempt::Attempt,
    cketerm_records::{EndKind, Ending, Verb},
    entry::{EntryId, QueueKind, Stored},
    reboot::RebootStatus,
    stored::view::StoreView,
};
use cketerm_rules::{decide::Decision, snapshot::Snapshot};

use crate::world::World;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Code of the invariant.
    pub code: &'static str,
    /// Description.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.what)
    }
}

impl Breach {
    /// Creates a breach.
    pub fn new(code: &'static str, what: String) -> Self {
        Self { code, what }
    }

    fn unless(holds: bool, code: &'static str, what: impl FnOnce() -> String) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(code, what())) }
    }
}

/// A drain starts. `before` is the state that the transaction compared.
pub fn drain_started(before: &World, entry: &QueueEntry) -> Result<(), Breach> {
    let (id, address) = (entry.id(), entry.address());
    let is_api_server = |address: &str| before.place(address).is_some_and(|place| place < before.api_servers);
    let own = is_api_server(address.as_str());
    let others: Vec<_> = before.in_progress().into_iter().filter(|(other, _)| *other != id).collect();
    for (other, of) in &others {
        Breach::unless(of != address, "I4", || format!("{id} starts while {other} works on the same machine"))?;
        let theirs = is_api_server(of.as_str());
        Breach::unless(!(own && theirs), "I1", || {
            format!("API server of {id} starts while that of {other} is in progress")
        })?;
        let reboots = id.queue == QueueKind::Reboot && other.queue == QueueKind::Reboot;
        Breach::unless(!reboots || own == theirs, "I2", || format!("{id} starts while {other} is in progress"))?;
    }
    if id.queue == QueueKind::Reboot {
        let reboots = others.iter().filter(|(other, _)| other.queue == QueueKind::Reboot).count();
        let limit = usize::try_from(before.at_once).unwrap_or_default();
        Breach::unless(own || reboots < limit, "I3", || format!("{id} starts as number {} of {limit}", reboots + 1))?;
        Breach::unless(before.etcd.view.reboots.switch.enabled(), "I13", || {
            format!("{id} starts in a disabled queue")
        })?;
        let earlier = before
            .etcd
            .view
            .reboots
            .entries
            .values()
            .filter_map(Stored::get)
            .find(|e| e.node == *address && e.index < id.index && e.status != RebootStatus::Cancelled);
        Breach::unless(earlier.is_none(), "I4", || format!("{id} starts before an earlier entry of its machine"))?;
    }
    Ok(())
}

/// A command begins on a machine.
pub fn command_begins(world: &World, engine: usize, attempt: &Attempt, machine: usize) -> Result<(), Breach> {
    let id = attempt.entry;
    Breach::unless(world.holds_lock(engine), "I24", || {
        format!("engine {engine} starts {} without the lock", attempt.id)
    })?;
    let begun = world.counts.begun.get(&id).copied().unwrap_or_default();
    let ordered = world.counts.ordered.get(&id).copied().unwrap_or_default();
    Breach::unless(begun <= ordered, "I25", || {
        format!("command {} of {id} begins, {ordered} tries were ordered", begun + 1)
    })?;
    let beside = world.commands.iter().find(|command| command.machine == machine);
    Breach::unless(beside.is_none(), "I25", || format!("{} begins while a command runs on its machine", attempt.id))?;
    let hold = world.etcd.view.orders.get(&id).and_then(|stored| Some((stored.get()?, stored.mod_revision)));
    let written = world.etcd.view.attempts.get(&(id, attempt.number)).map_or(0, |stored| stored.mod_revision);
    let is_held = hold.is_some_and(|(order, revision)| order.verb == Verb::Hold && revision < written);
    Breach::unless(!is_held, "I27", || format!("{} begins although {id} was on hold", attempt.id))?;
    let is_cancelled = world.etcd.view.reboots.entries.get(&id.index).and_then(Stored::get);
    let is_cancelled =
        id.queue == QueueKind::Reboot && is_cancelled.is_none_or(|e| e.status == RebootStatus::Cancelled);
    Breach::unless(!is_cancelled, "I27", || format!("{} begins although {id} is cancelled or gone", attempt.id))?;
    let of = &world.machines[machine];
    let cordoned = world.node(machine).is_some_and(|node| node.unschedulable);
    Breach::unless(cordoned || of.touched_by_admin, "I16", || {
        format!("{} begins on a Node that is not cordoned", attempt.id)
    })?;
    let pod = world.pods(machine).next();
    let may_have_pods = attempt.forced || attempt.ordered_by.is_some() || of.touched_by_admin;
    Breach::unless(pod.is_none() || may_have_pods, "I21", || {
        format!("{} begins while a pod is on its Node", attempt.id)
    })?;
    if machine < world.api_servers {
        let other = (0..world.api_servers).find(|other| {
            let runs = world.commands.iter().any(|command| command.machine == *other);
            *other != machine && (runs || (world.machines[*other].down && world.machines[*other].commanded))
        });
        Breach::unless(other.is_none(), "I1", || format!("{} begins while another API server is down", attempt.id))?;
    }
    Ok(())
}

/// A transaction of an engine went through.
pub fn committed(before: &StoreView, after: &StoreView, leads: bool) -> Result<(), Breach> {
    Breach::unless(leads, "I23", || "a transaction goes through without the lock".to_owned())?;
    for (index, stored) in &before.reboots.entries {
        let was_cancelled = stored.get().is_some_and(|entry| entry.status == RebootStatus::Cancelled);
        let now = after.reboots.entries.get(index).and_then(Stored::get);
        let overwritten = was_cancelled && now.is_some_and(|entry| entry.status != RebootStatus::Cancelled);
        Breach::unless(!overwritten, "I27", || format!("the cancel of reboots/{index} is overwritten"))?;
    }
    Ok(())
}

/// A pass of the leader: each unfinished entry has a reason.
pub fn all_have_reasons(snap: &Snapshot, decision: &Decision) -> Result<(), Breach> {
    let repairs = snap.store.repairs.entries.values().filter_map(Stored::get).filter(|entry| entry.unfinished());
    let reboots = snap.store.reboots.entries.values().filter_map(Stored::get);
    let reboots = reboots.filter(|entry| entry.status != RebootStatus::Cancelled);
    for id in reboots.map(|entry| EntryId::reboot(entry.index)).chain(repairs.map(|entry| EntryId::repair(entry.index)))
    {
        let planned = decision.effects.iter().any(|planned| planned.entry == Some(id));
        Breach::unless(planned || decision.reasons.contains_key(&id), "I32", || format!("{id} has no reason"))?;
    }
    Ok(())
}

/// An entry ends, with this history.
pub fn entry_ends(world: &World, ending: &Ending) -> Result<(), Breach> {
    let machine = world.place(ending.address.as_str());
    let down = machine.is_some_and(|place| world.machines[place].down);
    Breach::unless(!(ending.end == EndKind::Booted && down), "I14", || {
        format!("{} ends as booted while its machine is down", ending.entry)
    })
}

/// A Node is uncordoned by an engine.
pub fn uncordoned(world: &World, machine: Option<usize>) -> Result<(), Breach> {
    let Some(place) = machine else { return Ok(()) };
    let of = &world.machines[place];
    Breach::unless(!of.down, "I14", || format!("machine {place} is uncordoned while it is down"))?;
    let kept = world.node(place).is_some_and(|node| node.keep_cordoned);
    Breach::unless(!kept, "I12", || format!("the kept cordon of machine {place} is removed"))?;
    Breach::unless(!of.cordoned_by_admin, "I11", || {
        format!("the administrator's cordon of machine {place} is removed")
    })?;
    let runs = world.commands.iter().any(|command| command.machine == place);
    Breach::unless(!runs, "I14", || format!("machine {place} is uncordoned while its command runs"))
}

/// Nothing is left to do: no cordon of cketerm is left either.
pub fn at_rest(world: &World) -> Result<(), Breach> {
    for (place, machine) in world.machines.iter().enumerate() {
        let Some(node) = world.node(place) else { continue };
        let left = node.unschedulable && !machine.cordoned_by_admin || node.owner().is_some();
        Breach::unless(!left, "I10", || {
            format!("machine {place} stays cordoned, or marked, after everything has ended")
        })?;
    }
    Ok(())
}
