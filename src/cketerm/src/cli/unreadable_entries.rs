//! Unreadable entries of the queues: lists name them, and an operator can remove them.

use cketerm_actions::{ActionError, LEFT};
use cketerm_model::{
    entry::{EntryId, QueueKind, Stored, format_indexes},
    stored::view::StoreView,
    text::visible,
};
use imbl::OrdMap;
use serde::Serialize;
use serde_json::Value;

use super::{Context, options::Reason};

/// Returns the indexes of unreadable entries in the reboot queue.
pub fn unreadable_indexes(view: &StoreView) -> Vec<u64> {
    view.reboots.entries.iter().filter(|(_, stored)| stored.get().is_none()).map(|(index, _)| *index).collect()
}

/// Returns the error for unreadable entries that were left in the reboot queue: exit status 5.
pub fn unreadable_error(left: &[u64]) -> Result<(), ActionError> {
    let Some(first) = left.first() else { return Ok(()) };
    Err(ActionError::unreadable(format!(
        "unreadable entries are left: {}; `cketerm rq cancel {first}` shows one and how to remove it",
        format_indexes(left)
    )))
}

/// Returns the readable entries, and an error that names the unreadable ones. The caller returns the error after it has
/// printed the others.
pub fn split_readable<T: Serialize + Clone>(
    queue: QueueKind,
    entries: &OrdMap<u64, Stored<T>>,
) -> (Vec<Value>, Result<(), ActionError>) {
    let (mut good, mut broken) = (Vec::new(), Vec::new());
    for (index, stored) in entries {
        match &stored.value {
            Ok(entry) => match serde_json::to_value(entry.as_ref()) {
                Ok(value) => good.push(value),
                Err(e) => broken.push(format!("{} cannot be written: {e}", stored.key)),
            },
            Err(why) => broken.push(visible(
                &format!(
                    "{} cannot be read: {why}; others go on; fix it with etcdctl or remove it: `cketerm {} {index}`",
                    stored.key,
                    queue.remove_command()
                ),
                false,
            )),
        }
    }
    let result = if broken.is_empty() { Ok(()) } else { Err(ActionError::unreadable(broken.join("\n"))) };
    (good, result)
}

/// Inserts a row for each unreadable entry among the others, which are sorted by index.
pub fn insert_unreadable<T: Clone>(
    rows: &mut Vec<Vec<String>>,
    entries: &OrdMap<u64, Stored<T>>,
    row: impl Fn(&str, &str) -> Vec<String>,
) {
    for (place, (index, stored)) in entries.iter().enumerate() {
        if let Err(why) = &stored.value {
            rows.insert(place.min(rows.len()), row(&index.to_string(), &visible(why, false)));
        }
    }
}

/// Removes an unreadable entry of either queue, if it still has this revision.
pub async fn remove_unreadable(
    id: EntryId,
    revision: i64,
    reason: &Reason,
    context: &Context,
) -> Result<(), ActionError> {
    context.operator().await?.remove_unreadable(id, revision, reason.get()).await?;
    context.print_message(&format!("removed: {}; a node that is cordoned for it {LEFT}", id.index));
    Ok(())
}
