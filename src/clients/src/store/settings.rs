//! Values stored once: definition, constraints, policy, identity, schema, status, and sabakan's settings.

use std::sync::Arc;

use cketerm_model::{
    cketerm_records::{Identity, SCHEMA, Status, Who},
    constraints::Constraints,
    entry::Stored,
    fence::Person,
    policy::{EngineChoice, Policy},
    stored::{leadership::Leadership, limits::check_size},
};
use etcd_client::{Compare, CompareOp, GetOptions, TxnOp, TxnOpResponse};
use serde::de::DeserializeOwned;

use super::leadership::compare;
pub use super::operator::AuditNote;
use super::{
    connect::Store,
    error::StoreError,
    operator::{WriteOutcome, json},
};

/// Suffix in the audit for a change that the present leader does not know.
pub const FOR_HANDOVER: &str = " for handover";

/// Condition under which a change of the policy is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Whoever leads.
    Anyway,
    /// The present leader honours it: the change is written only while that one leads.
    InForce,
    /// The change is stored for a later leader; the present one does not know it.
    ForHandover,
}

/// Number of retries after a lost race.
const MAX_CONFLICTS: u32 = 20;

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

impl Store {
    /// Reads the value of one key.
    pub async fn raw(&self, key: &str) -> Result<Option<Raw>, StoreError> {
        let got = match self.get(key, GetOptions::new()).await {
            Ok(mut got) => got.take_kvs().pop(),
            Err(failure) => return Err(self.store_error(&format!("read {key}"), failure).await),
        };
        Ok(got.map(|kv| Raw {
            key: key.to_owned(),
            text: String::from_utf8_lossy(kv.value()).into_owned(),
            mod_revision: kv.mod_revision(),
        }))
    }

    /// Writes one key with its audit record; `expect` is the ModRevision that it must still have (0 = absent). Returns
    /// the revision of the write.
    pub async fn put_raw(
        &self,
        key: &str,
        text: &str,
        expect: Option<i64>,
        note: AuditNote<'_>,
    ) -> Result<i64, StoreError> {
        check_size(key, text).map_err(|size| StoreError::TooLarge {
            key: key.to_owned(),
            operations: size.operations,
            bytes: size.bytes,
        })?;
        let compares = expect.map(|r| Compare::mod_revision(key, CompareOp::Equal, r)).into_iter().collect();
        match self.write(note, "done", compares, vec![TxnOp::put(key, text, None)]).await? {
            WriteOutcome::At(revision) => Ok(revision),
            WriteOutcome::Conflict => Err(StoreError::Conflict { what: note.on.to_owned() }),
        }
    }

    /// Reads the typed value of one key; an unreadable value is an `Err` inside.
    async fn stored<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Stored<T>>, StoreError> {
        let raw = self.raw(key).await?;
        Ok(raw.map(|raw| Stored {
            value: serde_json::from_str(&raw.text).map(Arc::new).map_err(|e| e.to_string()),
            key: raw.key,
            mod_revision: raw.mod_revision,
        }))
    }

    /// Reads the value and its ModRevision (0 = none); an unreadable value is an error with a remedy.
    async fn read_value<T: DeserializeOwned + Clone>(&self, key: &str) -> Result<(Option<T>, i64), StoreError> {
        read_stored(self.stored::<T>(key).await?)
    }

    /// Reads the stored text of the definition.
    pub async fn cluster_text(&self) -> Result<Option<Raw>, StoreError> {
        self.raw(&self.keys().cluster()).await
    }

