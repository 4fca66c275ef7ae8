//! `audit`: who did what on what, when, why, from where.

use std::sync::Arc;

use super::{
    Context,
    args::Output,
    roll::{self, Form, Much},
};
use crate::{actions::ActionError, model::ours::Audit};

/// How many are printed where nobody says.
const SHOWN: usize = 100;

/// Prints the records, newest first.
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
            let at = a.at.strftime("%FT%TZ").to_string();
            let reason = a.reason.clone().unwrap_or_default();
            vec![at, a.who.to_string(), a.what.clone(), a.on.clone(), a.result.clone(), reason]
        },
    };
    if !much.follow {
        return roll::print(&records, &form, context);
    }
    records.reverse();
    roll::print(&records, &form, context).unwrap_or_else(|e| context.say(&e.text));
    roll::follow(&store, &folder, revision, &form, |_| true, context).await
}
