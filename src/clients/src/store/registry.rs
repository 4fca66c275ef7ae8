//! Operators' writes about the machine registry: approvals, and the hold of all changes.

use cketerm_model::{
    cketerm_records::{Approval, Hold},
    fence::Person,
    stored::leadership::LeaderGuard,
};
use etcd_client::{Compare, CompareOp, TxnOp};
use jiff::SignedDuration;

use super::{
    connect::Store,
    error::StoreError,
    leadership::compare,
    operator::{AuditNote, WriteOutcome, json},
};

/// Validity of an approval (SAB-70).
const APPROVAL_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

impl Store {
    /// Approves the change with this digest on an operator's behalf, for an hour.
    pub async fn approve(
        &self,
        digest: &str,
        person: &Person,
        reason: Option<&str>,
        under: Option<&LeaderGuard>,
    ) -> Result<Approval, StoreError> {
        let who = person.who();
        let at = self.clock().wall();
        let until = at.checked_add(APPROVAL_LIFETIME).unwrap_or(at);
        let approval = Approval { who: who.clone(), at, until, reason: reason.map(str::to_owned) };
        let note = AuditNote { who, what: "sabakan approve", on: digest, reason };
        // A hold that was set meanwhile counts.
        let mut compares = vec![Compare::mod_revision(self.keys().hold(), CompareOp::Equal, 0)];
        compares.extend(under.map(|under| compare(under, self.keys())));
        let ops = vec![TxnOp::put(self.keys().approval(digest), json(&approval), None)];
        match self.write(note, "done", compares, ops).await? {
            WriteOutcome::At(_) => Ok(approval),
            WriteOutcome::Conflict => {
                self.check_same_leader(under).await?;
                Err(StoreError::NotAllowed(
                    "applying is on hold, nothing was approved; release it first (`cketerm sabakan unhold`, or `cketerm \
                     membership unhold`)"
                        .to_owned(),
                ))
            }
        }
    }

    /// Sets or (`hold` false) removes the hold of all changes. If `seen` is given, the hold must still have this
    /// `ModRevision` (0 = none).
    pub async fn set_hold(
        &self,
        hold: bool,
        seen: Option<i64>,
        person: &Person,
        reason: Option<&str>,
        under: Option<&LeaderGuard>,
    ) -> Result<(), StoreError> {
        let who = person.who();
        let (key, at) = (self.keys().hold(), self.clock().wall());
        let op = if hold {
            TxnOp::put(key, json(&Hold { who: who.clone(), at, reason: reason.map(str::to_owned) }), None)
        } else {
            TxnOp::delete(key, None)
        };
        let what = if hold { "sabakan hold" } else { "sabakan unhold" };
        let note = AuditNote { who, what, on: "cluster", reason };
        let compares = seen.map(|seen| Compare::mod_revision(self.keys().hold(), CompareOp::Equal, seen));
        let compares = compares.into_iter().chain(under.map(|under| compare(under, self.keys()))).collect();
        match self.write(note, "done", compares, vec![op]).await? {
            WriteOutcome::At(_) => Ok(()),
            WriteOutcome::Conflict => {
                self.check_same_leader(under).await?;
                Err(StoreError::NotAllowed(
                    "the hold has changed meanwhile, nothing was done: check, then repeat if needed".to_owned(),
                ))
            }
        }
    }
}
