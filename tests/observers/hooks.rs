//! Hooks of the site around drains (I64 to I66).
//!
//! Only hooks of the reboot queue that are for every machine are judged. The policy must have had a hook for longer than
//! a copy may lag.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    cketerm_records::{EndKind, Order, Verb},
    entry::{EntryId, QueueKind},
    hook_runs::{HookPoint, HookRun, HookRuns},
    labels::Labels,
    reboot::RebootStatus,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    power_log,
    record::Breach,
    view::{Timeline, View, shift},
};

/// Time for which the policy must have had a hook that is asked for.
const POLICY_AGE: f64 = 15.0;
/// Time before every run.
const LONG_AGO: Timestamp = Timestamp::UNIX_EPOCH;

/// Returns the records of hooks over time, by entry.
fn records(view: &View<'_>) -> BTreeMap<EntryId, Timeline<HookRuns>> {
    let mut records: BTreeMap<EntryId, Timeline<HookRuns>> = BTreeMap::new();
    for change in &view.record.keys {
        let id = change.key.strip_prefix("cketerm/hooks/").and_then(|id| id.parse().ok());
        let Some(id) = id else { continue };
        let value = change.value.as_ref().and_then(|value| serde_json::from_slice(value).ok());
        records.entry(id).or_default().push(change.at, change.revision, value);
    }
    records
}

fn has_succeeded(record: &HookRuns, hook: &str, at: HookPoint, from: Timestamp) -> bool {
    let outcome = record.run(hook, at, from).and_then(|run| run.outcome.as_ref());
    outcome.is_some_and(|outcome| outcome.end.succeeded())
}

/// Returns the hooks of this moment that the policy has had for a while.
fn lasting(view: &View<'_>, point: HookPoint, at: Timestamp) -> Vec<String> {
    let Some(policy) = view.policies.at(at) else { return Vec::new() };
    let is_lasting = |name: &str| {
        view.policies.throughout(shift(at, -POLICY_AGE), at, |policy| {
            policy.is_some_and(|policy| policy.hooks.iter().any(|hook| hook.name == name && hook.at == point))
        })
    };
    let hooks = policy.hooks.iter().filter(|hook| hook.at == point && hook.is_for(QueueKind::Reboot, &Labels::new()));
    hooks.map(|hook| hook.name.clone()).filter(|name| is_lasting(name)).collect()
}

/// Returns a hook of this moment that has not succeeded for this record since `from`.
fn missing(view: &View<'_>, record: &HookRuns, point: HookPoint, from: Timestamp, at: Timestamp) -> Option<String> {
    let asked = lasting(view, point, at).into_iter().filter(|name| record.hooks.contains(name));
    asked.into_iter().find(|name| !has_succeeded(record, name, point, from))
}

/// Returns the time at which the entry began to drain, as its record in etcd has it.
fn drain_start(view: &View<'_>, index: u64, at: Timestamp) -> Timestamp {
    let entry = view.entries.get(&index).and_then(|line| line.at(at)).and_then(|entry| entry.as_ref().ok());
    let draining = entry.filter(|entry| entry.status == RebootStatus::Draining);
    draining.and_then(|entry| entry.last_transition_time).unwrap_or(LONG_AGO)
}

