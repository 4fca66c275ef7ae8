//! `sabakan` and `auto-repair`: the input of the generated definition, and automatic repair.

use std::path::PathBuf;

use cketerm_actions::ActionError;
use cketerm_clients::store::settings::Raw;
use cketerm_model::stored::keys::SwitchName;
use clap::{Args, Subcommand};

use super::{
    Context, diff,
    input_file::read,
    options::{Output, Reason},
    plan::{PlanArgs, RepairPlanArgs, plan_from_files, repairs_from_files},
    registry,
    switches::{self, SwitchCommand},
};

/// Subcommands of the integration.
#[derive(Debug, Subcommand)]
pub enum SabakanCommand {
    /// `enable`, `disable`, `is-enabled`.
    #[command(flatten)]
    Switch(SwitchCommand),
    /// Store the URL of sabakan
    SetUrl {
        /// Absolute URL; /graphql is appended unless its path ends with it
        url: String,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Print the URL of sabakan
    GetUrl,
    /// Check a template of the cluster definition (YAML or JSON) and store it
    SetTemplate(File),
    /// Print the stored template as YAML
    GetTemplate,
    /// Check and store the query variables: {"having": …, "notHaving": …}
    SetVariables(File),
    /// Print the stored query variables
    GetVariables,
    /// Print the definition that would be generated, and why; stores nothing
    Plan(PlanArgs),
    /// Compare the definition in force with the generated one; writes nothing
    Diff {
        /// Print changes of Kubernetes Nodes instead: labels, annotations, taints
        #[arg(long)]
        nodes: bool,
    },
    /// Approve the pending change of the definition, for an hour and only as it is now
    Approve {
        /// Approve only this digest, as printed by `sabakan diff`
        digest: Option<String>,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Stop applying changes of the definition
    Hold(Reason),
    /// Continue applying changes of the definition
    Unhold(Reason),
}

/// Subcommands of automatic repair.
#[derive(Debug, Subcommand)]
pub enum AutoRepairCommand {
    /// `enable`, `disable`, `is-enabled`.
    #[command(flatten)]
    Switch(SwitchCommand),
    /// Check and store the query variables: {"having": …, "notHaving": …}
    SetVariables(File),
    /// Print the stored query variables
    GetVariables,
    /// Print the repairs that would be queued, and why not others; stores nothing
    Plan(RepairPlanArgs),
}

/// A file and why.
#[derive(Args, Clone, Debug)]
pub struct File {
    /// File to read; - = standard input
    file: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    reason: Reason,
}

/// Runs a subcommand of the integration.
pub async fn run(command: SabakanCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        SabakanCommand::Switch(command) => switches::run(command, SwitchName::Sabakan, context).await,
        SabakanCommand::SetUrl { url, reason } => {
            let stored = context.operator().await?.set_sabakan_url(&url, reason.get()).await?;
            if stored.ends_with("/graphql/graphql") {
                context.print_message(&format!(
                    "warning: stored as {stored}; sabakan answers at …/graphql: remove the trailing /"
                ));
            }
            context.print_verbose(&format!("stored: {stored}"));
            Ok(())
        }
        SabakanCommand::GetUrl => {
            let raw = stored(context, "sabakan/url", "sabakan set-url URL").await?;
            context.out.line(raw.text.trim_end())
        }
        SabakanCommand::SetTemplate(File { file, reason }) => {
            let set = context.operator().await?.set_sabakan_template(&read(&file)?, reason.get()).await;
            for warning in set.map_err(|e| in_file(&file, e))? {
                context.print_message(&format!("warning: {warning}"));
            }
            Ok(())
        }
        SabakanCommand::GetTemplate => {
            let raw = stored(context, "sabakan/template", "sabakan set-template FILE").await?;
            let value: serde_json::Value = serde_json::from_str(&raw.text).map_err(|e| {
                let remedy = "set it again with `cketerm sabakan set-template FILE`";
                ActionError::failed(format!("{} is not JSON: {e}; {remedy}", raw.key))
            })?;
            match context.output(Output::Yaml) {
                Output::Json => context.out.value(&value, Output::Json),
                Output::Yaml | Output::Table => context.out.document(&value),
            }
        }
        SabakanCommand::SetVariables(file) => set_variables(SwitchName::Sabakan, &file, context).await,
        SabakanCommand::Diff { nodes } => diff::diff(nodes, context).await,
        SabakanCommand::Approve { digest, reason } => {
            Box::pin(diff::approve(digest.as_deref(), reason.get(), context)).await
        }
        SabakanCommand::Hold(reason) => context.operator().await?.hold_registry(true, None, reason.get()).await,
        SabakanCommand::Unhold(reason) => context.operator().await?.hold_registry(false, None, reason.get()).await,
        SabakanCommand::GetVariables => get_variables(SwitchName::Sabakan, context).await,
        SabakanCommand::Plan(args) => match args.machines.as_deref() {
            Some(machines) => plan_from_files(&args, machines, context),
            None => registry::plan(context).await,
        },
    }
}

/// Runs a subcommand of automatic repair.
pub async fn run_auto_repair(command: AutoRepairCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        AutoRepairCommand::Switch(command) => switches::run(command, SwitchName::AutoRepair, context).await,
        AutoRepairCommand::SetVariables(file) => set_variables(SwitchName::AutoRepair, &file, context).await,
        AutoRepairCommand::GetVariables => get_variables(SwitchName::AutoRepair, context).await,
        AutoRepairCommand::Plan(args) => match args.machines.as_deref() {
            Some(machines) => repairs_from_files(&args, machines, context),
            None => registry::repairs(context).await,
        },
    }
}

async fn set_variables(of: SwitchName, file: &File, context: &Context) -> Result<(), ActionError> {
    let text = read(&file.file)?;
    let set = context.operator().await?.set_query_variables(of, &text, file.reason.get()).await;
    set.map_err(|e| in_file(&file.file, e))
}

async fn get_variables(of: SwitchName, context: &Context) -> Result<(), ActionError> {
    let folder = of.folder();
    let raw = stored(context, &format!("{folder}/query-variables"), &format!("{folder} set-variables FILE")).await?;
    context.out.stored_json(&raw.text)
}

async fn stored(context: &Context, below: &str, command: &str) -> Result<Raw, ActionError> {
    let store = context.store().await?;
    let key = format!("{}{below}", store.keys().prefix());
    let raw = store.raw(&key).await?;
    raw.ok_or_else(|| ActionError::failed(format!("nothing is stored under {key}: set it with `cketerm {command}`")))
}

fn in_file(file: &std::path::Path, mut e: ActionError) -> ActionError {
    e.text = format!("{}: {}", file.display(), e.text);
    e
}
