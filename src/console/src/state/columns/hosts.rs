//! Columns of the BareMetalHosts of Metal3.

use std::sync::Arc;

use cketerm_model::{host::HostRow, kube::NodeRow};
use jiff::Timestamp;

use super::{
    Table,
    Width::{Content, Fixed, Rest},
};
use crate::{
    state::{App, HostId, filter::Value, queries, short_text, when},
    table::Cell,
    theme::Severity,
};

/// The BareMetalHosts.
pub enum Hosts {}

/// A host, by its namespace and name.
pub struct Row<'a> {
    app: &'a App,
    id: &'a HostId,
    /// The host; `None` if Kubernetes no longer has it.
    host: Option<&'a Arc<HostRow>>,
}

type Column = super::Column<Hosts>;

impl Table for Hosts {
    type Id = HostId;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("host", "HOST", Content(8, 14), "name of the host")
            .wide(120, Content(8, 30))
            .value(|row| row.value(|_| Value::text(row.id.1.as_str())))
            .cell(|row| Cell::plain(short_text::safe(&row.id.1))),
        Column::new("namespace", "NAMESPACE", Content(9, 20), "namespace of the host")
            .shown_from(150)
            .value(|row| row.value(|_| Value::text(row.id.0.as_str())))
            .cell(|row| Cell::plain(short_text::safe(&row.id.0))),
        Column::new("node", "NODE", Content(4, 30), "Node that runs on the host")
            .shown_from(120)
            .value(|row| row.value(|_| row.node().map_or(Value::None, |n| Value::text(n.name.as_str()))))
            .cell(|row| row.cell(|_| row.node().map(|n| short_text::safe(&n.name)).unwrap_or_default())),
        Column::new("power", "POWER", Content(5, 13), "power, as the controller last saw it")
            .value(|row| row.value(|h| Value::text(short_text::host_power(h))))
            .cell(power_cell),
        Column::new("online", "ONLINE", Fixed(6), "whether the host should be powered on")
            .shown_from(90)
            .cell(|row| row.cell(|h| if h.online { "yes" } else { "no" }.to_owned())),
        Column::new("state", "STATE", Content(5, 12), "provisioning state")
            .wide(120, Content(5, 22))
            .value(|row| row.value(|h| Value::text(h.provisioning.as_str())))
            .cell(|row| row.cell(|h| state(h, row.app.size.width))),
        Column::new("asked", "ASKED", Content(5, 16), "reboots that are requested, and by which key")
            .wide(100, Content(5, 40))
            .value(|row| row.value(|h| Value::text(short_text::host_requests(h))))
            .cell(|row| row.cell(short_text::host_requests)),
        Column::new("held", "HELD", Content(4, 6), "time since a key holds the host off")
            .cell(|row| row.age_cell(held_since)),
        Column::new("pending", "PENDING", Fixed(7), "time since a reboot is pending")
            .shown_from(100)
            .cell(|row| row.age_cell(|h| h.pending_reboot_since.filter(|_| h.pending()))),
        Column::new("last-on", "LAST ON", Fixed(7), "time since the last power-on")
            .shown_from(100)
            .cell(|row| row.age_cell(|h| h.last_powered_on)),
        Column::new("remarks", "REMARKS", Rest, "error, hindrance, or phase of the controller")
            .value(|row| row.value(|_| Value::text(short_text::host(&row.app.seen, row.id).0)))
            .cell(remarks_cell),
    ];

    fn row<'a>(app: &'a App, id: &'a HostId) -> Row<'a> {
        Row { app, id, host: queries::host(&app.seen, id) }
    }
}

impl<'a> Row<'a> {
    fn value(&self, of: impl FnOnce(&'a HostRow) -> Value<'a>) -> Value<'a> {
        self.host.map_or_else(|| Value::text(self.id.1.as_str()), |host| of(host))
    }

    fn cell(&self, of: impl FnOnce(&'a HostRow) -> String) -> Cell {
        Cell::plain(self.host.map(|host| of(host)).unwrap_or_default())
    }

    fn age_cell(&self, since: impl FnOnce(&'a HostRow) -> Option<Timestamp>) -> Cell {
        self.cell(|host| since(host).map(|at| when::age(at, self.app.known_of_kube())).unwrap_or_default())
    }

    fn node(&self) -> Option<&'a Arc<NodeRow>> {
        queries::host_node(&self.app.seen, self.id)
    }
}

fn power_cell(row: &Row<'_>) -> Cell {
    let (theme, Some(host)) = (&row.app.config.theme, row.host) else { return Cell::default() };
    let severity = match host.powered_on {
        Some(true) if short_text::turns_off(host) => Severity::Rebooting,
        Some(true) => Severity::Done,
        Some(false) if host.online => Severity::Slow,
        Some(false) | None => Severity::Waiting,
    };
    Cell::signed(theme, severity, short_text::host_power(host))
}

fn remarks_cell(row: &Row<'_>) -> Cell {
    if row.host.is_none() {
        return Cell::default();
    }
    let (remark, trouble) = short_text::host(&row.app.seen, row.id);
    if trouble {
        Cell::styled(format!("! {remark}"), row.app.config.theme.severity(Severity::Failed))
    } else {
        Cell::plain(remark)
    }
}

/// Returns the provisioning state; in a narrow table the longest one is shortened.
fn state(host: &HostRow, width: u16) -> String {
    if width < 120 && host.provisioning == "externally provisioned" {
        return "external".to_owned();
    }
    short_text::safe(&host.provisioning)
}

/// Returns the time since which the host is held, as far as it is recorded: the oldest time in the keys' values
/// (cketerm's have one), else the controller's time of the request.
fn held_since(host: &HostRow) -> Option<Timestamp> {
    if host.asked.keys.is_empty() {
        return None;
    }
    let times = host.asked.keys.values().filter_map(|value| {
        let value: serde_json::Value = serde_json::from_str(value).ok()?;
        value["since"].as_str()?.parse().ok()
    });
    times.min().or(host.pending_reboot_since.filter(|_| host.pending()))
}
