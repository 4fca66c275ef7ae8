//! `rq why`, `repair-queue why`: the reason why an entry does not move, without a query of Kubernetes.

use std::collections::BTreeSet;

use cketerm_actions::{ActionError, repair_state};
use cketerm_model::{
    cketerm_records::{Ending, Progress},
    clock::{Clock, Now},
    entry::EntryId,
    entry_ref::EntryRef,
    reason::Reason,
    repair::RepairEntry,
    stored::view::StoreView,
};
use cketerm_rules::{
    explain::explain,
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
                "entry {id} does not exist and no record says how it ended: see `{queue} list`"
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
    let reason = reason(&view, id, store.clock());
    let progress = view.progress.get(&id).and_then(|s| s.get());
    match context.output(Output::Table) {
        Output::Table => {
            let mut lines = Lines::default();
            lines.line(format_args!("{what}: {reason}"));
            for blocker in progress.iter().flat_map(|p| &p.blockers) {
                lines.line(format_args!("  {}: {}", blocker.pod, blocker.why));
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
            });
            context.out.value(&document, form)
        }
    }
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
        Output::Table => context.out.line(&format!("{what} ended at {}: {}", seconds(ending.at), ending.outcome)),
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
