//! Confirmation of cancels of reboots and deletions of repairs while CKE leads. CKE removes a withdrawn entry in its next
//! pass; until then one of its writes may overwrite the withdrawal.

use std::{collections::BTreeMap, time::Duration};

use cketerm_clients::store::live::Live;
use cketerm_model::{
    acceptance::LeaderKind,
    cketerm_records::AcceptedCancel,
    entry::{EntryId, QueueKind},
    stored::view::StoreView,
};
use cketerm_rules::cancels::{CancelState, state_in, unrecorded_ends};
use tokio::time::{Instant, timeout_at};

use super::{error::ActionError, operator::Operator};

/// Longest wait until CKE has removed cancelled entries.
pub const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
/// Shortest time between two repeats of one cancel.
const REPEAT_PAUSE: Duration = Duration::from_secs(1);

/// Result of a confirmation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmation {
    /// Indexes of entries that CKE has not removed in time.
    pub unconfirmed: Vec<u64>,
    /// Number of cancels that were repeated because CKE's write had lost them.
    pub repeated: usize,
}

/// Cancel that is not confirmed yet.
struct Open {
    cancel: AcceptedCancel,
    /// Time of the next repeat, if it is needed.
    next: Instant,
}

impl Operator {
    /// Returns the leader as text if it is CKE, which may lose a cancel: `CKE on boot-0 leads`.
    pub async fn leader_that_loses_cancels(&self) -> Result<Option<String>, ActionError> {
        let leadership = self.store.leadership().await?;
        Ok((leadership.lead == LeaderKind::Cke).then_some(leadership.message))
    }

    /// Waits until the leader has removed these cancelled or deleted entries, for at most [`CONFIRM_TIMEOUT`]. A cancel that CKE's
    /// write overwrites meanwhile is repeated.
    pub async fn confirm_cancels(
        &self,
        queue: QueueKind,
        indexes: &[u64],
        reason: Option<&str>,
    ) -> Result<Confirmation, ActionError> {
        let deadline = Instant::now() + CONFIRM_TIMEOUT;
        let mut confirmation = Confirmation::default();
        let mut open: BTreeMap<EntryId, Open> = BTreeMap::new();
        for (index, address, created) in self.store.created(queue, indexes).await? {
            let (who, at) = (self.who().clone(), self.store.clock().wall());
            let reason = reason.map(str::to_owned);
            let cancel = AcceptedCancel { who, at, reason, address, created, end: None };
            open.insert(EntryId { queue, index }, Open { cancel, next: Instant::now() });
        }
        if open.is_empty() {
            return Ok(confirmation);
        }
        let live = Live::follow(&self.store);
        let mut views = live.subscribe();
        loop {
            let view = views.borrow_and_update().clone();
            if view.synced {
                self.round(&view, &mut open, &mut confirmation).await;
            }
            if open.is_empty() || Instant::now() >= deadline {
                break;
            }
            // Without a change, a repeat that failed is due again.
            let next = deadline.min(Instant::now() + REPEAT_PAUSE);
            if matches!(timeout_at(next, views.changed()).await, Ok(Err(_))) {
                return Err(ActionError::failed("the watch of etcd ended: run the command again"));
            }
        }
        confirmation.unconfirmed = open.into_keys().map(|id| id.index).collect();
        Ok(confirmation)
    }

    /// Takes out the confirmed cancels and repeats the lost ones.
    async fn round(&self, view: &StoreView, open: &mut BTreeMap<EntryId, Open>, confirmation: &mut Confirmation) {
        let states: Vec<(EntryId, CancelState)> =
            open.iter().map(|(id, open)| (*id, state_in(view, *id, &open.cancel))).collect();
        let is_over = states.iter().any(|(_, state)| *state == CancelState::Over);
        let ends = if is_over { unrecorded_ends(view) } else { BTreeMap::new() };
        for (id, state) in states {
            match (state, open.get_mut(&id)) {
                (CancelState::Over, _) => {
                    open.remove(&id);
                    if let Some(stored) = view.cancels.get(&id) {
                        // Another process of cketerm removes a record that stays.
                        let end = ends.get(&id).map(|end| (end.batch, end.revision, end.end));
                        let _ = self.store.forget_cancel(id, stored, end).await;
                    }
                }
                (CancelState::Lost, Some(lost)) if lost.next <= Instant::now() => {
                    lost.next = Instant::now() + REPEAT_PAUSE;
                    // A failed write is tried again in the next round.
                    let repeated = self.store.repeat_cancel(id, &lost.cancel, None).await;
                    confirmation.repeated += usize::from(repeated == Ok(true));
                }
                (CancelState::Lost | CancelState::Waiting, _) => {}
            }
        }
    }
}
