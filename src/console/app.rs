//! The console's whole state. Drawing reads it; only `update` changes it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use ratatui::layout::Size;
use tui_input::Input;

use super::{
    chosen::Chosen,
    command_line::CommandLine,
    dialog::Dialog,
    event::{Action, Effect},
    keys::Stroke,
    list::{List, Rows},
    logs::{LineId, Logs},
    overview::{Spot, Summary},
    past::{Past, PastId},
    picker::Picker,
    queries::Totals,
    racks,
    registry::{self, Row, Serial},
    settings, short_text, sources,
    tour::Tour,
    undo::{Offer, Way},
};
pub use super::{looks::Looks, messages::Message, view::View};
use crate::{
    clock::Now,
    engine::snapshot::Seen,
    model::{cketerm_records::Who, entry::EntryId, rights::Rights},
    store::keys::Folder,
};

/// A BareMetalHost's identity: namespace and name.
pub type HostId = (String, String);

/// What a detail pane, or a verb, is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An entry.
    Entry(EntryId),
    /// A Node by name.
    Node(String),
    /// A machine by its address.
    Machine(String),
    /// The same change of a field on many nodes.
    Fold(String),
    /// A BareMetalHost.
    Host(HostId),
    /// A value of a folder that is read on demand.
    Past(Folder, PastId),
    /// A line of the log.
    Line(LineId),
}

/// An open detail pane, bound to an object, not to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pane {
    /// Whose.
    pub of: Target,
    /// First visible line.
    pub scroll: usize,
}

/// How long a chord waits for its next key.
const CHORD: Duration = Duration::from_secs(5);
/// What the overlay shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sheet {
    /// The keys.
    #[default]
    Help,
    /// The last messages.
    Messages,
    /// What keeps pods.
    Blockers,
}

/// A place that something led away from, for the way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The view.
    pub view: View,
    /// Whether History showed CKE's records.
    pub of_cke: bool,
    /// Whether Machines and Diff showed the racks.
    pub racks: bool,
    /// Its pane.
    pub pane: Option<Pane>,
    /// What a verb was about there.
    pub at: Option<Target>,
    /// Filter and marks of the view that was led to, as they were found; none = whoever goes back peels them first.
    pub found: Option<(String, usize)>,
    /// The filter that was there before the one that led there.
    pub under: Option<String>,
}

/// The state.
#[derive(Clone, Debug)]
pub struct App {
    /// Fixed.
    pub looks: Looks,
    /// What this person may not change.
    pub rights: Rights,
    /// What was seen last.
    pub seen: Arc<Seen>,
    /// Sums over it.
    pub totals: Totals,
    /// This moment, by the console's clock.
    pub now: Now,
    /// The terminal's size.
    pub size: Size,
    /// The open view.
    pub view: View,
    /// Rows of the reboot queue.
    pub reboots: List<EntryId>,
    /// Rows of the nodes.
    pub nodes: List<String>,
    /// Rows of the repair queue.
    pub repairs: List<EntryId>,
    /// Rows of sabakan's machines.
    pub machines: List<Serial>,
    /// Rows of the Diff.
    pub diff: List<Row>,
    /// Rows of the hosts.
    pub hosts: List<HostId>,
    /// Lines of the Overview that can be opened.
    pub spots: List<Spot>,
    /// Entries that ended.
    pub history: List<PastId>,
    /// CKE's records, which History shows in their place.
    pub records: List<PastId>,
    /// Who did what.
    pub audit: List<PastId>,
    /// This process's log lines.
    pub log: List<LineId>,
    /// What was taken over of them.
    pub logs: Logs,
    /// The command line while it is typed.
    pub line: Option<CommandLine>,
    /// The last messages, with the hour, oldest first.
    pub messages: VecDeque<(Timestamp, Message)>,
    /// What the overlay shows while `help` is set.
    pub sheet: Sheet,
    /// History shows CKE's records.
    pub of_cke: bool,
    /// What was read of the past.
    pub past: Past,
    /// Sums of the Overview.
    pub summary: Summary,
    /// Previews that were begun.
    pub plans: u64,
    /// Where Esc leads back to.
    pub before: Vec<Place>,
    /// The columns that were chosen.
    pub chosen: Chosen,
    /// The list in which they are chosen, while it is open.
    pub picker: Option<Picker>,
    /// Keys of a chord that is not through.
    pub chord: Vec<Stroke>,
    /// Boot time at which a stop was asked for that gives the lock back.
    pub stop_asked: Option<Duration>,
    /// Boot time at which its last key was pressed.
    pub chord_at: Duration,
    /// Lines that were carried out, oldest first.
    pub lines: Vec<String>,
    /// The way back of what is being done.
    pub leaving: Option<Way>,
    /// The way back that is offered.
    pub undo: Option<Offer>,
    /// The first steps in the sandbox, while they are taken.
    pub tour: Option<Tour>,
    /// Something for whoever runs the console, after this event.
    pub effects: Vec<Effect>,
    /// Sums over the registry.
    pub registry: registry::RegistrySummary,
    /// Machines and Diff show the racks in place of their rows.
    pub racks: bool,
    /// The Nodes show the map of the racks in place of their rows.
    pub map: Option<racks::Map>,
    /// The open detail pane.
    pub pane: Option<Pane>,
    /// The filter while it is typed, and the one before.
    pub typing: Option<(Input, String)>,
    /// What stands in that field was there before, and nothing has been done to it: the first letter begins it anew.
    pub untouched: bool,
    /// The open dialog.
    pub dialog: Option<Dialog>,
    /// First visible line of the help, while it is open.
    pub help: Option<usize>,
    /// What is looked for in it.
    pub sought: String,
    /// The message line.
    pub message: Option<Message>,
    /// Actions under way.
    pub busy: usize,
    /// The sources that are lost, and the boot-time seconds at which they were heard last.
    pub lost: BTreeMap<&'static str, f64>,
    /// Who sits here, once it is known: his own deeds are no news to him.
    pub me: Option<Who>,
    /// The revision up to which the deeds of others were told.
    pub heard_of: Option<i64>,
    /// Until when a console that was started read-only may change things: boot time, and the hour to show.
    pub writes_until: Option<(Duration, Timestamp)>,
}

