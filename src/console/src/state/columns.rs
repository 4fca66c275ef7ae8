//! Value of each column of each view, for filters and sorting. The tables show the same data in their own form.

use std::sync::Arc;

use cketerm_model::{
    cketerm_records::{Request, Who},
    cluster::Node,
    entry::{EntryId, QueueKind, Stored},
    kube::NodeRow,
    reboot::RebootEntry,
    repair::RepairEntry,
};
use cketerm_rules::trouble;
use jiff::Timestamp;

use super::{
    App, HostId, View,
    filter::{Cells, Value},
    history,
    logs::LineId,
    past::PastId,
    queries,
    registry::{self, Row, Serial},
    short_text,
};

/// Returns the columns of the open view, by the names that filters and `:sort` use. Empty if the view has no table.
pub fn of(app: &App) -> &'static [&'static str] {
    filter_columns(app.navigation.view, app.navigation.cke_records)
}

/// Returns the name of a view's table: the view's name, or `records` for CKE's records.
pub fn table(view: View, cke_records: bool) -> &'static str {
    if view == View::History && cke_records { "records" } else { view.name() }
}

/// Returns the columns that a table shows by default if it is wide enough.
pub fn default_columns(view: View, cke_records: bool) -> &'static [&'static str] {
    match view {
        View::Overview => &[],
        View::Reboots => &["index", "node", "address", "role", "status", "since", "pods", "reason"],
        View::Repairs => &[
            "index",
            "node",
            "address",
            "type",
            "operation",
            "step",
            "command",
            "status",
            "left",
            "pods",
            "health",
            "reason",
        ],
        View::Diff => &["what", "address", "serial", "place", "score", "why"],
        View::Hosts => {
            &["host", "namespace", "node", "power", "online", "state", "asked", "held", "pending", "last-on", "remarks"]
        }
        // The columns that filters know, in their order.
        _ => filter_columns(view, cke_records),
    }
}

/// Returns all columns that a table can show: its default ones, then those that only filters know.
pub fn all(view: View, cke_records: bool) -> Vec<&'static str> {
    let mut all = default_columns(view, cke_records).to_vec();
    let more: Vec<&'static str> =
        filter_columns(view, cke_records).iter().filter(|name| !all.contains(name)).copied().collect();
    all.extend(more);
    all
}

/// Returns the name of the column with this title.
pub fn name(table: &str, title: &str) -> String {
    match (table, title) {
        (_, "MACHINE") => "node".to_owned(),
        (_, "ASKED BY") => "by".to_owned(),
        (_, "LAST ON") => "last-on".to_owned(),
        (_, "ERROR / INFO") => "error".to_owned(),
        (_, "FIELDS / WHY") | ("history" | "audit", "REASON") => "why".to_owned(),
        (_, title) => title.to_lowercase(),
    }
}

/// Returns the columns of a view, by the names that filters and `:sort` use.
pub fn filter_columns(view: View, cke_records: bool) -> &'static [&'static str] {
    match view {
        View::Overview => &[],
        View::Reboots => {
            &["index", "node", "address", "role", "rack", "status", "since", "pods", "reason", "by", "why"]
        }
        View::Repairs => &[
            "index",
            "node",
            "address",
            "type",
            "operation",
            "step",
            "status",
            "since",
            "left",
            "health",
            "serial",
            "reason",
            "by",
            "why",
        ],
        View::Nodes => &["node", "state", "address", "role", "rack", "kubelet", "reboot", "repair"],
        View::Machines => &["serial", "state", "for", "address", "role", "rack", "life", "place", "plan", "bmc"],
        View::Diff => &["what", "address", "serial", "score", "why"],
        View::Hosts => &["host", "namespace", "node", "power", "state", "asked", "remarks"],
        View::History if cke_records => &["id", "start", "took", "status", "operation", "targets", "error"],
        View::History => &["ended", "entry", "node", "address", "took", "tries", "by", "outcome", "why"],
        View::Audit => &["at", "who", "from", "what", "on", "result", "why"],
        View::Logs => &["at", "level", "entry", "text"],
    }
}

/// A row of a view, together with the objects it refers to.
pub struct RowCells<'a, Id: ?Sized> {
    app: &'a App,
    id: &'a Id,
    found: RowData<'a>,
}

