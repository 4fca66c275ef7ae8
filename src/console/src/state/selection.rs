//! Objects that a verb acts on: the pane's object, the marked rows, or the row under the cursor.

use cketerm_model::{batch::BatchId, entry::EntryId, names::Address, stored::keys::Folder};

use super::{
    App, HostId, Pane, Target, View,
    batches::BatchSummary,
    object::Object,
    overview::OverviewRow,
    past::PastId,
    queries,
    registry::{Row, Serial},
};

impl App {
    /// Returns the view whose meaning a verb takes. On the Overview it is the view of the line under the cursor, so
    /// that its keys act on that line's object alone.
    pub fn acting_view(&self) -> View {
        match (&self.navigation.pane, self.navigation.view, &self.lists.overview_rows.cursor) {
            (None, View::Overview, Some(row)) => row.view(),
            (_, view, _) => view,
        }
    }

    /// Reports whether a hold is one of all applying: in Machines and Diff, and on a line about the definition. On the
    /// Overview's line of one machine nobody expects it.
    pub fn holds_applying(&self) -> bool {
        let of_machine = match (&self.navigation.pane, self.navigation.view, &self.lists.overview_rows.cursor) {
            (None, View::Overview, Some(OverviewRow::NeedsYou(object))) => *object != Object::Definition,
            _ => false,
        };
        self.acting_view().registry() && !of_machine
    }

    /// Returns the object of a verb: the pane's object, else the row under the cursor.
    pub fn target(&self) -> Option<Target> {
        match &self.navigation.pane {
            Some(pane) => Some(pane.of.clone()),
            None => self.row_target(),
        }
    }

    /// Returns the object of the row under the cursor, whatever the pane shows.
    pub fn row_target(&self) -> Option<Target> {
        match self.navigation.view {
            View::Reboots | View::Repairs if self.navigation.shows_batches() => None,
            View::Reboots => self.lists.reboots.cursor.map(Target::Entry),
            View::Nodes => self.lists.nodes.cursor.clone().map(Target::Node),
            View::Repairs => self.lists.repairs.cursor.map(Target::Entry),
            View::Machines => {
                let machine = self.knowledge.registry.machine(&self.seen, self.lists.machines.cursor.as_ref()?);
                machine.map(|m| Target::Machine(m.address.clone()))
            }
            View::Diff => match self.lists.diff.cursor.clone()? {
                Row::Node(_, address) => Some(Target::Machine(address)),
                Row::Fold(what) => Some(Target::Fold(what)),
                Row::Field(_) => None,
            },
            View::Hosts => self.lists.hosts.cursor.clone().map(Target::Host),
            View::Overview => self.lists.overview_rows.cursor.as_ref().and_then(super::overview::OverviewRow::target),
            View::History if self.navigation.cke_records => {
                self.lists.records.cursor.clone().map(|id| Target::Past(Folder::Records, id))
            }
            View::History => self.lists.history.cursor.clone().map(|id| Target::Past(Folder::History, id)),
            View::Audit => self.lists.audit.cursor.clone().map(|id| Target::Past(Folder::Audit, id)),
            View::Logs => self.lists.log.cursor.map(Target::Line),
        }
    }

    /// Returns the objects that a verb on the Overview's line under the cursor acts on: all that a line of *Needs you*
    /// names.
    fn overview_targets(&self) -> Vec<Target> {
        let Some(row) = &self.lists.overview_rows.cursor else { return Vec::new() };
        match row {
            OverviewRow::NeedsYou(object) => {
                let line = self.knowledge.needs_you.iter().find(|line| line.object == *object);
                let objects = line.map_or(std::slice::from_ref(object), |line| line.objects.as_slice());
                objects.iter().filter_map(Object::target).collect()
            }
            OverviewRow::Progress(_)
            | OverviewRow::Batch(..)
            | OverviewRow::Work(_)
            | OverviewRow::Racks
            | OverviewRow::Day
            | OverviewRow::Ended(_)
            | OverviewRow::Action(_)
            | OverviewRow::Cke(_) => row.target().into_iter().collect(),
        }
    }

