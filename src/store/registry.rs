//! Keys of the machine registry: the integration's settings, approvals, and cketerm's last change.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, TxnOp};
use imbl::OrdMap;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::{
    apply::{Row, set_value},
    connect::Store,
    error::StoreError,
    keys::RegistryKey,
    leadership::LeaderGuard,
    operator::{AuditNote, WriteOutcome, json},
};
use crate::model::{
    cketerm_records::{Approval, Generated, Hold, Who},
    entry::Stored,
};

/// Validity of an approval (SAB-70).
const APPROVAL_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// Values of `sabakan/…`, `auto-repair/query-variables`, `cluster-revision`, `cketerm/approvals/…` and
/// `cketerm/generated`. Texts are kept as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegistrySettings {
    /// `sabakan/url`.
    pub url: Option<Stored<String>>,
    /// `sabakan/template`, JSON.
    pub template: Option<Stored<String>>,
    /// `sabakan/query-variables`, JSON.
    pub variables: Option<Stored<String>>,
    /// `auto-repair/query-variables`, JSON.
    pub repair_variables: Option<Stored<String>>,
    /// `cluster-revision`: `ModRevision` of the template that the definition was generated from.
    pub cluster_revision: Option<Stored<String>>,
    /// `cketerm/generated`.
    pub generated: Option<Stored<Generated>>,
    /// `cketerm/approvals/hold`.
    pub hold: Option<Stored<Hold>>,
    /// `cketerm/approvals/` by digest.
    pub approvals: OrdMap<String, Stored<Approval>>,
}

impl RegistrySettings {
    pub(super) fn take(&mut self, which: RegistryKey, key: &str, row: &Row) -> Result<(), String> {
        let text = || {
            let value = String::from_utf8_lossy(&row.value).into_owned();
            Some(Stored { key: key.to_owned(), mod_revision: row.mod_revision, value: Ok(Arc::new(value)) })
        };
        match which {
            RegistryKey::Url => self.url = text(),
            RegistryKey::Template => self.template = text(),
            RegistryKey::Variables => self.variables = text(),
            RegistryKey::RepairVariables => self.repair_variables = text(),
            RegistryKey::ClusterRevision => self.cluster_revision = text(),
            RegistryKey::Generated => return set_value(&mut self.generated, key, row),
            RegistryKey::Hold => return set_value(&mut self.hold, key, row),
            RegistryKey::Approval(digest) => {
                let mut slot = None;
                let read = set_value(&mut slot, key, row);
                self.approvals.extend(slot.map(|stored| (digest, stored)));
                return read;
            }
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, which: &RegistryKey) {
        match which {
            RegistryKey::Url => self.url = None,
            RegistryKey::Template => self.template = None,
            RegistryKey::Variables => self.variables = None,
            RegistryKey::RepairVariables => self.repair_variables = None,
            RegistryKey::ClusterRevision => self.cluster_revision = None,
            RegistryKey::Generated => self.generated = None,
            RegistryKey::Hold => self.hold = None,
            RegistryKey::Approval(digest) => drop(self.approvals.remove(digest)),
        }
    }

    /// Reports whether the template differs from the one that the definition was generated from: "newer" means unequal,
    /// and a missing revision counts as 0 (SAB-23).
    pub fn template_changed(&self) -> bool {
        let template = self.template.as_ref().map_or(0, |t| t.mod_revision);
        let of = self.cluster_revision.as_ref().and_then(Stored::get).and_then(|t| t.trim().parse().ok());
        of.unwrap_or(0) != template
    }
}

impl Store {
    /// Approves the change with this digest on an operator's behalf, for an hour.
    pub async fn approve(
        &self,
        digest: &str,
        who: &Who,
        reason: Option<&str>,
        under: Option<&LeaderGuard>,
    ) -> Result<Approval, StoreError> {
        let at = self.clock().wall();
        let until = at.checked_add(APPROVAL_LIFETIME).unwrap_or(at);
        let approval = Approval { who: who.clone(), at, until, reason: reason.map(str::to_owned) };
        let note = AuditNote { who, what: "sabakan approve", on: digest, reason };
        // A hold that was set meanwhile counts.
        let mut compares = vec![Compare::mod_revision(self.keys().hold(), CompareOp::Equal, 0)];
        compares.extend(under.map(|under| under.compare(self.keys())));
        let ops = vec![TxnOp::put(self.keys().approval(digest), json(&approval), None)];
        match self.write(note, "done", compares, ops).await? {
            WriteOutcome::At(_) => Ok(approval),
            WriteOutcome::Conflict => {
                self.check_same_leader(under).await?;
                Err(StoreError::NotAllowed(
                    "applying is on hold, nothing was approved; release it first (`cketerm sabakan unhold`)".to_owned(),
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
        who: &Who,
        reason: Option<&str>,
        under: Option<&LeaderGuard>,
    ) -> Result<(), StoreError> {
        let (key, at) = (self.keys().hold(), self.clock().wall());
        let op = if hold {
            TxnOp::put(key, json(&Hold { who: who.clone(), at, reason: reason.map(str::to_owned) }), None)
        } else {
            TxnOp::delete(key, None)
        };
        let what = if hold { "sabakan hold" } else { "sabakan unhold" };
        let note = AuditNote { who, what, on: "cluster", reason };
        let compares = seen.map(|seen| Compare::mod_revision(self.keys().hold(), CompareOp::Equal, seen));
        let compares = compares.into_iter().chain(under.map(|under| under.compare(self.keys()))).collect();
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
