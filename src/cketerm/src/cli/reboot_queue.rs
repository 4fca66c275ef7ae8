//! `reboot-queue`, `rq`: the subcommands of `ckecli`, and those for an entry that does not move.

use std::io::Read;

use cketerm_actions::{ActionError, LEFT};
use cketerm_model::{
    acceptance::OperatorCommand,
    attempt::Attempt,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind, Stored},
    stored::{keys::SwitchName, view::StoreView},
    text::visible,
};
use clap::{Args, Subcommand};
use imbl::OrdMap;
use serde::Serialize;
use serde_json::Value;

use super::{
    Context, add,
    args::{Output, Reason},
    output::{cell, columns},
    queue_plan,
    switches::{self, SwitchCommand},
    wait, why, windows,
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum RebootCommand {
    /// The queue's switch.
    #[command(flatten)]
    Switch(SwitchCommand),
    /// Queue reboots of the nodes in a file, or of the nodes that the options select
    Add(add::AddArgs),
    /// List the entries
    List,
    /// Cancel one entry, in any state
    Cancel {
        /// Index of the entry
        #[arg(allow_negative_numbers = true)]
        index: u64,
        /// Remove an unreadable entry if it has this revision; without it, the entry and its revision are printed
        #[arg(long, value_name = "REVISION")]
        unreadable: Option<i64>,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Cancel every entry
    CancelAll(Reason),
    /// End the backoff of one entry or of all, so that the next pass retries them
    ResetBackoff {
        /// Index of the entry; without it, all entries
        index: Option<u64>,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Preview reboots of these nodes, or of the queue: order, waves, pods, blockers
    Plan {
        /// Node addresses; without any, the queue as it is
        address: Vec<String>,
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
    /// Release the hold of an entry
    Unhold(Order),
}

/// An order for one entry.
#[derive(Args, Debug)]
pub struct Order {
    /// Index of the entry
    pub index: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reason: Reason,
}

/// Runs one of the subcommands.
pub async fn run(command: RebootCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        RebootCommand::Switch(command) => switches::run(command, SwitchName::Reboots, context).await,
        RebootCommand::Add(args) => Box::pin(add::run(&args, context)).await,
        RebootCommand::List => list(context).await,
        RebootCommand::Cancel { index, unreadable: Some(revision), reason } => {
            Box::pin(remove(EntryId::reboot(index), revision, &reason, context)).await
        }
        RebootCommand::Cancel { index, unreadable: None, reason } => Box::pin(cancel(index, &reason, context)).await,
        RebootCommand::CancelAll(reason) => {
            let cancelled = context.operator().await?.cancel_all_reboots(reason.get()).await?;
            let left = unreadable(&context.store().await?.read_view().await?);
            let which = match (cancelled.is_empty(), left.is_empty()) {
                (false, _) => join(&cancelled),
                (true, true) => "nothing: the queue is empty".to_owned(),
                (true, false) => "nothing".to_owned(),
            };
            context.print_message(&format!("cancelled: {which}"));
            unreadable_error(&left)
        }
        RebootCommand::ResetBackoff { index, reason } => {
            let operator = context.operator().await?;
            let reset = operator.reset_backoff(QueueKind::Reboot, index, reason.get()).await?;
            print_reset(context, &reset);
            Ok(())
        }
        RebootCommand::Plan { address } => Box::pin(queue_plan::reboots(&address, context)).await,
        RebootCommand::Why { index } => why::run(EntryId::reboot(index), context).await,
        RebootCommand::Wait { index, timeout_seconds } => Box::pin(wait::run(&index, timeout_seconds, context)).await,
        RebootCommand::Retry(o) => order(EntryId::reboot(o.index), Verb::Retry, &o.reason, context).await,
        RebootCommand::Done(o) => order(EntryId::reboot(o.index), Verb::Done, &o.reason, context).await,
        RebootCommand::Force(o) => order(EntryId::reboot(o.index), Verb::Force, &o.reason, context).await,
        RebootCommand::Hold(o) => order(EntryId::reboot(o.index), Verb::Hold, &o.reason, context).await,
        RebootCommand::Unhold(o) => order(EntryId::reboot(o.index), Verb::Unhold, &o.reason, context).await,
    }
}

/// Returns the indexes of unreadable entries.
pub(super) fn unreadable(view: &StoreView) -> Vec<u64> {
    view.reboots.entries.iter().filter(|(_, stored)| stored.get().is_none()).map(|(index, _)| *index).collect()
}

/// Returns the error for unreadable entries that were left: exit status 5.
pub(super) fn unreadable_error(left: &[u64]) -> Result<(), ActionError> {
    let Some(first) = left.first() else { return Ok(()) };
    Err(ActionError::unreadable(format!(
        "unreadable entries are left: {}; `cketerm rq cancel {first}` shows one and how to remove it",
        join(left)
    )))
}

async fn cancel(index: u64, reason: &Reason, context: &Context) -> Result<(), ActionError> {
    let view = context.store().await?.read_view().await?;
    let attempts = || view.attempts_of(EntryId::reboot(index)).filter_map(Stored::get);
    let open = attempts().find(|a| a.open());
    let node = open.map(|a| a.node.clone().unwrap_or_else(|| a.address.clone()));
    context.operator().await?.cancel_reboot(index, None, reason.get()).await?;
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
    Ok(())
}

/// Removes an unreadable entry of either queue, if it still has this revision.
pub(super) async fn remove(id: EntryId, revision: i64, reason: &Reason, context: &Context) -> Result<(), ActionError> {
    context.operator().await?.remove_unreadable(id, revision, reason.get()).await?;
    context.print_message(&format!("removed: {}; a node that is cordoned for it {LEFT}", id.index));
    Ok(())
}

/// Stores an order for an entry of either queue.
pub(super) async fn order(entry: EntryId, verb: Verb, reason: &Reason, context: &Context) -> Result<(), ActionError> {
    // Holding back never queries Kubernetes; starting work does.
    let operator = match verb {
        Verb::Retry | Verb::Done | Verb::Force => context.operator_with_kube().await?,
        Verb::Hold | Verb::Unhold | Verb::Uncordon => context.operator().await?,
    };
    Box::pin(operator.order(entry, verb, None, reason.get())).await?;
    if let Some(note) = operator.acceptance_note(OperatorCommand::from(verb)).await {
        context.print_message(&note);
    }
    if verb == Verb::Done
        && let Some(note) = operator.not_ready(entry).await
    {
        context.print_message(&note);
    }
    Ok(())
}

/// Reads a file, or standard input for `-`.
pub(super) fn read(file: &std::path::Path) -> Result<String, ActionError> {
    let mut bytes = Vec::new();
    let done = if file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ())
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    done.map_err(|e| ActionError::failed(format!("{}: cannot be read: {e}", file.display())))?;
    String::from_utf8(bytes).map_err(|_| ActionError::failed(format!("{}: not UTF-8 text", file.display())))
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

/// Columns that follow those of `ckecli`; `-o simple` leaves them out.
const EXTRA_COLUMNS: [&str; 3] = ["Name", "Who", "Reason"];

/// Returns the Node's name, who requested the entry and why, and whether it is held.
fn extra_cells(entry: &Value, view: &StoreView) -> [String; 3] {
    let index = entry.get("index").and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or_default();
    let id = EntryId::reboot(index);
    let address = entry.get("node").and_then(Value::as_str).unwrap_or_default();
    let member = view.definition().and_then(|d| d.members.by_address(&d.cluster, address));
    let request = view.requests.get(&id).and_then(Stored::get);
    let held = view.orders.get(&id).and_then(Stored::get).filter(|o| o.verb == Verb::Hold);
    let held =
        held.map(|o| format!("held by {}{}", o.who, o.reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default()));
    let reason = [request.and_then(|r| r.reason.clone()), held].into_iter().flatten().collect::<Vec<_>>().join("; ");
    [
        member.map(|m| m.node_name().to_owned()).unwrap_or_default(),
        request.map(|r| r.who.to_string()).unwrap_or_default(),
        reason,
    ]
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
                    let cells = [index, "", "BROKEN", "", "", "", "", "", why];
                    cells.map(str::to_owned).to_vec()
                });
            }
            let more = if context.simple() { &[][..] } else { &EXTRA_COLUMNS };
            let titles: Vec<&str> = COLUMNS.iter().map(|(title, _)| title).chain(more).copied().collect();
            windows::print_restrictions(&view, QueueKind::Reboot, store.clock().wall(), context);
            context.out.text(columns(&titles, &rows))?;
        }
        form => context.out.value(&entries, form)?,
    }
    broken
}

