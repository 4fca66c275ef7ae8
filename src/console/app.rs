//! The console's whole state. Drawing reads it; only `update` changes it.

use std::{sync::Arc, time::Duration};

use ratatui::layout::Size;
use tui_input::Input;

use super::{
    dialog::Dialog,
    event::Action,
    facts::{self, Facts},
    keys::Keymap,
    list::List,
    registry::{self, Row, Serial},
    theme::Theme,
};
use crate::{
    clock::Now,
    engine::snapshot::Seen,
    model::entry::{EntryId, QueueKind},
};

/// The views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The reboot queue.
    #[default]
    Reboots,
    /// The cluster's nodes.
    Nodes,
    /// The repair queue.
    Repairs,
    /// sabakan's machines.
    Machines,
    /// The definition in force against the generated one.
    Diff,
    /// BareMetalHosts.
    Hosts,
}

impl View {
    /// The view after this one.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Reboots => Self::Nodes,
            Self::Nodes => Self::Repairs,
            Self::Repairs => Self::Machines,
            Self::Machines => Self::Diff,
            Self::Diff => Self::Hosts,
            Self::Hosts => Self::Reboots,
        }
    }

    /// The queue that a verb about a whole queue means here.
    pub fn queue(self) -> QueueKind {
        if self == Self::Repairs { QueueKind::Repair } else { QueueKind::Reboot }
    }
}

impl std::str::FromStr for View {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "reboots" => Ok(Self::Reboots),
            "nodes" => Ok(Self::Nodes),
            "repairs" => Ok(Self::Repairs),
            "machines" => Ok(Self::Machines),
            "diff" => Ok(Self::Diff),
            "hosts" => Ok(Self::Hosts),
            _ => Err(format!("there is no view {text:?}: choose reboots, nodes, repairs, machines, diff or hosts")),
        }
    }
}

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
}

/// An open detail pane, bound to an object, not to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pane {
    /// Whose.
    pub of: Target,
    /// First visible line.
    pub scroll: usize,
}

/// How the last action ended, or why a key did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What.
    pub text: String,
    /// Whether it went wrong.
    pub failed: bool,
    /// Boot time at which it came.
    pub at: Duration,
}

impl Message {
    /// For how long it is shown: long enough to be read, and longer where something went wrong.
    fn shown_for(&self) -> Duration {
        let words = u64::try_from(self.text.len() / 16).unwrap_or(0);
        Duration::from_secs(if self.failed { 20 } else { 8 } + words)
    }
}

/// What does not change while the console runs.
#[derive(Clone, Debug)]
pub struct Looks {
    /// Colours.
    pub theme: Theme,
    /// Keys in force.
    pub keymap: Keymap,
    /// The badge's word; none = the cluster's name.
    pub badge: Option<String>,
    /// etcd's endpoints, for the first screen.
    pub endpoints: Vec<String>,
    /// Actions are refused.
    pub read_only: bool,
    /// It is a sandbox: leaving ends it, and harms nobody.
    pub sandbox: bool,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            theme: Theme::named("terminal", true).unwrap_or_else(|_| Theme::bare()),
            keymap: Keymap::default(),
            badge: None,
            endpoints: Vec::new(),
            read_only: false,
            sandbox: false,
        }
    }
}

/// The state.
#[derive(Clone, Debug)]
pub struct App {
    /// Fixed.
    pub looks: Looks,
    /// What was seen last.
    pub seen: Arc<Seen>,
    /// Sums over it.
    pub facts: Facts,
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
    /// Sums over the registry.
    pub registry: registry::Facts,
    /// Machines and Diff show the racks in place of their rows.
    pub racks: bool,
    /// The open detail pane.
    pub pane: Option<Pane>,
    /// The filter while it is typed, and the one before.
    pub typing: Option<(Input, String)>,
    /// The open dialog.
    pub dialog: Option<Dialog>,
    /// First visible line of the help, while it is open.
    pub help: Option<usize>,
    /// The message line.
    pub message: Option<Message>,
    /// Actions under way.
    pub busy: usize,
}

impl App {
    /// A console that has seen nothing yet.
    pub fn new(looks: Looks, view: View, now: Now) -> Self {
        Self {
            looks,
            seen: Arc::default(),
            facts: Facts::default(),
            now,
            size: Size::new(80, 24),
            view,
            reboots: List::default(),
            nodes: List::default(),
            repairs: List::default(),
            machines: List::default(),
            diff: List::default(),
            hosts: List::default(),
            registry: registry::Facts::default(),
            racks: false,
            pane: None,
            typing: None,
            dialog: None,
            help: None,
            message: None,
            busy: 0,
        }
    }

    /// Says that something went wrong or cannot be done, with what to do.
    pub fn refuse(&mut self, text: impl Into<String>) {
        self.message = Some(Message { text: text.into(), failed: true, at: self.now.boot });
    }

    /// Says what happened.
    pub fn say(&mut self, text: impl Into<String>) {
        self.message = Some(Message { text: text.into(), failed: false, at: self.now.boot });
    }

    /// Takes the message away once it has stood for long enough; never while what it tells of is under way.
    pub fn expire_message(&mut self) {
        let old = |m: &Message| self.now.boot.saturating_sub(m.at) > m.shown_for();
        if self.busy == 0 && self.message.as_ref().is_some_and(old) {
            self.message = None;
        }
    }

