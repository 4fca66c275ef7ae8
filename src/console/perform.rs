//! Carries an action out through `actions`, and says in a sentence what came of it.

use super::event::{Action, count};
use crate::{
    actions::Operator,
    model::entry::{EntryId, QueueKind},
    store::keys::SwitchName,
};

/// Carries it out. The error is what a person should read: what failed, on which object, what to do.
pub async fn perform(operator: &Operator, action: Action) -> Result<String, String> {
    match action {
        Action::AddReboots { addresses, reason } => {
            let added = operator.add_reboots(&addresses, reason.as_deref()).await.map_err(text)?;
            let queued = format!("queued {}: {}", count(added.indexes.len(), "reboot"), indexes(&added.indexes));
            Ok(std::iter::once(queued).chain(added.notes).collect::<Vec<_>>().join("; "))
        }
        Action::Cancel { entries, reason } => {
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            for (index, revision) in entries {
                match operator.cancel_reboot(index, Some(revision), reason.as_deref()).await {
                    Ok(()) => done.push(index),
                    Err(e) => failed.push(e.text),
                }
            }
            summed("cancelled", &done, &failed)
        }
        Action::ResetBackoff { entries, reason } => {
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            for index in entries {
                match operator.reset_backoff(QueueKind::Reboot, Some(index), reason.as_deref()).await {
                    Ok(_) => done.push(index),
                    Err(e) => failed.push(e.text),
                }
            }
            summed("backoff reset of", &done, &failed)
        }
        Action::Switch { enabled, reason } => {
            operator.set_switch(SwitchName::Reboots, enabled, reason.as_deref()).await.map_err(text)?;
            Ok(format!("the reboot queue is {}", if enabled { "enabled" } else { "disabled" }))
        }
        Action::Order { entry, verb, seen, reason } => {
            operator.order(entry, verb, seen, reason.as_deref()).await.map_err(text)?;
            Ok(format!("ordered {verb} of {entry}: the leader takes it up at its next pass"))
        }
        Action::KeepCordoned { node, keep } => {
            operator.keep_cordoned(&node, keep).await.map_err(text)?;
            Ok(if keep {
                format!("{node} stays cordoned when the work ends (C gives it back)")
            } else {
                format!("{node}'s cordon is the queue's again")
            })
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn text(e: crate::actions::ActionError) -> String {
    e.text
}

fn indexes(all: &[u64]) -> String {
    let shown: Vec<String> = all.iter().take(5).map(|i| EntryId::reboot(*i).to_string()).collect();
    match all.len().saturating_sub(5) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn summed(what: &str, done: &[u64], failed: &[String]) -> Result<String, String> {
    match failed {
        [] => Ok(format!("{what} {}", indexes(done))),
        [first, ..] if done.is_empty() && failed.len() == 1 => Err(first.clone()),
        [first, ..] => {
            Err(format!("{what} {} of {}; {} failed: {first}", done.len(), done.len() + failed.len(), failed.len()))
        }
    }
}