/// Returns the readable entries, and an error that names the unreadable ones. The caller returns the error after it has
/// printed the others.
pub(super) fn split_readable<T: Serialize + Clone>(
    queue: QueueKind,
    entries: &OrdMap<u64, Stored<T>>,
) -> (Vec<Value>, Result<(), ActionError>) {
    let (mut good, mut broken) = (Vec::new(), Vec::new());
    for (index, stored) in entries {
        match &stored.value {
            Ok(entry) => match serde_json::to_value(entry.as_ref()) {
                Ok(value) => good.push(value),
                Err(e) => broken.push(format!("{} cannot be written: {e}", stored.key)),
            },
            Err(why) => broken.push(visible(
                &format!(
                    "{} cannot be read: {why}; others go on; fix it with etcdctl or remove it: `cketerm {} {index}`",
                    stored.key,
                    queue.remove_command()
                ),
                false,
            )),
        }
    }
    let result = if broken.is_empty() { Ok(()) } else { Err(ActionError::unreadable(broken.join("\n"))) };
    (good, result)
}

/// Inserts a row for each unreadable entry among the others, which are sorted by index.
pub(super) fn insert_unreadable<T: Clone>(
    rows: &mut Vec<Vec<String>>,
    entries: &OrdMap<u64, Stored<T>>,
    row: impl Fn(&str, &str) -> Vec<String>,
) {
    for (place, (index, stored)) in entries.iter().enumerate() {
        if let Err(why) = &stored.value {
            rows.insert(place.min(rows.len()), row(&index.to_string(), &visible(why, false)));
        }
    }
}

pub(super) fn print_reset(context: &Context, reset: &[u64]) {
    let what = if reset.is_empty() { "none had a backoff".to_owned() } else { join(reset) };
    context.print_message(&format!("backoff ended: {what}"));
}

pub(super) fn join(indexes: &[u64]) -> String {
    indexes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
