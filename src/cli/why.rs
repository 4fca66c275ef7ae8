//! `rq why`, `repair-queue why`: the reason for which an entry does not move, without asking Kubernetes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Context, args::Output, history};
use crate::{
    actions::{ActionError, repair_state},
    clock::{Clock, Now},
    engine::explain,
    model::{
        entry::{EntryId, QueueKind},
        ours::Progress,
        reason::Reason,
        text::visible,
    },
    store::view::StoreView,
};

/// Prints it.
pub async fn run(id: EntryId, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let view = store.read_view().await?;
    let Some((what, entry)) = entry(&view, id) else {
        let ended = history::endings(&store, &BTreeSet::from([id])).await?;
        let list = match id.queue {
            QueueKind::Reboot => "rq list",
            QueueKind::Repair => "repair-queue list",
        };
        let ending = ended.get(&id).ok_or_else(|| {
            ActionError::failed(format!("entry {id} does not exist and no record says how it ended: see `{list}`"))
        })?;
        return match context.output(Output::Table) {
            Output::Table => {
                context.out.line(&format!("{id} ({}) ended at {}: {}", ending.address, ending.at, ending.outcome))
            }
            form => context.out.value(ending, form),
        };
    };
    let reason = reason(&view, id, store.clock());
    let progress = view.progress.get(&id).and_then(|s| s.get());
    match context.output(Output::Table) {
        Output::Table => {
            let mut text = format!("{what}: {}\n", visible(&reason.to_string(), false));
            for blocker in progress.iter().flat_map(|p| &p.blockers) {
                text.push_str(&visible(&format!("  {}: {}", blocker.pod, blocker.why), false));
                text.push('\n');
            }
            context.out.text(&text)
        }
        form => {
            let said = json!({
                "entry": entry,
                "reason": reason,
                "text": reason.to_string(),
                "needs_attention": reason.needs_attention(),
                "progress": progress,
            });
            context.out.value(&said, form)
        }
    }
}

/// An entry as a line names it, and as JSON (null where it cannot be read); none where there is no such entry.
fn entry(view: &StoreView, id: EntryId) -> Option<(String, Value)> {
    fn value<E: serde::Serialize>(entry: Option<&E>) -> Value {
        entry.and_then(|e| serde_json::to_value(e).ok()).unwrap_or(Value::Null)
    }
    match id.queue {
        QueueKind::Reboot => {
            let entry = view.reboots.entries.get(&id.index)?.get();
            let what = entry.map(|e| format!("{id} ({}, {})", visible(&e.node, false), e.status));
            Some((what.unwrap_or_else(|| id.to_string()), value(entry)))
        }
        QueueKind::Repair => {
            let entry = view.repairs.entries.get(&id.index)?.get();
            let what = entry.map(|e| {
                let named = visible(&format!("{} {} {}", e.address, e.machine_type, e.operation), false);
                format!("{id} ({named}, {})", repair_state(e))
            });
            Some((what.unwrap_or_else(|| id.to_string()), value(entry)))
        }
    }
}

/// What the leader published, else what etcd itself tells; Kubernetes is not asked.
pub fn reason(view: &StoreView, id: EntryId, clock: &Clock) -> Reason {
    let now = Now { boot: clock.boot(), wall: clock.wall() };
    explain(view, id, now).unwrap_or(Reason::Ready)
}

/// The leader's word on the entry.
pub fn published(view: &StoreView, id: EntryId) -> Option<&Progress> {
    view.progress.get(&id).and_then(|s| s.get())
}
