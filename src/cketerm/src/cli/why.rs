//! `rq why`, `repair-queue why`: the reason why an entry does not move. Kubernetes is queried only while CKE leads,
//! which publishes no reasons.

use std::{collections::BTreeSet, sync::Arc};

use cketerm_actions::{ActionError, repair_state};
use cketerm_clients::kubernetes::KubeError;
use cketerm_model::{
    acceptance::LeaderKind,
    cketerm_records::{Ending, Progress},
    clock::{Clock, Now},
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    hook_runs::HookRuns,
    kube::{KubeView, NodePods, SourceState},
    names::NodeName,
    reason::{Blocker, Reason},
    repair::RepairEntry,
    stored::view::StoreView,
};
use cketerm_rules::{
    beside_cke,
    explain::{explain, explain_with},
    snapshot::Snapshot,
    trouble::{self, Trouble},
    usual::text::span,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Context, masked::masked, options::Output, output::Lines};

/// Prints the reason.
pub async fn run(id: EntryId, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let view = store.read_view().await?;
    let Some((what, entry)) = entry(&view, id) else {
        let queue = id.queue.command();
        let ended = store.ends_of(&BTreeSet::from([id])).await?;
        let ending = ended.get(&id).ok_or_else(|| {
            ActionError::failed(format!(
                "entry {id} does not exist and no record says how it ended: see `{queue} list`. CKE keeps no such \
                 record: `cketerm audit` has cancels, `cketerm history` has CKE's operations"
            ))
        })?;
        let hooks = view.hooks.get(&id).and_then(Stored::get);
        return print_ending(&format!("{id} ({})", ending.address), ending, hooks, context);
    };
    // a repair that has ended stays until an operator deletes it, and has no next step
    if let Some(repair) = finished(&view, id) {
        let ended = store.ends_of(&BTreeSet::from([id])).await?;
        if let Some(ending) = ended.get(&id) {
            let hooks = view.hooks.get(&id).and_then(Stored::get);
            return print_ending(&what, ending, hooks, context);
        }
        let (at, status) = (repair.last_transition_time, repair.status);
        let outcome = format!("{status}; no record says why: another program ended it");
        return match context.output(Output::Table) {
            Output::Table => {
                let at = at.map(|at| format!(" at {}", seconds(at))).unwrap_or_default();
                context.out.line(&format!("{what} ended{at}: {outcome}"))
            }
            form => {
                let document =
                    json!({"entry": id, "address": repair.address, "outcome": outcome, "at": at, "last": entry});
                context.out.value(&document, form)
            }
        };
    }
    let now = Now { boot: store.clock().boot(), wall: store.clock().wall() };
    let beside = beside_cke::applies(&view);
    let kube = if beside { read_kubernetes(&view, id, context).await } else { KubeView::default() };
    let (reason, progress) = explain_with(&view, kube, id, now).unwrap_or((Reason::Ready, None));
    let progress = progress.as_ref().or_else(|| published(&view, id));
    let blockers = progress.map(|progress| progress.blockers.as_slice()).unwrap_or_default();
    let next = next_step(&view, id, &reason, blockers, now.wall);
    match context.output(Output::Table) {
        Output::Table => {
            let mut lines = Lines::default();
            match (&reason, view.leadership().lead) {
                (Reason::Backoff { .. }, LeaderKind::Nobody) => {
                    lines.line(format_args!("{what}: nobody leads, so nothing is tried; {reason}"));
                }
                (_, _) => lines.line(format_args!("{what}: {reason}")),
            }
            for blocker in progress.iter().flat_map(|p| &p.blockers) {
                lines.line(format_args!("  {}: {}", blocker.pod, blocker.why));
            }
            for run in view.hooks.get(&id).and_then(Stored::get).iter().flat_map(|record| &record.runs) {
                lines.line(format_args!("  {run}"));
            }
            if let Some(next) = &next {
                lines.line(format_args!("  next: {next}"));
            }
            if beside {
                let deadline = progress.and_then(|p| p.next).map(|next| format!("; next event {}", seconds(next)));
                let leader = view.leadership().message;
                lines.line(format_args!("  ({leader}; {}{})", beside_cke::LABEL, deadline.unwrap_or_default()));
            }
            context.out.text(lines)
        }
        form => {
            let document = json!({
                "entry": entry,
                "reason": reason,
                "text": reason.to_string(),
                "next": next,
                "needs_attention": trouble::kept_by(&view, store.clock().wall(), id, &reason) == Some(Trouble::Stuck),
                "progress": progress,
                "hooks": view.hooks.get(&id).and_then(Stored::get).map(|record| &record.runs),
                "reading": beside.then_some("cke"),
            });
            context.out.value(&document, form)
        }
    }
}

