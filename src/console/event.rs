//! What happens to the console, and what it wants done.

use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};

use super::{
    past::{Answer, Question},
    settings::Change,
    theme::Theme,
};
use crate::{
    actions::HostAction,
    clock::Now,
    engine::snapshot::Seen,
    model::{
        cketerm_records::Verb,
        entry::{EntryId, QueueKind},
    },
};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The mouse did something.
    Mouse(MouseEvent),
    /// The terminal has another size (columns, rows).
    Resize(u16, u16),
    /// The terminal said whether it is light or dark: the theme for it.
    Themed(Box<Theme>),
    /// The engine published what it saw.
    Seen(Arc<Seen>),
    /// Time passed.
    Tick(Now),
    /// An action ended: what is to be said of it.
    Done(Result<ActionOutcome, String>),
    /// A question was answered.
    Answered(Box<Answer>),
    /// What was to be kept was written: what is to be said of it.
    Kept(Result<Option<String>, String>),
}

/// What came of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionOutcome {
    /// What is to be said of it.
    pub said: String,
    /// The entries that it queued.
    pub queued: Vec<EntryId>,
    /// The revision at which it wrote the one thing that it changed.
    pub wrote: Option<i64>,
    /// What it replaced.
    pub replaced: Option<Replaced>,
    /// Of several entries those for which it was done; none where all were.
    pub done: Option<Vec<EntryId>>,
    /// It was not done for others, which `said` names.
    pub partly: bool,
}

/// What an action replaced, as the store had it when it was written: the screen may have been behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// This value of a constraint; none = it was not set.
    Constraint(Option<i64>),
    /// Somebody's freeze.
    Freeze,
    /// A switch that was off already, or of which nobody can know: turning it on would not bring back what was.
    Off,
}

impl<T: Into<String>> From<T> for ActionOutcome {
    fn from(said: T) -> Self {
        Self { said: said.into(), ..Self::default() }
    }
}

/// Something that the console wants done by whoever runs it.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Carry this out, then tell by [`Event::Done`].
    Act(Action),
    /// Read this, then tell by [`Event::Answered`].
    Ask(Question),
    /// Keep this for the next time, then tell by [`Event::Kept`].
    Keep(Change),
    /// Leave.
    Quit,
    /// Stop the process as Ctrl-Z does, the terminal restored.
    Suspend,
    /// Paint everything again.
    Repaint,
    /// Hand this text to the terminal's clipboard.
    Copy(String),
}

/// What can be asked of `actions`: the thing that a dialog confirms, bound to what was shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Queue a reboot of each address.
    AddReboots {
        /// IP addresses, in the order of the screen.
        addresses: Vec<String>,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Queue a repair of each machine.
    AddRepairs {
        /// IP addresses, in the order of the screen.
        addresses: Vec<String>,
        /// The type of all of them.
        machine_type: String,
        /// The operation.
        operation: String,
        /// Reason or ticket.
        reason: Option<String>,
    },
    /// Cancel reboots, delete repairs.
    Cancel {
        /// Which, whatever they have come to since they were shown.
        entries: Vec<EntryId>,
        /// Why.
        reason: Option<String>,
    },
    /// Remove an entry that cannot be read.
    Remove {
        /// Which.
        entry: EntryId,
        /// The `ModRevision` that was shown.
        seen: i64,
        /// Why.
        reason: Option<String>,
    },
    /// End the backoff of entries.
    ResetBackoff {
        /// Which.
        entries: Vec<EntryId>,
        /// Why.
        reason: Option<String>,
    },
    /// Keep entries from starting, or let them go.
    Hold {
        /// Each with the `ModRevision` that was shown; none = whatever it has come to since.
        entries: Vec<(EntryId, Option<i64>)>,
        /// Keep, or let go.
        hold: bool,
        /// Why.
        reason: Option<String>,
    },
    /// Enable or disable a queue.
    Switch {
        /// Which.
        queue: QueueKind,
        /// The new state.
        enabled: bool,
        /// Why.
        reason: Option<String>,
    },
    /// Disable both queues.
    Stop {
        /// Why.
        reason: Option<String>,
    },
    /// Enable what the last stop disabled.
    Resume {
        /// Why.
        reason: Option<String>,
    },
    /// Something about what is generated from the registry.
    Registry {
        /// What.
        what: Registering,
        /// Why.
        reason: Option<String>,
    },
    /// Leave an order for whoever leads.
    Order {
        /// For which entry.
        entry: EntryId,
        /// What.
        verb: Verb,
        /// The `ModRevision` that was shown; none where the entry is gone (an orphaned cordon).
        seen: Option<i64>,
        /// Why.
        reason: Option<String>,
    },
    /// Something about hosts of Metal3.
    Hosts {
        /// Each by `namespace/name`, with the UID that was shown.
        hosts: Vec<(String, String)>,
        /// What; none until it is chosen.
        action: Option<HostAction>,
        /// Why.
        reason: Option<String>,
    },
    /// Freeze both queues.
    Freeze {
        /// Until then.
        until: jiff::Timestamp,
        /// Why.
        reason: String,
    },
    /// End a freeze before its time.
    Unfreeze {
        /// Why.
        reason: Option<String>,
    },
    /// Make a node's cordon the administrator's, or give it back.
    KeepCordoned {
        /// The Node.
        node: String,
        /// Keep or give back.
        keep: bool,
    },
}