impl<'a, Id: Columns + ?Sized> RowCells<'a, Id> {
    /// Looks up the objects of a row.
    pub fn new(app: &'a App, id: &'a Id) -> Self {
        Self { app, id, found: id.find(app) }
    }
}

impl<Id: Columns + ?Sized> Cells for RowCells<'_, Id> {
    fn value(&self, column: &str) -> Value<'_> {
        self.id.cell_value(self.app, &self.found, column)
    }
}

/// Objects that several columns of a row are read from, looked up once. At each letter a filter reads all columns of
/// ten thousand rows.
#[derive(Default)]
pub struct RowData<'a> {
    reboot: Option<&'a RebootEntry>,
    repair: Option<&'a RepairEntry>,
    request: Option<&'a Request>,
    address: &'a str,
    /// The machine's name.
    name: &'a str,
    node: Option<&'a Arc<NodeRow>>,
    member: Option<&'a Node>,
    /// The machine's reboot and repair.
    entries: [Option<EntryId>; 2],
}

/// Identity of a row, whose columns can be read.
pub trait Columns {
    /// Looks up the objects that more than one column needs.
    fn find<'a>(&'a self, _app: &'a App) -> RowData<'a> {
        RowData::default()
    }

    /// Returns the value of a column.
    fn cell_value<'a>(&'a self, app: &'a App, found: &RowData<'a>, column: &str) -> Value<'a>;
}

fn age(app: &App, at: Option<Timestamp>) -> Value<'static> {
    at.map_or(Value::None, |at| span(at, app.now.wall))
}

/// Returns a Node's role. An API server matches under the name on the screen (`api`) and as `control-plane`.
fn role<'a>(app: &App, found: &RowData<'a>) -> Value<'a> {
    match queries::role_of(&app.seen, found.node, found.member) {
        api @ "api" => Value::Known(api.into(), "control-plane"),
        other => Value::text(other),
    }
}

fn count(n: impl TryInto<i32>) -> Value<'static> {
    n.try_into().map_or(Value::None, |n| Value::Number(f64::from(n)))
}

fn integer(n: u64) -> Value<'static> {
    // Indexes are shown and compared as numbers; values above 2^32 do not occur.
    u32::try_from(n).map_or(Value::None, |n| Value::Number(f64::from(n)))
}

fn who(who: &Who) -> Value<'static> {
    Value::text(who.to_string())
}

impl Columns for EntryId {
    fn find<'a>(&'a self, app: &'a App) -> RowData<'a> {
        let seen = &app.seen;
        let (reboot, repair) = (queries::entry(seen, *self), queries::repair(seen, *self));
        let request = seen.snapshot.store.requests.get(self).and_then(Stored::get);
        let address = reboot.map(|e| e.node.as_str()).or_else(|| repair.map(|e| e.address.as_str()));
        let Some(address) = address else { return RowData { request, ..RowData::default() } };
        let member = seen.snapshot.store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
        let by_address = || seen.snapshot.kube.by_address.get(address).map(String::as_str);
        let name = member.map(Node::node_name).or_else(by_address).unwrap_or(address);
        RowData {
            reboot,
            repair,
            request,
            address,
            name,
            node: queries::node(seen, name),
            member,
            ..RowData::default()
        }
    }

