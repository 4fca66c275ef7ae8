//! The console's whole state. Drawing reads it; only `update` changes it.

pub mod blockers;
pub mod calendar;
pub mod columns;
pub mod command_line;
mod config;
pub mod dialog;
pub mod eta;
pub mod event;
pub mod filter;
pub mod fleet;
pub mod history;
pub mod host_choice;
pub mod leaders;
pub mod list;
pub mod logs;
pub mod lost;
mod messages;
pub mod overview;
pub mod past;
pub mod picker;
pub mod queries;
pub mod racks;
pub mod registry;
pub mod related;
pub mod rights;
mod selection;
pub mod settings;
pub mod short_text;
pub mod sources;
pub mod totals;
pub mod tour;
pub mod undo;
mod view;
pub mod when;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use cketerm_model::{cketerm_records::Who, clock::Now, entry::EntryId, rights::Rights, stored::keys::Folder};
use cketerm_rules::snapshot::Seen;
use jiff::Timestamp;
use ratatui::layout::Size;
use tui_input::Input;

use self::{
    command_line::CommandLine,
    dialog::Dialog,
    event::{Action, Effect},
    list::{List, Rows},
    logs::{LineId, Logs},
    overview::{OverviewRow, Summary},
    past::{Past, PastId},
    picker::ColumnPicker,
    registry::{Row, Serial},
    totals::Totals,
    tour::Tour,
    undo::{UndoAction, UndoOffer},
};
pub use self::{config::AppConfig, messages::Message, view::View};
use crate::keys::{Context, Stroke};

/// The chosen columns by table. A table without a choice is drawn with its own columns.
pub type VisibleColumns = BTreeMap<&'static str, Vec<&'static str>>;

/// Identity of a BareMetalHost: namespace and name.
pub type HostId = (String, String);

/// Object that a detail pane shows or a verb acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An entry of either queue.
    Entry(EntryId),
    /// A Node, by name.
    Node(String),
    /// A machine, by its address.
    Machine(String),
    /// The same change of one field on many nodes.
    Fold(String),
    /// A BareMetalHost.
    Host(HostId),
    /// A record of an etcd folder that is read on demand.
    Past(Folder, PastId),
    /// A line of the log.
    Line(LineId),
}

/// Open detail pane, bound to an object, not to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pane {
    /// The object that the pane shows.
    pub of: Target,
    /// First visible line.
    pub scroll: usize,
}

/// Longest wait for the next key of a chord, and longest time between the two presses that force a stop.
const CHORD: Duration = Duration::from_secs(5);
/// Content of the overlay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sheet {
    /// The key help.
    #[default]
    Help,
    /// The last messages.
    Messages,
    /// The objects that block drains.
    Blockers,
}

/// A place that a jump left; Esc goes back to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPosition {
    /// The view.
    pub view: View,
    /// Whether History showed CKE's records.
    pub cke_records: bool,
    /// Whether Machines and Diff showed the racks.
    pub racks: bool,
    /// The open pane.
    pub pane: Option<Pane>,
    /// The object that a verb acted on there.
    pub at: Option<Target>,
    /// Filter and number of marks of the destination on arrival. `None` = Esc first clears the filter and the marks.
    pub found: Option<(String, usize)>,
    /// The destination's filter before the jump set its own.
    pub under: Option<String>,
}

