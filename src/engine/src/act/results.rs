//! Takes a published result over into its attempt, or removes a result without an open attempt (SAF-20).

use cketerm_model::{attempt::Attempt, boot_time::BootTime, entry::Stored, result::CommandResult};
use cketerm_rules::{decide::Guard, snapshot::EffectOutcome};

use super::{Actor, Stop};

impl Actor {
    /// Takes the result over in one fenced transaction, which compares the result and the open attempt.
    pub(super) async fn take_result(
        &self,
        decided: BootTime,
        result: &Stored<CommandResult>,
        attempt: Option<&Stored<Attempt>>,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(&Guard::default(), decided)?;
        let view = self.live.borrow();
        let (mut change, outcome) = self.transition(&view).take_result(result, attempt);
        let (Some(outcome), Some(open)) = (outcome, attempt.and_then(Stored::get)) else {
            let name = result.key.rsplit('/').next().unwrap_or_default().to_owned();
            change.puts.push(self.audit("drop result", &name, None, "belongs to no open attempt"));
            self.commit(&permit, change).await?;
            return Ok(EffectOutcome::Done);
        };
        let note = format!("attempt {}, as its host {} reports: {}", open.number, open.host, outcome.end);
        change.puts.push(self.audit("take result", &open.entry.to_string(), None, &note));
        self.commit(&permit, change).await?;
        tracing::info!(entry = %open.entry, attempt = open.id, end = %outcome.end, "command result taken over");
        Ok(EffectOutcome::Command(outcome))
    }
}
