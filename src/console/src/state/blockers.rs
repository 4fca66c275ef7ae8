//! Objects that keep pods on draining nodes, sorted by the number of nodes: the fixes that help most drains.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    entry::EntryId,
    reason::{PodHold, Reason},
};
use cketerm_rules::trouble;

use super::{App, queries, short_text};

/// An object that blocks evictions, with everything it blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockerGroup {
    /// The object: a budget, a job, a webhook, or one pod's own problem.
    pub what: String,
    /// The nodes whose drain it blocks.
    pub nodes: BTreeSet<String>,
    /// The pods that are known.
    pub pods: BTreeSet<String>,
}

/// Returns all blockers, the one that blocks the most nodes first.
pub fn all(app: &App) -> Vec<BlockerGroup> {
    let (seen, store) = (&app.seen, &app.seen.snapshot.store);
    let reboots = store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
    let repairs = store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    let mut found: BTreeMap<String, BlockerGroup> = BTreeMap::new();
    let mut add = |what: String, node: &str, pod: Option<&str>| {
        let group = found.entry(what.clone()).or_default();
        group.what = what;
        group.nodes.insert(node.to_owned());
        group.pods.extend(pod.map(str::to_owned));
    };
    for id in reboots.chain(repairs) {
        let Some(node) = queries::machine(seen, id) else { continue };
        let blockers = queries::progress(seen, id).map(|p| p.blockers.as_slice()).unwrap_or_default();
        // The blockers of an entry that is not draining now are outdated.
        let blockers = if queries::in_work(seen, id) { blockers } else { &[] };
        let mut has_blockers = false;
        for blocker in blockers {
            let what = match &blocker.why {
                PodHold::Leaving | PodHold::Terminating { node_ready: true, .. } => continue,
                PodHold::Terminating { .. } => "pods terminating on a node that is not Ready".to_owned(),
                PodHold::Budget { budget, healthy, needed } => format!("pdb {budget} {healthy}/{needed}"),
                PodHold::ManyBudgets { .. } | PodHold::Job { .. } => blocker.why.to_string(),
                PodHold::Deferred { webhook, .. } | PodHold::Denied { webhook, .. } => format!("webhook {webhook}"),
                why => format!("{}: {why}", blocker.pod),
            };
            add(what, &node, Some(&blocker.pod));
            has_blockers = true;
        }
        let why = seen.reasons.get(&id).filter(|_| !has_blockers);
        if let Some(
            why @ (Reason::BlockedByPdb { .. }
            | Reason::BlockedByManyPdbs { .. }
            | Reason::BlockedByJob { .. }
            | Reason::Backoff { cause: Some(_), .. }
            | Reason::DeferredToWebhook { .. }
            | Reason::DeniedByWebhook { .. }
            | Reason::EvictionFailing { .. }
            | Reason::TerminatingStuck { .. }),
        ) = why
        {
            add(short_text::stuck_on(why, app.now.wall), &node, None);
        }
    }
    let mut all: Vec<BlockerGroup> = found.into_values().collect();
    all.sort_by_key(|group| (std::cmp::Reverse(group.nodes.len()), group.what.clone()));
    all
}

/// An object that blocks several drains.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedBlocker {
    /// Its kind and name: `pdb shop/web`, `job batch/report`.
    pub what: String,
    /// The drains, oldest first.
    pub drains: Vec<EntryId>,
    /// The pods that are known.
    pub pods: BTreeSet<String>,
}

/// Returns the objects that block more than one of the stuck drains.
pub fn shared_blockers(app: &App) -> Vec<SharedBlocker> {
    let seen = &app.seen;
    let mut all: BTreeMap<String, SharedBlocker> = BTreeMap::new();
    let mut add = |what: String, id: EntryId, pod: Option<&str>| {
        let one = all.entry(what.clone()).or_insert_with(|| SharedBlocker {
            what,
            drains: Vec::new(),
            pods: BTreeSet::new(),
        });
        if !one.drains.contains(&id) {
            one.drains.push(id);
        }
        one.pods.extend(pod.map(str::to_owned));
    };
    for (id, why) in seen.reasons.iter().filter(|(id, _)| trouble::of(seen, **id).is_some()) {
        // The pod may have been replaced since a backoff began.
        let (cause, with_pod) =
            if let Reason::Backoff { cause: Some(cause), .. } = why { (cause.as_ref(), false) } else { (why, true) };
        if let Reason::BlockedByPdb { pod, pdb, .. } = cause {
            add(format!("pdb {pdb}"), *id, with_pod.then_some(pod));
        } else if let Reason::BlockedByJob { pod, job } = cause {
            add(format!("job {job}"), *id, with_pod.then_some(pod));
        }
        for blocker in queries::progress(seen, *id).into_iter().flat_map(|p| &p.blockers) {
            match &blocker.why {
                PodHold::Budget { budget, .. } => add(format!("pdb {budget}"), *id, Some(&blocker.pod)),
                PodHold::Job { job } => add(format!("job {job}"), *id, Some(&blocker.pod)),
                _ => {}
            }
        }
    }
    let mut all: Vec<SharedBlocker> = all.into_values().filter(|one| one.drains.len() > 1).collect();
    for one in &mut all {
        one.drains.sort_by_key(|id| (queries::since(seen, *id), *id));
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.drains.len()));
    all
}
