//! History: the entries that ended, newest first; or CKE's operation records.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    state::{
        App,
        columns::{EndedEntries, Records},
        filter::Filter,
        list::List,
        past::Read,
        short_text,
    },
    table::wrap,
};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if app.navigation.cke_records {
        return records(app, buffer, area, stale);
    }
    if !super::columns::draw::<EndedEntries, _>(app, (&mut *buffer, area), &app.lists.history, stale) {
        let [nodes, reboot] = ["nodes", "reboot"].map(|name| app.key(name));
        let none = format!(
            "no entry has ended under a cketerm leader yet; CKE keeps no record of ended entries\n\
             {nodes} shows the nodes, {reboot} reboots one"
        );
        super::draw_empty(buffer, area, &empty(app, &app.knowledge.past.history, of(&app.lists.history), &none), app);
    }
}

fn records(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if !super::columns::draw::<Records, _>(app, (&mut *buffer, area), &app.lists.records, stale) {
        let none = format!(
            "there are no operation records: neither CKE nor cketerm has written one\n\
             {} shows the entries that ended",
            app.key("racks")
        );
        super::draw_empty(buffer, area, &empty(app, &app.knowledge.past.records, of(&app.lists.records), &none), app);
    }
}

/// Returns the number of rows without the filter, and the filter.
pub(super) fn of<Id>(list: &List<Id>) -> (usize, &Filter) {
    (list.total, &list.active_filter)
}

/// Returns the reason why there is no row.
pub(super) fn empty<T>(app: &App, read: &Read<T>, (total, filter): (usize, &Filter), none: &str) -> Vec<String> {
    let described = filter.described();
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    let width = usize::from(app.size.width).saturating_sub(4);
    if let Some(why) = &read.error {
        return std::iter::once("reading failed; retrying:".to_owned())
            .chain(wrap(&short_text::safe(why), width))
            .collect();
    }
    if total > 0 {
        let more = if read.more { "; reading older ones ..." } else { "" };
        let shown = match described {
            Some(conditions) => format!("none of {total} has {conditions}{more}"),
            None => format!("none of {total} matches {:?}{more}", app.list().filter()),
        };
        let mut lines = wrap(&short_text::safe(&shown), width);
        lines.push(format!("{} shows all", app.key("back")));
        return lines;
    }
    if read.loaded { wrap(none, width) } else { vec!["reading ...".to_owned()] }
}
