//! Handling of a new snapshot: new rows, cursor and marks kept by identity, dialogs checked.

use std::{
    borrow::Borrow,
    cmp::Reverse,
    sync::{Arc, OnceLock},
};

use cketerm_model::{
    entry::{EntryId, QueueKind},
    stored::keys::Folder,
};
use cketerm_rules::seen::Seen;

use crate::state::{
    App, View,
    batches::BatchRowId,
    columns::{
        Actions, BatchTable, Changes, EndedEntries, Hosts, Lines, Machines, Nodes, Reboots, Records, Repairs, RowCells,
        Table,
    },
    filter::{Cells, Value, searchable_text},
    fleet,
    list::List,
    logs::LineId,
    needs_you, overview,
    past::PastId,
    queries, undo,
};

/// Takes over a newer snapshot.
pub(super) fn handle(app: &mut App, seen: Arc<Seen>) {
    app.seen = seen;
    if app.seen.now.boot > app.now.boot {
        app.now = app.seen.now;
    }
    app.knowledge.totals.refresh(&app.seen);
    app.knowledge.batches.refresh(&app.seen);
    app.knowledge.registry.refresh(&app.seen);
    needs_you::refresh(app);
    rows(app);
    undo::check(app);
    if app.navigation.view == View::Overview {
        overview::refresh(app);
    }
    if let Some(mut dialog) = app.dialog.take() {
        crate::dialogs::refresh(app, &mut dialog);
        app.dialog = Some(dialog);
    }
}

/// Makes the rows of the open view and applies its filter. Of the other lists it updates only what is shown in every
/// view: the number of rows, and the marks that still exist. Their rows are made when they are opened.
pub(super) fn rows(app: &mut App) {
    app.typing.row_texts = OnceLock::new();
    filtered_rows(app);
}

/// Same as [`rows`], after a change of the filter alone: the texts of the rows are still valid.
pub(super) fn filtered_rows(app: &mut App) {
    let seen = Arc::clone(&app.seen);
    let types_filter = app.typing.filter.is_some() && app.navigation.help.is_none();
    let (store, kube) = (&seen.snapshot.store, &seen.snapshot.kube);
    macro_rules! list {
        ($list:ident of $view:ident, $table:ty, $total:expr, $ids:expr, $exists:expr) => {
            list!($list of $view, $table, 0, $total, $ids, $exists)
        };
        // `source_generation`: counter of the states that change the rows; 0 = there is no such counter
        ($list:ident of $view:ident, $table:ty, $source_generation:expr, $total:expr, $ids:expr, $exists:expr) => {{
            let mut list = std::mem::take(&mut app.lists.$list);
            // the texts that a filter is typed for are those of one table
            if app.navigation.view == View::$view && !app.navigation.shows_batches() {
                let plain = list.active_filter.is_empty() && list.sort.is_none() && !types_filter;
                let source_generation: u64 = $source_generation;
                let known = plain && source_generation != 0 && list.source_generation == source_generation;
                let same = known
                    || plain && list.rows.len() == $total && $ids.zip(&list.rows).all(|(a, b)| *a == *b);
                list.source_generation = if plain { source_generation } else { 0 };
                let rows = if same {
                    std::mem::take(&mut list.rows)
                } else {
                    filtered_and_sorted::<$table, _>(app, &list, $ids)
                };
                list.refresh(rows, $total, $exists);
            } else {
                list.refresh_hidden($total, $exists);
            }
            app.lists.$list = list;
        }};
    }
    let (reboots, repairs) = (&store.reboots.entries, &store.repairs.entries);
    let ids: Vec<EntryId> = match app.navigation.view {
        View::Reboots => reboots.keys().map(|index| EntryId::reboot(*index)).collect(),
        View::Repairs => repairs.keys().map(|index| EntryId::repair(*index)).collect(),
        _ => Vec::new(),
    };
    list!(reboots of Reboots, Reboots, reboots.len(), ids.iter(), |id| reboots.contains_key(&id.index));
    list!(repairs of Repairs, Repairs, repairs.len(), ids.iter(), |id| repairs.contains_key(&id.index));
    let (machines, changes) = (app.knowledge.registry.machines.len(), app.knowledge.registry.rows.len());
    list!(machines of Machines, Machines, machines, app.knowledge.registry.machines.keys(), |id| app.knowledge.registry.machines.contains_key(id));
    list!(diff of Diff, Changes, changes, app.knowledge.registry.rows.iter(), |row| app.knowledge.registry.rows.binary_search(row).is_ok());
    list!(hosts of Hosts, Hosts, kube.hosts.len(), kube.hosts.keys(), |id| kube.hosts.contains_key(id));
    list!(nodes of Nodes, Nodes, app.knowledge.totals.names_generation, app.knowledge.totals.names, fleet::names(&seen), |name| queries::known(&seen, name));
    crate::state::racks::refresh(app);
    match app.navigation.view {
        View::History if app.navigation.cke_records => past(app, Folder::Records),
        View::History => past(app, Folder::History),
        View::Audit => past(app, Folder::Audit),
        View::Logs => log(app),
        View::Reboots if app.navigation.shows_batches() => batches(app, QueueKind::Reboot),
        View::Repairs if app.navigation.shows_batches() => batches(app, QueueKind::Repair),
        _ => {}
    }
}

