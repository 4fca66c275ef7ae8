//! Rows of the views.

use std::collections::BTreeMap;

use cketerm_model::entry::EntryId;

use super::{
    HostId, View,
    batches::BatchRowId,
    column_id::ColumnId,
    list::{List, Rows},
    logs::LineId,
    overview::OverviewRow,
    past::PastId,
    registry::{Row, Serial},
};

/// The chosen columns by table. A table without a choice is drawn with its own columns.
pub type VisibleColumns = BTreeMap<&'static str, Vec<ColumnId>>;

/// Rows of each view, with its cursor, marks, filter and order, and the columns that the operator chose.
#[derive(Clone, Debug)]
pub struct Lists {
    /// Rows of Reboots.
    pub reboots: List<EntryId>,
    /// Rows of Reboots while it shows batches.
    pub batches: List<BatchRowId>,
    /// Rows of Repairs while it shows batches.
    pub repair_batches: List<BatchRowId>,
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
    /// The columns that the operator chose.
    pub visible_columns: VisibleColumns,
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            reboots: List::default(),
            batches: List::default(),
            repair_batches: List::default(),
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
            visible_columns: VisibleColumns::new(),
        }
    }
}

impl Lists {
    /// Returns a view's list.
    pub fn of(&self, view: View, second: bool) -> &dyn Rows {
        match view {
            View::Overview => &self.overview_rows,
            View::History if second => &self.records,
            View::History => &self.history,
            View::Audit => &self.audit,
            View::Logs => &self.log,
            View::Reboots | View::Repairs if second => self.batches_of(view),
            View::Reboots => &self.reboots,
            View::Nodes => &self.nodes,
            View::Repairs => &self.repairs,
            View::Machines => &self.machines,
            View::Diff => &self.diff,
            View::Hosts => &self.hosts,
        }
    }

    /// Returns a view's list, mutable.
    pub fn of_mut(&mut self, view: View, second: bool) -> &mut dyn Rows {
        match view {
            View::Overview => &mut self.overview_rows,
            View::History if second => &mut self.records,
            View::History => &mut self.history,
            View::Audit => &mut self.audit,
            View::Logs => &mut self.log,
            View::Reboots | View::Repairs if second => self.batches_of_mut(view),
            View::Reboots => &mut self.reboots,
            View::Nodes => &mut self.nodes,
            View::Repairs => &mut self.repairs,
            View::Machines => &mut self.machines,
            View::Diff => &mut self.diff,
            View::Hosts => &mut self.hosts,
        }
    }

    /// Returns the batches of a queue's view.
    pub fn batches_of(&self, view: View) -> &List<BatchRowId> {
        if view == View::Repairs { &self.repair_batches } else { &self.batches }
    }

    /// Returns the batches of a queue's view, mutable.
    pub fn batches_of_mut(&mut self, view: View) -> &mut List<BatchRowId> {
        if view == View::Repairs { &mut self.repair_batches } else { &mut self.batches }
    }

    /// Returns all lists.
    pub fn all_mut(&mut self) -> [&mut dyn Rows; 13] {
        [
            &mut self.overview_rows,
            &mut self.reboots,
            &mut self.batches,
            &mut self.repair_batches,
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
}
