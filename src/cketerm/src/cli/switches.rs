//! `enable`, `disable`, `is-enabled`: the same three subcommands for all four switches.

use cketerm_actions::ActionError;
use cketerm_model::stored::keys::SwitchName;
use clap::Subcommand;

use super::{Context, options::Reason};

/// The three subcommands.
#[derive(Debug, Subcommand)]
pub enum SwitchCommand {
    /// Enable the queue or integration
    Enable(Reason),
    /// Disable the queue or integration; running reboots and repairs finish
    Disable(Reason),
    /// Print true or false
    IsEnabled,
}

/// Runs one of the subcommands.
pub async fn run(command: SwitchCommand, name: SwitchName, context: &Context) -> Result<(), ActionError> {
    let operator = context.operator().await?;
    match command {
        SwitchCommand::Enable(reason) => operator.set_switch(name, true, reason.get()).await.map(drop),
        SwitchCommand::Disable(reason) => operator.set_switch(name, false, reason.get()).await.map(drop),
        SwitchCommand::IsEnabled => {
            let switch = operator.store.switch(name).await?;
            if let Some(odd) = switch.odd() {
                let key = operator.store.keys().switch(name);
                context.print_message(&format!(
                    "{key} holds {odd:?}, neither true nor false, and counts as enabled: fix it with `enable` or `disable`"
                ));
            }
            context.out.line(if switch.enabled() { "true" } else { "false" })
        }
    }
}
