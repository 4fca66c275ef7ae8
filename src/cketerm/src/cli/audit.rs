//! `audit`: who did what to which object, when, why and from where.

use std::sync::Arc;

use cketerm_actions::ActionError;
use cketerm_model::cketerm_records::{Audit, OneAnAction};

use super::{
    Context,
    listing::{self, Form, ListingArgs},
    options::Output,
};

/// Number of records to print without `-n`.
const DEFAULT_COUNT: usize = 100;

/// Longest cell of the table, in characters. The full value of a policy would make every row too wide for the screen.
const MAX_CELL_CHARS: usize = 48;

fn truncate_cell(text: &str) -> String {
    match text.char_indices().nth(MAX_CELL_CHARS) {
        Some(_) => text.chars().take(MAX_CELL_CHARS - 1).chain(['~']).collect(),
        None => text.to_owned(),
    }
}

/// Prints the records, newest first. The table cuts long cells; the other forms print them whole.
pub async fn run(listing_args: ListingArgs, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let folder = store.keys().audit_prefix();
    let (revision, mut records) =
        store.newest_with_revision::<Audit>(&folder, listing_args.count(DEFAULT_COUNT)).await?;
    for stored in &mut records {
        stored.value = stored.value.as_ref().map(|a| Arc::new(a.shown())).map_err(Clone::clone);
    }
    let form = Form {
        output: context.output(Output::Table),
        header: &["At", "Who", "What", "On", "Result", "Reason"],
        cells: &|a: &Audit| {
            let at = a.last().strftime("%FT%TZ").to_string();
            let reason = a.reason.clone().unwrap_or_default();
            vec![at, a.who.to_string(), a.what_with_count(), truncate_cell(&a.on), truncate_cell(&a.result), reason]
        },
    };
    if context.output(Output::Table) == Output::Table {
        // JSON and YAML have all records, also those that say only that an action began
        let values: Vec<Option<Arc<Audit>>> = records.iter().map(|stored| stored.value.clone().ok()).collect();
        let mut actions = OneAnAction::default();
        let shown: Vec<bool> =
            values.iter().map(|value| value.as_ref().is_none_or(|audit| actions.shows(audit))).collect();
        let mut shown = shown.into_iter();
        records.retain(|_| shown.next().unwrap_or(true));
    }
    if !listing_args.follow {
        return listing::print(&records, &form, context);
    }
    records.reverse();
    listing::print(&records, &form, context).unwrap_or_else(|e| context.print_message(&e.text));
    listing::follow(&store, &folder, revision, &form, |_| true, context).await
}

#[cfg(test)]
mod tests {
    use super::truncate_cell;

    /// A long cell, such as the value of a policy, must not widen every row.
    #[test]
    fn a_long_cell_is_truncated_with_a_tilde() {
        assert_eq!(truncate_cell("done"), "done");
        let cut = truncate_cell(&"é".repeat(400));
        assert_eq!((cut.chars().count(), cut.ends_with('~')), (48, true));
    }
}
