//! Columns of sabakan's machines.

use cketerm_sabakan::{Machine, State};

use super::{
    Table,
    Width::{Content, Fixed, Rest},
    values,
};
use crate::{
    state::{
        App,
        filter::Value,
        registry::{self, Serial},
        short_text, when,
    },
    table::Cell,
    theme::Severity,
};

/// sabakan's machines.
pub enum Machines {}

/// A machine, by its serial.
pub struct Row<'a> {
    app: &'a App,
    serial: &'a Serial,
    /// The machine; `None` if sabakan no longer has it.
    machine: Option<&'a Machine>,
}

type Column = super::Column<Machines>;

impl Table for Machines {
    type Id = Serial;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("serial", "SERIAL", Content(6, 12), "serial of the machine")
            .wide(110, Content(6, 24))
            .value(|row| row.value(|m| Value::text(m.serial.as_str())))
            .cell(|row| Cell::plain(short_text::safe(&row.serial.0))),
        Column::new("state", "STATE", Content(7, 15), "state of the machine")
            .value(|row| row.value(|m| Value::text(m.state.as_str())))
            .cell(state_cell),
        Column::new("for", "FOR", Content(4, 6), "time in the state")
            .value(|row| row.value(|m| Value::Span(registry::seconds_in_state(&row.app.seen, m))))
            .cell(|row| row.cell(|m| when::seconds(registry::seconds_in_state(&row.app.seen, m)))),
        Column::new("address", "ADDRESS", Content(7, 39), "address of the machine")
            .shown_from(100)
            .value(|row| row.value(|m| Value::text(m.address.as_str())))
            .cell(|row| row.cell(|m| short_text::safe(&m.address))),
        Column::new("role", "ROLE", Content(4, 12), "role of the machine")
            .value(|row| row.value(|m| Value::text(m.role.as_str())))
            .cell(|row| row.cell(|m| short_text::safe(&m.role))),
        Column::new("rack", "RACK", Fixed(4), "number of the rack")
            .value(|row| row.value(|m| values::count(m.rack)))
            .cell(|row| row.cell(|m| m.rack.to_string())),
        Column::new("life", "LIFE", Content(4, 7), "days until the machine retires")
            .value(|row| row.value(|m| values::count(m.lifetime_days(row.app.now.wall))))
            .cell(|row| row.cell(|m| format!("{}d", m.lifetime_days(row.app.now.wall)))),
        Column::new("place", "PLACE", Content(5, 13), "place in the cluster: control plane, worker, or none")
            .value(|row| row.value(|m| Value::text(registry::place(&row.app.seen, &m.address))))
            .cell(|row| row.cell(|m| registry::place(&row.app.seen, &m.address).to_owned())),
        Column::new("plan", "PLAN", Rest, "change that the plan makes, and why")
            .value(|row| row.value(|m| plan(row.app, m).map_or(Value::None, Value::text)))
            .cell(plan_cell),
        Column::hidden("bmc", "BMC", "type of the BMC").value(|row| row.value(|m| Value::text(m.bmc_type.as_str()))),
    ];

    fn row<'a>(app: &'a App, serial: &'a Serial) -> Row<'a> {
        Row { app, serial, machine: app.knowledge.registry.machine(&app.seen, serial) }
    }
}

impl<'a> Row<'a> {
    fn value(&self, of: impl FnOnce(&'a Machine) -> Value<'a>) -> Value<'a> {
        self.machine.map_or_else(|| Value::text(self.serial.0.as_str()), of)
    }

    fn cell(&self, of: impl FnOnce(&'a Machine) -> String) -> Cell {
        Cell::plain(self.machine.map(of).unwrap_or_default())
    }
}

fn state_cell(row: &Row<'_>) -> Cell {
    let (theme, Some(machine)) = (&row.app.config.theme, row.machine) else { return Cell::default() };
    let severity = match machine.state {
        State::Healthy => Severity::Done,
        State::Unhealthy | State::Unreachable => Severity::Failed,
        State::Retiring | State::Retired => Severity::Slow,
        State::Uninitialized | State::Updating => Severity::Waiting,
    };
    Cell::signed(theme, severity, machine.state.as_str())
}

/// Returns what the plan does with a machine, and why. `None` if it stays as it is.
fn plan(app: &App, machine: &Machine) -> Option<String> {
    let change = app.knowledge.registry.change(&app.seen, &machine.address)?;
    let why = app.knowledge.registry.choice(&app.seen, &machine.address).map(|c| c.why.to_string()).unwrap_or_default();
    Some(format!("{}: {why}", change.kind.as_str()))
}

fn plan_cell(row: &Row<'_>) -> Cell {
    let plan = row.machine.and_then(|m| plan(row.app, m));
    plan.map_or_else(Cell::default, |plan| Cell::styled(short_text::safe(&plan), row.app.config.theme.trouble))
}
