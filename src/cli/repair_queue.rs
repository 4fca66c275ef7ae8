//! `repair-queue`: its switch, its list, its backoffs. Repairs are read and respected, not yet processed.

use clap::Subcommand;
use serde_json::Value;

use super::{
    Context,
    args::{Output, Reason},
    output::{cell, columns},
    reboot_queue::{readable, tell_reset},
    switches::{self, SwitchWord},
};
use crate::{actions::ActionError, model::entry::QueueKind, store::keys::SwitchName};

/// The words.
#[derive(Debug, Subcommand)]
pub enum RepairWord {
    /// The queue's switch.
    #[command(flatten)]
    Switch(SwitchWord),
    /// Print the entries
    List,
    /// End the backoff of every entry
    ResetBackoff(Reason),
}

const COLUMNS: [(&str, &str); 11] = [
    ("Index", "index"),
    ("Address", "address"),
    ("Nodename", "nodename"),
    ("Serial", "serial"),
    ("MachineType", "machine_type"),
    ("Operation", "operation"),
    ("Status", "status"),
    ("Step", "step"),
    ("StepStatus", "step_status"),
    ("Deleted", "deleted"),
    ("LastTransitionTime", "last_transition_time"),
];

/// Runs one of them.
pub async fn run(word: RepairWord, context: &Context) -> Result<(), ActionError> {
    match word {
        RepairWord::Switch(word) => switches::run(word, SwitchName::Repairs, context).await,
        RepairWord::List => {
            let view = context.store().await?.read_view().await?;
            let (entries, broken) = readable(view.repairs.entries.values());
            match context.output(Output::Json) {
                Output::Table => {
                    let row = |e: &Value| COLUMNS.iter().map(|(_, field)| cell(e.get(field))).collect();
                    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
                    context.out.text(&columns(&COLUMNS.map(|(title, _)| title), &rows))?;
                }
                form => context.out.value(&entries, form)?,
            }
            broken
        }
        RepairWord::ResetBackoff(reason) => {
            let operator = context.operator().await?;
            let reset = operator.reset_backoff(QueueKind::Repair, None, reason.get()).await?;
            tell_reset(context, &reset);
            Ok(())
        }
    }
}
