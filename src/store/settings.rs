//! What is stored once: definition, constraints, policy, identity, schema, status, sabakan's settings.

use super::{
    connect::Store,
    error::StoreError,
    view::{Candidate, StoreView},
};
use crate::model::{
    constraints::Constraints,
    entry::Stored,
    ours::{Identity, Status, Who},
    policy::Policy,
};

/// A value as text, with the revision to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// The whole key.
    pub key: String,
    /// The value.
    pub text: String,
    /// ModRevision.
    pub mod_revision: i64,
}

/// What an operator's write says about itself.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// Who.
    pub who: &'a Who,
    /// What, as the audit record has it: `cluster set`.
    pub what: &'a str,
    /// On what.
    pub on: &'a str,
    /// Why.
    pub reason: Option<&'a str>,
}

impl Store {
    /// The value of one key.
    pub async fn raw(&self, key: &str) -> Result<Option<Raw>, StoreError> {
        let _ = key;
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Writes one key with its audit record; `expect` is the ModRevision it must still have (0 = absent).
    pub async fn put_raw(&self, key: &str, text: &str, expect: Option<i64>, note: Note<'_>) -> Result<i64, StoreError> {
        let _ = (key, text, expect, note);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// The definition as it lies there.
    pub async fn cluster_text(&self) -> Result<Option<Raw>, StoreError> {
        self.raw(&self.keys().cluster()).await
    }

    /// Stores a definition (JSON, already checked).
    pub async fn set_cluster(
        &self,
        json: &str,
        expect: Option<i64>,
        who: &Who,
        reason: Option<&str>,
    ) -> Result<i64, StoreError> {
        let note = Note { who, what: "cluster set", on: "cluster", reason };
        self.put_raw(&self.keys().cluster(), json, expect, note).await
    }

    /// The constraints in force, our copy of the two that `ckecli` drops included; `None` where none are stored.
    pub async fn constraints(&self) -> Result<Option<Constraints>, StoreError> {
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Changes the constraints; `change` may refuse with a sentence, and is asked again after a conflict.
    pub async fn update_constraints(
        &self,
        who: &Who,
        reason: Option<&str>,
        change: impl FnMut(&mut Constraints) -> Result<(), String> + Send,
    ) -> Result<Constraints, StoreError> {
        let _ = (who, reason, change);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// The stored policy.
    pub async fn policy(&self) -> Result<Option<Stored<Policy>>, StoreError> {
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Changes the policy; `change` may refuse with a sentence, and is asked again after a conflict.
    pub async fn update_policy(
        &self,
        who: &Who,
        reason: Option<&str>,
        change: impl FnMut(&mut Policy) -> Result<(), String> + Send,
    ) -> Result<Policy, StoreError> {
        let _ = (who, reason, change);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Which cluster this prefix belongs to.
    pub async fn identity(&self) -> Result<Option<Stored<Identity>>, StoreError> {
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Proposes the cluster's UID where none is stored; returns what is stored then.
    pub async fn propose_identity(&self, uid: &str, who: &Who) -> Result<Identity, StoreError> {
        let _ = (uid, who);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// A person's word that this prefix belongs to the cluster `uid`. Another stored UID is refused unless `replace`
    /// names it.
    pub async fn confirm_identity(&self, uid: &str, replace: Option<&str>, who: &Who) -> Result<Identity, StoreError> {
        let _ = (uid, replace, who);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Writes schema and first policy in one transaction where there is no schema yet; returns the schema's number.
    pub async fn ensure_schema(&self, who: &Who) -> Result<u32, StoreError> {
        let _ = who;
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// What the leader is at.
    pub async fn status(&self) -> Result<Option<Status>, StoreError> {
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Who leads.
    pub async fn leader(&self) -> Result<Option<Candidate>, StoreError> {
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// One linearizable read of everything that the live copy holds, at one revision, in pages.
    pub async fn read_view(&self) -> Result<StoreView, StoreError> {
        self.read_view_from(0).await
    }

    /// The same, at a revision that is not before `revision`: a leader's first.
    pub async fn read_view_from(&self, revision: i64) -> Result<StoreView, StoreError> {
        let _ = revision;
        Err(StoreError::Settings("not yet".to_owned()))
    }
}
