//! Reads of the present leader, and the comparison that ties a write to it (STO-43, SAF-40).

use cketerm_model::stored::{
    keys::Keys,
    leadership::{LeaderGuard, Leadership},
    view::StoreView,
};
use etcd_client::{Compare, CompareOp, GetOptions, TxnOpResponse};

use super::read::row;
use super::{connect::Store, error::StoreError};

/// Returns the comparison that lets a write succeed only while the same leader leads.
pub fn compare(guard: &LeaderGuard, keys: &Keys) -> Compare {
    match guard {
        LeaderGuard::Candidate(key, created) => Compare::create_revision(key.as_str(), CompareOp::Equal, *created),
        // A range comparison without any key compares zeros.
        LeaderGuard::Nobody => Compare::create_revision(keys.leader_prefix(), CompareOp::Equal, 0).with_prefix(),
    }
}

impl Store {
    /// Reads policy, candidates and registrations at one revision, into a view that holds nothing else.
    pub async fn leaders(&self) -> Result<StoreView, StoreError> {
        let all = || GetOptions::new().with_prefix();
        let reads = vec![
            (self.keys().policy(), GetOptions::new()),
            (self.keys().leader_prefix(), all()),
            (self.keys().engine_prefix(), all()),
        ];
        let answer = match self.get_all(reads).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.store_error("read the leader", failure).await),
        };
        let mut view = StoreView::default();
        for op in answer.op_responses() {
            if let TxnOpResponse::Get(got) = op {
                for kv in got.kvs() {
                    view.put(self.keys(), &row(kv));
                }
            }
        }
        Ok(view)
    }

    /// Reads the present leader.
    pub async fn leadership(&self) -> Result<Leadership, StoreError> {
        Ok(self.leaders().await?.leadership())
    }

    /// Returns an error after a lost race if another leader leads than the write was tied to, because a retry would
    /// fail too.
    pub(super) async fn check_same_leader(&self, under: Option<&LeaderGuard>) -> Result<(), StoreError> {
        let Some(under) = under else { return Ok(()) };
        if self.leadership().await?.under == *under { Ok(()) } else { Err(StoreError::LeaderChanged) }
    }
}
