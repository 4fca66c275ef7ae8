//! Events that reach the console, and effects that it requests.

use std::sync::Arc;

use cketerm_actions::HostAction;
use cketerm_model::{
    batch::BatchId,
    cketerm_records::Verb,
    clock::Now,
    entry::{EntryId, QueueKind},
    names::{Address, NodeName},
};
use cketerm_rules::{console_leads::LeadAnswer, seen::Seen};
use crossterm::event::{KeyEvent, MouseEvent};

use super::{
    host_choice,
    past::{ReadRequest, ReadResponse},
    settings::Change,
};
use crate::theme::Theme;

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The mouse did something.
    Mouse(MouseEvent),
    /// The terminal has a new size (columns, rows).
    Resize(u16, u16),
    /// The terminal reported a light or dark background: the theme for it.
    ThemeDetected(Box<Theme>),
    /// The terminal draws block symbols wider than one cell.
    WideSymbols,
    /// All themes, by name, and the name of the one to use; `None` = the operator chooses.
    ThemesRead(Option<String>, Vec<(String, Theme)>),
    /// The engine published a new state.
    Seen(Arc<Seen>),
    /// Time passed.
    Tick(Now),
    /// The cursor has rested on a row for a moment.
    Rested,
    /// An action ended: its outcome, or the error message.
    Done(Result<ActionOutcome, String>),
    /// A question was answered.
    ReadFinished(Box<ReadResponse>),
    /// A setting was saved: a message, if there is one, or the error.
    SettingsSaved(Result<Option<String>, String>),
}

/// Outcome of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionOutcome {
    /// The message for the operator.
    pub response: String,
    /// The entries that the action queued.
    pub queued: Vec<EntryId>,
    /// The revision of its write, if it changed a single thing.
    pub written_revision: Option<i64>,
    /// The value that it replaced.
    pub replaced: Option<Replaced>,
    /// The entries for which it succeeded, if it acted on several. `None` = all of them.
    pub done: Option<Vec<EntryId>>,
    /// Whether it failed for some objects, which `response` names.
    pub partial: bool,
}

/// Value that an action replaced, read from the store at the write. The screen may have been older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The previous value of a constraint. `None` = it was not set.
    Constraint(Option<i64>),
    /// An earlier freeze.
    Freeze,
    /// A switch that was off already or whose state is unknown. Enabling it would not restore the earlier state.
    Off,
}

impl<T: Into<String>> From<T> for ActionOutcome {
    fn from(response: T) -> Self {
        Self { response: response.into(), ..Self::default() }
    }
}

/// Request to whoever runs the console.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Execute the action, then send [`Event::Done`].
    Act(Action),
    /// Read the data, then send [`Event::ReadFinished`].
    Ask(ReadRequest),
    /// Tell this console's engine whether it may lead.
    AnswerLead(LeadAnswer),
    /// Save the setting, then send [`Event::SettingsSaved`].
    SaveSettings(Change),
    /// Quit the console.
    Quit,
    /// Restore the terminal and stop the process, as Ctrl-Z does.
    Suspend,
    /// Redraw every cell.
    Repaint,
    /// Copy the text to the terminal's clipboard.
    Copy(String),
    /// Read all themes, then send [`Event::ThemesRead`] with this name.
    ReadThemes(Option<String>),
    /// Turn reports of clicks and the wheel on or off.
    Mouse(bool),
}

