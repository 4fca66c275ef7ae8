//! Bounds: how long audit records of people are kept (I48), and the size of transactions (I49).

use std::collections::HashMap;

use cketerm_model::stored::keys::Keys;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{record::Breach, view::View};

/// Time for which audit records of people are kept.
const RETENTION: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Limits of one transaction in etcd's defaults: operations on each side, and bytes of a request.
const MAX_OPERATIONS: usize = 128;
const MAX_BYTES: usize = 3 * 512 * 1024;

/// I48: no audit record of a person's action is deleted within 90 days, by whatever program and for whatever reason.
/// The key of each record has the kind of its author, which the record names. An engine's record kept as a person's
/// would in the end displace a person's. A person's record kept as an engine's would be pruned with those.
pub fn i48(view: &View<'_>) -> Vec<Breach> {
    let keys = Keys::new("/cke/");
    let mut of_people: HashMap<&str, Timestamp> = HashMap::new();
    let mut found = Vec::new();
    for change in view.record.keys.iter().filter(|c| c.key.starts_with("cketerm/audit/")) {
        let Some(value) = change.value.as_deref() else {
            let Some(at) = of_people.remove(change.key.as_str()) else { continue };
            if change.at.duration_since(at) < RETENTION {
                let what = format!("{}, the audit record of a person's action at {at}, is deleted", change.key);
                found.push(Breach { code: "I48", at: change.at, what });
            }
            continue;
        };
        let Ok(audit) = serde_json::from_slice::<Value>(value) else { continue };
        let Some(user) = audit["who"]["user"].as_str() else { continue };
        if keys.is_person_audit(&format!("/cke/{}", change.key)) == (user == "engine") {
            let what = format!("{} records an action of {user}, but is kept under another kind of author", change.key);
            found.push(Breach { code: "I48", at: change.at, what });
        }
        if user != "engine" {
            let at = audit["at"].as_str().and_then(|at| at.parse().ok());
            of_people.insert(&change.key, at.unwrap_or(change.at));
        }
    }
    found
}

/// I49: no transaction that was sent, carried out or refused, has more comparisons, operations or bytes than etcd
/// takes.
pub fn i49(view: &View<'_>) -> Vec<Breach> {
    let too_large = view.record.txns.iter().filter(|t| t.operations > MAX_OPERATIONS || t.bytes > MAX_BYTES);
    let breach = |t: &super::record::Txn| {
        let what = format!("{} sends a transaction of {} operations and {} bytes", t.by, t.operations, t.bytes);
        Breach { code: "I49", at: t.at, what }
    };
    too_large.map(breach).collect()
}
