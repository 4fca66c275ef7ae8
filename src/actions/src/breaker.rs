//! The outcomes and entries that the breaker of the reboot queue counts, for the operator who resets it.

use std::fmt;

use cketerm_model::{
    entry::{EntryId, Stored},
    reboot::RebootStatus,
    stored::view::StoreView,
};

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
        let since = view.breaker_reset.as_ref().map_or(0, |stored| stored.mod_revision);
        let forgiven = view.breaker_reset.as_ref().and_then(Stored::get).map_or(&[][..], |reset| &reset.forgiven);
        let ended = view
            .outcomes
            .iter()
            .filter(|(index, stored)| stored.mod_revision > since && !forgiven.contains(&EntryId::reboot(**index)));
        let ended = ended.filter_map(|(_, stored)| stored.get());
        let (ended, bad) =
            ended.fold((0, 0), |(all, bad), outcome| (all + 1, bad + usize::from(outcome.bad.is_some())));
        let in_reboot = view.reboots.entries.iter();
        let in_reboot =
            in_reboot.filter(|(_, stored)| stored.get().is_some_and(|e| e.status == RebootStatus::Rebooting));
        Self { ended, bad, in_reboot: in_reboot.map(|(index, _)| EntryId::reboot(*index)).collect() }
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
