//! Executes an action through `actions`, and reports the outcome in a sentence.

use cketerm_actions::{NewRepair, Operator, resumed, stopped};
use cketerm_clients::store::StoreError;
use cketerm_model::{
    batch::BatchId,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind},
    stored::keys::SwitchName,
};
use futures::{StreamExt, stream};

use crate::state::event::{Action, ActionOutcome, BatchAction, RegistryAction, Replaced, count, named_batches};

/// Entries that are cancelled concurrently. Each costs a read and a write.
const CONCURRENCY: usize = 8;
/// Retries of a hold whose entry changed between a read and a write.
const MAX_RETRIES: usize = 3;

/// Executes an action. The error is a message for the operator: what failed, on which object, what to do.
pub async fn perform(operator: &Operator, action: Action) -> Result<ActionOutcome, String> {
    Ok(match action {
        Action::AddReboots { addresses, reason } => {
            let added = operator.add_reboots(&addresses, reason.as_deref()).await.map_err(text)?;
            let ids: Vec<EntryId> = added.indexes.iter().map(|i| EntryId::reboot(*i)).collect();
            let queued = format!("queued {}: {}", count(added.indexes.len(), "reboot"), indexes(&ids));
            let response = std::iter::once(queued).chain(added.notes).collect::<Vec<_>>().join("; ");
            ActionOutcome { queued: ids, ..response.into() }
        }
        Action::AddRepairs { addresses, machine_type, operation, reason } => {
            let (mut done, mut notes, mut failed) = (Vec::new(), Vec::new(), Vec::new());
            // what one dialog queues is one batch
            let mut batch = None;
            for address in addresses {
                let request = NewRepair {
                    operation: operation.clone(),
                    machine_type: machine_type.clone(),
                    address,
                    serial: None,
                };
                match operator.add_repair_to(batch, &request, reason.as_deref()).await {
                    Ok(added) => {
                        batch = added.batch;
                        done.extend(added.indexes.iter().map(|i| EntryId::repair(*i)));
                        notes.extend(added.notes.into_iter().filter(|n| !notes.contains(n)).collect::<Vec<_>>());
                    }
                    Err(e) => failed.push(e.text),
                }
            }
            let mut outcome = summarize("queued", &done, &failed)?;
            outcome.response = std::iter::once(outcome.response).chain(notes).collect::<Vec<_>>().join("; ");
            ActionOutcome { queued: done, ..outcome }
        }
        Action::Cancel { entries, reason } => cancel(operator, &entries, reason.as_deref()).await?,
        Action::Remove { entry, seen, reason } => {
            operator.remove_unreadable(entry, seen, reason.as_deref()).await.map_err(text)?;
            format!("removed {entry}").into()
        }
        Action::ResetBackoff { entries, reason } => {
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            for id in entries {
                match operator.reset_backoff(id.queue, Some(id.index), reason.as_deref()).await {
                    Ok(reset) if reset.is_empty() => {
                        failed.push(format!("{id} has no backoff any more, or was cancelled"));
                    }
                    Ok(_) => done.push(id),
                    Err(e) => failed.push(e.text),
                }
            }
            summarize("backoff reset of", &done, &failed)?
        }
        Action::Hold { entries, hold, reason } => {
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            let verb = if hold { Verb::Hold } else { Verb::Unhold };
            for (id, revision) in entries {
                let mut response = operator.order(id, verb, revision, reason.as_deref()).await;
                // A hold succeeds even if the entry changes meanwhile.
                for _ in 0..MAX_RETRIES {
                    if response.is_ok() || revision.is_some() {
                        break;
                    }
                    response = operator.order(id, verb, None, reason.as_deref()).await;
                }
                match response {
                    Ok(()) => done.push(id),
                    Err(e) => failed.push(e.text),
                }
            }
            summarize(if hold { "on hold:" } else { "no longer on hold:" }, &done, &failed)?
        }
        Action::Batches { queue, batches, what, reason } => {
            change_batches(operator, queue, &batches, what, reason.as_deref()).await?
        }
        Action::Switch { queue, enabled, reason } => {
            switch(operator, queue.into(), enabled, reason.as_deref(), &format!("the {queue} queue")).await?
        }
        Action::Stop { reason } => stopped(&operator.stop(reason.as_deref()).await.map_err(text)?, ":resume").into(),
        Action::Resume { reason } => resumed(operator.resume(reason.as_deref()).await.map_err(text)?.as_ref()).into(),
        Action::Registry { what, reason } => {
            let reason = reason.as_deref();
            match what {
                RegistryAction::Enable(enabled) => {
                    switch(operator, SwitchName::Sabakan, enabled, reason, "the sabakan integration").await?
                }
                RegistryAction::Approve(digest) => {
                    let approval = operator.approve(&digest, reason).await.map_err(text)?;
                    format!("approved {digest} until {}", approval.until.strftime("%H:%M:%SZ")).into()
                }
                RegistryAction::AutoRepair(enabled) => {
                    switch(operator, SwitchName::AutoRepair, enabled, reason, "automatic repair").await?
                }
                RegistryAction::Constraint { name, value } => {
                    let set = operator.replace_constraint(&name, &value, reason).await.map_err(text)?;
                    let replaced = Some(Replaced::Constraint(set.before));
                    ActionOutcome {
                        written_revision: Some(set.revision),
                        replaced,
                        ..format!("constraint {name} is {value}").into()
                    }
                }
                RegistryAction::Hold(hold, seen) => {
                    operator.hold_registry(hold, Some(seen), reason).await.map_err(text)?;
                    if hold { "applying is on hold" } else { "applying resumes" }.into()
                }
            }
        }
        Action::Hosts { hosts, action, reason } => {
            let Some(action) = action else { return Err("nothing was chosen".to_owned()) };
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            for (name, uid) in &hosts {
                match operator.host(name, uid, action.clone(), reason.as_deref()).await {
                    Ok(response) => done.push(response),
                    Err(e) => failed.push(e.text),
                }
            }
            if !failed.is_empty() {
                return Err([failed, done].concat().join("; "));
            }
            done.join("; ").into()
        }
        Action::Order { entry, verb, seen, reason } => {
            operator.order(entry, verb, seen, reason.as_deref()).await.map_err(text)?;
            format!("ordered {verb} of {entry}: the leader acts on it in its next pass").into()
        }
        Action::Freeze { until, reason } => {
            let before = operator.freeze(until, &reason).await.map_err(text)?;
            let response = format!("frozen until {until}: nothing new starts");
            ActionOutcome { replaced: before.map(|_| Replaced::Freeze), ..response.into() }
        }
        Action::Unfreeze { reason } => match operator.unfreeze(reason.as_deref()).await.map_err(text)? {
            Some(freeze) => format!("freeze ended; it was set until {}", freeze.until).into(),
            None => "nothing was frozen".into(),
        },
        Action::Maintenance { addresses, until, reason } => {
            let added = operator.add_maintenance(&addresses, until, Some(&reason)).await.map_err(text)?;
            format!("maintenance {}: until {until}", ids(&added.indexes)).into()
        }
        Action::EndMaintenance { addresses, reason } => {
            let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let ended = operator.release_maintenance(&words, reason.as_deref()).await.map_err(text)?;
            format!("ended maintenance {}: uncordoned once Ready", ids(&ended)).into()
        }
        Action::KeepCordoned { node, keep } => {
            operator.keep_cordoned(&node, keep, None).await.map_err(text)?;
            if keep {
                format!("{node} stays cordoned when the work ends; the same key undoes this").into()
            } else {
                format!("{node} is no longer kept cordoned").into()
            }
        }
    })
}

