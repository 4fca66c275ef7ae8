//! The oracle: each step of an engine has to be one of the table in `tests/oracle`, which knows nothing of records.
//!
//! This file answers the table's questions from the record. A question about copies of Kubernetes is answered only if
//! the answer was the same for as long as a copy may lag; otherwise it is unknown, and the table refuses nothing.

mod cordons;

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    attempt::Attempt,
    cketerm_records::{Order, Verb},
    cluster::{Cluster, Node as Member},
    entry::{EntryId, QueueKind},
    maintenance::MaintenanceStatus,
    policy::{Membership, Policy},
    reboot::RebootStatus,
    repair::{RepairStatus, StepStatus},
};
use cketerm_oracle::{DUTIES, Entry, Fact, Kind, Machine, Place, State, Step, check, unknown_if};
use jiff::Timestamp;

use super::{
    batches, cordon, gates, outcomes,
    queue::{has_other_reason, is_startable},
    quorum,
    record::{Breach, PowerEvent},
    repair, start_gates,
    view::{Node, StoredReboot, StoredRepair, Timeline, View, member, shift},
    windows,
};

/// Code of its breaches.
pub const CODE: &str = "oracle";

/// Seconds by which clocks of engines may differ.
const CLOCK_SKEW: f64 = 15.0;

/// Every step of an engine that is no step of the table.
pub fn steps(view: &View<'_>) -> Vec<Breach> {
    let replay = Replay::of(view);
    let mut found = Vec::new();
    for (&(revision, id), &at) in &replay.changes() {
        let step = replay.step(id, revision);
        if let Err(refusal) = check(&replay.state(revision, at, &step), &step) {
            found.push(Breach { code: CODE, at, what: refusal.to_string() });
        }
    }
    for write in view.node_writes.iter().filter(|w| w.engine) {
        let Some(step) = cordons::step(view, write) else { continue };
        if let Err(refusal) = check(&State::default(), &step) {
            let what = format!("node {}: {refusal} (by {})", write.name, write.request.by);
            found.push(Breach { code: CODE, at: write.request.at, what });
        }
    }
    found
}

/// Every duty that an engine left undone: it led all the time, nothing went wrong any more, and the object stayed.
pub fn duties(view: &View<'_>) -> Vec<Breach> {
    let replay = Replay::of(view);
    let mut found = Vec::new();
    let Some(calm) = view.record.calm_since else { return found };
    let quiet = shift(calm, 2.0 * view.ttl() + 75.0);
    for id in replay.ids() {
        let times = replay.times(id);
        for (i, &(at, revision)) in times.iter().enumerate() {
            let end = times.get(i + 1).map_or(view.record.end, |next| next.0);
            let from = at.max(quiet);
            let longest = DUTIES.iter().map(|duty| duty.seconds).fold(0.0, f64::max);
            if shift(from, longest) >= end || !led_throughout(view, from, end) {
                continue;
            }
            let last = replay.at_time(end, revision);
            let entry = replay.entry(id, revision);
            let stays = Step::of(id, entry.clone(), entry);
            let same = view.clusters.throughout(from, end, |c| c == view.clusters.get(last));
            let state = State {
                cluster: view.clusters.get(last).filter(|_| same).cloned(),
                lasted: end.duration_since(from).as_secs_f64(),
                ..State::default()
            };
            for duty in DUTIES.iter().filter(|duty| duty.overdue(&state, &stays)) {
                let what = format!(
                    "{id} is {:?} since {at} and should have gone: it {} ({})",
                    stays.change.0.place, duty.says, duty.rule
                );
                found.push(Breach { code: CODE, at: end, what });
            }
        }
    }
    found.extend(forgotten_cordons(view, quiet));
    found
}

fn forgotten_cordons(view: &View<'_>, quiet: Timestamp) -> Vec<Breach> {
    // the observer of I10 knows which cordons nobody claims any more
    let due = cordon::i10(view).into_iter().filter(|b| b.at == view.record.end && b.at > quiet);
    due.map(|b| Breach { code: CODE, what: format!("{} (REB-44)", b.what), ..b }).collect()
}

