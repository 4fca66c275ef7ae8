//! `rq why`: the reason for which an entry does not move, without asking Kubernetes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Context, args::Output, history};
use crate::{
    actions::ActionError,
    clock::{Clock, Now},
    engine::explain,
    model::{entry::EntryId, ours::Progress, reason::Reason, text::visible},
    store::view::StoreView,
};

/// Prints it.
pub async fn run(index: u64, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let view = store.read_view().await?;
    let id = EntryId::reboot(index);
    let Some(stored) = view.reboots.entries.get(&index) else {
        let ended = history::endings(&store, &BTreeSet::from([id])).await?;
        let ending = ended.get(&id).ok_or_else(|| {
            ActionError::failed(format!("entry {id} does not exist and no record says how it ended: see `rq list`"))
        })?;
        return match context.output(Output::Table) {
            Output::Table => {
                context.out.line(&format!("{id} ({}) ended at {}: {}", ending.address, ending.at, ending.outcome))
            }
            form => context.out.value(ending, form),
        };
    };
    let reason = reason(&view, index, store.clock());
    let progress = view.progress.get(&id).and_then(|s| s.get());
    match context.output(Output::Table) {
        Output::Table => {
            let what = match stored.get() {
                Some(entry) => format!("{id} ({}, {})", visible(&entry.node, false), entry.status),
                None => id.to_string(),
            };
            let mut text = format!("{what}: {}\n", visible(&reason.to_string(), false));
            for blocker in progress.iter().flat_map(|p| &p.blockers) {
                text.push_str(&visible(&format!("  {}: {}", blocker.pod, blocker.why), false));
                text.push('\n');
            }
            context.out.text(&text)
        }
        form => {
            let entry = stored.get().and_then(|e| serde_json::to_value(e).ok()).unwrap_or(Value::Null);
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

/// What the leader published, else what etcd itself tells; Kubernetes is not asked.
pub fn reason(view: &StoreView, index: u64, clock: &Clock) -> Reason {
    let now = Now { boot: clock.boot(), wall: clock.wall() };
    explain(view, EntryId::reboot(index), now).unwrap_or(Reason::Ready)
}

/// The leader's word on the entry.
pub fn published(view: &StoreView, index: u64) -> Option<&Progress> {
    view.progress.get(&EntryId::reboot(index)).and_then(|s| s.get())
}