/// State of the console.
#[derive(Clone, Debug)]
pub struct App {
    /// Settings that never change while the console runs.
    pub config: AppConfig,
    /// The changes that the operator has no permission for.
    pub rights: Rights,
    /// The latest state that the engine published.
    pub seen: Arc<Seen>,
    /// Sums over `seen`.
    pub totals: Totals,
    /// The current time, by the console's clock.
    pub now: Now,
    /// The terminal's size.
    pub size: Size,
    /// The open view.
    pub view: View,
    /// Rows of Reboots.
    pub reboots: List<EntryId>,
    /// Rows of Nodes.
    pub nodes: List<String>,
    /// Rows of Repairs.
    pub repairs: List<EntryId>,
    /// Rows of Machines (sabakan).
    pub machines: List<Serial>,
    /// Rows of Diff.
    pub diff: List<Row>,
    /// Rows of Hosts.
    pub hosts: List<HostId>,
    /// Lines of the Overview that can be opened.
    pub overview_rows: List<OverviewRow>,
    /// Rows of History: entries that ended.
    pub history: List<PastId>,
    /// Rows of History while it shows CKE's records.
    pub records: List<PastId>,
    /// Rows of Audit.
    pub audit: List<PastId>,
    /// Rows of Logs.
    pub log: List<LineId>,
    /// This process's log lines, as read from its ring buffer.
    pub logs: Logs,
    /// The command line while it is open.
    pub line: Option<CommandLine>,
    /// The last messages with their time, oldest first.
    pub messages: VecDeque<(Timestamp, Message)>,
    /// Content of the overlay while `help` is set.
    pub sheet: Sheet,
    /// Whether History shows CKE's records.
    pub cke_records: bool,
    /// The history, audit and CKE records that were read.
    pub past: Past,
    /// Sums of the Overview.
    pub summary: Summary,
    /// Number of previews that were started.
    pub last_plan_number: u64,
    /// The places that Esc goes back to.
    pub before: Vec<ViewPosition>,
    /// The columns that the operator chose.
    pub visible_columns: VisibleColumns,
    /// The column picker, while it is open.
    pub picker: Option<ColumnPicker>,
    /// Keys of an unfinished chord.
    pub chord: Vec<Stroke>,
    /// Boot time of the last request to stop the process (which resigns the lock).
    pub suspend_requested_at: Option<Duration>,
    /// Boot time of the chord's last key.
    pub chord_at: Duration,
    /// Command lines that were executed, oldest first.
    pub lines: Vec<String>,
    /// The undo of the action in progress.
    pub pending_undo: Option<UndoAction>,
    /// The undo on offer.
    pub undo: Option<UndoOffer>,
    /// The sandbox tour, while it runs.
    pub tour: Option<Tour>,
    /// Effects to carry out after this event.
    pub effects: Vec<Effect>,
    /// Sums over the machine registry.
    pub registry: registry::RegistrySummary,
    /// Whether Machines and Diff show the racks instead of their rows.
    pub racks: bool,
    /// The map of the racks, while Nodes shows it instead of its rows.
    pub map: Option<racks::Map>,
    /// The open detail pane.
    pub pane: Option<Pane>,
    /// The filter while it is typed, and the filter before.
    pub typing: Option<(Input, String)>,
    /// Whether the field still holds the previous text unchanged: the first letter then replaces it.
    pub replace_on_typing: bool,
    /// The open dialog.
    pub dialog: Option<Dialog>,
    /// First visible line of the overlay, while it is open.
    pub help: Option<usize>,
    /// The text that is searched for in the overlay.
    pub search_text: String,
    /// The message line.
    pub message: Option<Message>,
    /// Number of actions in progress.
    pub busy: usize,
    /// The lost sources, each with the boot-time seconds at which it last answered.
    pub lost: BTreeMap<&'static str, f64>,
    /// The operator of this console, once known. The console does not announce the operator's own actions.
    pub operator_identity: Option<Who>,
    /// Revision up to which other people's actions were announced.
    pub followed_revision: Option<i64>,
    /// End of the time in which a console started read-only may change things: boot time, and wall-clock time to show.
    pub writes_until: Option<(Duration, Timestamp)>,
}

impl App {
    /// Creates a console that has seen nothing yet.
    pub fn new(config: AppConfig, view: View, now: Now) -> Self {
        Self {
            config,
            seen: Arc::default(),
            totals: Totals::default(),
            now,
            size: Size::new(80, 24),
            view,
            reboots: List::default(),
            nodes: List::default(),
            repairs: List::default(),
            machines: List::default(),
            diff: List::default(),
            hosts: List::default(),
            overview_rows: List { unordered: true, ..List::default() },
            history: List::default(),
            records: List::default(),
            audit: List::default(),
            log: List::default(),
            logs: Logs::default(),
            line: None,
            messages: VecDeque::new(),
            sheet: Sheet::default(),
            cke_records: false,
            past: Past::default(),
            summary: Summary::default(),
            last_plan_number: 0,
            before: Vec::new(),
            visible_columns: VisibleColumns::new(),
            picker: None,
            chord: Vec::new(),
            chord_at: Duration::ZERO,
            suspend_requested_at: None,
            lines: Vec::new(),
            pending_undo: None,
            undo: None,
            tour: None,
            effects: Vec::new(),
            registry: registry::RegistrySummary::default(),
            racks: false,
            map: None,
            pane: None,
            typing: None,
            replace_on_typing: false,
            dialog: None,
            help: None,
            search_text: String::new(),
            message: None,
            busy: 0,
            lost: BTreeMap::new(),
            operator_identity: None,
            followed_revision: None,
            writes_until: None,
            rights: Rights::default(),
        }
    }

    /// Returns true if changes are refused: the console was started read-only, and no `:write` is in force.
    pub fn read_only(&self) -> bool {
        self.config.read_only && self.writes_until.is_none_or(|(until, _)| self.now.boot >= until)
    }

    /// Returns the time up to which the state of the queues is known. Ages stop there while etcd is lost.
    pub fn known(&self) -> Timestamp {
        let boot = self.now.boot.as_secs_f64();
        let last_seen = lost::etcd_lost(&self.seen, boot).and_then(|lost| lost.last_seen);
        last_seen.map_or(self.now.wall, |last_seen| sources::moment(self, last_seen))
    }

