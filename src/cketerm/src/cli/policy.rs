//! `policy`.

use cketerm_actions::{ActionError, DOCUMENTS, policy_schema};
use cketerm_model::{acceptance::OperatorCommand, policy::Policy};
use clap::Subcommand;

use super::{
    Context,
    input_file::read,
    options::{Handover, Output, Reason},
    restrictions::not_in_force,
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the policy, defaults included
    Show,
    /// Print the JSON schema of the policy, for editors and checks
    Schema,
    /// Set one field of the policy
    Set {
        /// Name of the field, as in `policy show`
        name: String,
        /// Value; for windows, freeze, groups, hooks and `reboot_needed_signals` a FILE (YAML or JSON, - = standard input), the
        /// document, or none
        #[arg(allow_negative_numbers = true)]
        value: String,
        #[command(flatten)]
        #[allow(missing_docs)]
        handover: Handover,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
}

impl PolicyCommand {
    /// Reports whether it contacts no server.
    pub fn needs_no_settings(&self) -> bool {
        match self {
            Self::Schema => true,
            Self::Show | Self::Set { .. } => false,
        }
    }
}

/// Runs one of the subcommands.
pub async fn run(command: PolicyCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        PolicyCommand::Show => {
            let store = context.store().await?;
            let form = match context.output(Output::Yaml) {
                Output::Table => Output::Yaml,
                form => form,
            };
            let view = store.leaders().await?;
            if let Some(why) = not_in_force(&view).filter(|_| view.policy.is_some()) {
                context.print_message(&format!(
                    "NOT IN FORCE: {why}; only the field `engine` takes effect before a cketerm engine leads"
                ));
            }
            match view.policy.map(|s| (s.key, s.value)) {
                Some((_, Ok(policy))) => context.out.value(policy.as_ref(), form),
                Some((key, Err(e))) => Err(ActionError::failed(format!(
                    "{key} cannot be read: {e}; engines only observe until it is fixed with etcdctl"
                ))),
                None => {
                    context.print_message(
                        "no policy is stored yet: these are the defaults; the first engine, or `policy set`, sets \
                         `engine`, depending on whether CKE has used this etcd",
                    );
                    context.out.value(&Policy::default(), form)
                }
            }
        }
        PolicyCommand::Schema => context.out.text(policy_schema::to_json_text()),
        PolicyCommand::Set { name, value, handover, reason } => {
            let value = if DOCUMENTS.contains(&name.as_str()) { document(&value)? } else { value };
            let operator = context.operator().await?.for_handover(handover.for_handover);
            operator.set_policy(&name, &value, reason.get()).await?;
            if let Some(note) = operator.acceptance_note(OperatorCommand::of_policy(&name, &value)).await {
                context.print_message(&note);
            }
            Ok(())
        }
    }
}

/// Returns a document that is given literally, or the content of the file that is named.
fn document(value: &str) -> Result<String, ActionError> {
    let itself = value.trim() == "none" || value.contains(['{', '[', '\n', ':']);
    if itself && !std::path::Path::new(value).is_file() {
        return Ok(value.to_owned());
    }
    read(std::path::Path::new(value))
}

#[cfg(test)]
mod tests {
    use cketerm_actions::policy_schema::to_json_text;

    #[test]
    fn docs_policy_schema_json_matches_the_printed_schema() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policy.schema.json");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(file, to_json_text()).unwrap();
        }
        let published = std::fs::read_to_string(file).unwrap_or_default();
        assert!(published == to_json_text(), "docs/policy.schema.json is outdated: run `make docs`");
    }
}
