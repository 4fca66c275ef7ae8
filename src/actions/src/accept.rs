//! Check, before any write, that the leader honours an operator's command (I52, SAF-40; `model/acceptance`).

use cketerm_clients::store::{StoreError, settings::Accepted};
use cketerm_model::{
    acceptance::{Acceptance, LeaderKind, OperatorCommand, acceptance},
    fault,
    stored::leadership::Leadership,
};

use super::{error::ActionError, operator::Operator};

/// Most checks of one command: another program may take the lead between a check and the write.
const MAX_CHECKS: usize = 3;

/// Runs `attempt`, which checks that the leader honours a command and then writes it, tied to this leader. If another one
/// has taken over between the two, nothing was written, and whether it honours the command has to be checked again.
pub(super) async fn checked_again<T, F: Future<Output = Result<Result<T, StoreError>, ActionError>>>(
    attempt: impl Fn() -> F,
) -> Result<T, ActionError> {
    let mut checks = 1;
    loop {
        match attempt().await? {
            Err(StoreError::LeaderChanged) if checks < MAX_CHECKS => checks += 1,
            written => return Ok(written?),
        }
    }
}

/// Returns the message of a refusal, or `None` if the command is accepted.
pub fn refusal(command: OperatorCommand, leadership: &Leadership, in_work: bool, handover: bool) -> Option<String> {
    refusal_naming(command, leadership, in_work, handover, command.instead())
}

/// Returns the same with this alternative in place of the command line's.
pub fn refusal_naming(
    command: OperatorCommand,
    leadership: &Leadership,
    in_work: bool,
    handover: bool,
    instead: &str,
) -> Option<String> {
    let refused = match acceptance(command, leadership.lead) {
        Acceptance::Accepted | Acceptance::NextLeader => false,
        Acceptance::InWork => !in_work,
        Acceptance::ForHandover => !handover,
        Acceptance::Refused => true,
    };
    let (message, name) = (&leadership.message, command.as_str());
    if !refused && !leadership.knows(command) {
        let version = leadership.version.as_deref().unwrap_or("of an unknown version");
        return Some(format!(
            "{message}: its version, {version}, does not know `{name}` and would continue anyway; nothing was written. \
             Update cketerm there first, or instead: {instead}"
        ));
    }
    fault!(OrderAcceptedAnyway => refused = false);
    refused.then(|| {
        let why = match leadership.lead {
            LeaderKind::Cke => format!("CKE does not know `{name}` and would continue anyway"),
            LeaderKind::Yielding => format!("nothing new starts until then, and CKE does not know `{name}`"),
            LeaderKind::Unknown => format!("it is unknown whether `{name}` would be honoured"),
            LeaderKind::Cketerm | LeaderKind::Nobody => format!("`{name}` is not honoured"),
        };
        format!("{message}: {why}; nothing was written. Instead: {instead}")
    })
}

/// Returns a note for the operator about an accepted command, or `None` if there is nothing to add.
pub fn note(command: OperatorCommand, leadership: &Leadership) -> Option<String> {
    let message = &leadership.message;
    match acceptance(command, leadership.lead) {
        Acceptance::Accepted | Acceptance::InWork | Acceptance::Refused => None,
        Acceptance::NextLeader => {
            Some(format!("note: {message}: this takes effect once a cketerm engine leads; CKE would ignore it"))
        }
        Acceptance::ForHandover => {
            Some(format!("note: {message}: stored for the next cketerm leader, NOT IN FORCE until then"))
        }
    }
}

/// Applies the same table to a policy change, at the moment of its write.
pub(super) fn accept_policy_change(
    command: OperatorCommand,
    leadership: &Leadership,
    handover: bool,
) -> Result<Accepted, String> {
    if let Some(why) = refusal(command, leadership, false, handover) {
        return Err(why);
    }
    Ok(match acceptance(command, leadership.lead) {
        Acceptance::ForHandover => Accepted::ForHandover,
        Acceptance::Accepted if command.always() => Accepted::Anyway,
        // the write is tied to this leader; if another one takes the lead before it, the command is judged again
        Acceptance::Accepted | Acceptance::NextLeader | Acceptance::InWork | Acceptance::Refused => Accepted::InForce,
    })
}

impl Operator {
    /// Returns the current leadership if the leader honours this command, else the refusal.
    pub(super) async fn accepted(&self, command: OperatorCommand) -> Result<Leadership, ActionError> {
        let leadership = self.store.leadership().await?;
        match refusal(command, &leadership, false, self.handover) {
            Some(why) => Err(ActionError::refused(why)),
            None => Ok(leadership),
        }
    }