/// Budgets of which the next step names the remedy, at most.
const MAX_REMEDIES: usize = 3;

/// Returns what a person has to change because no waiting helps, and what happens next to an entry that backs off.
/// `None` for other reasons, whose text says it.
fn next_step(view: &StoreView, id: EntryId, reason: &Reason, blockers: &[Blocker], now: Timestamp) -> Option<String> {
    let remedies = remedies(reason, blockers);
    let retry = next_try(view, id, reason, now);
    if remedies.is_empty() {
        return retry;
    }
    let retry = retry.map(|retry| format!("; {retry}")).unwrap_or_default();
    Some(format!("{}; waiting alone does not help{retry}", remedies.join("; ")))
}

/// Returns the changes without which budgets never allow an eviction: that of the reason first, then those of the other
/// blockers of a drain, each once.
fn remedies(reason: &Reason, blockers: &[Blocker]) -> Vec<String> {
    // the blockers of an entry that does not drain are those of its last drain
    let blockers = if matches!(reason, Reason::Backoff { .. }) { &[] } else { blockers };
    let mut all = Vec::new();
    let of_blockers = blockers.iter().filter_map(|blocker| blocker.why.budget_remedy());
    for remedy in reason.budget_remedy().into_iter().chain(of_blockers) {
        if all.len() < MAX_REMEDIES && !all.contains(&remedy) {
            all.push(remedy);
        }
    }
    all
}

/// Returns when an entry that backs off is tried again, and the command that moves it on at once.
fn next_try(view: &StoreView, id: EntryId, reason: &Reason, now: Timestamp) -> Option<String> {
    let Reason::Backoff { until, .. } = reason else { return None };
    let (at, left) = (seconds(*until), span(until.duration_since(now)));
    let reset = format!("`cketerm {} reset-backoff {}`", id.queue.command(), id.index);
    let leadership = view.leadership();
    let after = match leadership.lead {
        LeaderKind::Nobody => {
            return Some(format!(
                "an engine has to lead: start one (`systemctl start cketerm`, or `cketerm` and T); it tries again after \
                 {at}, or at once after {reset}"
            ));
        }
        LeaderKind::Yielding => format!("{}; the next leader tries again after {at}", leadership.message),
        LeaderKind::Cketerm | LeaderKind::Cke | LeaderKind::Unknown => format!("tried again at {at}, in {left}"),
    };
    if !view.switch(id.queue).enabled() {
        return Some(format!(
            "the queue is disabled: `cketerm {} enable`, then {after}, or at once after {reset}",
            id.queue.command()
        ));
    }
    Some(format!("{after}; {reset} tries it in the next pass"))
}

