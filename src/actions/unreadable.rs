//! Removing an entry that cannot be read: what lies there is shown first, and only that is removed.

use super::{ActionError, Operator};
use crate::model::entry::{EntryId, QueueKind};

impl Operator {
    /// Removes the key of an entry that cannot be read, as it was shown at this `ModRevision`.
    pub async fn remove_unreadable(
        &self,
        entry: EntryId,
        revision: i64,
        reason: Option<&str>,
    ) -> Result<(), ActionError> {
        Ok(self.store.remove_unreadable(entry, revision, &self.who, reason).await?)
    }

    /// The refusal for one that cannot be read, with what lies there and the word that removes just that; none where it
    /// can be read.
    pub(super) async fn unreadable(&self, entry: EntryId) -> Result<Option<ActionError>, ActionError> {
        let Some(found) = self.store.unreadable(entry).await? else { return Ok(None) };
        Ok(Some(ActionError::refused(format!(
            "{entry} cannot be read: {}\na newer program may have written it, and may be at work on it; to remove it as it \
             is: `cketerm {} {} --unreadable {}`",
            found.why,
            removing(entry.queue),
            entry.index,
            found.revision
        ))))
    }
}

/// The word that removes an entry of this queue.
pub fn removing(queue: QueueKind) -> &'static str {
    match queue {
        QueueKind::Reboot => "rq cancel",
        QueueKind::Repair => "repair-queue delete",
    }
}

/// What becomes of a node that is cordoned for it: nothing that was begun is undone by the removal.
pub const LEFT: &str = "stays cordoned until the leader lets it go: where a command was run, not before it has booted";
