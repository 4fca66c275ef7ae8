//! Row of an entry of either queue, and the columns that both queues have.

use std::sync::Arc;

use cketerm_model::{
    cketerm_records::Request,
    cluster::{Member, Node},
    entry::{EntryId, Stored},
    kube::NodeRow,
    names::{Address, NodeName},
};
use cketerm_rules::{
    trouble::{self, Trouble},
    usual::text::span,
};
use jiff::SignedDuration;

use super::values;
use crate::{
    state::{
        App,
        filter::Value,
        progress::{self, Progress},
        queries, severity,
        short_text::{self, Forms},
        when,
    },
    table::{Cell, bar},
    theme::Severity,
};

/// Width of a bar on narrow screens, and on screens of at least `WIDE` columns.
const NARROW_BAR: u16 = 4;
const WIDE_BAR: u16 = 8;
const WIDE: u16 = 100;

/// Entry of a queue, with its request and its machine.
pub struct EntryRow<'a, E> {
    pub(super) app: &'a App,
    pub(super) id: EntryId,
    /// The entry; `None` if it cannot be read.
    pub(super) entry: Option<&'a E>,
    pub(super) request: Option<&'a Request>,
    /// The machine's address, or an empty text.
    pub(super) address: &'a str,
    /// The machine's name, or an empty text.
    pub(super) name: &'a str,
    pub(super) node: Option<&'a Arc<NodeRow>>,
    pub(super) member: Option<&'a Node>,
}

impl<'a, E> EntryRow<'a, E> {
    /// Looks up the request and the machine of an entry. `address` is `None` if the entry cannot be read.
    pub(super) fn new(app: &'a App, id: EntryId, entry: Option<&'a E>, address: Option<&'a Address>) -> Self {
        let seen = &app.seen;
        let request = seen.snapshot.store.requests.get(&id).and_then(Stored::get);
        let Some(address) = address else {
            return Self { app, id, entry, request, address: "", name: "", node: None, member: None };
        };
        let member = seen.snapshot.store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
        let by_address = || seen.snapshot.kube.by_address.get(address).map(NodeName::as_str);
        let name = member.map(|m| m.node_name().as_str()).or_else(by_address).unwrap_or(address);
        let member = member.map(Member::node);
        Self { app, id, entry, request, address, name, node: queries::node(seen, name), member }
    }

    /// Returns the value of a column of a readable entry.
    pub(super) fn value(&self, of: impl FnOnce(&'a E) -> Value<'a>) -> Value<'a> {
        self.entry.map_or(Value::None, of)
    }