/// Makes the rows of the batches of a queue.
fn batches(app: &mut App, queue: QueueKind) {
    let ids: Vec<BatchRowId> = app.knowledge.batches.of_queue(queue).map(|batch| Reverse(batch.id)).collect();
    let (mut list, total) = (std::mem::take(app.lists.batches_of_mut(View::of_queue(queue))), ids.len());
    let rows = filtered_and_sorted::<BatchTable, _>(app, &list, ids.iter());
    list.refresh(rows, total, |id| app.knowledge.batches.get(id.0).is_some_and(|batch| batch.batch.queue == queue));
    *app.lists.batches_of_mut(View::of_queue(queue)) = list;
}

/// Makes the rows of the log. A cursor on the newest line stays on the newest line.
fn log(app: &mut App) {
    let ids: Vec<LineId> = app.knowledge.logs.lines.keys().copied().collect();
    let (mut list, total) = (std::mem::take(&mut app.lists.log), ids.len());
    let newest = list.place == 0;
    list.refresh(filtered_and_sorted::<Lines, _>(app, &list, ids.iter()), total, |id| {
        app.knowledge.logs.lines.contains_key(id)
    });
    if newest {
        list.select(0);
    }
    app.lists.log = list;
}

/// Makes the rows of what was read of the past.
fn past(app: &mut App, folder: Folder) {
    let (ids, list): (Vec<PastId>, _) = match folder {
        Folder::History => (app.knowledge.past.history.rows.keys().cloned().collect(), &mut app.lists.history),
        Folder::Records => (app.knowledge.past.records.rows.keys().cloned().collect(), &mut app.lists.records),
        Folder::Audit => (app.knowledge.past.audited(), &mut app.lists.audit),
    };
    let (mut list, total) = (std::mem::take(list), ids.len());
    let exists = |id: &PastId| match folder {
        Folder::History => app.knowledge.past.history.rows.contains_key(id),
        Folder::Records => app.knowledge.past.records.rows.contains_key(id),
        Folder::Audit => app.knowledge.past.audit.rows.contains_key(id),
    };
    let rows = match folder {
        Folder::History => filtered_and_sorted::<EndedEntries, _>(app, &list, ids.iter()),
        Folder::Records => filtered_and_sorted::<Records, _>(app, &list, ids.iter()),
        Folder::Audit => filtered_and_sorted::<Actions, _>(app, &list, ids.iter()),
    };
    list.refresh(rows, total, exists);
    if !list.moved {
        // until the operator selects a row, the newest one is selected
        list.select(0);
    }
    *match folder {
        Folder::History => &mut app.lists.history,
        Folder::Records => &mut app.lists.records,
        Folder::Audit => &mut app.lists.audit,
    } = list;
}