    /// Returns the time up to which the state of Kubernetes is known. Kubernetes and etcd are lost independently.
    pub fn known_of_kube(&self) -> Timestamp {
        let boot = self.now.boot.as_secs_f64();
        let last_seen = lost::kube_lost(&self.seen, boot).and_then(|lost| lost.last_seen);
        last_seen.map_or(self.now.wall, |last_seen| sources::moment(self, last_seen))
    }

    /// Ends the time that `:write` allowed, and reports it.
    pub fn expire_write_permission(&mut self) {
        if self.writes_until.is_some_and(|(until, _)| self.now.boot >= until) {
            self.writes_until = None;
            self.print("read-only again: the time that :write allowed is over");
        }
    }

    /// Returns true if the undo on offer can be executed now.
    pub fn can_undo(&self) -> bool {
        self.undo.as_ref().is_some_and(|offer| offer.refusal(self).is_none())
    }

    /// Saves a setting of the open view for the next start.
    pub fn save_setting(&mut self, change_of: impl FnOnce(&Self) -> settings::Change) {
        if self.config.saves_settings {
            let change = change_of(self);
            self.effects.push(Effect::SaveSettings(change));
        }
    }

    /// Returns true if this is the second request to stop within `CHORD` (5 s).
    pub fn is_repeated_suspend(&mut self) -> bool {
        let before = self.suspend_requested_at.replace(self.now.boot);
        before.is_some_and(|before| self.now.boot.saturating_sub(before) <= CHORD)
    }

    /// Drops a chord whose next key did not come in time. A later key would be meant for something else.
    pub fn expire_chord(&mut self) {
        if self.now.boot.saturating_sub(self.chord_at) > CHORD {
            self.chord.clear();
        }
    }

    /// Returns the cluster's name from the definition.
    pub fn cluster(&self) -> Option<&str> {
        self.seen.snapshot.store.definition().map(|d| d.cluster.name.as_str()).filter(|n| !n.is_empty())
    }

    /// Returns the word that the operator types to confirm a large change: the cluster's name, else the badge, else
    /// `cluster`. It is typed exactly as it is shown.
    pub fn cluster_label(&self) -> String {
        short_text::safe(self.cluster().or(self.config.badge.as_deref()).unwrap_or("cluster"))
    }

    /// Returns the context in which a key would be looked up now.
    pub fn key_context(&self) -> Context {
        if self.picker.is_some() {
            return Context::Dialog;
        }
        if let Some(dialog) = &self.dialog {
            return if dialog.typing() { Context::Field } else { Context::Dialog };
        }
        if self.typing.is_some() || self.line.is_some() {
            Context::Field
        } else if self.help.is_some() || self.pane.is_some() {
            Context::Detail
        } else {
            Context::Table
        }
    }

    /// Returns a command's key for use in a sentence, or its command-line name if no key is bound.
    pub fn key(&self, name: &str) -> String {
        self.config.keymap.shown(name)
    }

    /// Returns true if the cursor was moved because its object disappeared, and the operator has not looked since.
    pub fn cursor_displaced(&mut self) -> bool {
        self.list_mut().take_cursor_displaced()
    }

    /// Returns the open view's list.
    pub fn list(&self) -> &dyn Rows {
        match self.view {
            View::Overview => &self.overview_rows,
            View::History if self.cke_records => &self.records,
            View::History => &self.history,
            View::Audit => &self.audit,
            View::Logs => &self.log,
            View::Reboots => &self.reboots,
            View::Nodes => &self.nodes,
            View::Repairs => &self.repairs,
            View::Machines => &self.machines,
            View::Diff => &self.diff,
            View::Hosts => &self.hosts,
        }
    }

    /// Returns the open view's list, mutable.
    pub fn list_mut(&mut self) -> &mut dyn Rows {
        match self.view {
            View::Overview => &mut self.overview_rows,
            View::History if self.cke_records => &mut self.records,
            View::History => &mut self.history,
            View::Audit => &mut self.audit,
            View::Logs => &mut self.log,
            View::Reboots => &mut self.reboots,
            View::Nodes => &mut self.nodes,
            View::Repairs => &mut self.repairs,
            View::Machines => &mut self.machines,
            View::Diff => &mut self.diff,
            View::Hosts => &mut self.hosts,
        }
    }

    /// Returns all lists.
    pub fn lists_mut(&mut self) -> [&mut dyn Rows; 11] {
        [
            &mut self.overview_rows,
            &mut self.reboots,
            &mut self.nodes,
            &mut self.repairs,
            &mut self.machines,
            &mut self.diff,
            &mut self.hosts,
            &mut self.history,
            &mut self.records,
            &mut self.audit,
            &mut self.log,
        ]
    }

    /// Counts an action as started, and reports it.
    pub fn begin(&mut self, action: &Action) {
        self.busy += 1;
        self.print(action.progress_text());
    }
}
