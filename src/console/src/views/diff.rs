//! Comparison of the definition in force with the generated one: by machine and by field, noise folded, with reason and
//! scores.

use cketerm_rules::decide::ApplyState;
use cketerm_sabakan::change::Kind;
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::{
    table::{Cell, Column, Row, wrap},
    visible_columns,
};
use crate::state::{
    App,
    registry::{self, Row as RowId},
    short_text,
};

/// Draws the table, or the racks in its place.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let area = super::registry::draw_summary(app, buffer, area);
    if app.navigation.racks {
        return super::registry::racks(app, buffer, area);
    }
    let columns = [
        Column { title: "WHAT", width: 9, from: 0 },
        Column { title: "ADDRESS", width: 15, from: 0 },
        Column { title: "SERIAL", width: 10, from: 100 },
        Column { title: "PLACE", width: 26, from: 90 },
        Column { title: "SCORE", width: 5, from: 0 },
        Column { title: "FIELDS / WHY", width: 0, from: 0 },
    ];
    let visible = app.lists.diff.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<Row> = visible.iter().map(|id| row(app, id)).collect();
    visible_columns::draw(app, (&mut *buffer, area), &columns, &rows, visible, stale);
    if visible.is_empty() {
        super::draw_empty(buffer, area, &empty(app, usize::from(area.width)), app);
    }
}

fn row(app: &App, id: &RowId) -> Row {
    let (seen, theme) = (&app.seen, &app.config.theme);
    let cells = match id {
        RowId::Field(name) => line("field", &format!("{name} changes")),
        RowId::Fold(what) => line("nodes", &format!("{what} on {} nodes", app.knowledge.registry.folded(what))),
        RowId::Node(kind, address) => {
            let (choice, change) =
                (app.knowledge.registry.choice(seen, address), app.knowledge.registry.change(seen, address));
            let style = match kind {
                Kind::Removed | Kind::Demoted => theme.danger,
                Kind::Promoted | Kind::Added => theme.good,
                Kind::Changed => Style::new(),
            };
            let own = change.zip(registry::proposed(seen)).map(|(node, proposed)| {
                let fields = proposed.change.own(node, &app.knowledge.registry.folds).map(|f| {
                    let side = |s: &Option<String>| s.clone().unwrap_or_else(|| "-".to_owned());
                    format!("{} {} > {}", f.field, side(&f.before), side(&f.after))
                });
                fields.collect::<Vec<_>>().join(", ")
            });
            let why = choice.map(|c| c.why.to_string()).unwrap_or_default();
            let text = match own.filter(|o| !o.is_empty() && *kind == Kind::Changed) {
                Some(own) => format!("{own}; {why}"),
                None => why,
            };
            let place = |plane: Option<bool>| match plane {
                Some(true) => "control plane",
                Some(false) => "worker",
                None => "-",
            };
            let places = choice.map(|c| format!("{} > {}", place(c.was_control_plane), place(c.control_plane)));
            vec![
                Cell::styled(kind.as_str(), style),
                Cell::plain(short_text::safe(address)),
                Cell::plain(choice.and_then(|c| c.serial.as_deref()).map(short_text::safe).unwrap_or_default()),
                Cell::plain(places.unwrap_or_default()),
                Cell::plain(choice.and_then(|c| c.score).map(|s| s.to_string()).unwrap_or_default()),
                Cell::plain(short_text::safe(&text)),
            ]
        }
    };
    Row { cells, cursor: app.lists.diff.cursor.as_ref() == Some(id), marked: app.lists.diff.marks.contains(id) }
}

fn line(what: &str, text: &str) -> Vec<Cell> {
    let empty = std::iter::repeat_with(|| Cell::plain("")).take(4);
    std::iter::once(Cell::plain(what)).chain(empty).chain([Cell::plain(short_text::safe(text))]).collect()
}

/// Returns the full reason why there is no row, because the line above the table is cut.
fn empty(app: &App, width: usize) -> Vec<String> {
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    if app.lists.diff.total > 0 {
        return super::no_matches(app, "change");
    }
    let why = match &*app.seen.applying {
        ApplyState::Off => Some("not read yet"),
        ApplyState::Disabled(why) | ApplyState::Error(why) | ApplyState::Waits(why) => Some(why.as_str()),
        ApplyState::Settled | ApplyState::Approval(..) | ApplyState::Applies => None,
    };
    let first = match (why, registry::proposed(&app.seen), &*app.seen.applying) {
        (Some(_), None, _) => "there is no plan",
        (Some(_), _, ApplyState::Error(_)) => "nothing is applied: the last plan may be outdated",
        _ => "nothing would change",
    };
    let messages =
        why.into_iter().map(str::to_owned).chain(super::registry::warnings(app).iter().map(|w| format!("! {w}")));
    let lines = messages.flat_map(|text| wrap(&short_text::safe(&text), width.saturating_sub(4)));
    std::iter::once(first.to_owned()).chain(lines).collect()
}
