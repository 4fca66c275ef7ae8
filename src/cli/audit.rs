//! `audit`: who did what to which object, when, why and from where.

use std::sync::Arc;

use super::{
    Context,
    args::Output,
    roll::{self, Form, Much},
};
use crate::{actions::ActionError, model::cketerm_records::Audit};

/// Number of records to print without `-n`.
const SHOWN: usize = 100;

/// Longest cell of the table, in characters. The full value of a policy would make every row too wide for the screen.
const CELL: usize = 48;

fn beginning(text: &str) -> String {
    match text.char_indices().nth(CELL) {
        Some(_) => text.chars().take(CELL - 1).chain(['~']).collect(),
        None => text.to_owned(),
    }
}

/// Prints the records, newest first. The table cuts long cells; the other forms print them whole.
pub async fn run(much: Much, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let folder = store.keys().audit_prefix();
    let (revision, mut records) = store.newest_at::<Audit>(&folder, much.count(SHOWN)).await?;
    for stored in &mut records {
        stored.value = stored.value.as_ref().map(|a| Arc::new(a.shown())).map_err(Clone::clone);
    }
    let form = Form {
        output: context.output(Output::Table),
        header: &["At", "Who", "What", "On", "Result", "Reason"],
        cells: &|a: &Audit| {
            let at = a.last().strftime("%FT%TZ").to_string();
            let reason = a.reason.clone().unwrap_or_default();
            vec![at, a.who.to_string(), a.what_and_how_often(), beginning(&a.on), beginning(&a.result), reason]
        },
    };
    if !much.follow {
        return roll::print(&records, &form, context);
    }
    records.reverse();
    roll::print(&records, &form, context).unwrap_or_else(|e| context.say(&e.text));
    roll::follow(&store, &folder, revision, &form, |_| true, context).await
}

#[cfg(test)]
mod tests {
    use super::beginning;

    /// A long cell, such as the value of a policy, must not widen every row.
    #[test]
    fn a_long_cell_is_cut_with_a_sign_and_a_short_one_is_whole() {
        assert_eq!(beginning("done"), "done");
        let cut = beginning(&"é".repeat(400));
        assert_eq!((cut.chars().count(), cut.ends_with('~')), (48, true));
    }
}
