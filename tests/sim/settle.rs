//! End of the day: an operator settles what only an operator may settle.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_model::{
    cketerm_records::Verb,
    entry::{EntryId, Stored},
    reason::Reason,
    reboot::RebootStatus,
    repair::RepairEntry,
    stored::view::StoreView,
};
use cketerm_scenario::Stage;
use tokio::time::{Instant, sleep};

use crate::{
    engines::Engines,
    people::{self, Person},
};

/// Waits until the queue is empty. Meanwhile it settles, as an operator at the console would, what only an operator may
/// settle: unknown outcomes, failed commands, replaced Nodes.
pub async fn settle(person: &Person, engines: &Engines, stage: &Stage) {
    let mut orphans: BTreeMap<String, u32> = BTreeMap::new();
    // an operator gives a machine time before the next order; times in the entry may come from a wrong clock
    let mut ordered: BTreeMap<u64, Instant> = BTreeMap::new();
    let mut retried: BTreeMap<u64, Instant> = BTreeMap::new();
    // read again after each write
    let mut read: Option<(i64, StoreView)> = None;
    loop {
        sleep(Duration::from_secs(5)).await;
        let revision = stage.sandbox.etcd.revision();
        if read.as_ref().is_none_or(|(of, _)| *of != revision) {
            let Ok(view) = person.operator.store.read_view().await else { continue };
            read = Some((revision, view));
        }
        let Some((_, view)) = &read else { continue };
        let unfinished = |s: &Stored<RepairEntry>| s.get().is_none_or(RepairEntry::unfinished);
        if view.reboots.entries.is_empty() && !view.repairs.entries.values().any(unfinished) {
            return;
        }
        let reasons = {
            let slots = engines.lock().unwrap();
            let leading = slots.iter().filter_map(|s| s.handle.as_ref()).map(|h| h.seen().borrow().clone());
            leading.into_iter().find(|s| s.snapshot.engine.leading.is_some())
        };
        let Some(seen) = reasons else { continue };
        let reasons = Arc::clone(&seen.reasons);
        // a cordon of a cancelled reboot, on a machine that never went down: only an operator can know that
        orphans.retain(|node, _| seen.orphans.contains_key(node.as_str()));
        for node in seen.orphans.keys() {
            let times = orphans.entry(node.to_string()).or_default();
            *times += 1;
            if *times == 24 {
                people::set(&stage.sandbox, node, "spec", "unschedulable", None);
            }
        }
        for index in view.repairs.entries.keys() {
            let id = EntryId::repair(*index);
            match reasons.get(&id) {
                Some(
                    Reason::OutcomeUnknown { .. } | Reason::CommandFailed { .. } | Reason::WaitingForHealth { .. },
                ) if retried.get(index).is_none_or(|at| at.elapsed() > Duration::from_mins(5))
                    && person.operator.order(id, Verb::Retry, None, Some("the end of the day")).await.is_ok() =>
                {
                    retried.insert(*index, Instant::now());
                }
                Some(Reason::InvalidEntry { .. } | Reason::NodeMismatch { .. }) => {
                    let _ = person.operator.delete_repair(*index, None, None).await;
                }
                _ => {}
            }
        }
        for (index, stored) in &view.reboots.entries {
            let Some(entry) = stored.get() else { continue };
            let id = EntryId::reboot(*index);
            let verb = match reasons.get(&id) {
                Some(Reason::OutcomeUnknown { .. } | Reason::CommandFailed { .. }) => Some(Verb::Retry),
                Some(Reason::WaitingForBoot { .. }) if entry.status == RebootStatus::Rebooting => {
                    // a machine that never got the reboot command, or ignored it: retry
                    let since = entry.last_transition_time.unwrap_or_default();
                    (person.clock.wall().duration_since(since).as_secs() > 300).then_some(Verb::Retry)
                }
                Some(Reason::NodeMismatch { .. }) => {
                    let _ = person.operator.cancel_reboot(*index, None, None).await;
                    None
                }
                _ => None,
            };
            if let Some(verb) = verb
                && ordered.get(index).is_none_or(|at| at.elapsed() > Duration::from_mins(5))
                && person.operator.order(id, verb, None, Some("the end of the day")).await.is_ok()
            {
                ordered.insert(*index, Instant::now());
                let requested = person.clock.wall();
                let command = crate::observers::record::AcknowledgedCommand::Order(*index, verb.to_string());
                let acknowledged = crate::observers::record::Acknowledged {
                    requested,
                    at: requested,
                    by: person.name.clone(),
                    command,
                };
                person.acknowledged.lock().unwrap().push(acknowledged);
            }
        }
    }
}