fn led_throughout(view: &View<'_>, from: Timestamp, to: Timestamp) -> bool {
    let mut candidates = view.candidates.iter();
    candidates.any(|c| c.registered && view.led(&c.lease, from, from) && c.deleted.is_none_or(|(_, at)| at > to))
}

/// A view with what only the oracle reads.
struct Replay<'v> {
    view: &'v View<'v>,
    orders: BTreeMap<EntryId, Timeline<Order>>,
    cancels: BTreeMap<EntryId, Timeline<()>>,
    /// Starts that the breaker, the canaries or a gate of the site should have held back.
    barred: [BTreeSet<(Timestamp, String)>; 2],
    /// Attempts whose command is not in the machines' log.
    unbegun: BTreeSet<(EntryId, u32)>,
}

impl<'v> Replay<'v> {
    fn of(view: &'v View<'v>) -> Self {
        let mut orders: BTreeMap<EntryId, Timeline<Order>> = BTreeMap::new();
        let mut cancels: BTreeMap<EntryId, Timeline<()>> = BTreeMap::new();
        for change in &view.record.keys {
            let named = |folder: &str| change.key.strip_prefix(folder)?.parse::<EntryId>().ok();
            if let Some(id) = named("cketerm/orders/") {
                let order = change.value.as_deref().and_then(|value| serde_json::from_slice(value).ok());
                orders.entry(id).or_default().push(change.at, change.revision, order);
            } else if let Some(id) = named("cketerm/cancels/") {
                let there = change.value.as_ref().map(|_| ());
                cancels.entry(id).or_default().push(change.at, change.revision, there);
            }
        }
        let of = |breaches: Vec<Breach>| breaches.into_iter().map(|b| (b.at, b.what)).collect();
        let breakers = outcomes::i70(view).into_iter().chain(outcomes::i71(view)).collect();
        let barred = [of(breakers), of(start_gates::i72(view))];
        let replay = Self { view, orders, cancels, barred, unbegun: BTreeSet::new() };
        Self { unbegun: replay.find_unbegun(), ..replay }
    }

