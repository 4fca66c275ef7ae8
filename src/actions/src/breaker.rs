//! The outcomes and entries that the breaker of the reboot queue counts, for the operator who resets it.

use std::fmt;

use cketerm_model::{entry::EntryId, reboot::RebootStatus, stored::view::StoreView};
use cketerm_rules::outcomes::since_reset;

use super::{error::ActionError, operator::Operator};

/// Outcomes and entries that count until a reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BreakerContent {
    /// Number of reboots that ended since the last reset, without those that it forgave.
    pub ended: usize,
    /// Number of those that ended badly.
    pub bad: usize,
    /// Entries in reboot.
    pub in_reboot: Vec<EntryId>,
}

impl BreakerContent {
    /// Returns what counts now.
    pub fn of(view: &StoreView) -> Self {
        let ended = since_reset(view);
        let bad = ended.iter().filter(|outcome| outcome.bad.is_some()).count();
        let in_reboot = view.reboots.entries.iter();
        let in_reboot =
            in_reboot.filter(|(_, stored)| stored.get().is_some_and(|e| e.status == RebootStatus::Rebooting));
        Self { ended: ended.len(), bad, in_reboot: in_reboot.map(|(index, _)| EntryId::reboot(*index)).collect() }
    }
}

impl Operator {
    /// Resets the breaker of the reboot queue, and returns what no longer counts. Without anything that counts, nothing is
    /// written.
    pub async fn reset_breaker(&self, reason: Option<&str>) -> Result<BreakerContent, ActionError> {
        let view = self.store.read_view().await?;
        if view.policy().breaker.is_none() {
            return Err(ActionError::refused("there is no breaker: policy breaker is not set".to_owned()));
        }
        let content = BreakerContent::of(&view);
        if content == BreakerContent::default() {
            return Ok(content);
        }
        let Some(reason) = reason.filter(|reason| !reason.trim().is_empty()) else {
            return Err(ActionError::misused("a reset of the breaker needs a reason: give --reason TEXT".to_owned()));
        };
        self.store.reset_breaker(&content.in_reboot, &self.person, reason).await?;
        Ok(content)
    }
}

impl fmt::Display for BreakerContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return f.write_str("nothing had ended, and nothing is in reboot");
        }
        write!(f, "{} of {} reboots had ended badly; {} in reboot", self.bad, self.ended, self.in_reboot.len())?;
        if self.in_reboot.is_empty() { Ok(()) } else { f.write_str(", which no longer count") }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cketerm_model::{
        cketerm_records::Who,
        entry::Stored,
        names::Address,
        outcomes::{BadEnd, BreakerReset, Outcome},
        reboot::RebootEntry,
    };
    use jiff::Timestamp;

    use super::*;

    fn stored<T>(mod_revision: i64, value: T) -> Stored<T> {
        Stored { key: String::new(), mod_revision, value: Ok(Arc::new(value)) }
    }

    fn outcome(bad: Option<BadEnd>) -> Outcome {
        let address = Address::new("10.0.0.1");
        Outcome { address, at: Timestamp::UNIX_EPOCH, bad, stuck_at: None, batch: None }
    }

    #[test]
    fn reboots_that_ended_after_the_last_reset_count_unless_it_forgave_them() {
        let mut view = StoreView::default();
        let late = Some(BadEnd::Late);
        for (index, revision, bad) in [(1, 5, late), (2, 11, late), (3, 12, None), (4, 13, late)] {
            view.outcomes.insert(index, stored(revision, outcome(bad)));
        }
        assert_eq!(BreakerContent::of(&view), BreakerContent { ended: 4, bad: 3, in_reboot: Vec::new() });
        let who = Who { user: "ann".to_owned(), host: "h".to_owned(), ssh_client: None };
        let reset = BreakerReset { who, at: Timestamp::UNIX_EPOCH, reason: None, forgiven: vec![EntryId::reboot(2)] };
        view.breaker_reset = Some(stored(10, reset));
        assert_eq!(BreakerContent::of(&view), BreakerContent { ended: 2, bad: 1, in_reboot: Vec::new() });
    }

    #[test]
    fn only_readable_entries_in_reboot_are_forgiven_by_a_reset() {
        let mut view = StoreView::default();
        for (index, status) in [(1, RebootStatus::Queued), (2, RebootStatus::Draining), (3, RebootStatus::Rebooting)] {
            let entry = RebootEntry::queued(index, &Address::new("10.0.0.1")).moved_to(status, Timestamp::UNIX_EPOCH);
            view.reboots.entries.insert(index, stored(1, entry));
        }
        let unreadable = Stored { key: String::new(), mod_revision: 1, value: Err("no JSON".to_owned()) };
        view.reboots.entries.insert(4, unreadable);
        assert_eq!(BreakerContent::of(&view).in_reboot, [EntryId::reboot(3)]);
    }

    #[test]
    fn a_reset_says_what_no_longer_counts() {
        let some = BreakerContent { ended: 3, bad: 2, in_reboot: vec![EntryId::reboot(7)] };
        assert_eq!(some.to_string(), "2 of 3 reboots had ended badly; 1 in reboot, which no longer count");
        let none = BreakerContent { in_reboot: Vec::new(), ..some };
        assert_eq!(none.to_string(), "2 of 3 reboots had ended badly; 0 in reboot");
        assert_eq!(BreakerContent::default().to_string(), "nothing had ended, and nothing is in reboot");
    }
}
