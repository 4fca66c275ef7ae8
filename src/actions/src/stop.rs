//! Stopping both queues at once. It works under every leader. Whatever else an engine does goes on and is reported.

use cketerm_clients::store::stop::Turned;
use cketerm_model::{
    entry::{QueueKind, Stored},
    stored::keys::SwitchName,
};

use super::{error::ActionError, operator::Operator};

/// Result of `stop`, and what it left running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The queues that it changed.
    pub turned: Turned,
    /// Integrations that still act on machines or queues. `None`: they could not be read.
    pub active_integrations: Option<Vec<ActiveIntegration>>,
}

/// Integration that changes machines, queues or the definition although both queues are disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActiveIntegration {
    /// The integration with sabakan.
    Sabakan,
    /// Automatic repair.
    AutoRepair,
    /// The controller of BareMetalHosts.
    Metal3Controller,
}

impl ActiveIntegration {
    /// Returns what it does, and the command that stops it.
    fn describe(self) -> &'static str {
        match self {
            Self::Sabakan => {
                "sabakan still changes the definition and taints nodes, which evicts pods: `cketerm sabakan disable`"
            }
            Self::AutoRepair => "automatic repair still adds repairs: `cketerm auto-repair disable`",
            Self::Metal3Controller => {
                "the Metal3 controller still turns hosts off and on: `cketerm policy set metal3_controller false`"
            }
        }
    }
}

impl Operator {
    /// Disables both queues, under every leader.
    pub async fn stop(&self, reason: Option<&str>) -> Result<Stop, ActionError> {
        let turned = self.store.stop(&self.person, reason).await?;
        // read after the write: an unreadable setting must not prevent a stop
        Ok(Stop { turned, active_integrations: self.active_integrations().await.ok() })
    }

    async fn active_integrations(&self) -> Result<Vec<ActiveIntegration>, ActionError> {
        let store = &self.store;
        let enabled = async |name| store.switch(name).await.map(|switch| switch.enabled());
        let is_configured = async |name| store.raw(&store.keys().sabakan(name)).await.map(|value| value.is_some());
        let most = async || store.constraints().await.map(|c| c.unwrap_or_default().maximum_repair_queue_entries);
        // no engine leads with an unreadable policy
        let policy = store.policy().await?;
        let policy = policy.as_ref().and_then(Stored::get);
        let mut all = Vec::new();
        if enabled(SwitchName::Sabakan).await? && is_configured("template").await? {
            all.push(ActiveIntegration::Sabakan);
        }
        if enabled(SwitchName::AutoRepair).await? && is_configured("url").await? && most().await? > 0 {
            all.push(ActiveIntegration::AutoRepair);
        }
        all.extend(policy.filter(|policy| policy.metal3_controller).map(|_| ActiveIntegration::Metal3Controller));
        Ok(all)
    }

    /// Enables the queues that the last stop disabled. Returns `None` if no stop is in force.
    pub async fn resume(&self, reason: Option<&str>) -> Result<Option<Turned>, ActionError> {
        self.refuse_mismatch().await?;
        Ok(self.store.resume(&self.person, reason).await?)
    }
}

/// Returns the message about a stop and what goes on. `undo`: the command that undoes it, as it is typed here.
pub fn stopped(stop: &Stop, undo: &str) -> String {
    let done = &stop.turned;
    let left = left(&done.left, "was already disabled");
    let queues = match done.turned.as_slice() {
        [] => "both queues were already disabled; nothing was changed".to_owned(),
        turned => {
            format!("disabled: {}{left}; running reboots and repairs finish; undo with `{undo}`", names(turned))
        }
    };
    let active_integrations = match stop.active_integrations.as_deref() {
        None => vec![
            "cannot read what else is running; check `cketerm sabakan`, `cketerm auto-repair`, `cketerm policy show`",
        ],
        Some(some) => some.iter().map(|what| what.describe()).collect(),
    };
    [vec![queues.as_str()], active_integrations].concat().join("\n")
}

/// Returns the message about a resume.
pub fn resumed(done: Option<&Turned>) -> String {
    let Some(done) = done else {
        return "nothing to resume: no `cketerm stop` is in force".to_owned();
    };
    let left = left(&done.left, "was changed since the stop and stays as it is");
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