/// Request to `actions`: the action that a dialog confirms, bound to the state that was shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Queue a reboot of each address.
    AddReboots {
        /// IP addresses, in the order on the screen.
        addresses: Vec<Address>,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Queue a repair of each machine.
    AddRepairs {
        /// IP addresses, in the order on the screen.
        addresses: Vec<Address>,
        /// The machine type of all of them.
        machine_type: String,
        /// The operation.
        operation: String,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Cancel reboots, or delete repairs.
    Cancel {
        /// The entries, whatever their state is by now.
        entries: Vec<EntryId>,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Remove an entry that cannot be read.
    Remove {
        /// The entry.
        entry: EntryId,
        /// The `ModRevision` that was shown.
        seen: i64,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// End the backoff of entries.
    ResetBackoff {
        /// The entries.
        entries: Vec<EntryId>,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Put entries on hold, or release them.
    Hold {
        /// Each entry with the `ModRevision` that was shown. `None` = whatever its state is by now.
        entries: Vec<(EntryId, Option<i64>)>,
        /// True = hold, false = release.
        hold: bool,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Pause, resume or cancel whole batches.
    Batches {
        /// Their queue.
        queue: QueueKind,
        /// The batches, each with the revision that was shown. `None`: whatever was written meanwhile.
        batches: Vec<(BatchId, Option<i64>)>,
        /// The change.
        what: BatchAction,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Enable or disable a queue.
    Switch {
        /// The queue.
        queue: QueueKind,
        /// The new state.
        enabled: bool,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Disable both queues.
    Stop {
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Enable the queues that the last stop disabled.
    Resume {
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Change the generation of the definition from the machine registry.
    Registry {
        /// The change.
        what: RegistryAction,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Store an order for the leader.
    Order {
        /// The entry.
        entry: EntryId,
        /// The order's verb.
        verb: Verb,
        /// The `ModRevision` that was shown. `None` if the entry is gone (an orphaned cordon).
        seen: Option<i64>,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Act on BareMetalHosts.
    Hosts {
        /// Each host as `namespace/name`, with the UID that was shown.
        hosts: Vec<(String, String)>,
        /// The action. `None` until the operator chooses it.
        action: Option<HostAction>,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Freeze both queues.
    Freeze {
        /// End of the freeze.
        until: jiff::Timestamp,
        /// Reason or ticket.
        reason: String,
    },
    /// End a freeze early.
    Unfreeze {
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Take nodes out for maintenance.
    Maintenance {
        /// Their addresses.
        addresses: Vec<Address>,
        /// Its end.
        until: jiff::Timestamp,
        /// Reason or ticket.
        reason: String,
    },
    /// End the maintenance of nodes.
    EndMaintenance {
        /// Their addresses.
        addresses: Vec<Address>,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Mark a node's cordon as the administrator's, or undo that.
    KeepCordoned {
        /// The Node's name.
        node: NodeName,
        /// True = keep the cordon, false = undo that.
        keep: bool,
    },
}

/// Change of a whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchAction {
    /// Its queued entries no longer start.
    Pause,
    /// They start again.
    Resume,
    /// Its unfinished entries are cancelled.
    Cancel,
}

/// Change of the generation of the definition from the machine registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryAction {
    /// Enable or disable the integration.
    Enable(bool),
    /// Approve the change with this digest.
    Approve(String),
    /// Stop all applying, or resume it. Bound to the hold at this `ModRevision`; 0 = no hold.
    Hold(bool, i64),
    /// Enable or disable automatic repair.
    AutoRepair(bool),
    /// Set a constraint.
    Constraint {
        /// The constraint's name. Empty until the operator chooses it.
        name: String,
        /// The value as it was typed.
        value: String,
    },
}

impl Action {
    /// Sets the typed reason.
    #[must_use]
    pub fn with_reason(mut self, why: Option<String>) -> Self {
        match &mut self {
            Self::AddReboots { reason, .. }
            | Self::AddRepairs { reason, .. }
            | Self::Cancel { reason, .. }
            | Self::Remove { reason, .. }
            | Self::Hold { reason, .. }
            | Self::Batches { reason, .. }
            | Self::ResetBackoff { reason, .. }
            | Self::Switch { reason, .. }
            | Self::Registry { reason, .. }
            | Self::Hosts { reason, .. }
            | Self::Unfreeze { reason }
            | Self::EndMaintenance { reason, .. }
            | Self::Stop { reason }
            | Self::Resume { reason }
            | Self::Order { reason, .. } => *reason = why,
            Self::Freeze { reason, .. } | Self::Maintenance { reason, .. } => *reason = why.unwrap_or_default(),
            Self::KeepCordoned { .. } => {}
        }
        self
    }

    /// Sets the chosen machine type and operation, constraint name, or host action.
    #[must_use]
    pub fn with_operation(mut self, chosen: Option<(&str, &str)>) -> Self {
        if let (Self::AddRepairs { machine_type, operation, .. }, Some((of, name))) = (&mut self, chosen) {
            of.clone_into(machine_type);
            name.clone_into(operation);
        }
        if let (Self::Registry { what: RegistryAction::Constraint { name, .. }, .. }, Some((of, _))) =
            (&mut self, chosen)
        {
            of.clone_into(name);
        }
        if let (Self::Hosts { action, .. }, Some((what, how))) = (&mut self, chosen) {
            *action = host_choice::action(what, how);
        }
        self
    }

    /// Sets the typed value.
    #[must_use]
    pub fn with_value(mut self, typed: Option<&str>) -> Self {
        if let (Self::Registry { what: RegistryAction::Constraint { value, .. }, .. }, Some(typed)) = (&mut self, typed)
        {
            typed.trim().clone_into(value);
        }
        self
    }

    /// Returns the text of the message line while the action is in progress.
    pub fn progress_text(&self) -> String {
        match self {
            Self::AddReboots { addresses, .. } => format!("queueing {} ...", count(addresses.len(), "reboot")),
            Self::AddRepairs { addresses, operation, .. } => {
                format!("queueing {operation} of {} ...", count(addresses.len(), "machine"))
            }
            Self::Cancel { entries, .. } => {
                let repairs = entries.iter().all(|id| id.queue == QueueKind::Repair);
                let progress_text = if repairs { "deleting" } else { "cancelling" };
                format!("{progress_text} {} ...", count(entries.len(), "entry"))
            }
            Self::Remove { entry, .. } => format!("removing {entry} ..."),
            Self::Hold { entries, hold: true, .. } => format!("holding {} ...", count(entries.len(), "entry")),
            Self::Hold { entries, hold: false, .. } => {
                format!("ending the hold of {} ...", count(entries.len(), "entry"))
            }
            Self::Batches { batches, what, .. } => {
                let progress_text = match what {
                    BatchAction::Pause => "pausing",
                    BatchAction::Resume => "resuming",
                    BatchAction::Cancel => "cancelling",
                };
                let batches: Vec<BatchId> = batches.iter().map(|(id, _)| *id).collect();
                format!("{progress_text} {} ...", named_batches(&batches))
            }
            Self::ResetBackoff { entries, .. } => {
                format!("resetting the backoff of {} ...", count(entries.len(), "entry"))
            }
            Self::Switch { queue, enabled: true, .. } => format!("enabling the {queue} queue ..."),
            Self::Switch { queue, enabled: false, .. } => format!("disabling the {queue} queue ..."),
            Self::Registry { what, .. } => match what {
                RegistryAction::Enable(true) => "enabling the sabakan integration ...".to_owned(),
                RegistryAction::Enable(false) => "disabling the sabakan integration ...".to_owned(),
                RegistryAction::Approve(digest) => format!("approving {digest} ..."),
                RegistryAction::Hold(true, _) => "pausing changes ...".to_owned(),
                RegistryAction::Hold(false, _) => "resuming changes ...".to_owned(),
                RegistryAction::AutoRepair(true) => "enabling automatic repair ...".to_owned(),
                RegistryAction::AutoRepair(false) => "disabling automatic repair ...".to_owned(),
                RegistryAction::Constraint { name, .. } => format!("setting constraint {name} ..."),
            },
            Self::Hosts { hosts, action, .. } => {
                let names: Vec<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
                match action {
                    Some(HostAction::Fence(node)) => {
                        format!("fencing {}: waiting for proof that {} is off ...", node.name, names.join(", "))
                    }
                    _ => format!("sending it to {} ...", names.join(", ")),
                }
            }
            Self::Order { entry, verb, .. } => format!("ordering {verb} of {entry} ..."),
            Self::Stop { .. } => "disabling both queues ...".to_owned(),
            Self::Resume { .. } => "resuming the queues ...".to_owned(),
            Self::Freeze { .. } => "freezing both queues ...".to_owned(),
            Self::Unfreeze { .. } => "ending the freeze ...".to_owned(),
            Self::Maintenance { addresses, .. } => {
                format!("requesting maintenance of {} ...", count(addresses.len(), "node"))
            }
            Self::EndMaintenance { addresses, .. } => {
                format!("ending the maintenance of {} ...", count(addresses.len(), "node"))
            }
            Self::KeepCordoned { node, keep: true } => format!("keeping {node} cordoned ..."),
            Self::KeepCordoned { node, keep: false } => format!("no longer keeping {node} cordoned ..."),
        }
    }
}

/// Returns the number of entries with the noun for their queue: `3 reboots`, `1 repair`; `4 entries` if they are mixed.
pub fn count_entries<'a>(ids: impl IntoIterator<Item = &'a EntryId>) -> String {
    let (mut reboots, mut repairs, mut others) = (0, 0, 0);
    for id in ids {
        match id.queue {
            QueueKind::Reboot => reboots += 1,
            QueueKind::Repair => repairs += 1,
            QueueKind::Maintenance => others += 1,
        }
    }
    match (reboots, repairs, others) {
        (n, 0, 0) => count(n, "reboot"),
        (0, n, 0) => count(n, "repair"),
        (reboots, repairs, others) => count(reboots + repairs + others, "entry"),
    }
}

/// Returns batches by name: `batch 6fy2jg00`, `3 batches`.
pub fn named_batches(batches: &[BatchId]) -> String {
    match batches {
        [one] => format!("batch {one}"),
        _ => format!("{} batches", batches.len()),
    }
}

/// Returns a number with its noun: `1 entry`, `3 entries`, `2 reboots`.
pub fn count(n: usize, noun: &str) -> String {
    match (n, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        _ => format!("{n} {noun}s"),
    }
}
