//! `constraints`.

use clap::Subcommand;

use super::{
    Context,
    args::{Output, Reason},
};
use crate::actions::ActionError;

/// The words.
#[derive(Debug, Subcommand)]
pub enum ConstraintsWord {
    /// Set one
    Set {
        /// Its name, as `constraints show` prints it
        name: String,
        /// A whole number, not negative
        #[arg(allow_negative_numbers = true)]
        value: String,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Print them
    Show,
}

/// Runs one of the subcommands.
pub async fn run(word: ConstraintsWord, context: &Context) -> Result<(), ActionError> {
    match word {
        ConstraintsWord::Set { name, value, reason } => {
            context.operator().await?.set_constraint(&name, &value, reason.get()).await?;
            Ok(())
        }
        ConstraintsWord::Show => {
            let constraints = context.store().await?.constraints().await?;
            let constraints = constraints.ok_or_else(|| {
                ActionError::failed(
                    "no constraints are stored, the defaults apply: store some with `cketerm constraints set NAME VALUE`",
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
