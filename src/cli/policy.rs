//! `policy`.

use clap::Subcommand;

use super::{
    Context,
    args::{Output, Reason},
    reboot_queue::read,
};
use crate::{
    actions::{ActionError, DOCUMENTS},
    model::policy::Policy,
};

/// The words.
#[derive(Debug, Subcommand)]
pub enum PolicyWord {
    /// Print it, defaults included
    Show,
    /// Set one field
    Set {
        /// Its name, as `policy show` prints it
        name: String,
        /// Its value; of windows, freeze and groups a FILE of YAML or JSON, - for standard input, the document itself, or
        /// none
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
            let value = if DOCUMENTS.contains(&name.as_str()) { document(&value)? } else { value };
            context.operator().await?.set_policy(&name, &value, reason.get()).await?;
            Ok(())
        }
    }
}

/// A document that is given as such, or as the file that it lies in.
fn document(value: &str) -> Result<String, ActionError> {
    let itself = value.trim() == "none" || value.contains(['{', '\n', ':']);
    if itself && !std::path::Path::new(value).is_file() {
        return Ok(value.to_owned());
    }
    read(std::path::Path::new(value))
}