/// I64, at each start of a drain by an engine: it has a record if the policy has a hook. At each cordon by an engine and
/// at each first command: every hook before it has succeeded in this drain.
pub fn i64(view: &View<'_>) -> Vec<Breach> {
    let records = records(view);
    let mut found = Vec::new();
    for change in view.entry_changes().iter().filter(|change| change.starts()) {
        let id = EntryId::reboot(change.index);
        let any = [HookPoint::BeforeDrain, HookPoint::AfterDrain, HookPoint::BeforeUncordon, HookPoint::AfterUncordon];
        let asked: Vec<String> = any.into_iter().flat_map(|point| lasting(view, point, change.at)).collect();
        let record = records.get(&id).and_then(|line| line.get(change.revision));
        let forgotten = asked.iter().find(|name| record.is_none_or(|record| !record.hooks.contains(name)));
        if let Some(hook) = forgotten {
            let what = format!("the drain of {id} begins without a record of hook {hook}");
            found.push(Breach { code: "I64", at: change.at, what });
        }
    }
    for write in view.node_writes.iter().filter(|write| write.engine && !write.before.unschedulable) {
        let Some(owner) = write.after.owner().filter(|_| write.after.unschedulable) else { continue };
        let (at, id) = (write.request.at, owner.entry);
        let record = records.get(&id).and_then(|line| line.at(at)).filter(|_| id.queue == QueueKind::Reboot);
        let Some(record) = record else { continue };
        if let Some(hook) = missing(view, record, HookPoint::BeforeDrain, drain_start(view, id.index, at), at) {
            let what = format!("node {} is cordoned for {id} before hook {hook} has succeeded", write.name);
            found.push(Breach { code: "I64", at, what });
        }
    }
    let mut begun = BTreeSet::new();
    for (index, power) in power_log::begins(view).filter(|(index, _)| begun.insert(*index)) {
        let id = EntryId::reboot(index);
        let Some(record) = records.get(&id).and_then(|line| line.at(power.at)) else { continue };
        if let Some(hook) = missing(view, record, HookPoint::AfterDrain, record.since, power.at) {
            let what = format!("the command of {id} begins before hook {hook} has succeeded");
            found.push(Breach { code: "I64", at: power.at, what });
        }
    }
    found
}

/// I65, at each uncordon by an engine, and at the end of each reboot whose machine has booted: every hook before the
/// uncordon has succeeded since the drain began, unless an operator ordered the uncordon.
pub fn i65(view: &View<'_>) -> Vec<Breach> {
    let records = records(view);
    let mut found = Vec::new();
    let mut judge = |id: EntryId, at: Timestamp, what: &str| {
        let ordered = view.orders.get(&id.index).is_some_and(|orders| {
            let is_uncordon = |order: Option<&Order>| order.is_some_and(|order| order.verb == Verb::Uncordon);
            orders.sometime(shift(at, -POLICY_AGE), at, is_uncordon)
        });
        let record = records.get(&id).and_then(|line| line.at(at));
        let Some(record) = record.filter(|_| !ordered && id.queue == QueueKind::Reboot) else { return };
        if let Some(hook) = missing(view, record, HookPoint::BeforeUncordon, record.since, at) {
            found.push(Breach { code: "I65", at, what: format!("{what} {id} before hook {hook} has succeeded") });
        }
    };
    for write in view.node_writes.iter().filter(|write| write.engine && write.before.unschedulable) {
        if let Some(owner) = write.before.owner().filter(|_| !write.after.unschedulable) {
            judge(owner.entry, write.request.at, &format!("node {} is uncordoned after", write.name));
        }
    }
    for (&index, line) in &view.endings {
        // the first record is that of the end; later ones add to it
        let Some(step) = line.steps().first() else { continue };
        if step.value.as_ref().is_some_and(|ending| ending.end == EndKind::Booted) {
            judge(EntryId::reboot(index), step.at, "the entry ends as booted:");
        }
    }
    found
}

/// I66, at each run of a hook: the one before it has ended, or must have ended; and a run that has succeeded is not
/// followed by another one for the same drain and command. At the end of a record: its Node has no cordon of the entry,
/// and each hook after the uncordon has run. At each command that an operator ordered: no hook before the uncordon has
/// run since the entry's last command; if one has, the order is for the hook.
pub fn i66(view: &View<'_>) -> Vec<Breach> {
    let mut found = commands_in_place_of_hooks(view);
    for (id, line) in records(view) {
        let mut before: Option<&HookRuns> = None;
        for step in line.steps() {
            let Some(record) = step.value.as_ref() else {
                found.extend(before.and_then(|last| ends_early(view, id, last, step.at)));
                before = None;
                continue;
            };
            let earlier = before.filter(|before| before.since == record.since);
            for run in record.runs.iter().filter(|run| run.outcome.is_none()) {
                let last = earlier.and_then(|before| before.run(&run.hook, run.at, LONG_AGO));
                let Some(last) = last.filter(|last| last.start != run.start) else { continue };
                if let Some(why) = runs_too_early(view, id, last, step.at) {
                    let what = format!("hook {} of {id} runs again {why}", run.hook);
                    found.push(Breach { code: "I66", at: step.at, what });
                }
            }
            before = Some(record);
        }
    }
    found
}