    fn cell_value<'a>(&'a self, app: &'a App, found: &RowData<'a>, column: &str) -> Value<'a> {
        let (seen, now) = (&app.seen, app.now.wall);
        match column {
            "index" => return integer(self.index),
            "node" => return Value::text(found.name),
            "address" => return Value::text(found.address),
            "role" if found.name.is_empty() => return Value::None,
            "role" => return role(app, found),
            "rack" => return Value::text(queries::rack_of(found.node, found.member)),
            "since" => {
                let moved = found.reboot.map(|e| e.last_transition_time);
                let moved = moved.or_else(|| found.repair.map(|e| e.last_transition_time));
                return moved.map_or(Value::None, |at| age(app, at.or_else(|| found.request.map(|r| r.at))));
            }
            "pods" => return Value::text(short_text::pods(seen, *self)),
            "by" => return found.request.map_or(Value::None, |r| who(&r.who)),
            "why" => return Value::text(found.request.and_then(|r| r.reason.as_deref()).unwrap_or_default()),
            "reason" => {
                let why = seen.reasons.get(self).map(|why| short_text::reason(why, now)).unwrap_or_default();
                let mark = if trouble::is_stuck(seen, *self) { "! " } else { "" };
                let order = short_text::order(seen, *self);
                // Most entries have neither.
                let before = !mark.is_empty() || !order.is_empty();
                return Value::text(if before { format!("{mark}{order}{why}") } else { why });
            }
            _ => {}
        }
        match self.queue {
            QueueKind::Reboot => match (column, found.reboot) {
                ("status", Some(e)) => Value::text(short_text::status(e, now)),
                ("status", None) => Value::text("broken"),
                _ => Value::None,
            },
            QueueKind::Repair => match (column, found.repair) {
                ("status", None) => Value::text("broken"),
                ("status", Some(e)) => Value::text(short_text::repair_status(e, now)),
                ("type", Some(e)) => Value::text(e.machine_type.as_str()),
                ("operation", Some(e)) => Value::text(e.operation.as_str()),
                ("serial", Some(e)) => Value::text(e.serial.as_deref().unwrap_or_default()),
                ("step", Some(e)) => Value::text(short_text::step(seen, e)),
                ("health", Some(_)) => Value::text(short_text::health(seen, *self)),
                ("left", Some(_)) => queries::deadline(seen, *self).map_or(Value::None, |at| span(now, at)),
                _ => Value::None,
            },
        }
    }
}

impl Columns for String {
    fn find<'a>(&'a self, app: &'a App) -> RowData<'a> {
        <str as Columns>::find(self, app)
    }

    fn cell_value<'a>(&'a self, app: &'a App, found: &RowData<'a>, column: &str) -> Value<'a> {
        <str as Columns>::cell_value(self, app, found, column)
    }
}

/// The columns of a node, by its name.
impl Columns for str {
    fn find<'a>(&'a self, app: &'a App) -> RowData<'a> {
        let (node, member) = (queries::node(&app.seen, self), queries::member(&app.seen, self));
        let address = member.map(|m| m.address.as_str()).or_else(|| queries::ip_of(node?)).unwrap_or_default();
        let entries = [app.knowledge.totals.reboot_of(self), app.knowledge.totals.repair_of(self)];
        RowData { address, name: self, node, member, entries, ..RowData::default() }
    }

    fn cell_value<'a>(&'a self, app: &'a App, found: &RowData<'a>, column: &str) -> Value<'a> {
        let entry = |id: Option<EntryId>| id.map_or(Value::None, |id| integer(id.index));
        match column {
            "node" => Value::text(self),
            "state" => Value::text(short_text::node_state_of(app, self, found.node, found.entries).0),
            "address" => Value::text(found.address),
            "role" => role(app, found),
            "rack" => Value::text(queries::rack_of(found.node, found.member)),
            "kubelet" => found.node.map_or(Value::None, |n| Value::text(n.kubelet.as_str())),
            "reboot" => entry(found.entries[0]),
            "repair" => entry(found.entries[1]),
            _ => Value::None,
        }
    }
}

impl Columns for Serial {
    fn cell_value<'a>(&'a self, app: &'a App, _found: &RowData<'a>, column: &str) -> Value<'a> {
        let seen = &app.seen;
        let Some(machine) = app.knowledge.registry.machine(seen, self) else { return Value::text(self.0.as_str()) };
        match column {
            "serial" => Value::text(machine.serial.as_str()),
            "state" => Value::text(machine.state.as_str()),
            "for" => Value::Span(registry::seconds_in_state(seen, machine)),
            "address" => Value::text(machine.address.as_str()),
            "role" => Value::text(machine.role.as_str()),
            "rack" => count(machine.rack),
            "life" => count(machine.lifetime_days(app.now.wall)),
            "place" => Value::text(registry::place(seen, &machine.address)),
            "plan" => {
                let why = app
                    .knowledge
                    .registry
                    .choice(seen, &machine.address)
                    .map(|c| c.why.to_string())
                    .unwrap_or_default();
                let change = app.knowledge.registry.change(seen, &machine.address);
                change.map_or(Value::None, |c| Value::text(format!("{}: {why}", c.kind.as_str())))
            }
            "bmc" => Value::text(machine.bmc_type.as_str()),
            _ => Value::None,
        }
    }
}