    /// Moves the cursor of the open view to an object. Returns false if the view has no row of it.
    pub fn select_row_of(&mut self, of: &Target) -> bool {
        let lists = &mut self.lists;
        match (self.navigation.view, of) {
            (View::Reboots, Target::Entry(id)) => lists.reboots.select_id(id),
            (View::Repairs, Target::Entry(id)) => lists.repairs.select_id(id),
            (View::Nodes, Target::Node(name)) => lists.nodes.select_id(name),
            (View::Machines, Target::Machine(address)) => {
                let machine = self.knowledge.registry.at(&self.seen, address);
                let serial = machine.map(|machine| Serial(machine.serial.clone()));
                serial.is_some_and(|serial| lists.machines.select_id(&serial))
            }
            (View::Diff, Target::Machine(address)) => {
                let of_machine = |row: &&Row| matches!(row, Row::Node(_, at) if at == address);
                let row = lists.diff.rows.iter().find(of_machine).cloned();
                row.is_some_and(|row| lists.diff.select_id(&row))
            }
            (View::Diff, Target::Fold(what)) => lists.diff.select_id(&Row::Fold(what.clone())),
            (View::Hosts, Target::Host(id)) => lists.hosts.select_id(id),
            (View::History, Target::Past(Folder::Records, id)) => lists.records.select_id(id),
            (View::History, Target::Past(_, id)) => lists.history.select_id(id),
            (View::Audit, Target::Past(_, id)) => lists.audit.select_id(id),
            (View::Logs, Target::Line(id)) => lists.log.select_id(id),
            _ => false,
        }
    }

