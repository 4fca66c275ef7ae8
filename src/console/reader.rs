//! Answers the console's questions from etcd: the only place where it reads what the live copy does not hold.

use std::sync::Arc;

use super::past::{self, Answer, Ended, PAGE, Question, Story};
use crate::{
    actions::plan::{Drains, drains},
    engine::snapshot::Seen,
    kubernetes::Kube,
    model::{
        entry::{QueueKind, Stored},
        ours::{Audit, Ending},
        time::after,
    },
    store::{Store, keys::Folder},
};

/// Most audit records that are read for one story.
const RECORDS: u32 = 2000;

/// Reads it. An error is a sentence.
pub async fn read(store: &Store, kube: Option<&Kube>, seen: &Seen, question: Question) -> Answer {
    match question {
        Question::Plan(number, queue, nodes) => Answer::Plan(number, plan(kube, seen, queue, &nodes).await),
        Question::Page(Folder::History, part) => {
            let page = store.page::<Ending>(Folder::History, part, PAGE).await;
            Answer::History(part, page.map(|page| past::small(page, |e| Ended::from(e))).map_err(|e| e.to_string()))
        }
        Question::Page(Folder::Audit, part) => {
            let page = store.page(Folder::Audit, part, PAGE).await;
            Answer::Audit(part, page.map(|page| past::small(page, Audit::shown)).map_err(|e| e.to_string()))
        }
        Question::Page(Folder::Records, part) => {
            Answer::Records(part, store.page(Folder::Records, part, PAGE).await.map_err(|e| e.to_string()))
        }
        // the ring is read by whoever has it
        Question::Logs(_) => Answer::Logs(Vec::new()),
        Question::Ending(key) => {
            let told = story(store, &key).await.map(Arc::new);
            Answer::Ending(key, told)
        }
    }
}

/// What the drains of these nodes would meet now.
async fn plan(kube: Option<&Kube>, seen: &Seen, queue: QueueKind, nodes: &[String]) -> Result<Drains, String> {
    let kube = kube.ok_or("no Kubernetes is configured")?;
    let definition = seen.snapshot.store.definition().ok_or("there is no cluster definition")?;
    let rules = match queue {
        QueueKind::Reboot => definition.cluster.reboot.eviction(),
        QueueKind::Repair => definition.cluster.repair.eviction(),
    };
    let facts = &seen.snapshot.kube;
    let rows: Vec<_> = nodes.iter().filter_map(|name| facts.nodes.get(name).cloned()).collect();
    Ok(drains(kube, &rows, rules, facts).await)
}

/// The story of an entry that ended, with the audit records of its time.
async fn story(store: &Store, key: &str) -> Result<Story, String> {
    let raw = store.raw(key).await.map_err(|e| e.to_string())?;
    let raw = raw.ok_or_else(|| format!("{key} is gone: only the newest 10,000 of 90 days are kept"))?;
    let ending: Ending = serde_json::from_str(&raw.text).map_err(|e| format!("{key}: {e}"))?;
    // the leader writes for a while after it; nobody knows when an entry of ckecli's began
    let from = ending.begins().unwrap_or_else(|| after(ending.at, -86_400));
    let audit = store.between::<Audit>(Folder::Audit, (from, after(ending.at, 600)), RECORDS).await;
    let (audit, gap) = match audit {
        Ok(audit) => (audit, None),
        Err(e) => (Vec::new(), Some(e.to_string())),
    };
    let records: Vec<&Audit> = audit.iter().filter_map(Stored::get).collect();
    Ok(Story { moments: ending.timeline(&records), ending, gap })
}