    /// Returns a note for the operator about a command that was just accepted. It reads the leadership again, because
    /// the leader may have changed.
    pub async fn acceptance_note(&self, command: OperatorCommand) -> Option<String> {
        note(command, &self.store.leadership().await.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use cketerm_model::stored::leadership::LeaderGuard;

    fn led(lead: LeaderKind, message: &str) -> Leadership {
        Leadership { lead, message: message.to_owned(), under: LeaderGuard::Nobody, version: None }
    }

    #[test]
    fn a_refusal_names_the_leader_and_an_alternative() {
        let cke = led(LeaderKind::Cke, "CKE on boot-0 leads");
        let why = refusal(OperatorCommand::Hold, &cke, true, true).unwrap();
        assert!(why.starts_with("CKE on boot-0 leads: CKE does not know `hold`"), "{why}");
        assert!(why.contains("nothing was written") && why.contains("`cketerm rq cancel`"), "{why}");
        assert!(why.contains("`cketerm stop`"), "{why}");
        let freeze = refusal(OperatorCommand::Freeze, &cke, false, false).unwrap();
        assert!(freeze.contains("--for-handover") && freeze.contains("`cketerm stop`"), "{freeze}");
        assert_eq!(refusal(OperatorCommand::Freeze, &cke, false, true), None);
        assert_eq!(accept_policy_change(OperatorCommand::Freeze, &cke, true), Ok(Accepted::ForHandover));
        assert!(note(OperatorCommand::Freeze, &cke).unwrap().contains("NOT IN FORCE"));
        assert_eq!(refusal(OperatorCommand::Cancel, &cke, false, false), None);
        assert_eq!(accept_policy_change(OperatorCommand::Engine, &cke, false), Ok(Accepted::Anyway));
    }

    #[test]
    fn a_pause_is_refused_under_a_leader_whose_version_does_not_know_it() {
        let under = |version: &str| Leadership {
            version: Some(version.to_owned()),
            ..led(LeaderKind::Cketerm, "cketerm on boot-1 leads")
        };
        let why = refusal(OperatorCommand::PauseBatch, &under("0.1.4"), false, false).unwrap();
        assert!(why.starts_with("cketerm on boot-1 leads: its version, 0.1.4, does not know `pause`"), "{why}");
        assert!(
            why.contains("Update cketerm there first") && why.contains("`cketerm rq cancel --batch BATCH`"),
            "{why}"
        );
        assert_eq!(refusal(OperatorCommand::PauseBatch, &under("0.2.0"), false, false), None);
        assert_eq!(refusal(OperatorCommand::Hold, &under("0.1.4"), false, false), None);
    }

    #[test]
    fn a_resigning_leader_accepts_orders_only_for_entries_in_progress() {
        let leaves = led(LeaderKind::Yielding, "cketerm on a finishes its work and resigns for CKE on b");
        assert_eq!(refusal(OperatorCommand::Retry, &leaves, true, false), None);
        assert!(refusal(OperatorCommand::Force, &leaves, false, false).is_some(), "a queued entry no longer starts");
        assert!(refusal(OperatorCommand::Hold, &leaves, true, false).is_some());
    }

    /// Runs a command whose first writes end like this, and returns its result and the number of checks.
    async fn checked(writes: &[StoreError]) -> (Result<&'static str, ActionError>, usize) {
        let checks = Cell::new(0);
        let result = checked_again(|| async {
            let write = writes.get(checks.replace(checks.get() + 1));
            Ok(write.map_or(Ok("written"), |failure| Err(failure.clone())))
        })
        .await;
        (result, checks.get())
    }

    #[tokio::test]
    async fn i52_a_command_is_checked_again_while_leaders_change_but_not_forever() {
        use StoreError::LeaderChanged;
        assert_eq!(checked(&[]).await, (Ok("written"), 1));
        assert_eq!(checked(&[LeaderChanged, LeaderChanged]).await, (Ok("written"), 3));
        let always = checked(&[LeaderChanged, LeaderChanged, LeaderChanged]).await;
        assert_eq!(always, (Err(LeaderChanged.into()), 3));
        let denied = StoreError::NotAllowed("the hold has changed".to_owned());
        assert_eq!(checked(std::slice::from_ref(&denied)).await, (Err(denied.into()), 1));
        let refused = ActionError::refused("CKE leads");
        let ends = checked_again(|| async { Err::<Result<(), _>, _>(refused.clone()) }).await;
        assert_eq!(ends, Err(refused));
    }
}
