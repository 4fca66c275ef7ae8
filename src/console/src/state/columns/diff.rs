//! Columns of the comparison of the definition in force with the generated one.

use cketerm_model::names::Address;
use cketerm_sabakan::{Choice, change::Kind};
use ratatui::style::Style;

use super::{
    Table,
    Width::{Content, Fixed, Rest},
    values,
};
use crate::{
    state::{
        App,
        filter::Value,
        registry::{self, Row as Change},
        short_text,
    },
    table::Cell,
    theme::Severity,
};

/// The changes that the plan makes.
pub enum Changes {}

/// A change.
pub struct Row<'a> {
    app: &'a App,
    change: &'a Change,
    /// The plan's choice for the change's node; `None` if the change is not about one node.
    choice: Option<&'a Choice>,
}

type Column = super::Column<Changes>;

impl Table for Changes {
    type Id = Change;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("what", "WHAT", Content(7, 10), "what changes: a node, many nodes, or a field")
            .value(|row| Value::text(row.what()))
            .cell(what_cell),
        Column::new("address", "ADDRESS", Content(7, 39), "address of the node")
            .value(|row| Value::text(row.address()))
            .cell(|row| Cell::plain(short_text::safe(row.address()))),
        Column::new("serial", "SERIAL", Content(6, 24), "serial of the node's machine")
            .shown_from(100)
            .value(|row| Value::text(row.serial()))
            .cell(|row| Cell::plain(short_text::safe(row.serial()))),
        Column::new("place", "PLACE", Content(5, 26), "place in the cluster before and after the change")
            .shown_from(90)
            .cell(place_cell),
        Column::new("score", "SCORE", Fixed(5), "score of the machine")
            .value(|row| row.choice.and_then(|c| c.score).map_or(Value::None, values::count))
            .cell(|row| Cell::plain(row.choice.and_then(|c| c.score).map(|s| s.to_string()).unwrap_or_default())),
        Column::new("why", "FIELDS / WHY", Rest, "fields that change, and why").value(why).cell(why_cell),
    ];

    fn row<'a>(app: &'a App, change: &'a Change) -> Row<'a> {
        let choice = match change {
            Change::Node(_, address) => app.knowledge.registry.choice(&app.seen, address),
            Change::Field(_) | Change::Fold(_) => None,
        };
        Row { app, change, choice }
    }
}

impl<'a> Row<'a> {
    fn what(&self) -> &'static str {
        match self.change {
            Change::Field(_) => "field",
            Change::Fold(_) => "nodes",
            Change::Node(kind, _) => kind.as_str(),
        }
    }

    fn address(&self) -> &'a str {
        match self.change {
            Change::Node(_, address) => address,
            Change::Field(_) | Change::Fold(_) => "",
        }
    }

    fn serial(&self) -> &'a str {
        self.choice.and_then(|c| c.serial.as_deref()).unwrap_or_default()
    }
}

fn what_cell(row: &Row<'_>) -> Cell {
    let theme = &row.app.config.theme;
    let (sign, style) = match row.change {
        Change::Node(Kind::Removed, _) => ("-", theme.severity(Severity::Failed)),
        Change::Node(Kind::Added, _) => ("+", theme.severity(Severity::Done)),
        Change::Node(Kind::Demoted | Kind::Promoted, _) => ("~", theme.severity(Severity::Slow)),
        Change::Node(Kind::Changed, _) | Change::Field(_) | Change::Fold(_) => ("~", Style::new()),
    };
    Cell { shape: Some((sign.to_owned(), style)), ..Cell::styled(row.what(), style) }
}

fn place_cell(row: &Row<'_>) -> Cell {
    let place = |plane: Option<bool>| match plane {
        Some(true) => "control plane",
        Some(false) => "worker",
        None => "-",
    };
    let places = row.choice.map(|c| format!("{} > {}", place(c.was_control_plane), place(c.control_plane)));
    Cell::plain(places.unwrap_or_default())
}

fn why<'r>(row: &'r Row<'_>) -> Value<'r> {
    match row.change {
        Change::Field(text) | Change::Fold(text) => Value::text(text.as_str()),
        Change::Node(..) => row.choice.map_or(Value::None, |c| Value::text(c.why.to_string())),
    }
}

fn why_cell(row: &Row<'_>) -> Cell {
    let text = match row.change {
        Change::Field(name) => format!("{name} changes"),
        Change::Fold(what) => format!("{what} on {} nodes", row.app.knowledge.registry.folded(what)),
        Change::Node(kind, address) => {
            let why = row.choice.map(|c| c.why.to_string()).unwrap_or_default();
            match own_fields(row.app, *kind, address) {
                Some(own) => format!("{own}; {why}"),
                None => why,
            }
        }
    };
    Cell::plain(short_text::safe(&text))
}

/// Returns the fields that change only on this node. `None` if there are none, or if the node does more than change.
fn own_fields(app: &App, kind: Kind, address: &Address) -> Option<String> {
    if kind != Kind::Changed {
        return None;
    }
    let (node, proposed) = (app.knowledge.registry.change(&app.seen, address)?, registry::proposed(&app.seen)?);
    let fields = proposed.change.own(node, &app.knowledge.registry.folds).map(|f| {
        let side = |s: &Option<String>| s.clone().unwrap_or_else(|| "-".to_owned());
        format!("{} {} > {}", f.field, side(&f.before), side(&f.after))
    });
    Some(fields.collect::<Vec<_>>().join(", ")).filter(|own| !own.is_empty())
}