/// Returns the rows that pass the filter of a list, in its order.
fn filtered_and_sorted<'a, T, Id>(app: &'a App, list: &List<Id>, all: impl Iterator<Item = &'a T::Id>) -> Vec<Id>
where
    T: Table<Id: ToOwned<Owned = Id> + Sync + 'a>,
    Id: Ord + Clone + Borrow<T::Id> + Send + Sync,
{
    let ids: Vec<&T::Id> = all.collect();
    let row = |id: &'a T::Id| RowCells::<T>::new(app, id);
    let types_filter = app.typing.filter.is_some() && app.navigation.help.is_none();
    let texts = types_filter.then(|| {
        let text_of = |_, id: &&'a T::Id| Some(searchable_text(&row(id)));
        app.typing.row_texts.get_or_init(|| map_in_parallel(&ids, &text_of))
    });
    let mut all: Vec<Id> = match texts.filter(|texts| texts.len() == ids.len()) {
        _ if list.active_filter.is_empty() => ids.iter().map(|id| (*id).to_owned()).collect(),
        None => map_in_parallel(&ids, &|_, id| list.active_filter.passes(&row(id)).then(|| (*id).to_owned())),
        Some(texts) => map_in_parallel(&ids, &|place, id| {
            let text = texts.get(place).map_or("", |text| text);
            list.active_filter.passes_text(text, || row(id)).then(|| (*id).to_owned())
        }),
    };
    if let Some((column, largest_first)) = list.sort {
        all.sort_by_cached_key(|id| RowCells::<T>::new(app, id.borrow()).value(column).key());
        if largest_first {
            // rows without a value stay last
            let with_value =
                all.partition_point(|id| RowCells::<T>::new(app, id.borrow()).value(column) != Value::None);
            if let Some(with_value) = all.get_mut(..with_value) {
                with_value.reverse();
            }
        }
    }
    all
}

/// Number of rows from which several threads filter them. A filter is applied with every letter, so a delay would be
/// noticed.
const PARALLEL_THRESHOLD: usize = 2_000;
/// Upper limit of the threads; more do not pay off.
const THREADS: usize = 4;

/// Returns the results for the rows that have one, in the order of the rows. `result` gets each row with its place.
fn map_in_parallel<Row: Sync, Out: Send>(
    all: &[Row],
    result: &(impl Fn(usize, &Row) -> Option<Out> + Sync),
) -> Vec<Out> {
    let of_part = |begin: usize, part: &[Row]| -> Vec<Out> {
        part.iter().enumerate().filter_map(|(at, row)| result(begin + at, row)).collect()
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS));
    if all.len() < PARALLEL_THRESHOLD || threads < 2 {
        return of_part(0, all);
    }
    let (of_part, length) = (&of_part, all.len().div_ceil(threads));
    std::thread::scope(|scope| {
        let mut parts = all.chunks(length).enumerate().map(|(nth, part)| (nth * length, part));
        let first = parts.next();
        let others: Vec<_> = parts
            .map(|(begin, part)| {
                // if the system starts no thread, this thread does the work
                let thread = std::thread::Builder::new().spawn_scoped(scope, move || of_part(begin, part));
                (begin, part, thread.ok())
            })
            .collect();
        let mut found = first.map(|(begin, part)| of_part(begin, part)).unwrap_or_default();
        for (begin, part, thread) in others {
            found.extend(thread.and_then(|thread| thread.join().ok()).unwrap_or_else(|| of_part(begin, part)));
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_parallel_keep_their_order_and_their_places() {
        for n in [0, 1, PARALLEL_THRESHOLD - 1, PARALLEL_THRESHOLD, 3 * PARALLEL_THRESHOLD + 1] {
            let names: Vec<String> = (0..n).map(|i| format!("node-{i:05}")).collect();
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            let found = map_in_parallel(&all, &|place, name| name.ends_with('7').then(|| (place, (*name).to_owned())));
            let expected = names.iter().cloned().enumerate().filter(|(_, name)| name.ends_with('7'));
            assert!(found.into_iter().eq(expected), "{n}");
        }
    }
}
