//! The latest events: ended entries, actions of operators and, while CKE leads, events that its records tell.

use std::collections::BTreeMap;

use cketerm_rules::beside_cke::recorded::{self, Event};
use jiff::Timestamp;

use super::{MAX_RECENT, OverviewRow};
use crate::state::{
    App,
    past::{Ended, PastId},
};

/// Most records of CKE that are searched for events.
const MAX_RECORDS: usize = 400;

/// Merges ended entries, actions and events of CKE, the newest first. One command withdraws many entries, which would push everything
/// else from the screen: they are one row.
pub(super) fn merged(
    app: &App,
    actions: &[PastId],
    cke: &BTreeMap<PastId, Event>,
) -> (Vec<OverviewRow>, BTreeMap<PastId, usize>) {
    let past = &app.knowledge.past;
    let mut folded: BTreeMap<PastId, usize> = BTreeMap::new();
    let mut ended: Vec<(Timestamp, OverviewRow)> = Vec::new();
    let mut run: Option<(&Ended, PastId)> = None;
    for id in past.history.rows.keys() {
        let Some(e) = past.history.get(id).map(std::convert::AsRef::as_ref) else { continue };
        if let Some((first, at)) = &run
            && e.end.withdrawn()
            && (e.end, &e.withdrawn_by, e.entry.queue, owner(e))
                == (first.end, &first.withdrawn_by, first.entry.queue, owner(first))
        {
            *folded.entry(at.clone()).or_insert(1) += 1;
            continue;
        }
        if ended.len() >= MAX_RECENT {
            break;
        }
        run = e.end.withdrawn().then(|| (e, id.clone()));
        ended.push((e.at, OverviewRow::Ended(id.clone())));
    }
    let actions = actions.iter().filter_map(|id| Some((past.audit.get(id)?.at, OverviewRow::Action(id.clone()))));
    let cke = cke.iter().map(|(id, event)| (event.at, OverviewRow::Cke(id.clone())));
    let mut all: Vec<(Timestamp, OverviewRow)> = ended.into_iter().chain(actions).chain(cke).collect();
    all.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    all.truncate(MAX_RECENT);
    (all.into_iter().map(|(_, row)| row).collect(), folded)
}

/// Returns the newest events of CKE from what was read of its records. They are read while CKE leads.
pub(super) fn cke_events(app: &App) -> BTreeMap<PastId, Event> {
    let rows = &app.knowledge.past.records.rows;
    let read = || rows.iter().filter_map(|(id, row)| Some((id, row.as_deref().ok()?))).take(MAX_RECORDS);
    let ids: BTreeMap<u64, &PastId> = read().map(|(id, record)| (record.id, id)).collect();
    let events = recorded::events(read().map(|(_, record)| record)).into_iter().take(MAX_RECENT);
    events.filter_map(|event| Some(((*ids.get(&event.record)?).clone(), event))).collect()
}

fn owner(ended: &Ended) -> Option<&str> {
    ended.request.as_ref().map(|request| request.who.user.as_str())
}