    fn ids(&self) -> impl Iterator<Item = EntryId> + '_ {
        let reboots = self.view.entries.keys().map(|i| EntryId::reboot(*i));
        reboots.chain(self.view.repairs.keys().map(|i| EntryId::repair(*i)))
    }

    /// Times and revisions of all changes of an entry.
    fn times(&self, id: EntryId) -> Vec<(Timestamp, i64)> {
        match id.queue {
            QueueKind::Repair => self.view.repairs[&id.index].steps().iter().map(|s| (s.at, s.revision)).collect(),
            _ => self.view.entries[&id.index].steps().iter().map(|s| (s.at, s.revision)).collect(),
        }
    }

    /// Newest revision at this time, and at least this one.
    fn at_time(&self, at: Timestamp, least: i64) -> i64 {
        let keys = &self.view.record.keys;
        let after = keys.partition_point(|c| c.at < at);
        after.checked_sub(1).map_or(least, |i| keys[i].revision.max(least))
    }

    /// Changes by engines: entries that were written, and those that got an attempt.
    fn changes(&self) -> BTreeMap<(i64, EntryId), Timestamp> {
        let view = self.view;
        let entries =
            self.ids().flat_map(|id| self.times(id).into_iter().map(move |(at, revision)| (id, at, revision)));
        let attempts = self.attempts().flat_map(|(id, _, line)| line.created().map(move |s| (id, s.at, s.revision)));
        let all = entries.chain(attempts).filter(|(.., revision)| view.written_by_engine(*revision));
        all.map(|(id, at, revision)| ((revision, id), at)).collect()
    }

    fn attempts(&self) -> impl Iterator<Item = (EntryId, u32, &'v Timeline<Attempt>)> {
        let reboots = self.view.attempts.iter().map(|(&(index, n), line)| (EntryId::reboot(index), n, line));
        let repairs = self.view.repair_attempts.iter();
        reboots.chain(repairs.map(|(&(index, n), line)| (EntryId::repair(index), n, line)))
    }

    fn entry(&self, id: EntryId, revision: i64) -> Entry {
        match id.queue {
            QueueKind::Reboot => reboot(self.view.entries.get(&id.index).and_then(|l| l.get(revision))),
            QueueKind::Repair => repaired(self.view.repairs.get(&id.index).and_then(|l| l.get(revision))),
            QueueKind::Maintenance => self.maintained(id.index, revision),
        }
    }

    fn maintained(&self, index: u64, revision: i64) -> Entry {
        let Some(entry) = self.view.maintenance.get(&index).and_then(|l| l.get(revision)) else {
            return Entry::default();
        };
        let place = match entry.status {
            MaintenanceStatus::Queued => Place::Queued,
            MaintenanceStatus::Draining => Place::Draining,
            MaintenanceStatus::InMaintenance => Place::Rebooting,
        };
        Entry { place, address: entry.node.to_string(), ..Entry::default() }
    }

    fn step(&self, id: EntryId, revision: i64) -> Step {
        let mut attempts = self.attempts().filter(|(of, ..)| *of == id).flat_map(|(.., line)| line.created());
        let new = attempts.find(|step| step.revision == revision).and_then(|step| step.value.clone());
        Step { attempt: new, ..Step::of(id, self.entry(id, revision - 1), self.entry(id, revision)) }
    }

    /// Facts from right before this step, with the other entries as they were in its very revision.
    fn state(&self, revision: i64, at: Timestamp, step: &Step) -> State {
        let view = self.view;
        let (cluster, policy) = (view.clusters.get(revision), view.policy(revision).clone());
        let from = view.seen_since(revision, at);
        let maintenances = view.maintenance.keys().map(|i| EntryId::maintenance(*i));
        let ids: Vec<EntryId> = self.ids().chain(maintenances).collect();
        let there = |id: EntryId| {
            let entry = self.entry(id, if id == step.entry { revision - 1 } else { revision });
            (entry.place != Place::Absent).then_some((id, entry))
        };
        let entries: BTreeMap<EntryId, Entry> = ids.into_iter().filter_map(there).collect();
        let constraints = view.constraints.get(revision).cloned().unwrap_or_default();
        let starts = step.kind == Kind::Reboot && step.change.1.place == Place::Draining;
        let queued = |to: Timestamp| -> BTreeSet<EntryId> {
            let reboots = entries.keys().filter(|id| starts && id.queue == QueueKind::Reboot && **id != step.entry);
            reboots.copied().filter(|id| is_startable(view, id.index, from, to)).collect()
        };
        let later = shift(at, 10.0);
        let reported = !view.record.reports.is_empty() || view.record.calm_since.is_some_and(|calm| from >= calm);
        let left = if later <= view.record.end && reported { queued(later) } else { BTreeSet::new() };
        let left_behind = left.into_iter().filter(|id| !has_other_reason(view, id.index, from, later)).collect();
        let bars = |all: &BTreeSet<(Timestamp, String)>| {
            let own = format!("{} starts", step.entry);
            Some(all.iter().any(|(when, what)| *when == at && what.starts_with(&own)))
        };
        let paused = entries.keys().copied().filter(|id| {
            let unreadable =
                batches::batch_id(view, *id, revision).is_some_and(|b| batches::is_unreadable(view, b, revision));
            let paused = batches::batch_of(view, *id, revision).and_then(|b| b.get(revision)?.paused.as_ref());
            unreadable || paused.is_some()
        });
        let all_along = |id: &EntryId| self.since(*id, revision) < from;
        let defined = view.clusters.throughout(from, at, |c| c.is_some());
        State {
            now: Some(at),
            skew: CLOCK_SKEW,
            leader: view.leading_lease(revision),
            ttl: view.ttl(),
            unreachable_limit: (policy.membership != Membership::Nodes && defined)
                .then_some(constraints.maximum_unreachable_nodes_for_reboot),
            repair_limit: constraints.maximum_repair_queue_entries,
            disabled: (!view.enabled(revision), !repair::enabled(view, revision)),
            steady: entries.keys().copied().filter(all_along).collect(),
            attempts: self.attempts().filter_map(|(id, n, l)| Some(((id, n), l.before(revision)?.clone()))).collect(),
            unbegun: self.unbegun.clone(),
            orders: self.orders_between(from, at),
            paused: paused.collect(),
            startable: queued(at),
            left_behind,
            machines: self.machines(revision, at, step, &entries),
            breaker: bars(&self.barred[0]),
            gate: bars(&self.barred[1]),
            withdrawn: either_way(self.cancels.get(&step.entry).is_some_and(|l| l.before(revision).is_some()), &policy),
            lasted: at.duration_since(self.in_place_since(step, revision)).as_secs_f64(),
            cluster: cluster.cloned(),
            policy,
            entries,
        }
    }

    fn find_unbegun(&self) -> BTreeSet<(EntryId, u32)> {
        let power = &self.view.record.power;
        let in_log: BTreeSet<&str> =
            power.iter().filter(|p| p.what == PowerEvent::Begin).map(|p| p.attempt.as_str()).collect();
        let began = |line: &Timeline<Attempt>| {
            line.steps()
                .iter()
                .filter_map(|step| step.value.as_ref())
                .any(|attempt| in_log.contains(attempt.id.as_str()))
        };
        self.attempts().filter(|(.., line)| !began(line)).map(|(id, n, _)| (id, n)).collect()
    }

    fn orders_between(&self, from: Timestamp, to: Timestamp) -> Vec<(EntryId, Verb, bool)> {
        let mut all = Vec::new();
        for (id, line) in &self.orders {
            for verb in [Verb::Hold, Verb::Retry, Verb::Done, Verb::Force] {
                let is = |order: Option<&Order>| order.is_some_and(|o| o.verb == verb);
                if line.sometime(from, to, is) {
                    all.push((*id, verb, line.throughout(from, to, is)));
                }
            }
        }
        all
    }

    /// Time of the last change of an entry before or in this revision.
    fn since(&self, id: EntryId, revision: i64) -> Timestamp {
        let at = match id.queue {
            QueueKind::Reboot => self.view.entries.get(&id.index).and_then(|l| Some(l.step(revision)?.at)),
            QueueKind::Repair => self.view.repairs.get(&id.index).and_then(|l| Some(l.step(revision)?.at)),
            QueueKind::Maintenance => None,
        };
        at.unwrap_or(Timestamp::MAX)
    }

    /// Time since which the entry has been in the place and step that this step leaves.
    fn in_place_since(&self, step: &Step, revision: i64) -> Timestamp {
        let before = &step.change.0;
        let times = self.times(step.entry);
        let earlier = times.iter().rev().filter(|(_, at)| *at < revision);
        let same = earlier.take_while(|(_, at)| {
            let then = self.entry(step.entry, *at);
            then.place == before.place && then.step == before.step
        });
        same.last().map_or(Timestamp::MAX, |(at, _)| *at)
    }

    fn machines(
        &self,
        revision: i64,
        at: Timestamp,
        step: &Step,
        entries: &BTreeMap<EntryId, Entry>,
    ) -> BTreeMap<String, Machine> {
        let cluster = self.view.clusters.get(revision);
        let members = cluster.into_iter().flat_map(|c| &c.nodes).map(|m| m.address.to_string());
        let all: BTreeSet<String> = members.chain([step.address().to_owned()]).collect();
        all.into_iter()
            .map(|address| {
                let machine = self.machine(&address, cluster, (revision, at), step, entries);
                (address, machine)
            })
            .collect()
    }

    fn machine(
        &self,
        address: &str,
        cluster: Option<&Cluster>,
        (revision, at): (i64, Timestamp),
        step: &Step,
        entries: &BTreeMap<EntryId, Entry>,
    ) -> Machine {
        let view = self.view;
        let from = view.seen_since(revision, at);
        let by = view.txn(revision).map_or("", |t| &t.by);
        let own = address == step.address();
        let name =
            cluster.and_then(|c| member(c, address)).map_or_else(|| address.to_owned(), |m| m.node_name().to_string());
        let nowhere = Timeline::default();
        let line = view.nodes.get(&name).unwrap_or(&nowhere);
        let role =
            |c: Option<&Cluster>| c.and_then(|c| member(c, address)).map(|m: &Member| (m.node_name(), m.control_plane));
        let same_role = view.clusters.throughout(from, at, |c| role(c) == role(cluster));
        let always = |from, ask: &dyn Fn(Option<&Node>) -> bool| -> Fact {
            if line.throughout(from, at, ask) { Some(true) } else { unknown_if(line.sometime(from, at, ask), false) }
        };
        let written = step.attempt.as_ref().map(|a| a.start).or(step.change.1.since).unwrap_or(at);
        let closed = |margin| {
            let of = (step.entry.queue, address);
            let why = windows::closed_reason_at(view, revision, of, written, margin);
            if why.is_some() { Some(true) } else { unknown_if(self.sometime_closed(of, revision, at), false) }
        };
        let orphaned = self.attempts().any(|(id, _, line)| {
            let began = line.before(revision).is_some_and(|a| a.began() && a.address == address);
            let gone = entries.get(&id).is_none_or(|e| matches!(e.place, Place::Cancelled | Place::Deleted));
            let held =
                |n: Option<&Node>| n.is_some_and(|n| n.unschedulable && n.owner().is_some_and(|o| o.entry == id));
            began && gone && always(from, &held) == Some(true)
        });
        let mut machine = Machine {
            ready: always(from, &|n| n.is_some_and(|n| n.ready)).filter(|_| {
                let other = |n: Option<&Node>| n.and_then(Node::owner).is_some_and(|o| o.taken_over_rebooting);
                same_role && !line.sometime(from, at, other)
            }),
            in_reboot: gates::was_rebooting(view, address, from, at),
            closing: closed(true),
            orphaned: Some(orphaned),
            ..Machine::default()
        };
        if own {
            let repairs = step.kind == Kind::Repair;
            let requests = if repairs { &view.repair_requests } else { &view.requests };
            let noted = requests.get(&step.entry.index).and_then(|r| r.get(revision)?.node_uid.clone());
            let is_right =
                |n: &Node| n.addresses.iter().any(|a| a == address) && noted.as_ref().is_none_or(|uid| *uid == n.uid);
            let absent = line.sometime(from, at, |n| n.is_none());
            machine.matches = always(from, &|n| n.is_some_and(is_right)).filter(|_| same_role && !(repairs && absent));
            machine.closed = closed(false);
            let late = view.back(by, at, view.late());
            let cordoned = |n: Option<&Node>| {
                n.is_some_and(|n| n.unschedulable && n.owner().is_some_and(|o| o.entry == step.entry))
            };
            machine.cordoned = if line.sometime(late, at, cordoned) { Some(true) } else { unknown_if(absent, false) };
            let pods = !view.pods_on(&name, late, at, super::view::PodState::blocks).is_empty();
            machine.empty = Some(!pods && !line.throughout(late, at, |n| n.is_some_and(|n| n.volumes)));
            machine.quorum = Some(!quorum::forbids(view, address, at, by));
            (machine.back, machine.replaced) = self.returned(step.entry, line, revision, at);
        }
        machine
    }

    /// Reports whether the Node was seen Ready with a new boot id, or with a new UID, since the entry's first command.
    fn returned(&self, entry: EntryId, line: &Timeline<Node>, revision: i64, at: Timestamp) -> (Fact, Fact) {
        let own = self.attempts().filter(|(id, ..)| *id == entry).filter_map(|(.., l)| l.before(revision));
        let Some(first) = own.min_by_key(|a| a.number) else { return (None, None) };
        let since = shift(first.start, -CLOCK_SKEW);
        let is_new = |n: &Node| n.ready && first.boot_id.as_ref().is_none_or(|id| *id != n.boot_id);
        let is_other = |n: &Node| n.ready && first.node_uid.as_ref().is_some_and(|uid| *uid != n.uid);
        let seen = |ask: &dyn Fn(&Node) -> bool| line.sometime(since, at, |n| n.is_some_and(ask));
        (Some(seen(&is_new)), Some(seen(&is_other)))
    }

    /// Reports whether the machine may have been outside its window or frozen at any moment of a decision.
    fn sometime_closed(&self, of: (QueueKind, &str), revision: i64, at: Timestamp) -> bool {
        let view = self.view;
        let Some(cluster) = view.clusters.get(revision) else { return true };
        let from = shift(at, -(view.lag() + CLOCK_SKEW));
        let lines = view.policies.steps();
        let first = lines.partition_point(|s| s.at < from).saturating_sub(1);
        let seen = lines[first..].iter().filter(|s| s.revision <= revision).filter_map(|s| s.value.as_ref());
        let mut seen = seen.filter(|p| p.freeze.is_some() || p.windows.is_some());
        seen.any(|policy| {
            let by_labels = policy.windows.as_ref().is_some_and(cketerm_model::window::Windows::by_machine);
            let mut moments = (-15..=20).map(|i| shift(at, -f64::from(i)));
            by_labels || moments.any(|moment| windows::closed_reason(policy, cluster, of, moment, false).is_some())
        })
    }
}