/// A verb about what is generated from the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registering {
    /// Enable or disable the integration.
    Enable(bool),
    /// Let the change with this digest pass.
    Approve(String),
    /// Stop all applying, or let it go on.
    /// It is bound to the hold of this `ModRevision`, 0 = none.
    Hold(bool, i64),
    /// Enable or disable automatic repair.
    AutoRepair(bool),
    /// Set a constraint.
    Constraint {
        /// Which; empty until it is chosen.
        name: String,
        /// Its value as it was typed.
        value: String,
    },
}

impl Action {
    /// Puts the reason in that was typed.
    #[must_use]
    pub fn with_reason(mut self, why: Option<String>) -> Self {
        match &mut self {
            Self::AddReboots { reason, .. }
            | Self::AddRepairs { reason, .. }
            | Self::Cancel { reason, .. }
            | Self::Remove { reason, .. }
            | Self::Hold { reason, .. }
            | Self::ResetBackoff { reason, .. }
            | Self::Switch { reason, .. }
            | Self::Registry { reason, .. }
            | Self::Hosts { reason, .. }
            | Self::Unfreeze { reason }
            | Self::Stop { reason }
            | Self::Resume { reason }
            | Self::Order { reason, .. } => *reason = why,
            Self::KeepCordoned { .. } | Self::Freeze { .. } => {}
        }
        self
    }

    /// Puts the machine type and the operation in that were chosen.
    #[must_use]
    pub fn with_operation(mut self, chosen: Option<(&str, &str)>) -> Self {
        if let (Self::AddRepairs { machine_type, operation, .. }, Some((of, name))) = (&mut self, chosen) {
            of.clone_into(machine_type);
            name.clone_into(operation);
        }
        if let (Self::Registry { what: Registering::Constraint { name, .. }, .. }, Some((of, _))) = (&mut self, chosen)
        {
            of.clone_into(name);
        }
        if let (Self::Hosts { action, .. }, Some((what, how))) = (&mut self, chosen) {
            *action = crate::console::dialog::host::action(what, how);
        }
        self
    }

    /// Puts the value in that was typed.
    #[must_use]
    pub fn with_value(mut self, typed: Option<&str>) -> Self {
        if let (Self::Registry { what: Registering::Constraint { value, .. }, .. }, Some(typed)) = (&mut self, typed) {
            typed.trim().clone_into(value);
        }
        self
    }

    /// What is being done, for the message line while it is.
    pub fn doing(&self) -> String {
        match self {
            Self::AddReboots { addresses, .. } => format!("queueing {} ...", count(addresses.len(), "reboot")),
            Self::AddRepairs { addresses, operation, .. } => {
                format!("queueing {operation} of {} ...", count(addresses.len(), "machine"))
            }
            Self::Cancel { entries, .. } => {
                let repairs = entries.iter().all(|id| id.queue == QueueKind::Repair);
                let doing = if repairs { "deleting" } else { "cancelling" };
                format!("{doing} {} ...", count(entries.len(), "entry"))
            }
            Self::Remove { entry, .. } => format!("removing {entry} ..."),
            Self::Hold { entries, hold: true, .. } => format!("holding {} ...", count(entries.len(), "entry")),
            Self::Hold { entries, hold: false, .. } => format!("letting {} go ...", count(entries.len(), "entry")),
            Self::ResetBackoff { entries, .. } => {
                format!("resetting the backoff of {} ...", count(entries.len(), "entry"))
            }
            Self::Switch { queue, enabled: true, .. } => format!("enabling the {queue} queue ..."),
            Self::Switch { queue, enabled: false, .. } => format!("disabling the {queue} queue ..."),
            Self::Registry { what, .. } => match what {
                Registering::Enable(true) => "enabling the sabakan integration ...".to_owned(),
                Registering::Enable(false) => "disabling the sabakan integration ...".to_owned(),
                Registering::Approve(digest) => format!("approving {digest} ..."),
                Registering::Hold(true, _) => "stopping all applying ...".to_owned(),
                Registering::Hold(false, _) => "letting applying go on ...".to_owned(),
                Registering::AutoRepair(true) => "enabling automatic repair ...".to_owned(),
                Registering::AutoRepair(false) => "disabling automatic repair ...".to_owned(),
                Registering::Constraint { name, .. } => format!("setting constraint {name} ..."),
            },
            Self::Hosts { hosts, action, .. } => {
                let names: Vec<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
                match action {
                    Some(HostAction::Fence(node, _)) => {
                        format!("fencing {node}: waits for the proof that {} is off ...", names.join(", "))
                    }
                    _ => format!("asking it of {} ...", names.join(", ")),
                }
            }
            Self::Order { entry, verb, .. } => format!("ordering {verb} of {entry} ..."),
            Self::Stop { .. } => "disabling both queues ...".to_owned(),
            Self::Resume { .. } => "enabling what was stopped ...".to_owned(),
            Self::Freeze { .. } => "freezing both queues ...".to_owned(),
            Self::Unfreeze { .. } => "ending the freeze ...".to_owned(),
            Self::KeepCordoned { node, keep: true } => format!("keeping {node} cordoned ..."),
            Self::KeepCordoned { node, keep: false } => format!("giving {node}'s cordon back ..."),
        }
    }
}

/// `1 entry`, `3 entries`, `2 reboots`.
pub fn count(n: usize, noun: &str) -> String {
    match (n, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        _ => format!("{n} {noun}s"),
    }
}
