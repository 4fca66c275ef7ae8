//! Requests that cketerm accepts from people while CKE leads (I52).

use cketerm_model::{
    batch::{Batch, BatchId},
    cketerm_records::{Order, Verb},
    entry::EntryId,
    policy::Policy,
};
use serde_json::{Map, Value};

use super::{
    record::{Breach, KeyChange},
    view::{View, is_engine},
};

/// I52, at each revision that no engine wrote, while a candidate without a registration leads:
///
/// - no order (hold, retry, done, force, release) is stored;
/// - no batch is paused that was not paused before;
/// - applying is not held, and no change of the definition is approved;
/// - of the policy only `engine` changes, or windows, freeze and groups are removed, unless the audit record of that
///   revision states that the change prepares a handover.
///
/// Not covered: a cketerm leader that is about to resign.
pub fn i52(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut before = fields(None);
    for change in &view.record.keys {
        let Some(rest) = change.key.strip_prefix("cketerm/") else { continue };
        let now = if rest == "policy" { fields(change.value.as_deref()) } else { before.clone() };
        let previous = std::mem::replace(&mut before, now);
        // written by a program other than an engine, while the leader does not support what was written
        let by_engine = view.txn(change.revision).is_some_and(|txn| is_engine(&txn.by));
        let cke = view.leader(change.revision).filter(|leader| !leader.registered);
        let Some(cke) = cke.filter(|_| change.value.is_some() && !by_engine) else { continue };
        let violation = match rest.split_once('/') {
            Some(("orders", id)) if id.parse::<EntryId>().is_ok() => order(change),
            Some(("batches", id)) => id.parse().ok().and_then(|id| batch(view, id, change.revision)),
            Some(("approvals", what)) => Some(format!("approvals/{what} is stored")),
            None if rest == "policy" => policy(view, change, &previous, &before),
            _ => None,
        };
        if let Some(what) = violation {
            let what = format!("{what} while CKE leads with lease {}, which does not support it", cke.lease);
            found.push(Breach { code: "I52", at: change.at, what });
        }
    }
    found
}

fn order(change: &KeyChange) -> Option<String> {
    let order: Order = serde_json::from_slice(change.value.as_deref()?).ok()?;
    (order.verb != Verb::Unhold).then(|| format!("{} of {} is accepted", order.verb, change.key))
}

fn batch(view: &View<'_>, id: BatchId, revision: i64) -> Option<String> {
    let line = view.batches.get(&id)?;
    let is_paused = |batch: Option<&Batch>| batch.is_some_and(|b| b.paused.is_some());
    (is_paused(line.get(revision)) && !is_paused(line.before(revision)))
        .then(|| format!("a pause of batch {id} is accepted"))
}

fn policy(
    view: &View<'_>,
    change: &KeyChange,
    before: &Map<String, Value>,
    now: &Map<String, Value>,
) -> Option<String> {
    let for_handover = |audit: Value| audit["what"].as_str().is_some_and(|what| what.ends_with("for handover"));
    if view.audit_at(change.revision).is_some_and(for_handover) {
        return None;
    }
    // a removed field does not appear in the new policy
    let set: Vec<&str> =
        now.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(|(name, _)| name.as_str()).collect();
    let set: Vec<&str> = set.into_iter().filter(|name| *name != "engine").collect();
    (!set.is_empty()).then(|| format!("policy {} is set", set.join(", ")))
}

/// Fields of a policy, with defaults where nothing else is stored.
fn fields(stored: Option<&[u8]>) -> Map<String, Value> {
    let policy: Policy = stored.and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default();
    match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
