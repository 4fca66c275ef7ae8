//! Outcomes of reboots, the breaker and canaries (I69 to I71).

use cketerm_model::{
    attempt::Attempt,
    batch::BatchId,
    boot_time::Seconds,
    entry::EntryId,
    outcomes::{BadEnd, BreakerReset, Outcome},
    policy::Policy,
    reboot::RebootStatus,
    time::seconds_between,
};
use jiff::Timestamp;

use super::{
    record::Breach,
    view::{EntryChange, View, in_progress, shift},
};

/// Maximum age of the copy of etcd from which an engine starts work.
const STALE: f64 = 10.0;
/// Difference of two clocks in seconds that is tolerated.
const CLOCKS: f64 = 5.0;

/// An outcome in etcd.
struct Recorded<'v> {
    revision: i64,
    at: Timestamp,
    index: u64,
    outcome: &'v Outcome,
}

/// Returns all outcomes in the order in which they were written.
fn recorded<'v>(view: &'v View<'_>) -> Vec<Recorded<'v>> {
    let written = view.outcomes.iter().filter_map(|(index, line)| {
        let step = line.steps().first()?;
        let outcome = step.value.as_ref()?;
        Some(Recorded { revision: step.revision, at: step.at, index: *index, outcome })
    });
    let mut all: Vec<Recorded<'v>> = written.collect();
    all.sort_unstable_by_key(|recorded| recorded.revision);
    all
}

/// Resets of the breaker, each with its revision and time.
fn resets(view: &View<'_>) -> Vec<(i64, Timestamp, BreakerReset)> {
    let keys = view.record.keys.iter().filter(|change| change.key == "cketerm/breaker-reset");
    keys.filter_map(|c| Some((c.revision, c.at, serde_json::from_slice(c.value.as_deref()?).ok()?))).collect()
}

fn asks_for_outcomes(policy: Option<&Policy>) -> bool {
    policy.is_some_and(|policy| policy.breaker.is_some() || policy.canary.is_some())
}

fn batch_of(view: &View<'_>, index: u64, revision: i64) -> Option<BatchId> {
    view.requests.get(&index)?.get(revision)?.batch
}

/// Batch of a reboot at the end of the record, or at this time if it is gone then.
fn batch_at(view: &View<'_>, index: u64, to: Timestamp) -> Option<BatchId> {
    batch_of(view, index, i64::MAX).or_else(|| view.requests.get(&index)?.at(to)?.batch)
}

/// I69, at each removal of a reboot by an engine, in that very revision: if its command was ever run and the policy asks
/// for outcomes, its outcome is recorded. It is bad if the entry was withdrawn, and if the machine came back after it had
/// counted as stuck; otherwise it is good.
pub fn i69(view: &View<'_>) -> Vec<Breach> {
    let all = recorded(view);
    let mut found = Vec::new();
    for change in view.entry_changes().into_iter().filter(|change| change.engine && change.after.is_none()) {
        let Some(Ok(entry)) = change.before else { continue };
        let policy = view.policies.before(change.revision);
        // a policy that changed just now may not be known yet
        let from = shift(change.at, -STALE);
        if !view.policies.throughout(from, change.at, asks_for_outcomes) {
            continue;
        }
        let first = view.attempts.range((change.index, 0)..(change.index + 1, 0));
        let was_run = first.into_iter().any(|(_, line)| line.before(change.revision).is_some_and(Attempt::began));
        let outcome = all.iter().find(|r| r.index == change.index && r.revision == change.revision);
        let mut breach = |what: String| found.push(Breach { code: "I69", at: change.at, what });
        match outcome {
            None if was_run => breach(format!("reboots/{} ends without an outcome", change.index)),
            Some(_) if !was_run => breach(format!("reboots/{} has an outcome, but no command was run", change.index)),
            Some(Recorded { outcome, .. }) => {
                let seconds = entry.last_transition_time.map_or(0.0, |since| seconds_between(since, change.at).get());
                let stuck = policy.map_or(f64::MAX, |policy| Seconds::from(policy.stuck_seconds).get());
                let is_withdrawn = entry.status != RebootStatus::Rebooting;
                let is_right = match outcome.bad {
                    Some(BadEnd::Withdrawn) => is_withdrawn || outcome_is_of_stranger(view, &change),
                    Some(BadEnd::Late) => !is_withdrawn && seconds >= stuck - CLOCKS,
                    None => !is_withdrawn && seconds < stuck + CLOCKS,
                };
                if !is_right {
                    breach(format!(
                        "reboots/{} ends {:?} after {seconds:.0} s in {:?}",
                        change.index, outcome.bad, entry.status
                    ));
                }
            }
            None => {}
        }
    }
    found
}

/// Reports whether the machine of an entry is no member: its entry is withdrawn in any state.
fn outcome_is_of_stranger(view: &View<'_>, change: &EntryChange<'_>) -> bool {
    let Some(Ok(entry)) = change.before else { return false };
    let known = view.clusters.before(change.revision);
    known.is_none_or(|cluster| !cluster.nodes.iter().any(|node| node.address == entry.node))
}