    /// Returns the addresses of the machines that a verb acts on, in Machines, Diff and History.
    pub fn chosen_addresses(&self) -> Vec<Address> {
        let address = |serial: &Serial| self.knowledge.registry.machine(&self.seen, serial).map(|m| m.address.clone());
        let ended = |id: &PastId| self.knowledge.past.history.get(id).map(|e| e.address.clone());
        match (&self.navigation.pane, self.navigation.view) {
            (Some(Pane { of: Target::Machine(address), .. }), _) => vec![address.clone()],
            (Some(Pane { of: Target::Past(Folder::History, id), .. }), _) => ended(id).into_iter().collect(),
            (None, View::History) if !self.navigation.cke_records => {
                self.lists.history.chosen().iter().filter_map(ended).collect()
            }
            (None, View::Machines) => self.lists.machines.chosen().iter().filter_map(address).collect(),
            (None, View::Diff) => {
                let rows = self.lists.diff.chosen();
                rows.into_iter().filter_map(|r| if let Row::Node(_, a) = r { Some(a) } else { None }).collect()
            }
            (None, View::Overview) => {
                let address = |of: &Target| match of {
                    Target::Machine(address) => Some(address.clone()),
                    Target::Past(Folder::History, id) => ended(id),
                    Target::Past(..)
                    | Target::Entry(_)
                    | Target::Node(_)
                    | Target::Fold(_)
                    | Target::Host(_)
                    | Target::Line(_) => None,
                };
                self.overview_targets().iter().filter_map(address).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the entries that a verb acts on: of the pane, marked, or under the cursor. For nodes these are their
    /// live entries in both queues.
    pub fn chosen_entries(&self) -> Vec<EntryId> {
        match (&self.navigation.pane, self.navigation.view) {
            (Some(Pane { of: Target::Entry(id), .. }), _) => vec![*id],
            (Some(Pane { of: Target::Node(name), .. }), _) => self.knowledge.totals.entries_of(name).collect(),
            (None, View::Overview) => {
                let entries = |of: &Target| match of {
                    Target::Entry(id) => vec![*id],
                    Target::Node(name) => self.knowledge.totals.entries_of(name).collect(),
                    Target::Machine(_) | Target::Fold(_) | Target::Host(_) | Target::Past(..) | Target::Line(_) => {
                        Vec::new()
                    }
                };
                self.overview_targets().iter().flat_map(entries).collect()
            }
            // a verb for entries never means a whole batch
            (None, View::Reboots | View::Repairs) if self.navigation.shows_batches() => Vec::new(),
            (None, View::Reboots) => self.lists.reboots.chosen(),
            (None, View::Repairs) => self.lists.repairs.chosen(),
            (None, View::Nodes) => {
                self.lists.nodes.chosen().iter().flat_map(|name| self.knowledge.totals.entries_of(name)).collect()
            }
            _ => self.chosen_nodes().iter().flat_map(|name| self.knowledge.totals.entries_of(name)).collect(),
        }
    }

    /// Returns the nodes that a verb acts on.
    pub fn chosen_nodes(&self) -> Vec<String> {
        let machine = |id: &EntryId| queries::machine(&self.seen, *id);
        match (&self.navigation.pane, self.navigation.view) {
            (Some(Pane { of: Target::Node(name), .. }), _) => vec![name.clone()],
            (Some(Pane { of: Target::Entry(id), .. }), _) => machine(id).into_iter().collect(),
            (None, View::Nodes) => self.lists.nodes.chosen(),
            (None, View::Reboots | View::Repairs) if self.navigation.shows_batches() => Vec::new(),
            (None, View::Reboots) => self.lists.reboots.chosen().iter().filter_map(machine).collect(),
            (None, View::Repairs) => self.lists.repairs.chosen().iter().filter_map(machine).collect(),
            (None, View::Overview) => {
                let node = |of: &Target| match of {
                    Target::Entry(id) => machine(id),
                    Target::Node(name) => Some(name.clone()),
                    Target::Host(id) => queries::host_node(&self.seen, id).map(|node| node.name.to_string()),
                    Target::Machine(_) | Target::Fold(_) | Target::Past(..) | Target::Line(_) => None,
                };
                let mut nodes: Vec<String> = self.overview_targets().iter().filter_map(node).collect();
                nodes.extend(self.chosen_addresses().iter().map(|address| self.seen.snapshot.machine(address)));
                nodes
            }
            (Some(Pane { of: Target::Host(_), .. }), _) | (None, View::Hosts) => {
                let hosts = self.chosen_hosts();
                hosts.iter().filter_map(|id| queries::host_node(&self.seen, id)).map(|n| n.name.to_string()).collect()
            }
            _ => self.chosen_addresses().iter().map(|address| self.seen.snapshot.machine(address)).collect(),
        }
    }

    /// Reports whether verbs act on whole batches: in the table of the batches, and on a batch's line of the Overview.
    pub fn acts_on_batches(&self) -> bool {
        let on_overview = || self.navigation.view == View::Overview && self.overview_batch().is_some();
        self.navigation.pane.is_none() && (self.navigation.shows_batches() || on_overview())
    }

    fn overview_batch(&self) -> Option<BatchId> {
        self.lists.overview_rows.cursor.as_ref()?.batch()
    }

    /// Returns the batches that a verb acts on: the marked ones, or the one under the cursor.
    pub fn chosen_batches(&self) -> Vec<&BatchSummary> {
        if self.navigation.view == View::Overview {
            return self.overview_batch().and_then(|id| self.knowledge.batches.get(id)).into_iter().collect();
        }
        let ids = self.lists.batches_of(self.navigation.view).chosen();
        ids.iter().filter_map(|id| self.knowledge.batches.get(id.0)).collect()
    }

    /// Returns the hosts that a verb acts on.
    pub fn chosen_hosts(&self) -> Vec<HostId> {
        match (&self.navigation.pane, self.navigation.view) {
            (Some(Pane { of: Target::Host(id), .. }), _) => vec![id.clone()],
            (None, View::Hosts) => self.lists.hosts.chosen(),
            (None, View::Overview) => {
                let host = |of: Target| match of {
                    Target::Host(id) => Some(id),
                    Target::Entry(_)
                    | Target::Node(_)
                    | Target::Machine(_)
                    | Target::Fold(_)
                    | Target::Past(..)
                    | Target::Line(_) => None,
                };
                self.overview_targets().into_iter().filter_map(host).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns a message that nothing is chosen, and what to do.
    pub fn nothing_selected(&self, what: &str) -> String {
        format!("no {what} is chosen: move the cursor to one, or mark some with {}", self.key("mark"))
    }
}
