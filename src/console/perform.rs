//! Carries an action out through `actions`, and says in a sentence what came of it.

use futures::{StreamExt, stream};

use super::event::{Action, Came, Registering, Replaced, count};
use crate::{
    actions::{Operator, WantedRepair},
    model::{
        entry::{EntryId, QueueKind},
        ours::Verb,
    },
    store::{StoreError, keys::SwitchName},
};

/// Entries that are cancelled at the same time: each costs a read and a write.
const AT_ONCE: usize = 8;
/// How often a hold is tried again after its entry moved on between a read and a write.
const RACES: usize = 3;

/// Carries it out. The error is what a person should read: what failed, on which object, what to do.
pub async fn perform(operator: &Operator, action: Action) -> Result<Came, String> {
    Ok(match action {
        Action::AddReboots { addresses, reason } => {
            let added = operator.add_reboots(&addresses, reason.as_deref()).await.map_err(text)?;
            let ids: Vec<EntryId> = added.indexes.iter().map(|i| EntryId::reboot(*i)).collect();
            let queued = format!("queued {}: {}", count(added.indexes.len(), "reboot"), indexes(&ids));
            let said = std::iter::once(queued).chain(added.notes).collect::<Vec<_>>().join("; ");
            Came { queued: ids, ..said.into() }
        }
        Action::AddRepairs { addresses, machine_type, operation, reason } => {
            let (mut done, mut notes, mut failed) = (Vec::new(), Vec::new(), Vec::new());
            for address in addresses {
                let wanted = WantedRepair {
                    operation: operation.clone(),
                    machine_type: machine_type.clone(),
                    address,
                    serial: None,
                };
                match operator.add_repair(&wanted, reason.as_deref()).await {
                    Ok(added) => {
                        done.extend(added.indexes.iter().map(|i| EntryId::repair(*i)));
                        notes.extend(added.notes.into_iter().filter(|n| !notes.contains(n)).collect::<Vec<_>>());
                    }
                    Err(e) => failed.push(e.text),
                }
            }
            let said = summed("queued", &done, &failed)?;
            let said = std::iter::once(said).chain(notes).collect::<Vec<_>>().join("; ");
            Came { queued: done, ..said.into() }
        }
        Action::Cancel { entries, reason } => cancel(operator, &entries, reason.as_deref()).await?.into(),
        Action::Remove { entry, seen, reason } => {
            operator.remove_unreadable(entry, seen, reason.as_deref()).await.map_err(text)?;
            format!("removed {entry}").into()
        }
        Action::ResetBackoff { entries, reason } => {
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            for id in entries {
                match operator.reset_backoff(id.queue, Some(id.index), reason.as_deref()).await {
                    Ok(_) => done.push(id),
                    Err(e) => failed.push(e.text),
                }
            }
            summed("backoff reset of", &done, &failed)?.into()
        }
        Action::Hold { entries, hold, reason } => {
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            let verb = if hold { Verb::Hold } else { Verb::Unhold };
            for (id, revision) in entries {
                let mut said = operator.order(id, verb, revision, reason.as_deref()).await;
                // a hold gets through although the entry moves on
                for _ in 0..RACES {
                    if said.is_ok() || revision.is_some() {
                        break;
                    }
                    said = operator.order(id, verb, None, reason.as_deref()).await;
                }
                match said {
                    Ok(()) => done.push(id),
                    Err(e) => failed.push(e.text),
                }
            }
            summed(if hold { "on hold:" } else { "let go:" }, &done, &failed)?.into()
        }
        Action::Switch { queue, enabled, reason } => {
            let wrote = operator.set_switch(queue.into(), enabled, reason.as_deref()).await.map_err(text)?;
            let said = format!("the {queue} queue is {}", if enabled { "enabled" } else { "disabled" });
            Came { wrote: Some(wrote), ..said.into() }
        }
        Action::Registry { what, reason } => {
            let reason = reason.as_deref();
            match what {
                Registering::Enable(enabled) => {
                    let wrote = operator.set_switch(SwitchName::Sabakan, enabled, reason).await.map_err(text)?;
                    let said = format!("the sabakan integration is {}", if enabled { "enabled" } else { "disabled" });
                    Came { wrote: Some(wrote), ..said.into() }
                }
                Registering::Approve(digest) => {
                    let approval = operator.approve(&digest, reason).await.map_err(text)?;
                    format!("approved {digest} until {}", approval.until.strftime("%H:%M:%SZ")).into()
                }
                Registering::AutoRepair(enabled) => {
                    let wrote = operator.set_switch(SwitchName::AutoRepair, enabled, reason).await.map_err(text)?;
                    let said = format!("automatic repair is {}", if enabled { "enabled" } else { "disabled" });
                    Came { wrote: Some(wrote), ..said.into() }
                }
                Registering::Constraint { name, value } => {
                    let set = operator.replace_constraint(&name, &value, reason).await.map_err(text)?;
                    let replaced = Some(Replaced::Constraint(set.before));
                    Came { wrote: Some(set.revision), replaced, ..format!("constraint {name} is {value}").into() }
                }
                Registering::Hold(hold, seen) => {
                    operator.hold_registry(hold, Some(seen), reason).await.map_err(text)?;
                    if hold { "nothing is applied until it is let go" } else { "applying goes on" }.into()
                }
            }
        }
        Action::Hosts { hosts, deed, reason } => {
            let Some(deed) = deed else { return Err("nothing was chosen".to_owned()) };
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            for (name, uid) in &hosts {
                match operator.host(name, uid, deed.clone(), reason.as_deref()).await {
                    Ok(said) => done.push(said),
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
            format!("ordered {verb} of {entry}: the leader takes it up at its next pass").into()
        }
        Action::Freeze { until, reason } => {
            let before = operator.freeze(until, &reason).await.map_err(text)?;
            let said = format!("frozen until {until}: nothing new starts");
            Came { replaced: before.map(|_| Replaced::Freeze), ..said.into() }
        }
        Action::Unfreeze { reason } => match operator.unfreeze(reason.as_deref()).await.map_err(text)? {
            Some(freeze) => format!("the freeze is over; it was until {}", freeze.until).into(),
            None => "no freeze was on".into(),
        },
        Action::KeepCordoned { node, keep } => {
            operator.keep_cordoned(&node, keep, None).await.map_err(text)?;
            if keep {
                format!("{node} stays cordoned when the work ends; the same key gives it back").into()
            } else {
                format!("{node}'s cordon is the queue's again").into()
            }
        }
    })
}

/// Cancels and deletes, some at once. What ended on the way to it is as good as cancelled.
async fn cancel(operator: &Operator, entries: &[EntryId], reason: Option<&str>) -> Result<String, String> {
    let each = stream::iter(entries.to_vec()).map(|id| async move {
        let said = match id.queue {
            QueueKind::Reboot => operator.cancel_reboot(id.index, None, reason).await,
            QueueKind::Repair => operator.delete_repair(id.index, None, reason).await,
        };
        (id, said)
    });
    let (mut done, mut ended, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (id, said) in each.buffered(AT_ONCE).collect::<Vec<_>>().await {
        match said {
            Ok(()) => done.push(id),
            Err(e) => match operator.store.stored_entry(id).await {
                Err(StoreError::NotFound { .. }) => ended.push(id),
                _ => failed.push(e.text),
            },
        }
    }
    let repairs = entries.iter().all(|id| id.queue == QueueKind::Repair);
    let before = (!ended.is_empty()).then(|| format!("ended before that: {}", indexes(&ended)));
    if done.is_empty() && failed.is_empty() {
        return before.ok_or_else(|| "nothing was chosen".to_owned());
    }
    let said = summed(if repairs { "deleted" } else { "cancelled" }, &done, &failed)?;
    Ok([Some(said), before].into_iter().flatten().collect::<Vec<_>>().join("; "))
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn text(e: crate::actions::ActionError) -> String {
    e.text
}

fn indexes(all: &[EntryId]) -> String {
    let shown: Vec<String> = all.iter().take(5).map(ToString::to_string).collect();
    match all.len().saturating_sub(5) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn summed(what: &str, done: &[EntryId], failed: &[String]) -> Result<String, String> {
    match failed {
        [] => Ok(format!("{what} {}", indexes(done))),
        [first, ..] if done.is_empty() && failed.len() == 1 => Err(first.clone()),
        [first, ..] => {
            Err(format!("{what} {} of {}; {} failed: {first}", done.len(), done.len() + failed.len(), failed.len()))
        }
    }
}
