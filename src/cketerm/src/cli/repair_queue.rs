//! `repair-queue`: the subcommands of `ckecli`, and those for an entry that does not move.

use std::time::Duration;

use cketerm_actions::{ActionError, NewRepair};
use cketerm_clients::store::repairs::Which;
use cketerm_model::{
    batch::BatchId,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind, format_indexes},
    stored::keys::SwitchName,
};
use clap::{Args, Subcommand};
use serde_json::Value;

use super::{
    Context,
    batches::{self, BatchArgs},
    confirm::{Wait, confirm},
    options::{Output, Reason},
    orders::{Order, order, reset_backoff},
    output::{cell, columns},
    queue_plan, requested,
    restrictions::print_restrictions,
    switches::{self, SwitchCommand},
    unreadable_entries::{insert_unreadable, remove_unreadable, split_readable},
    why,
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum RepairCommand {
    /// The queue's switch.
    #[command(flatten)]
    Switch(SwitchCommand),
    /// Queue a repair; the operation must exist for the machine type
    Add(Add),
    /// List the entries
    List,
    /// List the batches, newest first: the entries of one enqueue each
    Batches,
    /// Pause a batch: its queued entries do not start, those in work finish
    Pause(BatchArgs),
    /// Let the queued entries of a paused batch start again
    Resume(BatchArgs),
    /// Delete one entry, in any state, or all unfinished entries of a batch; the leader removes them
    Delete {
        /// Index of the entry
        #[arg(allow_negative_numbers = true, required_unless_present = "batch", conflicts_with = "batch")]
        index: Option<u64>,
        /// Delete all unfinished entries of this batch
        #[arg(long, value_name = "BATCH", conflicts_with = "unreadable")]
        batch: Option<BatchId>,
        /// Remove an unreadable entry if it has this revision; without it, the entry and its revision are printed
        #[arg(long, value_name = "REVISION")]
        unreadable: Option<i64>,
        #[command(flatten)]
        #[allow(missing_docs)]
        wait: Wait,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Delete all succeeded and failed entries; prints their indexes
    DeleteFinished {
        #[command(flatten)]
        #[allow(missing_docs)]
        wait: Wait,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Delete all entries that are queued or in work; prints their indexes
    DeleteUnfinished {
        #[command(flatten)]
        #[allow(missing_docs)]
        wait: Wait,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// End the backoff of one entry or of all, so that the next pass retries them
    ResetBackoff {
        /// Index of the entry; without it, all entries
        index: Option<u64>,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Wait until the queue is empty; finished entries count until they are deleted
    Wait {
        /// Give up after this many seconds; 0 = check once
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        timeout_seconds: u64,
        /// Seconds between two checks
        #[arg(long, value_name = "SECONDS", default_value_t = 1)]
        interval_seconds: u64,
    },
    /// Preview a repair: its steps, and what would block a drain now
    Plan {
        /// Name of the operation
        operation: String,
        /// Type of the machine
        machine_type: String,
        /// Name or IP address of the machine
        machine: String,
    },
    /// Print why an entry waits
    Why {
        /// Index of the entry
        index: u64,
    },
    /// Run the step's repair command again, after it ended or if its outcome is unknown
    Retry(Order),
    /// Treat the machine as healthy
    Done(Order),
    /// Do not wait for remaining pods and volumes; API server rules still apply
    Force(Order),
    /// Keep an entry from starting; a draining one is queued again and uncordoned
    Hold(Order),
    /// End the hold of an entry
    Unhold(Order),
}

/// Machine to repair, and operation.
#[derive(Args, Debug)]
pub struct Add {
    /// Name of the operation
    operation: String,
    /// Type of the machine, which selects the repair procedure
    machine_type: String,
    /// Name of the machine, or its IP address, which need not belong to a member of the cluster
    machine: String,
    /// Serial number of the machine
    serial: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    reason: Reason,
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

/// Runs one of the subcommands.
pub async fn run(command: RepairCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        RepairCommand::Switch(command) => switches::run(command, SwitchName::Repairs, context).await,
        RepairCommand::Add(wanted) => Box::pin(add(wanted, context)).await,
        RepairCommand::List => list(context).await,
        RepairCommand::Batches => batches::list(QueueKind::Repair, context).await,
        RepairCommand::Pause(args) => batches::pause(QueueKind::Repair, &args, context).await,
        RepairCommand::Resume(args) => batches::resume(QueueKind::Repair, &args, context).await,
        RepairCommand::Delete { batch: Some(id), wait, reason, .. } => {
            let operator = context.operator().await?;
            let deleted = batches::cancel(QueueKind::Repair, id, &reason, &operator, context).await?;
            confirm(&operator, QueueKind::Repair, &deleted, wait, &reason, context).await
        }
        RepairCommand::Delete { index: None, .. } => {
            Err(ActionError::misused("repair-queue delete needs an index or --batch"))
        }
        RepairCommand::Delete { index: Some(index), unreadable: Some(revision), reason, .. } => {
            Box::pin(remove_unreadable(EntryId::repair(index), revision, &reason, context)).await
        }
        RepairCommand::Delete { index: Some(index), unreadable: None, wait, reason, .. } => {
            let operator = context.operator().await?;
            operator.delete_repair(index, None, reason.get()).await?;
            context.print_message(&format!("deleted: {index}"));
            confirm(&operator, QueueKind::Repair, &[index], wait, &reason, context).await
        }
        RepairCommand::DeleteFinished { wait, reason } => delete(Which::Finished, wait, &reason, context).await,
        RepairCommand::DeleteUnfinished { wait, reason } => delete(Which::Unfinished, wait, &reason, context).await,
        RepairCommand::ResetBackoff { index, reason } => {
            Box::pin(reset_backoff(QueueKind::Repair, index, &reason, context)).await
        }
        RepairCommand::Wait { timeout_seconds, interval_seconds } => {
            wait(Duration::from_secs(timeout_seconds), Duration::from_secs(interval_seconds.max(1)), context).await
        }
        RepairCommand::Plan { operation, machine_type, machine } => {
            Box::pin(queue_plan::repair(&operation, &machine_type, &machine, context)).await
        }
        RepairCommand::Why { index } => why::run(EntryId::repair(index), context).await,
        RepairCommand::Retry(o) => order(EntryId::repair(o.index), Verb::Retry, &o.reason, context).await,
        RepairCommand::Done(o) => order(EntryId::repair(o.index), Verb::Done, &o.reason, context).await,
        RepairCommand::Force(o) => order(EntryId::repair(o.index), Verb::Force, &o.reason, context).await,
        RepairCommand::Hold(o) => order(EntryId::repair(o.index), Verb::Hold, &o.reason, context).await,
        RepairCommand::Unhold(o) => order(EntryId::repair(o.index), Verb::Unhold, &o.reason, context).await,
    }
}

async fn add(add: Add, context: &Context) -> Result<(), ActionError> {
    let Add { operation, machine_type, machine, serial, reason } = add;
    let operator = context.operator_with_kube().await?;
    let address = operator.resolve_machine(&machine).await?;
    let wanted = NewRepair { operation, machine_type, address, serial };
    for warning in Box::pin(operator.repair_warnings(&wanted)).await {
        context.print_message(&warning);
    }
    let added = operator.add_repair(&wanted, reason.get()).await?;
    for note in &added.notes {
        context.print_message(note);
    }
    context.print_message(&format!("added: {}", format_indexes(&added.indexes)));
    if let Some(batch) = added.batch {
        context.print_message(&format!("batch: {batch}"));
    }
    Ok(())
}

async fn list(context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let view = store.read_view().await?;
    let (entries, broken) = split_readable(QueueKind::Repair, &view.repairs.entries);
    match context.output(Output::Json) {
        Output::Table => {
            let row = |e: &Value| {
                let mut cells: Vec<String> = COLUMNS.iter().map(|(_, field)| cell(e.get(field))).collect();
                if !context.simple() {
                    let index = e.get("index").and_then(Value::as_str).and_then(|text| text.parse().ok());
                    cells.extend(requested::cells(EntryId::repair(index.unwrap_or_default()), &view));
                }
                cells
            };
            let mut rows: Vec<Vec<String>> = entries.iter().map(row).collect();
            if !context.simple() {
                insert_unreadable(&mut rows, &view.repairs.entries, |index, why| {
                    let cells = [index, "", "", "", "", "", "BROKEN", "", "", "", "", "", "", why];
                    cells.map(str::to_owned).to_vec()
                });
            }
            print_restrictions(&view, QueueKind::Repair, store.clock().wall(), context);
            let more = requested::TITLES.into_iter().filter(|_| !context.simple());
            let titles: Vec<&str> = COLUMNS.iter().map(|(title, _)| *title).chain(more).collect();
            context.out.text(columns(&titles, &rows))?;
        }
        form => context.out.value(&entries, form)?,
    }
    broken
}

/// Prints the deleted indexes one per line, as `ckecli` does.
async fn delete(which: Which, wait: Wait, reason: &Reason, context: &Context) -> Result<(), ActionError> {
    let operator = context.operator().await?;
    let deleted = operator.delete_repairs(which, reason.get()).await?;
    match context.output(Output::Table) {
        Output::Table => deleted.iter().try_for_each(|index| context.out.line(&index.to_string()))?,
        form => context.out.value(&deleted, form)?,
    }
    confirm(&operator, QueueKind::Repair, &deleted, wait, reason, context).await
}

/// Prints `ckecli`'s lines, the count at each read, until the queue is empty or the timeout has passed.
async fn wait(timeout: Duration, interval: Duration, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let until = tokio::time::Instant::now() + timeout;
    loop {
        let count = store.read_view().await?.repairs.entries.len();
        if count == 0 {
            return context.out.line("repair queue is empty");
        }
        context.out.line(&format!("repair queue entries: {count}"))?;
        let next = tokio::time::Instant::now() + interval;
        tokio::time::sleep_until(next.min(until)).await;
        if next >= until {
            return Err(ActionError::failed(format!(
                "timed out waiting for repair queue to become empty after {}s",
                timeout.as_secs()
            )));
        }
    }
}
