//! Both queues at once: the way to stop everything that works under every leader.

use super::{ActionError, Operator};
use crate::{model::entry::QueueKind, store::stop::Turned};

impl Operator {
    /// Disables both queues, under every leader.
    pub async fn stop(&self, reason: Option<&str>) -> Result<Turned, ActionError> {
        Ok(self.store.stop(&self.who, reason).await?)
    }

    /// Enables what the last stop disabled; none where nothing is stopped.
    pub async fn resume(&self, reason: Option<&str>) -> Result<Option<Turned>, ActionError> {
        self.refuse_mismatch().await?;
        Ok(self.store.resume(&self.who, reason).await?)
    }
}

/// What a stop did.
pub fn stopped(done: &Turned) -> String {
    let left = left(&done.left, "was disabled already");
    match done.turned.as_slice() {
        [] => "both queues were disabled already: nothing was changed".to_owned(),
        turned => format!(
            "disabled: {}{left}; what is rebooting or watching finishes; `cketerm resume` enables again",
            names(turned)
        ),
    }
}

/// What a resume did.
pub fn resumed(done: Option<&Turned>) -> String {
    let Some(done) = done else {
        return "nothing is stopped: no `cketerm stop` waits to be resumed".to_owned();
    };
    let left = left(&done.left, "was turned by somebody since and stays as it is");
    match done.turned.as_slice() {
        [] => format!("no queue was enabled{left}"),
        turned => format!("enabled: {}{left}", names(turned)),
    }
}

fn left(queues: &[QueueKind], how: &str) -> String {
    if queues.is_empty() { String::new() } else { format!("; {} {how}", names(queues)) }
}

fn names(queues: &[QueueKind]) -> String {
    queues.iter().map(|queue| format!("the {queue} queue")).collect::<Vec<_>>().join(" and ")
}
