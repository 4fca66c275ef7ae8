//! Reads that the console requests. Only this module reads data that the live copy does not hold.

use std::sync::Arc;

use cketerm_actions::{
    plan::{Drains, drains},
    rights,
};
use cketerm_clients::{
    kubernetes::Kube,
    store::{
        Store, StoreError,
        pages::{Page, Part},
    },
};
use cketerm_model::{
    cketerm_records::{Audit, Ending},
    entry::{QueueKind, Stored},
    names::NodeName,
    stored::keys::Folder,
    time::after,
};
use cketerm_rules::seen::Seen;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::state::past::{self, Ended, EntryTimeline, ObjectId, PAGE, ReadRequest, ReadResponse};

/// Audit records per read for a timeline, and most reads.
const PAGE_SIZE: u32 = 2000;
const MAX_PAGES: usize = 10;

/// Executes a read. The error is a message for the operator.
pub async fn read(store: &Store, kube: Option<&Kube>, seen: &Seen, read_request: ReadRequest) -> ReadResponse {
    match read_request {
        ReadRequest::Plan(number, queue, nodes) => ReadResponse::Plan(number, plan(kube, seen, queue, &nodes).await),
        ReadRequest::Page(Folder::History, part) => {
            let page = page::<Ending>(store, seen, Folder::History, part).await;
            ReadResponse::History(
                part,
                page.map(|page| past::map_page(page, |e| Ended::from(e))).map_err(|e| e.to_string()),
            )
        }
        ReadRequest::Page(Folder::Audit, part) => {
            let page = page(store, seen, Folder::Audit, part).await;
            ReadResponse::Audit(part, page.map(|page| past::map_page(page, Audit::shown)).map_err(|e| e.to_string()))
        }
        ReadRequest::Page(Folder::Records, part) => {
            ReadResponse::Records(part, page(store, seen, Folder::Records, part).await.map_err(|e| e.to_string()))
        }
        ReadRequest::Object(id) => {
            let content = object(kube, &id).await.map(Arc::new);
            ReadResponse::Object(id, content)
        }
        ReadRequest::Rights => ReadResponse::Rights(rights(store, kube).await),
        // The event loop, which has the ring buffer, reads it.
        ReadRequest::Logs(_) => ReadResponse::Logs(Vec::new()),
        ReadRequest::Ending(key) => {
            let loaded = entry_timeline(store, &key).await.map(Arc::new);
            ReadResponse::Ending(key, loaded)
        }
    }
}

/// Reads one page of a folder. For recent values it reads only the keys that the watch reported, if the watch reported
/// them all.
async fn page<T: DeserializeOwned>(
    store: &Store,
    seen: &Seen,
    folder: Folder,
    part: Part,
) -> Result<Page<T>, StoreError> {
    let named = match part {
        Part::After(revision) => seen.snapshot.store.recent.after(folder, revision).map(|keys| (revision, keys)),
        Part::Newest | Part::Before(_) => None,
    };
    match named {
        Some((revision, keys)) => store.page_of_keys(folder, revision, &keys, PAGE).await,
        None => store.page(folder, part, PAGE).await,
    }
}

/// Returns what drains of these nodes would meet now.
async fn plan(kube: Option<&Kube>, seen: &Seen, queue: QueueKind, nodes: &[String]) -> Result<Drains, String> {
    let kube = kube.ok_or("no Kubernetes is configured")?;
    let definition = seen.snapshot.store.definition().ok_or("there is no cluster definition")?;
    let rules = definition.cluster.eviction(queue);
    let totals = &seen.snapshot.kube;
    let rows: Vec<_> = nodes.iter().filter_map(|name| totals.nodes.get(name.as_str()).cloned()).collect();
    let at_once = match queue {
        QueueKind::Reboot | QueueKind::Maintenance => definition.cluster.reboot.concurrency(),
        QueueKind::Repair => 1,
    };
    Ok(drains(kube, &rows, rules, totals, usize::try_from(at_once).unwrap_or(1)).await)
}

/// Returns an object as Kubernetes stores it.
async fn object(kube: Option<&Kube>, id: &ObjectId) -> Result<Value, String> {
    let kube = kube.ok_or("no Kubernetes is configured")?;
    let read = match id {
        ObjectId::Node(name) => kube.node_document(&NodeName::new(name.as_str())).await,
        ObjectId::Host((namespace, name)) => kube.host_document(namespace, name).await,
    };
    read.map_err(|e| e.to_string())?.ok_or_else(|| "the API server has no such object".to_owned())
}

