//! `audit`: who did what on what, when, why, from where.

use std::sync::Arc;

use super::{
    Context,
    args::Output,
    roll::{self, Form, Much},
};
use crate::{actions::ActionError, model::cketerm_records::Audit};

/// How many are printed where nobody says.
const SHOWN: usize = 100;

/// Characters of a cell in the table: a policy that was set would push every row off the screen.
const CELL: usize = 48;

fn beginning(text: &str) -> String {
    match text.char_indices().nth(CELL) {
        Some(_) => text.chars().take(CELL - 1).chain(['~']).collect(),
        None => text.to_owned(),
    }
}

/// Prints the records, newest first; a table has the beginnings of long cells, the other forms the whole.
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

    /// Review of the operator, 9: a policy that was set made every row 500 columns wide.
    #[test]
    fn a_long_cell_is_cut_with_a_sign_and_a_short_one_is_whole() {
        assert_eq!(beginning("done"), "done");
        let cut = beginning(&"é".repeat(400));
        assert_eq!((cut.chars().count(), cut.ends_with('~')), (48, true));
    }
}
