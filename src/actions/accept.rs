//! Check, before any write, that the leader honours an operator's command (I52, SAF-40; `model/acceptance`).

use super::{ActionError, Operator};
use crate::{
    model::acceptance::{Acceptance, Asked, Lead, acceptance},
    mutation::{Mutation, on},
    store::{leadership::Leadership, settings::Accepted},
};

/// Most checks of one command: another program may take the lead between a check and the write.
pub(super) const JUDGED: usize = 3;

/// Returns the message of a refusal, or `None` if the command is accepted.
pub fn refusal(asked: Asked, leadership: &Leadership, in_work: bool, handover: bool) -> Option<String> {
    let refused = match acceptance(asked, leadership.lead) {
        Acceptance::Accepted | Acceptance::NextLeader => false,
        Acceptance::InWork => !in_work,
        Acceptance::ForHandover => !handover,
        Acceptance::Refused => true,
    };
    let pretended = on(Mutation::HoldPretended);
    (refused && !pretended).then(|| {
        let (said, word) = (&leadership.said, asked.word());
        let why = match leadership.lead {
            Lead::Cke => format!("CKE does not know `{word}` and would continue anyway"),
            Lead::Yielding => format!("nothing new starts until then, and CKE does not know `{word}`"),
            Lead::Unknown => format!("it is unknown whether `{word}` would be honoured"),
            Lead::Cketerm | Lead::Nobody => format!("`{word}` is not honoured"),
        };
        format!("{said}: {why}; nothing was written. Instead: {}", asked.instead())
    })
}

/// Returns a note for the operator about an accepted command, or `None` if there is nothing to add.
pub fn note(asked: Asked, leadership: &Leadership) -> Option<String> {
    let said = &leadership.said;
    match acceptance(asked, leadership.lead) {
        Acceptance::Accepted | Acceptance::InWork | Acceptance::Refused => None,
        Acceptance::NextLeader => {
            Some(format!("note: {said}: it takes effect once a cketerm engine leads; CKE would ignore it"))
        }
        Acceptance::ForHandover => {
            Some(format!("note: {said}: stored for the next cketerm leader, NOT IN FORCE until then"))
        }
    }
}

/// Applies the same table to a policy change, at the moment of its write.
pub(super) fn judge(asked: Asked, leadership: &Leadership, handover: bool) -> Result<Accepted, String> {
    if let Some(why) = refusal(asked, leadership, false, handover) {
        return Err(why);
    }
    Ok(match acceptance(asked, leadership.lead) {
        Acceptance::ForHandover => Accepted::ForHandover,
        Acceptance::Accepted if asked.always() => Accepted::Anyway,
        // the write is tied to this leader; if another one takes the lead before it, the command is judged again
        Acceptance::Accepted | Acceptance::NextLeader | Acceptance::InWork | Acceptance::Refused => Accepted::InForce,
    })
}

impl Operator {
    /// Returns the current leadership if the leader honours this command, else the refusal.
    pub(super) async fn accepted(&self, asked: Asked) -> Result<Leadership, ActionError> {
        let leadership = self.store.leadership().await?;
        match refusal(asked, &leadership, false, self.handover) {
            Some(why) => Err(ActionError::refused(why)),
            None => Ok(leadership),
        }
    }

    /// Returns a note for the operator about a command that was just accepted. It reads the leadership again, because
    /// the leader may have changed.
    pub async fn note_on(&self, asked: Asked) -> Option<String> {
        note(asked, &self.store.leadership().await.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::leadership::Under;

    fn led(lead: Lead, said: &str) -> Leadership {
        Leadership { lead, said: said.to_owned(), under: Under::Nobody }
    }

    #[test]
    fn a_refusal_says_who_leads_what_was_not_done_and_what_works_instead() {
        let cke = led(Lead::Cke, "CKE on boot-0 leads");
        let why = refusal(Asked::Hold, &cke, true, true).unwrap();
        assert!(why.starts_with("CKE on boot-0 leads: CKE does not know `hold`"), "{why}");
        assert!(why.contains("nothing was written") && why.contains("`cketerm rq cancel`"), "{why}");
        assert!(why.contains("`cketerm stop`"), "{why}");
        let freeze = refusal(Asked::Freeze, &cke, false, false).unwrap();
        assert!(freeze.contains("--for-handover") && freeze.contains("`cketerm stop`"), "{freeze}");
        assert_eq!(refusal(Asked::Freeze, &cke, false, true), None);
        assert_eq!(judge(Asked::Freeze, &cke, true), Ok(Accepted::ForHandover));
        assert!(note(Asked::Freeze, &cke).unwrap().contains("NOT IN FORCE"));
        assert_eq!(refusal(Asked::Cancel, &cke, false, false), None);
        assert_eq!(judge(Asked::Engine, &cke, false), Ok(Accepted::Anyway));
    }

    #[test]
    fn a_leader_that_resigns_still_honours_orders_for_what_is_in_work() {
        let leaves = led(Lead::Yielding, "cketerm on a finishes its work and resigns for CKE on b");
        assert_eq!(refusal(Asked::Retry, &leaves, true, false), None);
        assert!(refusal(Asked::Force, &leaves, false, false).is_some(), "one that is queued is not started any more");
        assert!(refusal(Asked::Hold, &leaves, true, false).is_some());
    }
}
