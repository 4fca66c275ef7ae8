//! `rq why`, `repair-queue why`: the reason why an entry does not move. Kubernetes is queried only while CKE leads,
//! which publishes no reasons.

use std::{collections::BTreeSet, sync::Arc};

use cketerm_actions::{ActionError, repair_state};
use cketerm_clients::kubernetes::KubeError;
use cketerm_model::{
    cketerm_records::{Ending, Progress},
    clock::{Clock, Now},
    entry::EntryId,
    entry_ref::EntryRef,
    kube::{KubeView, NodePods, SourceState},
    names::NodeName,
    reason::Reason,
    repair::RepairEntry,
    stored::view::StoreView,
};
use cketerm_rules::{
    beside_cke,
    explain::{explain, explain_with},
    snapshot::Snapshot,
    trouble::{self, Trouble},
};
use serde_json::{Value, json};

use super::{Context, endings, options::Output, output::Lines};

/// Prints the reason.
pub async fn run(id: EntryId, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let view = store.read_view().await?;
    let Some((what, entry)) = entry(&view, id) else {
        let queue = id.queue.command();
        let ended = endings::endings(&store, &BTreeSet::from([id])).await?;
        let ending = ended.get(&id).ok_or_else(|| {
            ActionError::failed(format!(
                "entry {id} does not exist and no record says how it ended: see `{queue} list`. CKE keeps no such \
                 record: `cketerm audit` has cancels, `cketerm history` has CKE's operations"
            ))
        })?;
        return print_ending(&format!("{id} ({})", ending.address), ending, context);
    };
    // a repair that has ended stays until an operator deletes it, and has no next step
    if let Some(repair) = finished(&view, id) {
        let ended = endings::endings(&store, &BTreeSet::from([id])).await?;
        if let Some(ending) = ended.get(&id) {
            return print_ending(&what, ending, context);
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
    match context.output(Output::Table) {
        Output::Table => {
            let mut lines = Lines::default();
            lines.line(format_args!("{what}: {reason}"));
            for blocker in progress.iter().flat_map(|p| &p.blockers) {
                lines.line(format_args!("  {}: {}", blocker.pod, blocker.why));
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
                "needs_attention": trouble::kept_by(&view, store.clock().wall(), id, &reason) == Some(Trouble::Stuck),
                "progress": progress,
                "reading": beside.then_some("cke"),
            });
            context.out.value(&document, form)
        }
    }
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
        context.print_message(&format!("note: continuing without Kubernetes: {e}"));
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

/// Prints how an entry ended and why, whether it is deleted or still stored.
fn print_ending(what: &str, ending: &Ending, context: &Context) -> Result<(), ActionError> {
    match context.output(Output::Table) {
        Output::Table => context.out.line(&format!("{what} ended at {}: {}", seconds(ending.at), ending.described())),
        form => {
            let shown = endings::shown(ending);
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
