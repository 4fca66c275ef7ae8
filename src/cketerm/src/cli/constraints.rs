//! `constraints`.

use cketerm_actions::ActionError;
use clap::Subcommand;

use super::{
    Context,
    options::{Output, Reason},
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ConstraintsCommand {
    /// Set a constraint
    Set {
        /// Name of the constraint, as in `constraints show`
        name: String,
        /// Whole number, 0 or more
        #[arg(allow_negative_numbers = true)]
        value: String,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Print the constraints
    Show,
}

/// Runs one of the subcommands.
pub async fn run(command: ConstraintsCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        ConstraintsCommand::Set { name, value, reason } => {
            context.operator().await?.set_constraint(&name, &value, reason.get()).await?;
            Ok(())
        }
        ConstraintsCommand::Show => {
            let constraints = context.store().await?.constraints().await?;
            let constraints = constraints.ok_or_else(|| {
                ActionError::failed(
                    "no constraints are stored, the defaults apply: set one with `cketerm constraints set NAME VALUE`",
                )
            })?;
            let form = match context.output(Output::Json) {
                Output::Table => Output::Yaml,
                form => form,
            };
            context.out.value(&constraints, form)
        }
    }
}