/// Reads what CKE's rules depend on: Nodes, namespaces, budgets, and the pods of the entry's machine if CKE drains it or
/// gave its drain up. Without Kubernetes the view is empty, and the reason says what is unknown.
async fn read_kubernetes(view: &StoreView, id: EntryId, context: &Context) -> KubeView {
    let read = async {
        let kube = context.kube("the pods and nodes that CKE's rules depend on").await?;
        let failed = |e: KubeError| ActionError::failed(e.to_string());
        let (drain, nodes) = tokio::join!(kube.read_drain_objects(), kube.nodes());
        let mut read = drain.map_err(failed)?;
        nodes.map_err(failed)?.into_iter().for_each(|row| read.put_node(row));
        let entry = view.entry(id).filter(|entry| entry.claims_machine() || entry.backoff_count() > 0);
        let name = entry.map(|entry| {
            let snap = Snapshot { store: Arc::new(view.clone()), ..Snapshot::default() };
            NodeName::new(snap.machine(entry.address()))
        });
        if let Some(name) = name.filter(|name| read.nodes.contains_key(name)) {
            let pods = kube.pods_on(&name).await.map_err(failed)?;
            let pods = pods.into_iter().map(|pod| (pod.uid.clone(), Arc::new(pod))).collect();
            read.pods.insert(name, NodePods { synced: true, pods, ..NodePods::default() });
        }
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
            read.sources.insert(source.to_owned(), SourceState { synced: true, ..SourceState::default() });
        }
        Ok::<KubeView, ActionError>(read)
    };
    read.await.unwrap_or_else(|e| {
        context.print_message(&format!("warning: continuing without Kubernetes: {e}"));
        KubeView::default()
    })
}

/// Formats a time for people.
fn seconds(at: jiff::Timestamp) -> impl std::fmt::Display {
    at.strftime("%FT%TZ")
}

/// Returns a repair that has succeeded or failed and is still stored.
fn finished(view: &StoreView, id: EntryId) -> Option<&RepairEntry> {
    view.entry(id)?.as_repair().filter(|e| e.finished())
}

/// Prints how an entry ended and why, whether it is deleted or still stored. `hooks`: those of its last drain, if they
/// have not all ended.
fn print_ending(what: &str, ending: &Ending, hooks: Option<&HookRuns>, context: &Context) -> Result<(), ActionError> {
    match context.output(Output::Table) {
        Output::Table => {
            let mut lines = Lines::default();
            lines.line(format_args!("{what} ended at {}: {}", seconds(ending.at), ending.described()));
            if let Some(record) = hooks {
                lines.line(format_args!("  hooks of its last drain, for Node {}:", record.node));
                record.runs.iter().for_each(|run| lines.line(format_args!("  {run}")));
                lines.line(format_args!(
                    "  the Node stays cordoned until those before the uncordon have succeeded, or `cketerm nodes \
                     uncordon {}`",
                    record.node
                ));
            }
            context.out.text(lines)
        }
        form => {
            let shown = masked(ending);
            context.out.value(&shown.map_err(|e| ActionError::failed(format!("cannot be written: {e}")))?, form)
        }
    }
}

/// Returns an entry's label and its JSON (null if it is unreadable), or `None` if there is no such entry.
fn entry(view: &StoreView, id: EntryId) -> Option<(String, Value)> {
    let entry = view.stored_entry(id)?.get();
    let what = match entry {
        None => id.to_string(),
        Some(EntryRef::Reboot(e)) => format!("{id} ({}, {})", e.node, e.status),
        Some(EntryRef::Repair(e)) => {
            format!("{id} ({} {} {}, {})", e.address, e.machine_type, e.operation, repair_state(e))
        }
        Some(EntryRef::Maintenance(e)) => format!("{id} ({}, {}, until {})", e.node, e.status, e.until),
    };
    Some((what, entry.and_then(|e| serde_json::to_value(e).ok()).unwrap_or(Value::Null)))
}

/// Returns the reason that the leader published, else the one that etcd's state gives. Kubernetes is not queried.
pub fn reason(view: &StoreView, id: EntryId, clock: &Clock) -> Reason {
    let now = Now { boot: clock.boot(), wall: clock.wall() };
    explain(view, id, now).unwrap_or(Reason::Ready)
}

/// Returns the progress that the leader published for the entry.
pub fn published(view: &StoreView, id: EntryId) -> Option<&Progress> {
    view.progress.get(&id).and_then(|s| s.get())
}

