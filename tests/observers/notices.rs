//! Notices are delivered at least once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    record::{Breach, Received},
    view::View,
};

/// Prefix of the records of sent notices.
const NOTICE_RECORDS: &str = "cketerm/notices/";

/// Once the receiver is known, each entry that ends is announced, in a notice of its own or in a combined one. A notice
/// that is sent again under the same id has the same content.
pub fn delivered(view: &View<'_>) -> Vec<Breach> {
    let received = &view.record.received;
    let mut found = changed_notices(received);
    let Some(known) = view.record.keys.iter().find(|c| c.key.starts_with(NOTICE_RECORDS)).map(|c| c.revision) else {
        return found;
    };
    if view.record.calm_since.is_none() {
        return found;
    }
    let mut seen: Vec<&str> = Vec::new();
    for change in view.record.keys.iter().filter(|c| c.key.starts_with("cketerm/history/") && c.value.is_some()) {
        let again = seen.contains(&change.key.as_str());
        seen.push(&change.key);
        if again || change.revision <= known {
            continue;
        }
        let ending: Value = change.value.as_deref().and_then(|v| serde_json::from_slice(v).ok()).unwrap_or_default();
        let entry = ending["entry"].as_str().unwrap_or_default();
        if !received.iter().any(|r| r.taken && announces_end(&r.notice, entry)) {
            let what = format!("{entry} ended ({}) but no receiver was notified", ending["outcome"]);
            found.push(Breach { code: "notices", at: change.at, what });
        }
    }
    found
}

/// Reports whether a notice announces the end of this entry. A combined notice is recognized by its title; a truncated
/// list gets the benefit of the doubt.
fn announces_end(notice: &Value, entry: &str) -> bool {
    if notice["kind"] == "many" {
        let text = notice["text"].as_str().unwrap_or_default();
        let notice_of = |line: &str| line.starts_with(&format!("{entry} ")) && line.contains(" ended: ");
        return text.lines().any(|l| notice_of(l) || l.starts_with("and "));
    }
    notice["key"].as_str() == Some(&format!("ended/{entry}"))
}

fn changed_notices(received: &[Received]) -> Vec<Breach> {
    let mut first: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut found = Vec::new();
    for one in received {
        let id = one.notice["id"].as_str().unwrap_or_default();
        if *first.entry(id).or_insert(&one.notice) != &one.notice {
            let what = format!("{} delivers another notice under the id {id}", one.by);
            found.push(Breach { code: "notices", at: one.at, what });
        }
    }
    found
}
