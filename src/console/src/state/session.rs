//! Course of the session: messages, actions in progress, undo, permissions in time.

use std::collections::{BTreeMap, VecDeque};

use cketerm_model::{boot_time::BootTime, cketerm_records::Who};
use jiff::Timestamp;

use super::{
    Message,
    dialog::kept_text::KeptText,
    event::Effect,
    object::Object,
    tour::Tour,
    undo::{UndoAction, UndoOffer},
};

/// Course of the session.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The last messages with their time, oldest first.
    pub messages: VecDeque<(Timestamp, Message)>,
    /// The message line.
    pub message: Option<Message>,
    /// The undo on offer.
    pub undo: Option<UndoOffer>,
    /// The undo of the action in progress.
    pub pending_undo: Option<UndoAction>,
    /// Number of actions in progress.
    pub busy: usize,
    /// Effects to carry out after this event.
    pub effects: Vec<Effect>,
    /// End of the time in which a console started read-only may change things: boot time, and wall-clock time to show.
    pub writes_until: Option<(BootTime, Timestamp)>,
    /// Boot time of the last request to stop the process (which resigns the lock).
    pub suspend_requested_at: Option<BootTime>,
    /// Saved answers to whether consoles of this host may lead, by the UID of the cluster.
    pub lead_answers: BTreeMap<String, bool>,
    /// Whether this console has answered its engine, or asked the operator.
    pub lead_answered: bool,
    /// Input of the last dialog that expired.
    pub kept_text: Option<KeptText>,
    /// Number of previews that were started.
    pub last_plan_number: u64,
    /// The operator of this console, once known. The console does not announce the operator's own actions.
    pub operator_identity: Option<Who>,
    /// Revision up to which other people's actions were announced.
    pub followed_revision: Option<i64>,
    /// The object of *Needs you* that the key went to last.
    pub last_needs_you: Option<Object>,
    /// The sandbox tour, while it runs.
    pub tour: Option<Tour>,
    /// Whether a line above the footer offers the tour. It stays until the operator starts the tour or presses Esc.
    pub tour_offered: bool,
}
