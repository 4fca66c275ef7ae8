//! `policy`.

use clap::Subcommand;

use super::{
    Context,
    args::{Output, Reason},
};
use crate::{actions::ActionError, model::policy::Policy};

/// The words.
#[derive(Debug, Subcommand)]
pub enum PolicyWord {
    /// Print it, defaults included
    Show,
    /// Set one field
    Set {
        /// Its name, as `policy show` prints it
        name: String,
        /// Its value
        #[arg(allow_negative_numbers = true)]
        value: String,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
}

/// Runs one of them.
pub async fn run(word: PolicyWord, context: &Context) -> Result<(), ActionError> {
    match word {
        PolicyWord::Show => {
            let store = context.store().await?;
            let form = match context.output(Output::Yaml) {
                Output::Table => Output::Yaml,
                form => form,
            };
            match store.policy().await?.map(|s| (s.key, s.value)) {
                Some((_, Ok(policy))) => context.out.value(policy.as_ref(), form),
                Some((key, Err(e))) => Err(ActionError::failed(format!(
                    "{key} cannot be read: {e}; engines only observe until it is mended with etcdctl"
                ))),
                None => {
                    context.say(
                        "no policy is stored yet: these are the defaults; the first engine, or `policy set`, decides \
                         `engine` by whether CKE has been here",
                    );
                    context.out.value(&Policy::default(), form)
                }
            }
        }
        PolicyWord::Set { name, value, reason } => {
            context.operator().await?.set_policy(&name, &value, reason.get()).await?;
            Ok(())
        }
    }
}
