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
    entry::QueueKind,
    names::NodeName,
    stored::keys::Folder,
};
use cketerm_rules::seen::Seen;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::state::past::{self, Ended, EntryTimeline, ObjectId, PAGE, ReadRequest, ReadResponse};

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
    let (audit, gap) = match store.audit_of(&[&ending]).await {
        Ok(audit) => (audit, None),
        Err(e) => (Vec::new(), Some(format!("its audit records could not be read: {e}"))),
    };
    Ok(EntryTimeline { moments: ending.timeline(&audit.iter().collect::<Vec<_>>()), ending, gap })
}
