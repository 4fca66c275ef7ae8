//! Removal of an unreadable entry: its content is shown first, and only that content is removed.

use cketerm_model::entry::EntryId;

use super::{error::ActionError, operator::Operator};

impl Operator {
    /// Removes the key of an unreadable entry, if it still has the `ModRevision` that was shown.
    pub async fn remove_unreadable(
        &self,
        entry: EntryId,
        revision: i64,
        reason: Option<&str>,
    ) -> Result<(), ActionError> {
        Ok(self.store.remove_unreadable(entry, revision, &self.person, reason).await?)
    }

    /// Returns the refusal for an unreadable entry, with its content and the command that removes it. Returns `None` if
    /// the entry can be read.
    pub(super) async fn unreadable(&self, entry: EntryId) -> Result<Option<ActionError>, ActionError> {
        let Some(found) = self.store.unreadable(entry).await? else { return Ok(None) };
        Ok(Some(ActionError::refused(format!(
            "{entry} cannot be read: {}\na newer program may have written it and may still use it; to remove it \
             anyway: `cketerm {} {} --unreadable {}`",
            found.why,
            entry.queue.remove_command(),
            entry.index,
            found.revision
        ))))
    }
}

/// Text about a node that is cordoned for the entry: the removal undoes nothing that was begun.
pub const LEFT: &str = "stays cordoned until the leader uncordons it; after a command, only once it has booted";