impl App {
    /// A console that has seen nothing yet.
    pub fn new(looks: Looks, view: View, now: Now) -> Self {
        Self {
            looks,
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
            spots: List { unordered: true, ..List::default() },
            history: List::default(),
            records: List::default(),
            audit: List::default(),
            log: List::default(),
            logs: Logs::default(),
            line: None,
            messages: VecDeque::new(),
            sheet: Sheet::default(),
            of_cke: false,
            past: Past::default(),
            summary: Summary::default(),
            plans: 0,
            before: Vec::new(),
            chosen: Chosen::new(),
            picker: None,
            chord: Vec::new(),
            chord_at: Duration::ZERO,
            stop_asked: None,
            lines: Vec::new(),
            leaving: None,
            undo: None,
            tour: None,
            effects: Vec::new(),
            registry: registry::RegistrySummary::default(),
            racks: false,
            map: None,
            pane: None,
            typing: None,
            untouched: false,
            dialog: None,
            help: None,
            sought: String::new(),
            message: None,
            busy: 0,
            lost: BTreeMap::new(),
            me: None,
            heard_of: None,
            writes_until: None,
            rights: Rights::default(),
        }
    }

    /// Whether changes are refused: it was started so, and nobody allowed them for a while.
    pub fn read_only(&self) -> bool {
        self.looks.read_only && self.writes_until.is_none_or(|(until, _)| self.now.boot >= until)
    }

    /// The moment up to which the state of the queues is known: while etcd is lost ages go no further.
    pub fn known(&self) -> Timestamp {
        let boot = self.now.boot.as_secs_f64();
        let heard = sources::etcd_lost(&self.seen, boot).and_then(|lost| lost.heard);
        heard.map_or(self.now.wall, |heard| sources::moment(self, heard))
    }

    /// The same of what Kubernetes has told: it can be lost while etcd is not, and the other way round.
    pub fn known_of_kube(&self) -> Timestamp {
        let boot = self.now.boot.as_secs_f64();
        let heard = sources::kube_lost(&self.seen, boot).and_then(|lost| lost.heard);
        heard.map_or(self.now.wall, |heard| sources::moment(self, heard))
    }

    /// Says when the time is over for which changes were allowed.
    pub fn expire_writing(&mut self) {
        if self.writes_until.is_some_and(|(until, _)| self.now.boot >= until) {
            self.writes_until = None;
            self.say("read-only again: the time that :write allowed is over");
        }
    }

    /// Whether the way back of what was done last can be taken now.
    pub fn undo_stands(&self) -> bool {
        self.undo.as_ref().is_some_and(|offer| offer.refusal(self).is_none())
    }

    /// Keeps something of the open view for the next time.
    pub fn keep(&mut self, of_open: impl FnOnce(&Self) -> settings::Change) {
        if self.looks.kept {
            let change = of_open(self);
            self.effects.push(Effect::Keep(change));
        }
    }

    /// Whether the stop is asked for a second time within some seconds.
    pub fn stops_twice(&mut self) -> bool {
        let before = self.stop_asked.replace(self.now.boot);
        before.is_some_and(|before| self.now.boot.saturating_sub(before) <= CHORD)
    }

    /// Drops a chord that nobody goes on with: its next key would be pressed for something else.
    pub fn expire_chord(&mut self) {
        if self.now.boot.saturating_sub(self.chord_at) > CHORD {
            self.chord.clear();
        }
    }

    /// The cluster's name, as the definition has it.
    pub fn cluster(&self) -> Option<&str> {
        self.seen.snapshot.store.definition().map(|d| d.cluster.name.as_str()).filter(|n| !n.is_empty())
    }

    /// What large changes ask to be typed: the badge's word, else the cluster's name; as it is shown, and so it is typed.
    pub fn cluster_word(&self) -> String {
        short_text::safe(self.cluster().or(self.looks.badge.as_deref()).unwrap_or("cluster"))
    }

    /// The key of a command, for sentences; the command line's word where none is bound.
    pub fn key(&self, name: &str) -> String {
        self.looks.keymap.shown(name)
    }

    /// Whether the cursor was moved because what it stood on is gone, and nobody has looked since.
    pub fn strayed(&mut self) -> bool {
        self.list_mut().take_strayed()
    }

    /// The open view's list, whatever its rows stand for.
    pub fn list(&self) -> &dyn Rows {
        match self.view {
            View::Overview => &self.spots,
            View::History if self.of_cke => &self.records,
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

    /// The same, to be changed.
    pub fn list_mut(&mut self) -> &mut dyn Rows {
        match self.view {
            View::Overview => &mut self.spots,
            View::History if self.of_cke => &mut self.records,
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

    /// All lists.
    pub fn lists_mut(&mut self) -> [&mut dyn Rows; 11] {
        [
            &mut self.spots,
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

    /// Counts an action as begun.
    pub fn begin(&mut self, action: &Action) {
        self.busy += 1;
        self.say(action.doing());
    }
}
