//! `reboot-queue`, `rq`: the subcommands of `ckecli`, and those for an entry that does not move.

use cketerm_actions::ActionError;
use cketerm_model::{
    attempt::Attempt,
    batch::BatchId,
    cketerm_records::Verb,
    clock::Now,
    entry::{EntryId, QueueKind, Stored, format_indexes},
    kube::KubeView,
    names::Address,
    stored::{keys::SwitchName, view::StoreView},
};
use clap::Subcommand;
use serde_json::Value;

use super::{
    Context, add,
    batches::{self, BatchArgs},
    confirm::{Wait, confirm},
    needed,
    options::{Output, Reason},
    orders::{Order, order, reset_backoff},
    output::{cell, columns},
    queue_plan, requested,
    restrictions::print_restrictions,
    switches::{self, SwitchCommand},
    unreadable_entries::{insert_unreadable, remove_unreadable, split_readable, unreadable_error, unreadable_indexes},
    wait, why,
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum RebootCommand {
    /// The queue's switch.
    #[command(flatten)]
    Switch(SwitchCommand),
    /// Queue reboots of nodes: by name, by address, by attributes, or from a file
    Add(add::AddArgs),
    /// List the entries
    List,
    /// List the Nodes that need a reboot: the cause, since when, and what happens next
    Needed,
    /// List the batches, newest first: the entries of one enqueue each
    Batches,
    /// Pause a batch: its queued entries do not start, those in work finish
    Pause(BatchArgs),
    /// Let the queued entries of a paused batch start again
    Resume(BatchArgs),
    /// Cancel one entry, in any state, or all entries of a batch
    Cancel {
        /// Index of the entry
        #[arg(allow_negative_numbers = true, required_unless_present = "batch", conflicts_with = "batch")]
        index: Option<u64>,
        /// Cancel all entries of this batch
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
    /// Cancel every entry
    CancelAll {
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
    /// Close the breaker after machines ended badly: what ended before, and what is in reboot, no longer counts
    ResetBreaker {
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Preview reboots of these nodes, or of the queue: order, waves, pods, blockers
    Plan {
        /// Nodes by name or address; without any, the queue as it is
        node: Vec<String>,
    },
    /// Print why an entry waits
    Why {
        /// Index of the entry
        index: u64,
    },
    /// Print progress until the entries end; exit 1 if one did not boot
    Wait {
        /// Indexes of the entries; without any, all current entries
        index: Vec<u64>,
        /// Give up after this many seconds
        #[arg(long, value_name = "SECONDS")]
        timeout_seconds: Option<u64>,
    },
    /// Run the reboot command again, after it failed or if its outcome is unknown
    Retry(Order),
    /// Treat the machine as booted
    Done(Order),
    /// Do not wait for remaining pods and volumes; API server rules still apply
    Force(Order),
    /// Keep an entry from starting; a draining one is queued again and uncordoned
    Hold(Order),
    /// End the hold of an entry
    Unhold(Order),
}

/// Runs one of the subcommands.
pub async fn run(command: RebootCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        RebootCommand::Switch(command) => switches::run(command, SwitchName::Reboots, context).await,
        RebootCommand::Add(args) => Box::pin(add::run(&args, context)).await,
        RebootCommand::List => list(context).await,
        RebootCommand::Needed => Box::pin(needed::list(context)).await,
        RebootCommand::Batches => batches::list(QueueKind::Reboot, context).await,
        RebootCommand::Pause(args) => batches::pause(QueueKind::Reboot, &args, context).await,
        RebootCommand::Resume(args) => batches::resume(QueueKind::Reboot, &args, context).await,
        RebootCommand::Cancel { batch: Some(id), wait, reason, .. } => {
            let operator = context.operator().await?;
            let cancelled = batches::cancel(QueueKind::Reboot, id, &reason, &operator, context).await?;
            confirm(&operator, QueueKind::Reboot, &cancelled, wait, &reason, context).await
        }
        RebootCommand::Cancel { index: None, .. } => Err(ActionError::misused("rq cancel needs an index or --batch")),
        RebootCommand::Cancel { index: Some(index), unreadable: Some(revision), reason, .. } => {
            Box::pin(remove_unreadable(EntryId::reboot(index), revision, &reason, context)).await
        }
        RebootCommand::Cancel { index: Some(index), unreadable: None, wait, reason, .. } => {
            Box::pin(cancel(index, wait, &reason, context)).await
        }
        RebootCommand::CancelAll { wait, reason } => {
            let operator = context.operator().await?;
            let cancelled = operator.cancel_all_reboots(reason.get()).await?;
            // what was done is said first: the reads that follow may fail
            if !cancelled.is_empty() {
                context.print_message(&format!("cancelled: {}", format_indexes(&cancelled)));
            }
            let left = unreadable_indexes(&operator.store.read_view().await?);
            if cancelled.is_empty() {
                let why = if left.is_empty() { ": the queue is empty" } else { "" };
                context.print_message(&format!("cancelled: nothing{why}"));
            }
            confirm(&operator, QueueKind::Reboot, &cancelled, wait, &reason, context).await?;
            unreadable_error(&left)
        }
        RebootCommand::ResetBackoff { index, reason } => {
            Box::pin(reset_backoff(QueueKind::Reboot, index, &reason, context)).await
        }
        RebootCommand::ResetBreaker { reason } => {
            let reset = Box::pin(context.operator().await?.reset_breaker(reason.get())).await?;
            context.print_message(&format!("breaker reset: {reset}"));
            Ok(())
        }
        RebootCommand::Plan { node } => Box::pin(queue_plan::reboots(&node, context)).await,
        RebootCommand::Why { index } => why::run(EntryId::reboot(index), context).await,
        RebootCommand::Wait { index, timeout_seconds } => Box::pin(wait::run(&index, timeout_seconds, context)).await,
        RebootCommand::Retry(o) => order(EntryId::reboot(o.index), Verb::Retry, &o.reason, context).await,
        RebootCommand::Done(o) => order(EntryId::reboot(o.index), Verb::Done, &o.reason, context).await,
        RebootCommand::Force(o) => order(EntryId::reboot(o.index), Verb::Force, &o.reason, context).await,
        RebootCommand::Hold(o) => order(EntryId::reboot(o.index), Verb::Hold, &o.reason, context).await,
        RebootCommand::Unhold(o) => order(EntryId::reboot(o.index), Verb::Unhold, &o.reason, context).await,
    }
}

async fn cancel(index: u64, wait: Wait, reason: &Reason, context: &Context) -> Result<(), ActionError> {
    let view = context.store().await?.read_view().await?;
    let attempts = || view.attempts_of(EntryId::reboot(index)).filter_map(Stored::get);
    let open = attempts().find(|a| a.open());
    let node = open.map(|a| a.node.as_ref().map_or_else(|| a.address.to_string(), ToString::to_string));
    let operator = context.operator().await?;
    operator.cancel_reboot(index, None, reason.get()).await?;
    let what = match node {
        Some(node) => format!(
            "; its reboot command has started, or may have: the node stays cordoned until it has booted; if you have \
             checked it, `cketerm nodes uncordon {node}`"
        ),
        None if attempts().any(Attempt::began) => {
            "; its reboot command has run, or may have: the node stays cordoned until it has booted".to_owned()
        }
        None => String::new(),
    };
    context.print_message(&format!("cancelled: {index}{what}"));
    confirm(&operator, QueueKind::Reboot, &[index], wait, reason, context).await
}

const COLUMNS: [(&str, &str); 6] = [
    ("Index", "index"),
    ("Node", "node"),
    ("Status", "status"),
    ("LastTransitionTime", "last_transition_time"),
    ("DrainBackOffCount", "drain_backoff_count"),
    ("DrainBackOffExpire", "drain_backoff_expire"),
];

/// Zero time as Go writes it.
const GO_ZERO: &str = "0001-01-01T00:00:00Z";

/// Title of the column that follows those of `ckecli`; `-o simple` leaves it and the next ones out.
const NAME: &str = "Name";

/// Returns the Node's name, and the [`requested::cells`].
fn extra_cells(entry: &Value, view: &StoreView) -> impl Iterator<Item = String> {
    let index = entry.get("index").and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or_default();
    let address = Address::new(entry.get("node").and_then(Value::as_str).unwrap_or_default());
    let member = view.definition().and_then(|d| d.members.by_address(&d.cluster, &address));
    let name = member.map(|m| m.node_name().to_string()).unwrap_or_default();
    std::iter::once(name).chain(requested::cells(EntryId::reboot(index), view))
}

/// Cuts times to whole seconds as `ckecli` prints them, because other programs may have written fractions.
fn truncate_to_seconds(entry: &mut Value) {
    for field in ["last_transition_time", "drain_backoff_expire"] {
        let Some(Value::String(text)) = entry.get_mut(field) else { continue };
        if let Ok(at) = text.parse() {
            *text = cketerm_model::time::whole_seconds(at).to_string();
        }
    }
}

async fn list(context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let view = store.read_view().await?;
    let (mut entries, broken) = split_readable(QueueKind::Reboot, &view.reboots.entries);
    entries.iter_mut().for_each(truncate_to_seconds);
    match context.output(Output::Json) {
        Output::Table => {
            let row = |e: &Value| {
                let mut cells: Vec<String> = COLUMNS.iter().map(|(_, field)| cell(e.get(field))).collect();
                if cells[4].is_empty() {
                    cells[4].push('0'); // CKE leaves a count of 0 out of the JSON
                }
                if !context.simple() {
                    // Go's zero time is only for scripts that read the output of `ckecli`
                    for cell in cells.iter_mut().filter(|cell| *cell == GO_ZERO) {
                        "-".clone_into(cell);
                    }
                    cells.extend(extra_cells(e, &view));
                }
                cells
            };
            let mut rows: Vec<Vec<String>> = entries.iter().map(row).collect();
            if !context.simple() {
                insert_unreadable(&mut rows, &view.reboots.entries, |index, why| {
                    let cells = [index, "", "BROKEN", "", "", "", "", "", "", why];
                    cells.map(str::to_owned).to_vec()
                });
            }
            let more = std::iter::once(NAME).chain(requested::TITLES).filter(|_| !context.simple());
            let titles: Vec<&str> = COLUMNS.iter().map(|(title, _)| *title).chain(more).collect();
            let now = Now { boot: store.clock().boot(), wall: store.clock().wall() };
            print_restrictions(&view, QueueKind::Reboot, now.wall, context);
            if !context.simple() && !entries.is_empty() {
                queue_plan::print_estimate(&store, (&view, &KubeView::default()), &[], now, context).await;
            }
            context.out.text(columns(&titles, &rows))?;
        }
        form => context.out.value(&entries, form)?,
    }
    broken
}
