//! Place in the console: the open view, pane and overlay, and the way back.

use std::sync::Arc;

use cketerm_model::{entry::EntryId, names::Address, stored::keys::Folder};

use super::{HostId, View, logs::LineId, past::PastId, racks};

/// Object that a detail pane shows or a verb acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An entry of either queue.
    Entry(EntryId),
    /// A Node, by name.
    Node(String),
    /// A machine, by its address.
    Machine(Address),
    /// The same change of one field on many nodes.
    Fold(String),
    /// A BareMetalHost.
    Host(HostId),
    /// A record of an etcd folder that is read on demand.
    Past(Folder, PastId),
    /// A line of the log.
    Line(LineId),
}

/// Content of a detail pane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaneContent {
    /// Everything about the object.
    #[default]
    Detail,
    /// Only the output of an entry's newest command.
    Output {
        /// Whether the pane keeps to the end of the output.
        follow: bool,
    },
    /// The object as YAML.
    Yaml,
}

/// Open detail pane, bound to an object, not to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pane {
    /// The object that the pane shows.
    pub of: Target,
    /// First visible line.
    pub scroll: usize,
    /// Its content.
    pub content: PaneContent,
}

/// Revisions of everything that the YAML of an object is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct YamlStamp {
    /// Revisions of keys in etcd.
    pub revisions: Vec<i64>,
    /// The object of Kubernetes.
    pub object: Option<Arc<str>>,
}

/// Wrapped YAML of the pane's object. It is made again only if the object or the width has changed: events come many
/// times a second, and an object may have hundreds of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlText {
    /// The object.
    pub of: Target,
    /// Width in columns.
    pub width: u16,
    /// Revisions that it was made from.
    pub stamp: YamlStamp,
    /// The lines, each with whether it is a comment.
    pub lines: Arc<[(String, bool)]>,
}

impl Pane {
    /// Creates a pane with everything about an object.
    pub fn new(of: Target) -> Self {
        Self { of, scroll: 0, content: PaneContent::Detail }
    }
}

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
    /// Whether the view, one of a queue, showed its batches.
    pub batches: bool,
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

/// Choice between batches and entries, for the view of each queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTables {
    reboots: bool,
    repairs: bool,
}

impl BatchTables {
    /// Reports whether a view shows batches.
    fn of(self, view: View) -> bool {
        match view {
            View::Reboots => self.reboots,
            View::Repairs => self.repairs,
            View::Overview
            | View::Nodes
            | View::Machines
            | View::Diff
            | View::Hosts
            | View::History
            | View::Audit
            | View::Logs => false,
        }
    }

    /// Chooses batches or entries for a view. Other views have no batches.
    fn set(&mut self, view: View, shown: bool) {
        match view {
            View::Reboots => self.reboots = shown,
            View::Repairs => self.repairs = shown,
            View::Overview
            | View::Nodes
            | View::Machines
            | View::Diff
            | View::Hosts
            | View::History
            | View::Audit
            | View::Logs => {}
        }
    }
}

/// Place in the console.
#[derive(Clone, Debug, Default)]
pub struct Navigation {
    /// The open view.
    pub view: View,
    /// Whether History shows CKE's records.
    pub cke_records: bool,
    /// Queues whose view shows their batches instead of their entries.
    pub batches: BatchTables,
    /// Whether Machines and Diff show the racks instead of their rows.
    pub racks: bool,
    /// The map of the racks, while Nodes shows it instead of its rows.
    pub map: Option<racks::Map>,
    /// Whether the operator chose the map or the list for Nodes. `None` = the map where it fits.
    pub map_chosen: Option<bool>,
    /// Whether map or list was decided since Nodes was opened.
    pub map_decided: bool,
    /// The open detail pane.
    pub pane: Option<Pane>,
    /// The wrapped YAML of the open pane, while it shows YAML.
    pub yaml: Option<YamlText>,
    /// The object that the cursor last rested on: its detail is shown beside the table.
    pub preview: Option<Target>,
    /// The places that Esc goes back to.
    pub before: Vec<ViewPosition>,
    /// Content of the overlay while `help` is set.
    pub sheet: Sheet,
    /// First visible line of the overlay, while it is open.
    pub help: Option<usize>,
    /// The text that is searched for in the overlay.
    pub search_text: String,
    /// The text that is searched for in the pane.
    pub pane_search: String,
}

impl Navigation {
    /// Reports whether the open view shows its second table: CKE's records in History, batches in the queues.
    pub fn second_table(&self) -> bool {
        match self.view {
            View::History => self.cke_records,
            View::Reboots | View::Repairs => self.shows_batches(),
            View::Overview | View::Nodes | View::Machines | View::Diff | View::Hosts | View::Audit | View::Logs => {
                false
            }
        }
    }

    /// Reports whether the open view, one of a queue, shows its batches.
    pub fn shows_batches(&self) -> bool {
        self.batches.of(self.view)
    }

    /// Chooses batches or entries for the open view. Each view of a queue keeps its own choice.
    pub fn show_batches(&mut self, shown: bool) {
        self.batches.set(self.view, shown);
    }

    /// Reports whether a search is one in the pane's own text. Beside a detail it filters the table.
    pub fn searches_pane(&self) -> bool {
        self.help.is_none() && self.pane.as_ref().is_some_and(|pane| pane.content != PaneContent::Detail)
    }

    /// Reports whether help or a detail pane lies on the view.
    pub fn has_layer(&self) -> bool {
        self.help.is_some() || self.pane.is_some()
    }
}