fn ids(indexes: &[u64]) -> String {
    indexes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Changes whole batches, one after the other.
async fn change_batches(
    operator: &Operator,
    queue: QueueKind,
    batches: &[(BatchId, Option<i64>)],
    what: BatchAction,
    reason: Option<&str>,
) -> Result<ActionOutcome, String> {
    let (mut done, mut cancelled, mut failed) = (Vec::new(), 0, Vec::new());
    for &(id, shown) in batches {
        let changed = match what {
            BatchAction::Pause => operator.pause_batch(queue, id, reason).await.map(|()| 0),
            BatchAction::Resume => operator.resume_batch(queue, id, shown, reason).await.map(|()| 0),
            BatchAction::Cancel => operator.cancel_batch(queue, id, shown, reason).await.map(|entries| entries.len()),
        };
        match changed {
            Ok(entries) => {
                done.push(id);
                cancelled += entries;
            }
            Err(e) => failed.push(e.text),
        }
    }
    if done.is_empty() {
        return Err(failed.join("; "));
    }
    let named = named_batches(&done);
    let response = match what {
        BatchAction::Pause => format!("{named} paused: queued entries do not start, those in work finish"),
        BatchAction::Resume => format!("{named} resumed"),
        BatchAction::Cancel => format!("{named}: {} cancelled", count(cancelled, "entry")),
    };
    let partial = !failed.is_empty();
    let response = std::iter::once(response).chain(failed).collect::<Vec<_>>().join("; ");
    Ok(ActionOutcome { partial, ..response.into() })
}

/// Sets a switch. If it was off already, the undo must not enable it.
async fn switch(
    operator: &Operator,
    name: SwitchName,
    enabled: bool,
    reason: Option<&str>,
    what: &str,
) -> Result<ActionOutcome, String> {
    let switched = operator.set_switch(name, enabled, reason).await.map_err(text)?;
    let before = switched.before.map(|before| before.enabled());
    let replaced = (!enabled && before != Some(true)).then_some(Replaced::Off);
    let already = if before == Some(enabled) { " already" } else { "" };
    let response = format!("{what} is {}{already}", if enabled { "enabled" } else { "disabled" });
    Ok(ActionOutcome { written_revision: Some(switched.revision), replaced, ..response.into() })
}

/// Cancels reboots and deletes repairs, several at once. An entry that ended meanwhile counts as cancelled.
async fn cancel(operator: &Operator, entries: &[EntryId], reason: Option<&str>) -> Result<ActionOutcome, String> {
    let each = stream::iter(entries.to_vec()).map(|id| async move {
        let response = match id.queue {
            QueueKind::Reboot => operator.cancel_reboot(id.index, None, reason).await,
            QueueKind::Repair => operator.delete_repair(id.index, None, reason).await,
            QueueKind::Maintenance => operator.end_maintenance(id.index, reason).await,
        };
        (id, response)
    });
    let (mut done, mut ended, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (id, response) in each.buffered(CONCURRENCY).collect::<Vec<_>>().await {
        match response {
            Ok(()) => done.push(id),
            Err(e) => match operator.store.stored_entry(id).await {
                Err(StoreError::NotFound { .. }) => ended.push(id),
                _ => failed.push(e.text),
            },
        }
    }
    let repairs = entries.iter().all(|id| id.queue == QueueKind::Repair);
    let before = (!ended.is_empty()).then(|| format!("already ended: {}", indexes(&ended)));
    if done.is_empty() && failed.is_empty() {
        let response = before.ok_or_else(|| "nothing was chosen".to_owned())?;
        return Ok(ActionOutcome { done: Some(Vec::new()), ..response.into() });
    }
    let mut outcome = summarize(if repairs { "deleted" } else { "cancelled" }, &done, &failed)?;
    outcome.response = [Some(outcome.response), before].into_iter().flatten().collect::<Vec<_>>().join("; ");
    Ok(outcome)
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn text(e: cketerm_actions::ActionError) -> String {
    e.text
}

fn indexes(all: &[EntryId]) -> String {
    let shown: Vec<String> = all.iter().take(5).map(ToString::to_string).collect();
    match all.len().saturating_sub(5) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns the outcome of one operation on several entries. It is an error if the operation failed for all of them.
fn summarize(what: &str, done: &[EntryId], failed: &[String]) -> Result<ActionOutcome, String> {
    let all = done.len() + failed.len();
    let response = match failed {
        [] => format!("{what} {}", indexes(done)),
        [only] if done.is_empty() => return Err(only.clone()),
        [first, ..] if done.is_empty() => return Err(format!("{what} 0 of {all}; {all} failed: {first}")),
        [first, ..] => format!("{what} {}, {} of {all}; {} failed: {first}", indexes(done), done.len(), failed.len()),
    };
    Ok(ActionOutcome { done: Some(done.to_vec()), partial: !failed.is_empty(), ..response.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failure for one entry must not hide the successes for others.
    #[test]
    fn partial_success_lists_the_entries_that_succeeded() {
        let done = [EntryId::reboot(3), EntryId::reboot(5)];
        let outcome = summarize("cancelled", &done, &["reboots/4: etcd said no".to_owned()]).unwrap();
        assert_eq!(outcome.response, "cancelled reboots/3, reboots/5, 2 of 3; 1 failed: reboots/4: etcd said no");
        assert_eq!((outcome.done.as_deref(), outcome.partial), (Some(&done[..]), true));
        assert!(!summarize("cancelled", &done, &[]).unwrap().partial);
        assert_eq!(summarize("cancelled", &[], &["no".to_owned()]), Err("no".to_owned()));
        let none = summarize("cancelled", &[], &["no".to_owned(), "never".to_owned()]);
        assert_eq!(none, Err("cancelled 0 of 2; 2 failed: no".to_owned()));
    }
}
