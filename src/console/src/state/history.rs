//! Names in the records of the past: the machine of an entry that ended, and the targets of an operation.

use cketerm_model::record::Record;

use super::{App, past::Ended};

/// Returns the machine's current name, else the name in its attempt, else its address.
pub fn node(app: &App, ended: &Ended) -> String {
    let now = app.seen.snapshot.machine(&ended.address);
    if now == ended.address { ended.node.clone().unwrap_or(now) } else { now }
}

/// Returns the targets of one of CKE's operations.
pub fn targets(record: &Record) -> String {
    match record.targets.as_deref() {
        Some([]) | None => record.command.target.clone(),
        Some(targets) => targets.join(" "),
    }
}
