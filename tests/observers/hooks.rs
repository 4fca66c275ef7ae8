//! Hooks of the site around drains (I62 to I64).
//!
//! Only hooks that are for every machine are judged. The policy must have had a hook for longer than a copy may lag.

use std::collections::BTreeMap;

use cketerm_model::{
    cketerm_records::{Order, Verb},
    entry::{EntryId, QueueKind},
    hook_runs::{HookPoint, HookRun, HookRuns},
    labels::Labels,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    power_log,
    record::Breach,
    view::{Timeline, View, shift},
};

/// Time for which the policy must have had a hook that is asked for.
const POLICY_AGE: f64 = 15.0;

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

fn has_succeeded(record: &HookRuns, hook: &str, at: HookPoint) -> bool {
    let outcome = record.run(hook, at).and_then(|run| run.outcome.as_ref());
    outcome.is_some_and(|outcome| outcome.end.succeeded())
}

/// Returns a hook of this moment that the policy had and that has not succeeded for this record.
fn missing(view: &View<'_>, record: &HookRuns, queue: QueueKind, point: HookPoint, at: Timestamp) -> Option<String> {
    let policy = view.policies.at(at)?;
    let hooks = policy.hooks.iter().filter(|hook| hook.at == point && hook.is_for(queue, &Labels::new()));
    let lasting = |name: &str| {
        view.policies.throughout(shift(at, -POLICY_AGE), at, |policy| {
            policy.is_some_and(|policy| policy.hooks.iter().any(|hook| hook.name == name && hook.at == point))
        })
    };
    let mut names = hooks.map(|hook| hook.name.clone());
    names.find(|name| lasting(name) && !has_succeeded(record, name, point))
}

/// I62, at each cordon by an engine and at each first command: every hook before it has succeeded for this drain.
pub fn i62(view: &View<'_>) -> Vec<Breach> {
    let records = records(view);
    let mut found = Vec::new();
    for write in view.node_writes.iter().filter(|write| write.engine && !write.before.unschedulable) {
        let Some(owner) = write.after.owner().filter(|_| write.after.unschedulable) else { continue };
        let at = write.request.at;
        let Some(record) = records.get(&owner.entry).and_then(|line| line.at(at)) else { continue };
        if let Some(hook) = missing(view, record, owner.entry.queue, HookPoint::BeforeDrain, at) {
            let what = format!("node {} is cordoned for {} before hook {hook} has succeeded", write.name, owner.entry);
            found.push(Breach { code: "I62", at, what });
        }
    }
    let mut begun = std::collections::BTreeSet::new();
    for (index, power) in power_log::begins(view).filter(|(index, _)| begun.insert(*index)) {
        let id = EntryId::reboot(index);
        let Some(record) = records.get(&id).and_then(|line| line.at(power.at)) else { continue };
        if let Some(hook) = missing(view, record, id.queue, HookPoint::AfterDrain, power.at) {
            let what = format!("the command of {id} begins before hook {hook} has succeeded");
            found.push(Breach { code: "I62", at: power.at, what });
        }
    }
    found
}

/// I63, at each uncordon by an engine: every hook before it has succeeded, unless an operator ordered the uncordon.
pub fn i63(view: &View<'_>) -> Vec<Breach> {
    let records = records(view);
    let mut found = Vec::new();
    for write in view.node_writes.iter().filter(|write| write.engine && write.before.unschedulable) {
        let Some(owner) = write.before.owner().filter(|_| !write.after.unschedulable) else { continue };
        let (at, id) = (write.request.at, owner.entry);
        let ordered = view.orders.get(&id.index).is_some_and(|orders| {
            let is_uncordon = |order: Option<&Order>| order.is_some_and(|order| order.verb == Verb::Uncordon);
            orders.sometime(shift(at, -POLICY_AGE), at, is_uncordon)
        });
        let record = records.get(&id).and_then(|line| line.at(at));
        let Some(record) = record.filter(|_| !ordered) else { continue };
        if let Some(hook) = missing(view, record, id.queue, HookPoint::BeforeUncordon, at) {
            let what = format!("node {} is uncordoned after {id} before hook {hook} has succeeded", write.name);
            found.push(Breach { code: "I63", at, what });
        }
    }
    found
}

/// I64, at each run of a hook: the one before it has ended, or must have ended; and a run that has succeeded is not
/// followed by another one for the same drain.
pub fn i64(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for (id, line) in records(view) {
        let mut before: Option<&HookRuns> = None;
        for step in line.steps() {
            let Some(record) = step.value.as_ref() else {
                before = None;
                continue;
            };
            let open = |run: &&HookRun| run.outcome.is_none();
            for run in record.runs.iter().filter(open) {
                let last = before.and_then(|before| before.run(&run.hook, run.at));
                let Some(last) = last.filter(|last| last.start != run.start) else { continue };
                let bound = SignedDuration::from_secs(i64::try_from(last.bound_seconds).unwrap_or(i64::MAX));
                let why = match &last.outcome {
                    None if step.at < last.start + bound => "while its last run may be running",
                    Some(outcome) if outcome.end.succeeded() => "although it has succeeded",
                    None | Some(_) => continue,
                };
                let what = format!("hook {} of {id} runs again {why}", run.hook);
                found.push(Breach { code: "I64", at: step.at, what });
            }
            before = Some(record);
        }
    }
    found
}