/// Reports whether a cancel was accepted; deletions of requests cancel too, and the record does not tell which.
fn either_way(accepted: bool, policy: &Policy) -> Fact {
    if accepted { Some(true) } else { unknown_if(policy.maintenance_requests, false) }
}

fn reboot(stored: Option<&StoredReboot>) -> Entry {
    let entry = match stored {
        None => return Entry::default(),
        Some(Err(())) => return Entry { place: Place::Unreadable, ..Entry::default() },
        Some(Ok(entry)) => entry,
    };
    let place = match entry.status {
        RebootStatus::Queued => Place::Queued,
        RebootStatus::Draining => Place::Draining,
        RebootStatus::Rebooting => Place::Rebooting,
        RebootStatus::Cancelled => Place::Cancelled,
    };
    Entry {
        place,
        address: entry.node.to_string(),
        backoff: (entry.drain_backoff_count, entry.drain_backoff_expire),
        since: entry.last_transition_time,
        rest: entry.unknown.clone(),
        ..Entry::default()
    }
}

fn repaired(stored: Option<&StoredRepair>) -> Entry {
    let entry = match stored {
        None => return Entry::default(),
        Some(Err(())) => return Entry { place: Place::Unreadable, ..Entry::default() },
        Some(Ok(entry)) => entry,
    };
    let place = match (entry.deleted, entry.status, entry.step_status) {
        (true, ..) => Place::Deleted,
        (_, RepairStatus::Queued, _) => Place::Queued,
        (_, RepairStatus::Succeeded, _) => Place::Succeeded,
        (_, RepairStatus::Failed, _) => Place::Failed,
        (_, _, StepStatus::Waiting) => Place::Waiting,
        (_, _, StepStatus::Draining) => Place::Draining,
        (_, _, StepStatus::Watching) => Place::Watching,
    };
    let mut rest = entry.unknown.clone();
    rest.extend(entry.serial.clone().map(|serial| ("serial".to_owned(), serial.into())));
    Entry {
        place,
        address: entry.address.to_string(),
        repair: (entry.machine_type.clone(), entry.operation.clone()),
        step: entry.step,
        backoff: (entry.drain_backoff_count, entry.drain_backoff_expire),
        since: entry.last_transition_time,
        rest,
    }
}