    /// Returns the cell of a column that is empty if the entry cannot be read.
    pub(super) fn cell(&self, of: impl FnOnce(&'a E) -> String) -> Cell {
        Cell::plain(self.entry.map(of).unwrap_or_default())
    }

    /// Returns a cell for an entry that cannot be read.
    pub(super) fn broken(&self, text: &str) -> Cell {
        Cell::styled(text, self.app.config.theme.severity(Severity::Failed))
    }

    /// Returns the cell of the status: the sign of its severity, and its word.
    pub(super) fn status_cell(&self, status: &str) -> Cell {
        Cell::signed(&self.app.config.theme, severity::of_entry(self.app, self.id), status)
    }

    /// Returns the engine's reason. The end of a backoff is in its progress.
    pub(super) fn reason_text(&self) -> Forms {
        let Some(why) = self.app.seen.reasons.get(&self.id) else { return Forms::default() };
        short_text::row_forms(&self.app.seen, why, self.app.known())
    }

    /// Returns the cell with the engine's reason in the words that fit into `width`. The mark of a stuck entry is in its
    /// status.
    pub(super) fn reason_cell(&self, reason: Forms, width: usize) -> Cell {
        let seen = &self.app.seen;
        let order = short_text::order(seen, self.id);
        let text = if order.is_empty() { reason } else { reason.after(&order) }.within(width).to_owned();
        let theme = &self.app.config.theme;
        match trouble::of(seen, self.id) {
            Some(Trouble::Stuck) => Cell::styled(text, theme.severity(Severity::Failed)),
            Some(Trouble::Waits) => Cell::styled(text, theme.severity(Severity::Slow)),
            None => Cell::plain(text),
        }
    }
}

/// Returns the time in the phase.
pub(super) fn since<'r, E>(row: &'r EntryRow<'_, E>) -> Value<'r> {
    row.value(|_| values::age(row.app, progress::since(row.app, row.id)))
}

/// Returns the cell with the time in the phase.
pub(super) fn since_cell<E>(row: &EntryRow<'_, E>) -> Cell {
    let since = progress::since(row.app, row.id);
    row.cell(|_| since.map(|at| when::age(at, row.app.known())).unwrap_or_default())
}

/// Returns the cell with the progress: a bar of pods, the attempt, or the time since the command.
pub(super) fn progress_cell<E>(row: &EntryRow<'_, E>) -> Cell {
    let (app, theme) = (row.app, &row.app.config.theme);
    let Some(progress) = progress::of(app, row.id) else { return Cell::default() };
    let severity = match (severity::of_entry(app, row.id), progress.severity()) {
        (severity @ (Severity::Failed | Severity::Slow), _) if !matches!(progress, Progress::Failed { .. }) => severity,
        (_, own) => own,
    };
    let seconds = |duration: SignedDuration| u64::try_from(duration.as_secs()).unwrap_or(0);
    let text = short_text::progress(&progress, app.known());
    let width = if app.size.width < WIDE { NARROW_BAR } else { WIDE_BAR };
    match (progress, progress::compared(app, row.id)) {
        (Progress::Pods { gone, all }, _) => Cell::bar(bar(gone.into(), all.into(), width), theme, severity, text),
        (Progress::Boot { since, limit: Some(limit) }, _) => {
            Cell::bar(bar(seconds(app.known().duration_since(since)), limit, width), theme, severity, text)
        }
        // the bar is full at the time within which nine of ten boots end
        (Progress::Boot { since, limit: None }, Some(compared)) => {
            let (elapsed, p90) = (seconds(compared.elapsed), seconds(compared.usual.p90));
            let slow =
                if compared.is_slow() { format!(", usual {}", span(compared.usual.median)) } else { String::new() };
            let text = format!("{}{slow}", when::age(since, app.known()));
            Cell::bar(bar(elapsed, p90.max(1), width), theme, severity, text)
        }
        (Progress::Boot { limit: None, .. }, None)
        | (Progress::Command { .. } | Progress::Failed { .. } | Progress::Backoff { .. }, _) => {
            Cell::styled(text, theme.severity(severity))
        }
    }
}

/// Returns the progress in words, for filters.
pub(super) fn progress<'r, E>(row: &'r EntryRow<'_, E>) -> Value<'r> {
    progress::of(row.app, row.id)
        .map_or(Value::None, |progress| Value::text(short_text::progress(&progress, row.app.now.wall)))
}

/// Returns the cell with the machine's name.
pub(super) fn name_cell<E>(row: &EntryRow<'_, E>, width: usize) -> Cell {
    match row.entry {
        Some(_) => Cell::plain(short_text::shorten_middle(row.name, width)),
        None => row.broken("?"),
    }
}

/// Returns the role of the Node.
pub(super) fn role<'r, E>(row: &'r EntryRow<'_, E>) -> Value<'r> {
    if row.name.is_empty() {
        return Value::None;
    }
    values::role(queries::role_of(&row.app.seen, row.node, row.member))
}

/// Returns the rack of the machine.
pub(super) fn rack<'r, E>(row: &'r EntryRow<'_, E>) -> Value<'r> {
    Value::text(queries::rack_of(row.node, row.member))
}

/// Returns the engine's reason.
pub(super) fn reason<'r, E>(row: &'r EntryRow<'_, E>) -> Value<'r> {
    let (seen, now) = (&row.app.seen, row.app.now.wall);
    let why = seen.reasons.get(&row.id).map(|why| short_text::reason_in(seen, why, now)).unwrap_or_default();
    let mark = if trouble::is_stuck(seen, row.id) { "! " } else { "" };
    let order = short_text::order(seen, row.id);
    // Most entries have neither.
    let before = !mark.is_empty() || !order.is_empty();
    Value::text(if before { format!("{mark}{order}{why}") } else { why })
}

/// Returns the operator who asked for the entry.
pub(super) fn by<'r, E>(row: &'r EntryRow<'_, E>) -> Value<'r> {
    row.request.map_or(Value::None, |r| values::who(&r.who))
}

/// Returns the operator's reason.
pub(super) fn why<'r, E>(row: &'r EntryRow<'_, E>) -> Value<'r> {
    Value::text(row.request.and_then(|r| r.reason.as_deref()).unwrap_or_default())
}

/// Returns the batch of the entry.
pub(super) fn batch<'r, E>(row: &'r EntryRow<'_, E>) -> Value<'r> {
    Value::text(row.request.and_then(|r| r.batch).map(|batch| batch.to_string()).unwrap_or_default())
}