/// Returns the timeline of an ended entry, with the audit records of that time.
async fn entry_timeline(store: &Store, key: &str) -> Result<EntryTimeline, String> {
    let raw = store.raw(key).await.map_err(|e| e.to_string())?;
    let raw = raw.ok_or_else(|| format!("{key} is gone: only the newest 10,000 of 90 days are kept"))?;
    let ending: Ending = serde_json::from_str(&raw.text).map_err(|e| format!("{key}: {e}"))?;
    // The leader writes records for a while after the end. The start of an entry from ckecli is unknown.
    let from = ending.begins().unwrap_or_else(|| after(ending.at, -86_400));
    let to = after(ending.at, 600);
    let read = |from| store.read_between::<Audit>(Folder::Audit, (from, to), PAGE_SIZE);
    let (audit, gap) = read_all_pages(read, from, (usize::try_from(PAGE_SIZE).unwrap_or(usize::MAX), MAX_PAGES)).await;
    let records: Vec<&Audit> = audit.iter().filter_map(Stored::get).collect();
    Ok(EntryTimeline { moments: ending.timeline(&records), ending, gap })
}

/// Reads all audit records of a period, `n` per read and with at most `reads` reads. Also returns a note about missing
/// records. The ids of records start with their time.
async fn read_all_pages<E: std::fmt::Display, F: Future<Output = Result<Vec<Stored<Audit>>, E>>>(
    read: impl Fn(Timestamp) -> F,
    from: Timestamp,
    (n, reads): (usize, usize),
) -> (Vec<Stored<Audit>>, Option<String>) {
    let mut all: Vec<Stored<Audit>> = Vec::new();
    let mut from = from;
    for _ in 0..reads {
        let page = match read(from).await {
            Ok(page) => page,
            Err(e) => return (all, Some(format!("the audit of that time could not be read completely: {e}"))),
        };
        let full = page.len() >= n;
        // The next read repeats the records of the same moment.
        let known = all.len();
        let last_key = all.last().map(|s| s.key.clone()).unwrap_or_default();
        all.extend(page.into_iter().filter(|new| new.key > last_key));
        match all.last().and_then(|s| begins(&s.key)) {
            Some(last) if full && all.len() > known => from = last,
            _ if !full => return (all, None),
            _ => break,
        }
    }
    let warning =
        format!("only the first {} audit records of that time were read: later ones are missing here", all.len());
    (all, Some(warning))
}

/// Returns the time that a record's key starts with.
fn begins(key: &str) -> Option<Timestamp> {
    let id = key.rsplit('/').next()?;
    Timestamp::from_nanosecond(id.split('-').next()?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::cketerm_records::Who;

    fn record(second: i64, tail: u8) -> Stored<Audit> {
        let at = Timestamp::from_second(second).unwrap();
        let who = Who { user: "a".into(), host: "h".into(), ssh_client: None };
        let audit =
            serde_json::from_value(serde_json::json!({"at": at, "who": who, "what": "x", "on": "y", "result": "done"}))
                .unwrap();
        let key = format!("/cke/cketerm/audit/{:020}-{tail:016x}", at.as_nanosecond());
        Stored { key, mod_revision: second, value: Ok(Arc::new(audit)) }
    }

    #[tokio::test]
    async fn a_long_timeline_is_read_in_pages_and_reports_missing_records() {
        let stored_records: Vec<Stored<Audit>> = (0..25).map(|i| record(100 + i64::from(i / 2), i)).collect();
        let read = |from: Timestamp| {
            let page: Vec<_> =
                stored_records.iter().filter(|s| begins(&s.key).unwrap() >= from).take(4).cloned().collect();
            std::future::ready(Ok::<_, String>(page))
        };
        let from = Timestamp::from_second(0).unwrap();
        let (all, gap) = read_all_pages(read, from, (4, 20)).await;
        assert_eq!((all.len(), gap), (25, None));
        let (all, gap) = read_all_pages(read, from, (4, 3)).await;
        assert!(all.len() < 25 && gap.is_some_and(|gap| gap.contains("later ones are missing")));
        let (_, gap) = read_all_pages(|_| std::future::ready(Err("away")), from, (4, 3)).await;
        assert!(gap.is_some_and(|gap| gap.contains("away")));
    }
}