impl Columns for Row {
    fn cell_value<'a>(&'a self, app: &'a App, _found: &RowData<'a>, column: &str) -> Value<'a> {
        match (self, column) {
            (Self::Field(_), "what") => Value::text("field"),
            (Self::Fold(_), "what") => Value::text("nodes"),
            (Self::Field(text) | Self::Fold(text), "why") => Value::text(text.as_str()),
            (Self::Field(_) | Self::Fold(_), _) => Value::None,
            (Self::Node(kind, _), "what") => Value::text(kind.as_str()),
            (Self::Node(_, address), "address") => Value::text(address.as_str()),
            (Self::Node(_, address), _) => {
                let Some(choice) = app.knowledge.registry.choice(&app.seen, address) else { return Value::None };
                match column {
                    "serial" => Value::text(choice.serial.as_deref().unwrap_or_default()),
                    "score" => choice.score.map_or(Value::None, count),
                    _ => Value::text(choice.why.to_string()),
                }
            }
        }
    }
}

impl Columns for HostId {
    fn cell_value<'a>(&'a self, app: &'a App, _found: &RowData<'a>, column: &str) -> Value<'a> {
        let Some(host) = queries::host(&app.seen, self) else { return Value::text(self.1.as_str()) };
        match column {
            "host" => Value::text(self.1.as_str()),
            "namespace" => Value::text(self.0.as_str()),
            "node" => queries::host_node(&app.seen, self).map_or(Value::None, |n| Value::text(n.name.as_str())),
            "power" => Value::text(short_text::host_power(host)),
            "state" => Value::text(host.provisioning.as_str()),
            "asked" => Value::text(short_text::host_requests(host)),
            "remarks" => Value::text(short_text::host(&app.seen, self).0),
            _ => Value::None,
        }
    }
}

impl Columns for PastId {
    fn cell_value<'a>(&'a self, app: &'a App, _found: &RowData<'a>, column: &str) -> Value<'a> {
        let past = &app.knowledge.past;
        let found = match app.navigation.view {
            View::Audit => past.audit.get(self).map(|a| match column {
                "at" => age(app, Some(a.at)),
                "who" => Value::text(format!("{}@{}", a.who.user, a.who.host)),
                "from" => Value::text(a.who.ssh_client.as_deref().unwrap_or_default()),
                "what" => Value::text(a.what.as_str()),
                "on" => Value::text(a.on.as_str()),
                "result" => Value::text(a.result.as_str()),
                _ => Value::text(a.reason.as_deref().unwrap_or_default()),
            }),
            _ if app.navigation.cke_records => past.records.get(self).map(|r| match column {
                "id" => integer(r.id),
                "start" => age(app, r.start_at),
                "took" => r.start_at.zip(r.end_at).map_or(Value::None, |(a, b)| span(a, b)),
                "status" => Value::text(r.status.as_str()),
                "operation" => Value::text(r.operation.as_str()),
                "targets" => Value::text(history::targets(r)),
                _ => Value::text(format!("{}{}", r.error, r.info)),
            }),
            _ => past.history.get(self).map(|e| match column {
                "ended" => age(app, Some(e.at)),
                "entry" => Value::text(e.entry.to_string()),
                "node" => Value::text(history::node(app, e)),
                "address" => Value::text(e.address.as_str()),
                "took" => e.request.as_ref().map_or(Value::None, |r| span(r.at, e.at)),
                "tries" => count(e.attempts),
                "by" => e.request.as_ref().map_or(Value::None, |r| who(&r.who)),
                "outcome" => Value::text(e.outcome.as_str()),
                _ => Value::text(e.request.as_ref().and_then(|r| r.reason.as_deref()).unwrap_or_default()),
            }),
        };
        found.unwrap_or_else(|| Value::text(format!("broken {}", self.key)))
    }
}

impl Columns for LineId {
    fn cell_value<'a>(&'a self, app: &'a App, _found: &RowData<'a>, column: &str) -> Value<'a> {
        let Some(line) = app.knowledge.logs.get(self) else { return Value::None };
        match column {
            "at" => age(app, Some(line.at)),
            "level" => Value::text(line.level.as_str()),
            "entry" => Value::text(line.entry.as_deref().unwrap_or_default()),
            _ => Value::text(line.text.as_str()),
        }
    }
}

fn span(from: Timestamp, to: Timestamp) -> Value<'static> {
    Value::Span(to.duration_since(from).as_secs_f64())
}
