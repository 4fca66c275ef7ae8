//! Columns of a queue's table that `ckecli` does not have: the batch, and who requested an entry and why.

use cketerm_model::{
    cketerm_records::Verb,
    entry::{EntryId, Stored},
    stored::view::StoreView,
};

/// Titles of [`cells`].
pub const TITLES: [&str; 3] = ["Batch", "Who", "Reason"];

/// Returns the batch of an entry, who requested it and why, and whether it is held.
pub fn cells(id: EntryId, view: &StoreView) -> [String; 3] {
    let request = view.requests.get(&id).and_then(Stored::get);
    let held = view.orders.get(&id).and_then(Stored::get).filter(|order| order.verb == Verb::Hold);
    let held = held.map(|order| {
        format!("held by {}{}", order.who, order.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default())
    });
    let reason = [request.and_then(|request| request.reason.clone()), held];
    [
        view.batch_of(id).map(|batch| batch.to_string()).unwrap_or_default(),
        request.map(|request| request.who.to_string()).unwrap_or_default(),
        reason.into_iter().flatten().collect::<Vec<_>>().join("; "),
    ]
}
