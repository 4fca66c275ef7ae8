//! Entries that wait for their turn, beside the list while the line under the cursor has no detail of its own.

use std::collections::BTreeMap;

use cketerm_model::{
    entry::{EntryId, QueueKind},
    entry_ref::EntryRef,
    reason::Reason,
};
use ratatui::{layout::Rect, text::Span};
use unicode_width::UnicodeWidthStr;

use super::{PanelLine, cut_words, has_detail, text};
use crate::state::{
    App, queries, severity,
    short_text::{self, Forms},
    when,
};

/// Widest name of a machine.
const NAME_WIDTH: usize = 20;
/// Width of the age.
const AGE_WIDTH: usize = 6;

/// Reports whether the place of the detail shows the queued entries: the line under the cursor is no object with a detail.
pub(super) fn is_shown(app: &App) -> bool {
    let has_place = has_detail(app, Rect::new(0, 0, app.size.width, app.size.height));
    has_place && app.navigation.preview.is_none() && app.target().is_none() && count(app) > 0
}

/// Returns the number of entries of both queues that wait.
pub(super) fn count(app: &App) -> usize {
    let waiting = |queue| {
        let counts = app.knowledge.totals.counts(queue);
        // those that back off are beside the work
        let backing_off = app.knowledge.summary.work_of(queue).backing_off;
        (counts.queued + counts.backoff).saturating_sub(backing_off)
    };
    QueueKind::QUEUES.into_iter().map(waiting).sum()
}

/// Returns a number as a place: `2nd`.
fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// Returns the first of them: machine, reason and age.
pub(super) fn lines(app: &App, width: usize, height: usize) -> Vec<PanelLine> {
    let (seen, now, theme) = (&app.seen, app.known(), &app.config.theme);
    let store = &seen.snapshot.store;
    let reboots = store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
    let repairs = store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    let backs_off = |id: EntryId| queries::backoff_until(seen, id).is_some() && !queries::held(seen, id);
    let waits = |id: &EntryId| store.entry(*id).is_some_and(EntryRef::is_waiting) && !backs_off(*id);
    let ids: Vec<EntryId> = reboots.chain(repairs).filter(waits).take(height).collect();
    let name = |id: EntryId| short_text::shorten_middle(&queries::machine(seen, id).unwrap_or_default(), NAME_WIDTH);
    let name_width = ids.iter().map(|id| name(*id).width()).max().unwrap_or(0);
    let why_width = width.saturating_sub(name_width + AGE_WIDTH + 4);
    let mut places = BTreeMap::<QueueKind, usize>::new();
    let line = |id: EntryId| {
        let reason = seen.reasons.get(&id);
        // all wait for the same slot: once is enough
        let place = matches!(reason, Some(Reason::WaitingForSlot { .. })).then(|| {
            let place = places.entry(id.queue).or_default();
            *place += 1;
            *place
        });
        let why = match place {
            Some(place @ 2..) => Forms::only(format!("queued, {}", ordinal(place))),
            Some(_) | None => reason.map(|why| short_text::reason_forms(seen, why, now)).unwrap_or_default(),
        };
        let why = cut_words(why.within(why_width).to_owned(), why_width);
        let age = queries::since(seen, id).map(|at| when::age(at, now)).unwrap_or_default();
        let style = theme.severity(severity::of_entry(app, id));
        vec![
            Span::raw(format!("{:<name_width$}  ", name(id))),
            text(format!("{why:<why_width$}"), style),
            Span::raw(format!("{age:>AGE_WIDTH$}")),
        ]
    };
    ids.into_iter().map(line).collect()
}
