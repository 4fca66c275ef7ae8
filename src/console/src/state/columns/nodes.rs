//! Columns of the nodes of Kubernetes and of the definition.

use std::sync::Arc;

use cketerm_model::{cluster::Node, entry::EntryId, kube::NodeRow, names::Address};
use cketerm_rules::trouble::Trouble;
use ratatui::style::Style;

use super::{
    Table,
    Width::{Content, ContentWithinRest, MachineName},
    values,
};
use crate::{
    state::{App, calendar, filter::Value, queries, racks, severity, short_text},
    table::Cell,
    theme::Severity,
};

/// Least width of STATE, so that it does not change with every row.
const MIN_STATE_WIDTH: u16 = 16;

/// Width from which MAINTENANCE has space for more than the end.
const WHOLE_MAINTENANCE: usize = 30;

/// The nodes.
pub enum Nodes {}

/// A node, by its name.
pub struct Row<'a> {
    app: &'a App,
    name: &'a str,
    address: &'a str,
    node: Option<&'a Arc<NodeRow>>,
    member: Option<&'a Node>,
    /// The node's reboot, repair and maintenance.
    entries: [Option<EntryId>; 3],
}

type Column = super::Column<Nodes>;

impl Table for Nodes {
    type Id = str;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("node", "NODE", MachineName(8, 18), "name of the node")
            .wide(100, MachineName(8, 40))
            .value(|row| Value::text(row.name))
            .fitted(|row, width| Cell::plain(short_text::shorten_middle(row.name, width))),
        // the longest text, which is cut first
        Column::new("state", "STATE", ContentWithinRest(MIN_STATE_WIDTH), "state of the Node and of its entries")
            .value(|row| Value::text(row.state().0))
            .cell(state_cell),
        // filters know the address even if it is hidden; STATE is more useful
        Column::new("address", "ADDRESS", Content(7, 39), "address of the node")
            .shown_from(90)
            .value(|row| Value::text(row.address))
            .cell(|row| Cell::plain(short_text::safe(row.address))),
        Column::new("role", "ROLE", Content(4, 6), "role of the Node; `api` runs an API server")
            .wide(100, Content(4, 20))
            .value(|row| values::role(row.role()))
            .cell(|row| Cell::plain(short_text::safe(row.role()))),
        Column::new("rack", "RACK", Content(4, 6), "rack or zone, by a label of Node or definition")
            .wide(100, Content(4, 20))
            .shown_from(60)
            .value(|row| Value::text(row.rack()))
            .cell(|row| Cell::plain(short_text::safe(row.rack()))),
        Column::new("kubelet", "KUBELET", Content(7, 16), "version of the kubelet")
            .shown_from(100)
            .value(|row| Value::text(row.kubelet()))
            .cell(|row| Cell::plain(short_text::safe(row.kubelet()))),
        // narrow screens have space for the end only
        Column::new(
            "maintenance",
            "MAINTENANCE",
            Content(11, 16),
            "end of the Node's maintenance, who took it, and why",
        )
        .wide(150, Content(11, 44))
        .value(|row| Value::text(row.maintenance()))
        .fitted(|row, width| {
            let text = if width < WHOLE_MAINTENANCE { row.maintenance_end() } else { row.maintenance() };
            Cell::plain(short_text::safe(&text))
        }),
        Column::new("reboot", "REBOOT", Content(6, 8), "entry in the reboot queue")
            .value(|row| entry(row.entries[0]))
            .cell(|row| entry_cell(row.entries[0])),
        // without repairs, narrow screens use this column's space for others
        Column::new("repair", "REPAIR", Content(6, 8), "entry in the repair queue")
            .shown_from_unless_filled(100)
            .value(|row| entry(row.entries[1]))
            .cell(|row| entry_cell(row.entries[1])),
    ];

    fn row<'a>(app: &'a App, name: &'a str) -> Row<'a> {
        let (node, member) = (queries::node(&app.seen, name), queries::member(&app.seen, name));
        let address = member
            .map(|m| m.address.as_str())
            .or_else(|| queries::ip_of(node?).map(Address::as_str))
            .unwrap_or_default();
        let entries = app.knowledge.totals.by_kind(name);
        Row { app, name, address, node, member, entries }
    }
}

impl<'a> Row<'a> {
    fn state(&self) -> (String, Option<Trouble>) {
        short_text::node_state_of(self.app, self.name, self.node, self.entries)
    }

    fn role(&self) -> &'a str {
        queries::role_of(&self.app.seen, self.node, self.member)
    }

    fn rack(&self) -> &'a str {
        queries::rack_of(self.node, self.member)
    }

    /// Returns e.g. `until 14:00`, and an empty text without a maintenance.
    fn maintenance_end(&self) -> String {
        let Some(id) = self.entries[2] else { return String::new() };
        let entry = queries::maintenance(&self.app.seen, id);
        entry.map_or_else(
            || format!("{id} cannot be read"),
            |entry| format!("until {}", calendar::moment(self.app, entry.until)),
        )
    }

    /// Returns e.g. `until 14:00 by alice: new disk`, and an empty text without a maintenance.
    fn maintenance(&self) -> String {
        let mut text = self.maintenance_end();
        let request = self.entries[2].and_then(|id| self.app.seen.snapshot.store.requests.get(&id)?.get());
        if let Some(request) = request {
            let reason = request.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            text = format!("{text} by {}{reason}", request.who);
        }
        text
    }

    fn kubelet(&self) -> &'a str {
        self.node.map_or("", |n| n.kubelet.as_str())
    }
}

fn state_cell(row: &Row<'_>) -> Cell {
    let theme = &row.app.config.theme;
    let (state, trouble) = row.state();
    let severity = severity::of_machine(racks::State::of(row.app, row.name));
    let style = match (trouble, severity) {
        (Some(Trouble::Stuck), _) => theme.severity(Severity::Failed),
        (Some(Trouble::Waits), _) => theme.severity(Severity::Slow),
        (None, Severity::Done | Severity::Waiting) => Style::new(),
        (None, Severity::Draining | Severity::Rebooting | Severity::Slow | Severity::Failed) => {
            theme.severity(severity)
        }
    };
    Cell { style, ..Cell::signed(theme, severity, state) }
}

fn entry(id: Option<EntryId>) -> Value<'static> {
    id.map_or(Value::None, |id| values::index(id.index))
}

fn entry_cell(id: Option<EntryId>) -> Cell {
    Cell::plain(id.map(|id| format!("#{}", id.index)).unwrap_or_default())
}