    /// What a verb is about: the pane's object, else the row under the cursor.
    pub fn target(&self) -> Option<Target> {
        if let Some(pane) = &self.pane {
            return Some(pane.of.clone());
        }
        match self.view {
            View::Reboots => self.reboots.cursor.map(Target::Entry),
            View::Nodes => self.nodes.cursor.clone().map(Target::Node),
            View::Repairs => self.repairs.cursor.map(Target::Entry),
            View::Machines => {
                let machine = self.registry.machine(&self.seen, self.machines.cursor.as_ref()?);
                machine.map(|m| Target::Machine(m.address.clone()))
            }
            View::Diff => match self.diff.cursor.clone()? {
                Row::Node(_, address) => Some(Target::Machine(address)),
                Row::Fold(what) => Some(Target::Fold(what)),
                Row::Field(_) => None,
            },
            View::Hosts => self.hosts.cursor.clone().map(Target::Host),
        }
    }

    /// The addresses of machines that a verb is about, in the registry's views.
    pub fn chosen_addresses(&self) -> Vec<String> {
        let address = |serial: &Serial| self.registry.machine(&self.seen, serial).map(|m| m.address.clone());
        match (&self.pane, self.view) {
            (Some(Pane { of: Target::Machine(address), .. }), _) => vec![address.clone()],
            (None, View::Machines) => self.machines.chosen().iter().filter_map(address).collect(),
            (None, View::Diff) => {
                let rows = self.diff.chosen();
                rows.into_iter().filter_map(|r| if let Row::Node(_, a) = r { Some(a) } else { None }).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The entries that a verb is about: those marked, of the pane, or under the cursor; of nodes, their live entries
    /// of both queues.
    pub fn chosen_entries(&self) -> Vec<EntryId> {
        match (&self.pane, self.view) {
            (Some(Pane { of: Target::Entry(id), .. }), _) => vec![*id],
            (Some(Pane { of: Target::Node(name), .. }), _) => self.facts.entries_of(name).collect(),
            (None, View::Reboots) => self.reboots.chosen(),
            (None, View::Repairs) => self.repairs.chosen(),
            (None, View::Nodes) => self.nodes.chosen().iter().flat_map(|name| self.facts.entries_of(name)).collect(),
            _ => self.chosen_nodes().iter().flat_map(|name| self.facts.entries_of(name)).collect(),
        }
    }

    /// The nodes that a verb is about.
    pub fn chosen_nodes(&self) -> Vec<String> {
        let machine = |id: &EntryId| facts::machine(&self.seen, *id);
        match (&self.pane, self.view) {
            (Some(Pane { of: Target::Node(name), .. }), _) => vec![name.clone()],
            (Some(Pane { of: Target::Entry(id), .. }), _) => machine(id).into_iter().collect(),
            (None, View::Nodes) => self.nodes.chosen(),
            (None, View::Reboots) => self.reboots.chosen().iter().filter_map(machine).collect(),
            (None, View::Repairs) => self.repairs.chosen().iter().filter_map(machine).collect(),
            (Some(Pane { of: Target::Host(_), .. }), _) | (None, View::Hosts) => {
                let hosts = self.chosen_hosts();
                hosts.iter().filter_map(|id| facts::host_node(&self.seen, id)).map(|n| n.name.clone()).collect()
            }
            _ => self.chosen_addresses().iter().map(|address| self.seen.snapshot.machine(address)).collect(),
        }
    }

    /// The hosts that a verb is about.
    pub fn chosen_hosts(&self) -> Vec<HostId> {
        match (&self.pane, self.view) {
            (Some(Pane { of: Target::Host(id), .. }), _) => vec![id.clone()],
            (None, View::Hosts) => self.hosts.chosen(),
            _ => Vec::new(),
        }
    }

    /// The cluster's name, as the definition has it.
    pub fn cluster(&self) -> Option<&str> {
        self.seen.snapshot.store.definition().map(|d| d.cluster.name.as_str()).filter(|n| !n.is_empty())
    }

    /// What large changes ask to be typed: the badge's word, else the cluster's name.
    pub fn cluster_word(&self) -> String {
        self.cluster().or(self.looks.badge.as_deref()).unwrap_or("cluster").to_owned()
    }

    /// Why nothing is chosen, and what to do.
    pub fn nothing_chosen(&self, what: &str) -> String {
        format!("no {what} is chosen: move the cursor to one, or mark some with space")
    }

    /// Whether the cursor was moved because what it stood on is gone, and nobody has looked since.
    pub fn strayed(&mut self) -> bool {
        match self.view {
            View::Reboots => std::mem::take(&mut self.reboots.strayed),
            View::Nodes => std::mem::take(&mut self.nodes.strayed),
            View::Repairs => std::mem::take(&mut self.repairs.strayed),
            View::Machines => std::mem::take(&mut self.machines.strayed),
            View::Diff => std::mem::take(&mut self.diff.strayed),
            View::Hosts => std::mem::take(&mut self.hosts.strayed),
        }
    }

    /// Counts an action as begun.
    pub fn begin(&mut self, action: &Action) {
        self.busy += 1;
        self.say(action.doing());
    }
}
