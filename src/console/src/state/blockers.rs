//! Objects that keep pods on draining nodes, sorted by the number of nodes: the fixes that help most drains.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    entry::EntryId,
    reason::{PodHold, Reason},
};

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
            | Reason::PdbNeverAllows { .. }
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