    /// Stores a definition (JSON, already checked).
    pub async fn set_cluster(
        &self,
        json: &str,
        expect: Option<i64>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<i64, StoreError> {
        let who = person.who();
        let note = AuditNote { who, what: "cluster set", on: "cluster", reason };
        self.put_raw(&self.keys().cluster(), json, expect, note).await
    }

    /// Reads the constraints in force, including cketerm's copy of the two that `ckecli` drops; `None` if none are
    /// stored.
    pub async fn constraints(&self) -> Result<Option<Constraints>, StoreError> {
        let (cke_constraints, _) = self.read_value::<Constraints>(&self.keys().constraints()).await?;
        let own = self.stored::<Constraints>(&self.keys().our_constraints()).await?;
        Ok(cke_constraints.map(|mut constraints| {
            if let Some(own) = own.as_ref().and_then(Stored::get) {
                constraints.fill_workers(own);
            }
            constraints
        }))
    }

    /// Changes the constraints. `change` may refuse with a message, and is called again after a conflict. The two
    /// constraints that `ckecli` drops are also written to cketerm's own key, in the same transaction. Returns the
    /// constraints and the revision of the write.
    pub async fn update_constraints(
        &self,
        person: &Person,
        reason: Option<&str>,
        mut change: impl FnMut(&mut Constraints) -> Result<(), String> + Send,
    ) -> Result<(Constraints, i64), StoreError> {
        let who = person.who();
        let (key, copy) = (self.keys().constraints(), self.keys().our_constraints());
        for _ in 0..MAX_CONFLICTS {
            let (cke_constraints, revision) = self.read_value::<Constraints>(&key).await?;
            let own = self.stored::<Constraints>(&copy).await?;
            let copy_revision = own.as_ref().map_or(0, |s| s.mod_revision);
            let mut constraints = cke_constraints.unwrap_or_default();
            if let Some(own) = own.as_ref().and_then(Stored::get) {
                constraints.fill_workers(own);
            }
            let before = json(&constraints);
            change(&mut constraints).map_err(StoreError::NotAllowed)?;
            let on = changed(&before, &json(&constraints));
            let mut compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, revision)];
            let mut ops = vec![TxnOp::put(key.as_str(), json(&constraints), None)];
            if constraints.minimum_workers.is_some() || constraints.maximum_workers.is_some() {
                let mut workers = serde_json::Map::new();
                for (name, value) in
                    [("minimum-workers", constraints.minimum_workers), ("maximum-workers", constraints.maximum_workers)]
                {
                    workers.extend(value.map(|v| (name.to_owned(), v.into())));
                }
                compares.push(Compare::mod_revision(copy.as_str(), CompareOp::Equal, copy_revision));
                ops.push(TxnOp::put(copy.as_str(), json(&workers), None));
            }
            let note = AuditNote { who, what: "constraints set", on: &on, reason };
            if let WriteOutcome::At(revision) = self.write(note, &json(&constraints), compares, ops).await? {
                return Ok((constraints, revision));
            }
        }
        Err(StoreError::Conflict { what: "constraints".to_owned() })
    }

    /// Reads the stored policy.
    pub async fn policy(&self) -> Result<Option<Stored<Policy>>, StoreError> {
        self.stored(&self.keys().policy()).await
    }

    /// Changes the policy with this note in the audit. `change` may refuse with a message, and is called again after a
    /// conflict. Without a schema, schema and policy are created first, as an engine would do (see
    /// [`Store::ensure_schema`]).
    pub async fn update_policy(
        &self,
        note: AuditNote<'_>,
        change: impl FnMut(&mut Policy) -> Result<(), String> + Send,
    ) -> Result<Policy, StoreError> {
        self.update_policy_if(note, |_| Ok(Accepted::Anyway), change).await
    }

    /// Changes the policy if `accept` agrees, which judges whether the present leader honours the change. The write
    /// compares that leader's key. The audit marks a change that is stored for another leader.
    pub async fn update_policy_if(
        &self,
        note: AuditNote<'_>,
        accept: impl Fn(&Leadership) -> Result<Accepted, String> + Send,
        mut change: impl FnMut(&mut Policy) -> Result<(), String> + Send,
    ) -> Result<Policy, StoreError> {
        let key = self.keys().policy();
        let schema = self.ensure_schema(note.who).await?;
        if schema > SCHEMA {
            return Err(StoreError::NotAllowed(format!(
                "{} is {schema}, this cketerm knows {SCHEMA}: change the policy with a newer cketerm",
                self.keys().schema()
            )));
        }
        for _ in 0..MAX_CONFLICTS {
            let view = self.leaders().await?;
            let leadership = view.leadership();
            let accepted = accept(&leadership).map_err(StoreError::NotAllowed)?;
            let (stored, revision) = read_stored::<Policy>(view.policy)?;
            let mut policy = stored.unwrap_or_default();
            let before = policy.clone();
            change(&mut policy).map_err(StoreError::NotAllowed)?;
            if policy == before && revision != 0 {
                return Ok(policy);
            }
            let mut compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, revision)];
            let mut what = note.what.to_owned();
            match accepted {
                Accepted::Anyway => {}
                Accepted::InForce => compares.push(compare(&leadership.under, self.keys())),
                Accepted::ForHandover => what.push_str(FOR_HANDOVER),
            }
            let ops = vec![TxnOp::put(key.as_str(), json(&policy), None)];
            let note = AuditNote { what: &what, ..note };
            if let WriteOutcome::At(_) = self.write(note, &json(&policy), compares, ops).await? {
                return Ok(policy);
            }
        }
        Err(StoreError::Conflict { what: "policy".to_owned() })
    }

    /// Reads the identity of the cluster that this prefix belongs to.
    pub async fn identity(&self) -> Result<Option<Stored<Identity>>, StoreError> {
        self.stored(&self.keys().identity()).await
    }

    /// Proposes the cluster's UID if none is stored; returns the stored identity.
    pub async fn propose_identity(&self, uid: &str, who: &Who) -> Result<Identity, StoreError> {
        let key = self.keys().identity();
        for _ in 0..MAX_CONFLICTS {
            if let (Some(identity), _) = self.read_value::<Identity>(&key).await? {
                return Ok(identity);
            }
            let identity = Identity { uid: uid.to_owned(), confirmed_by: None, at: self.clock().wall() };
            let note = AuditNote { who, what: "cluster identify: proposed", on: uid, reason: None };
            let compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, 0)];
            let ops = vec![TxnOp::put(key.as_str(), json(&identity), None)];
            if let WriteOutcome::At(_) = self.write(note, "done", compares, ops).await? {
                return Ok(identity);
            }
        }
        Err(StoreError::Conflict { what: "identity".to_owned() })
    }

    /// Records an operator's confirmation that this prefix belongs to the cluster `uid`. Another stored UID is refused
    /// unless `replace` names it.
    pub async fn confirm_identity(
        &self,
        uid: &str,
        replace: Option<&str>,
        person: &Person,
    ) -> Result<Identity, StoreError> {
        let who = person.who();
        let key = self.keys().identity();
        for _ in 0..MAX_CONFLICTS {
            let (stored, revision) = self.read_value::<Identity>(&key).await?;
            match (&stored, replace) {
                (Some(s), None) if s.uid == uid && s.confirmed_by.is_some() => return Ok(s.clone()),
                (Some(s), None) if s.uid != uid => {
                    return Err(StoreError::NotAllowed(format!(
                        "{} belongs to the cluster {}, Kubernetes is {uid}; if the cluster was rebuilt, repeat with \
                         --replace {}",
                        self.keys().prefix(),
                        s.uid,
                        s.uid
                    )));
                }
                (Some(s), Some(old)) if s.uid != old => {
                    return Err(StoreError::NotAllowed(format!("the stored cluster is {}, not {old}", s.uid)));
                }
                (None, Some(old)) => {
                    return Err(StoreError::NotAllowed(format!("no cluster is stored, so {old} cannot be replaced")));
                }
                _ => {}
            }
            let identity = Identity { uid: uid.to_owned(), confirmed_by: Some(who.clone()), at: self.clock().wall() };
            let result = stored.map_or_else(|| "confirmed".to_owned(), |s| format!("confirmed, was {}", s.uid));
            let note = AuditNote { who, what: "cluster identify", on: uid, reason: None };
            let compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, revision)];
            let ops = vec![TxnOp::put(key.as_str(), json(&identity), None)];
            if let WriteOutcome::At(_) = self.write(note, &result, compares, ops).await? {
                return Ok(identity);
            }
        }
        Err(StoreError::Conflict { what: "identity".to_owned() })
    }

    /// Writes schema and first policy in one transaction if there is no schema yet; returns the schema's number. The
    /// policy's `engine` is `cke` if CKE left a trace (a key in `leader/` without a registration of cketerm, `status`,
    /// `records`), else `cketerm`. Afterwards only an operator changes it.
    pub async fn ensure_schema(&self, who: &Who) -> Result<u32, StoreError> {
        let key = self.keys().schema();
        for _ in 0..MAX_CONFLICTS {
            if let (Some(schema), _) = self.read_value::<u32>(&key).await? {
                return Ok(schema);
            }
            let (engine, trace) = self.detect_engine_choice().await?;
            let policy_key = self.keys().policy();
            let compares = vec![
                Compare::mod_revision(key.as_str(), CompareOp::Equal, 0),
                // A policy without a schema was stored by an operator, so it stays.
                Compare::mod_revision(policy_key.as_str(), CompareOp::Equal, 0),
            ];
            let policy = Policy { engine, ..Policy::default() };
            let mut ops = vec![TxnOp::put(key.as_str(), SCHEMA.to_string(), None)];
            let note = AuditNote { who, what: "schema", on: "cketerm/schema", reason: None };
            let wrote = match self.read_value::<Policy>(&policy_key).await? {
                (None, _) => {
                    ops.push(TxnOp::put(policy_key, json(&policy), None));
                    self.write(note, &format!("policy engine: {}; {trace}", json(&engine)), compares, ops).await?
                }
                (Some(_), _) => self.write(note, "policy kept", compares[..1].to_vec(), ops).await?,
            };
            if let WriteOutcome::At(_) = wrote {
                return Ok(SCHEMA);
            }
        }
        Err(StoreError::Conflict { what: "schema".to_owned() })
    }

    /// Returns evidence that CKE works or has worked here, as text. The evidence is a CKE candidate, the policy that
    /// was chosen because of CKE, or keys that CKE left before cketerm came. Later on both programs write those keys.
    pub async fn find_cke_trace(&self) -> Result<Option<String>, StoreError> {
        let view = self.leaders().await?;
        if let Some(cke) = view.candidates.values().find(|candidate| view.is_cke(candidate)) {
            return Ok(Some(format!("CKE on {} is a candidate", cke.host)));
        }
        match view.policy.as_ref().map(|stored| stored.get().map(|policy| policy.engine)) {
            Some(Some(EngineChoice::Cke)) => return Ok(Some("the policy `engine` is `cke`".to_owned())),
            Some(_) => return Ok(None),
            None => {}
        }
        let (choice, trace) = self.detect_engine_choice().await?;
        Ok((choice == EngineChoice::Cke).then_some(trace))
    }

    /// Returns the first policy's engine, and the trace that CKE left.
    async fn detect_engine_choice(&self) -> Result<(EngineChoice, String), StoreError> {
        let keys_only = || GetOptions::new().with_keys_only();
        let reads = vec![
            (self.keys().leader_prefix(), keys_only().with_prefix()),
            (self.keys().engine_prefix(), keys_only().with_prefix()),
            (self.keys().status(), keys_only()),
            (self.keys().records(), keys_only()),
        ];
        let answer = match self.get_all(reads).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.store_error("read the traces of CKE", failure).await),
        };
        let mut found = answer.op_responses().into_iter().map(|op| match op {
            TxnOpResponse::Get(mut got) => got.take_kvs(),
            _ => Vec::new(),
        });
        let (candidates, engines) = (found.next().unwrap_or_default(), found.next().unwrap_or_default());
        let lease = |key: &[u8]| key.rsplit(|b| *b == b'/').next().map(<[u8]>::to_vec);
        let own: Vec<_> = engines.iter().map(|kv| lease(kv.key())).collect();
        let foreign = candidates.iter().find(|kv| !own.contains(&lease(kv.key())));
        let trace = foreign.cloned().or_else(|| found.find_map(|mut kvs| kvs.pop()));
        Ok(match trace {
            Some(kv) => (EngineChoice::Cke, format!("CKE left {}", String::from_utf8_lossy(kv.key()))),
            None => (EngineChoice::Cketerm, "no trace of CKE".to_owned()),
        })
    }

    /// Reads the leader's phase.
    pub async fn status(&self) -> Result<Option<Status>, StoreError> {
        Ok(self.read_value(&self.keys().status()).await?.0)
    }
}

/// Returns the value and its ModRevision (0 = none); an unreadable value is an error with a remedy.
fn read_stored<T: Clone>(stored: Option<Stored<T>>) -> Result<(Option<T>, i64), StoreError> {
    match stored {
        None => Ok((None, 0)),
        Some(Stored { value: Ok(value), mod_revision, .. }) => Ok((Some(T::clone(&value)), mod_revision)),
        Some(Stored { value: Err(cause), key, .. }) => {
            let remedy = format!("fix it with etcdctl, or remove it with `etcdctl del {key}`");
            Err(StoreError::Broken { key, cause, remedy })
        }
    }
}

/// Returns the changed fields, such as `maximum-workers to 40`, or `constraints` if none differs.
fn changed(before: &str, after: &str) -> String {
    let read =
        |text: &str| serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).unwrap_or_default();
    let (before, after) = (read(before), read(after));
    let set = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
    let set: Vec<String> = set.map(|(name, value)| format!("{name} to {value}")).collect();
    if set.is_empty() { "constraints".to_owned() } else { set.join(", ") }
}