#[cfg(test)]
mod tests {
    use cketerm_model::{
        reason::{
            PodHold,
            budget_cause::{BudgetCause, Exclusion, Opens},
        },
        stored::view::{Candidate, Switch},
    };

    use super::*;

    fn view(candidate: bool) -> StoreView {
        let mut view = StoreView::default();
        if candidate {
            let cke = Candidate { key: "/cke/leader//10".into(), lease: 16, host: "a".into(), create_revision: 1 };
            view.candidates.insert(1, cke);
        }
        view
    }

    /// `rq why` named no next step for a backoff whose cause is unknown.
    #[test]
    fn the_next_step_of_a_backed_off_entry_is_always_named() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let until = "2026-11-21T10:04:00Z".parse().unwrap();
        let reason = Reason::Backoff { count: 1, until, cause: None, tried: None };
        let next = |view: &StoreView, id| next_step(view, id, &reason, &[], now).unwrap();
        let led = next(&view(true), EntryId::reboot(7));
        assert!(led.starts_with("tried again at 2026-11-21T10:04:00Z, in 4m"), "{led}");
        assert!(led.contains("`cketerm rq reset-backoff 7`"), "{led}");
        let repair = next(&view(true), EntryId::repair(7));
        assert!(repair.contains("`cketerm repair-queue reset-backoff 7`"), "{repair}");
        let nobody = next(&view(false), EntryId::reboot(7));
        assert!(nobody.starts_with("an engine has to lead: start one"), "{nobody}");
        let mut disabled = view(true);
        disabled.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 1 };
        let disabled = next(&disabled, EntryId::reboot(7));
        assert!(disabled.starts_with("the queue is disabled: `cketerm rq enable`"), "{disabled}");
        assert_eq!(next_step(&view(true), EntryId::reboot(7), &Reason::Ready, &[], now), None);
    }

    /// `rq why` of a drain that no budget will ever allow said only when it is tried again.
    #[test]
    fn the_next_step_is_what_opens_a_budget_that_never_allows_an_eviction() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let hold = |budget: &str, because| PodHold::Budget {
            budget: budget.to_owned(),
            healthy: 2,
            needed: 2,
            cause: Some(Box::new(BudgetCause {
                opens: Opens::Never { because },
                pods: 2,
                unhealthy: Vec::new(),
                more: 0,
                deadlock: Vec::new(),
            })),
        };
        let blocker = |pod: &str, why| Blocker { pod: pod.to_owned(), why };
        let PodHold::Budget { cause, .. } = hold("shop/web", Exclusion::NoneUnavailable) else { panic!() };
        let (pod, pdb) = ("shop/web-1".to_owned(), "shop/web".to_owned());
        let never = Reason::PdbNeverAllows { pod, pdb, healthy: 2, needed: 2, pods: 2, cause };
        let blockers = [
            blocker("shop/web-1", hold("shop/web", Exclusion::NoneUnavailable)),
            blocker("shop/web-2", hold("shop/web", Exclusion::NoneUnavailable)),
            blocker("shop/db-0", hold("shop/db", Exclusion::OneReplica)),
            blocker("shop/api-0", PodHold::Leaving),
        ];
        let next = |reason: &Reason| next_step(&view(true), EntryId::reboot(7), reason, &blockers, now).unwrap();
        assert_eq!(
            next(&never),
            "set maxUnavailable of pdb shop/web to 1 or more; run 2 replicas, or replace minAvailable of pdb shop/db by \
             maxUnavailable: 1; waiting alone does not help"
        );
        let until = "2026-11-21T10:04:00Z".parse().unwrap();
        let backoff = Reason::Backoff { count: 1, until, cause: Some(Box::new(never)), tried: None };
        assert_eq!(
            next(&backoff),
            "set maxUnavailable of pdb shop/web to 1 or more; waiting alone does not help; tried again at \
             2026-11-21T10:04:00Z, in 4m; `cketerm rq reset-backoff 7` tries it in the next pass"
        );
    }
}