/// Returns each command that an order began, although a hook before the uncordon had run since the last command.
fn commands_in_place_of_hooks(view: &View<'_>) -> Vec<Breach> {
    let records = records(view);
    let mut found = Vec::new();
    for (queue, attempts) in [(QueueKind::Reboot, &view.attempts), (QueueKind::Repair, &view.repair_attempts)] {
        for (&(index, number), line) in attempts {
            let Some(first) = line.steps().first().filter(|step| view.written_by_engine(step.revision)) else {
                continue;
            };
            let id = EntryId { queue, index };
            let ordered = first.value.as_ref().is_some_and(|attempt| attempt.ordered_by.is_some());
            let Some(record) = records.get(&id).and_then(|line| line.before(first.revision)).filter(|_| ordered) else {
                continue;
            };
            let earlier = attempts.range((index, 0)..(index, number)).next_back();
            let last = earlier.and_then(|(_, line)| Some(line.steps().first()?.value.as_ref()?.start));
            let from = last.unwrap_or(record.since);
            let ran = |run: &&HookRun| run.at == HookPoint::BeforeUncordon && run.start > from;
            if let Some(run) = record.runs.iter().find(ran) {
                let what = format!("attempt {number} of {id} begins by an order, although hook {} had run", run.hook);
                found.push(Breach { code: "I66", at: first.at, what });
            }
        }
    }
    found
}

/// Returns the reason why a hook may not run again at this time.
fn runs_too_early(view: &View<'_>, id: EntryId, last: &HookRun, at: Timestamp) -> Option<&'static str> {
    let bound = SignedDuration::from_secs(i64::try_from(last.bound_seconds).unwrap_or(i64::MAX));
    match &last.outcome {
        None => (at < last.start + bound).then_some("while its last run may be running"),
        Some(outcome) if outcome.end.succeeded() => {
            // a further command asks for another judgement, and so does a drain that another program began
            let commands = view.attempts.range((id.index, 0)..=(id.index, u32::MAX));
            let commanded =
                commands.flat_map(|(_, line)| line.steps()).any(|step| step.at > last.start && step.at <= at);
            let drained = drain_start(view, id.index, at) > last.start;
            (!commanded && !drained).then_some("although it has succeeded")
        }
        Some(_) => None,
    }
}

/// Returns a breach if a record ended before its Node was released, or before the hooks after that have run.
fn ends_early(view: &View<'_>, id: EntryId, last: &HookRuns, at: Timestamp) -> Option<Breach> {
    let node = view.nodes.get(last.node.as_str());
    let owned = node.is_some_and(|line| {
        line.throughout(shift(at, -POLICY_AGE), at, |node| {
            node.is_some_and(|node| node.owner().is_some_and(|owner| owner.entry == id))
        })
    });
    if owned {
        let what = format!("the record of hooks of {id} ends while node {} is cordoned for it", last.node);
        return Some(Breach { code: "I66", at, what });
    }
    let mut asked = lasting(view, HookPoint::AfterUncordon, at).into_iter();
    let never = asked
        .find(|name| last.hooks.contains(name) && last.run(name, HookPoint::AfterUncordon, last.since).is_none())?;
    let what = format!("the record of hooks of {id} ends before hook {never} has run");
    Some(Breach { code: "I66", at, what })
}
