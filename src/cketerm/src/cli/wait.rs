//! `rq wait`: follows entries until they have ended, and prints how they ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cketerm_actions::ActionError;
use cketerm_clients::store::{Store, live::Live};
use cketerm_model::{
    cketerm_records::Ending, entry::EntryId, names::Address, reboot::RebootStatus, stored::view::StoreView,
};

use super::{
    Context,
    unreadable_entries::{unreadable_error, unreadable_indexes},
    why,
};

/// Number of reads of the endings, and the interval between them. A slow etcd does not change how the entries ended.
const MAX_TRIES: u32 = 10;
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Last state that was printed of an entry.
#[derive(Default)]
struct Seen {
    node: Address,
    status: Option<RebootStatus>,
    line: String,
}

/// Prints each change until all entries are gone, then how each ended.
pub async fn run(indexes: &[u64], timeout: Option<u64>, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    // one read reports connection errors at once
    let view = store.read_view().await?;
    // the end of an unreadable entry cannot be followed
    let mut broken = unreadable_indexes(&view);
    let all: BTreeSet<u64> = if indexes.is_empty() {
        view.reboots.entries.keys().copied().filter(|index| !broken.contains(index)).collect()
    } else {
        broken.retain(|index| indexes.contains(index));
        indexes.iter().copied().filter(|index| !broken.contains(index)).collect()
    };
    if all.is_empty() {
        unreadable_error(&broken)?;
        context.print_message("the reboot queue is empty");
        return Ok(());
    }
    let mut seen: BTreeMap<u64, Seen> = BTreeMap::new();
    let ended_indexes: BTreeSet<u64> = all.iter().filter(|i| !view.reboots.entries.contains_key(*i)).copied().collect();
    let recorded = endings(&store, &ended_indexes).await?;
    if let Some(index) = ended_indexes.iter().find(|i| !recorded.contains_key(&EntryId::reboot(**i))) {
        return Err(ActionError::failed(format!(
            "entry {} does not exist and no record says how it ended: see `rq list`",
            EntryId::reboot(*index)
        )));
    }
    let following = follow(&store, &all, &mut seen, context);
    match timeout {
        Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds), following).await.unwrap_or_else(|_| {
            Err(ActionError::failed(format!("entries have not ended after {seconds} s; they go on")))
        })?,
        None => following.await?,
    }
    summary(&store, &all, &seen, context).await?;
    unreadable_error(&broken)
}

async fn follow(
    store: &Store,
    all: &BTreeSet<u64>,
    seen: &mut BTreeMap<u64, Seen>,
    context: &Context,
) -> Result<(), ActionError> {
    let live = Live::follow(store);
    let mut views = live.subscribe();
    let mut trouble = None;
    loop {
        let view = views.borrow_and_update().clone();
        if view.error != trouble {
            if let Some(error) = &view.error {
                context.print_message(&format!("{error}; retrying"));
            }
            trouble.clone_from(&view.error);
        }
        if view.synced {
            let mut left = false;
            for &index in all {
                left |= print_change(&view, index, seen.entry(index).or_default(), store, context)?;
            }
            if !left {
                return Ok(());
            }
        }
        if views.changed().await.is_err() {
            return Err(ActionError::failed("the watch of etcd ended: run the command again"));
        }
    }
}

/// Prints the change of one entry, and returns whether the entry is still there.
fn print_change(
    view: &StoreView,
    index: u64,
    seen: &mut Seen,
    store: &Store,
    context: &Context,
) -> Result<bool, ActionError> {
    let Some(stored) = view.reboots.entries.get(&index) else { return Ok(false) };
    let now = store.clock().wall();
    let line = match stored.get() {
        None => "cannot be read".to_owned(),
        Some(entry) => {
            seen.node.clone_from(&entry.node);
            seen.status = Some(entry.status);
            let progress = why::published(view, EntryId::reboot(index));
            let pods = progress
                .filter(|p| p.pods_at_start > 0)
                .map(|p| format!(", {}/{} pods gone", p.pods_gone, p.pods_at_start));
            let status_text = entry.status.to_string();
            let phase = progress.filter(|p| p.phase != status_text).map(|p| format!(" ({})", p.phase));
            let reason = why::reason(view, EntryId::reboot(index), store.clock());
            format!("{}{}{}: {reason}", entry.status, phase.unwrap_or_default(), pods.unwrap_or_default())
        }
    };
    if line != seen.line {
        let at = now.strftime("%H:%M:%S");
        context.out.line(&format!("{at} {index} {} {line}", seen.node))?;
        seen.line = line;
    }
    Ok(true)
}

async fn endings(store: &Store, indexes: &BTreeSet<u64>) -> Result<BTreeMap<EntryId, Ending>, ActionError> {
    let wanted = indexes.iter().map(|i| EntryId::reboot(*i)).collect();
    Ok(store.ends_of(&wanted).await?)
}

async fn summary(
    store: &Store,
    all: &BTreeSet<u64>,
    seen: &BTreeMap<u64, Seen>,
    context: &Context,
) -> Result<(), ActionError> {
    let mut tries = 0;
    let recorded = loop {
        tries += 1;
        match endings(store, all).await {
            Err(error) if tries < MAX_TRIES => {
                context.print_message(&format!("{error}; retrying"));
                tokio::time::sleep(RETRY_DELAY).await;
            }
            recorded => break recorded?,
        }
    };
    let mut bad = Vec::new();
    for &index in all {
        let last = seen.get(&index);
        let (good, node, outcome) = match recorded.get(&EntryId::reboot(index)) {
            Some(ending) => (ending.good(), ending.address.clone(), ending.outcome.clone()),
            // CKE keeps no such record: it removes entries that have booted and entries that were cancelled
            None => match last.and_then(|s| s.status) {
                Some(RebootStatus::Rebooting) => {
                    (true, Address::default(), "removed while rebooting (no record)".to_owned())
                }
                _ => (false, Address::default(), "removed before it was rebooted (no record)".to_owned()),
            },
        };
        let node = if node.is_empty() { last.map(|s| s.node.clone()).unwrap_or_default() } else { node };
        context.out.line(&format!("{index} {node} ended: {outcome}"))?;
        if !good {
            bad.push(index.to_string());
        }
    }
    if bad.is_empty() {
        return Ok(());
    }
    Err(ActionError::failed(format!("{} of {} entries did not boot: {}", bad.len(), all.len(), bad.join(", "))))
}