/// I70, at each start by an engine: the breaker was not open since before its copy of etcd. Not covered: machines that are
/// stuck, which count too.
pub fn i70(view: &View<'_>) -> Vec<Breach> {
    let (all, resets) = (recorded(view), resets(view));
    let mut found = Vec::new();
    for start in view.entry_changes().into_iter().filter(EntryChange::starts) {
        let from = shift(start.at, -STALE);
        let Some(breaker) = view.policies.before(start.revision).and_then(|policy| policy.breaker.clone()) else {
            continue;
        };
        if !view.policies.throughout(from, start.at, |p| p.is_some_and(|p| p.breaker.as_ref() == Some(&breaker))) {
            continue;
        }
        let reset = resets.iter().rfind(|(revision, ..)| *revision < start.revision);
        let (since, forgiven) = reset.map_or((0, &[][..]), |(revision, _, reset)| (*revision, &reset.forgiven[..]));
        let counted =
            all.iter().filter(|r| r.revision > since && r.at < from && !forgiven.contains(&EntryId::reboot(r.index)));
        let bad: Vec<bool> = counted.map(|r| r.outcome.bad.is_some()).collect();
        let of = usize::try_from(breaker.of).unwrap_or(usize::MAX).min(bad.len()).max(1);
        let failed = |lot: &[bool]| lot.iter().filter(|bad| **bad).count() as u64 >= breaker.failures;
        if bad.windows(of).any(failed) {
            let what = format!("reboots/{} starts although {} of {} ended badly", start.index, breaker.failures, of);
            found.push(Breach { code: "I70", at: start.at, what });
        }
    }
    found
}

/// Reports whether a reboot may have waited for the canaries of its batch, or for an operator who resets the breaker, at any
/// moment of this time.
pub fn sometime_behind_canaries(view: &View<'_>, index: u64, from: Timestamp, to: Timestamp) -> bool {
    let canary = view.policies.at(to).and_then(|policy| policy.canary.clone());
    let Some(canary) = canary else { return false };
    let Some(batch) = batch_at(view, index, to) else { return false };
    let all = recorded(view);
    let booted: Vec<Timestamp> = all
        .iter()
        .filter(|r| r.outcome.batch == Some(batch) && r.outcome.bad.is_none() && r.at <= from)
        .map(|r| r.at)
        .collect();
    let first = usize::try_from(canary.first).unwrap_or(usize::MAX);
    let soak = Seconds::from(canary.soak_seconds).get() + CLOCKS;
    // a canary that is not Ready at that time holds the others back too, and only the leader saw that
    booted.len() <= first || booted.get(first - 1).is_none_or(|last| seconds_between(*last, from).get() < soak)
}

/// I71, at each start by an engine of an entry of a batch, in that very revision: as many of the batch's machines have
/// booted as the policy's canaries, and the last of those has been back for the soak time; or the entry is one of the
/// canaries. Not covered: whether the canaries are Ready.
pub fn i71(view: &View<'_>) -> Vec<Breach> {
    let all = recorded(view);
    let mut found = Vec::new();
    for start in view.entry_changes().into_iter().filter(EntryChange::starts) {
        let before = start.revision - 1;
        let Some(canary) = view.policies.get(before).and_then(|policy| policy.canary.clone()) else { continue };
        let Some(batch) = batch_of(view, start.index, before) else { continue };
        // outcomes of a time without the policy are not recorded
        let asked = view.requests.get(&start.index).and_then(|line| line.steps().first()).map(|step| step.at);
        let is_canary = |policy: Option<&Policy>| policy.is_some_and(|policy| policy.canary.as_ref() == Some(&canary));
        if !asked.is_some_and(|asked| view.policies.throughout(asked, start.at, is_canary)) {
            continue;
        }
        let good =
            |r: &&Recorded<'_>| r.outcome.batch == Some(batch) && r.outcome.bad.is_none() && r.revision <= before;
        let booted: Vec<&Recorded<'_>> = all.iter().filter(good).collect();
        let others = view.entries.iter().filter(|(index, line)| {
            **index != start.index && batch_of(view, **index, before) == Some(batch) && in_progress(line.get(before))
        });
        let in_work = others.count() as u64;
        let mut breach = |what: String| found.push(Breach { code: "I71", at: start.at, what });
        if (booted.len() as u64) < canary.first {
            if booted.len() as u64 + in_work >= canary.first {
                breach(format!("reboots/{} starts beside {in_work} canaries of batch {batch}", start.index));
            }
            continue;
        }
        let has_passed = booted.len() as u64 + in_work > canary.first;
        let last = booted[usize::try_from(canary.first).unwrap_or(1) - 1];
        if !has_passed && seconds_between(last.at, start.at).get() + CLOCKS < Seconds::from(canary.soak_seconds).get() {
            breach(format!("reboots/{} starts before the soak time of batch {batch} is over", start.index));
        }
    }
    found
}
