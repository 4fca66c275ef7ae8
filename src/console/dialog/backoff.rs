//! End the backoff of entries, so that the next pass takes them.

use super::{Bound, Deed, Dialog, LARGE};
use crate::console::{
    app::App,
    event::{Action, count},
    facts, when,
};

/// Opens it, or says why there is nothing to reset.
pub fn open(app: &App) -> Result<Dialog, String> {
    let chosen = app.chosen_entries();
    let (mut entries, mut lines, mut bound, mut api) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for id in &chosen {
        let Some(stored) = facts::stored(&app.seen, *id) else { continue };
        let Some(entry) = stored.get().filter(|e| e.drain_backoff_count > 0 || e.drain_backoff_expire.is_some()) else {
            continue;
        };
        let name = app.seen.snapshot.machine(&entry.node);
        api += usize::from(facts::is_api_server(&app.seen, &name));
        let next = entry.drain_backoff_expire.map(|t| when::until(t, app.now.wall)).unwrap_or_default();
        lines.push(format!("{id}  {name}  backed off {} times, next {next}", entry.drain_backoff_count));
        entries.push(id.index);
        bound.push(Bound::Entry(*id, stored.mod_revision));
    }
    if entries.is_empty() {
        return Err("no chosen entry has a backoff: there is nothing to reset".to_owned());
    }
    let n = entries.len();
    let title = format!("Reset the backoff of {} on {}?", count(n, "entry"), app.cluster_word());
    let mut dialog = Dialog::new(title, "Reset", Deed::Act(Action::ResetBackoff { entries, reason: None }));
    if api > 0 {
        lines.insert(0, format!("! {} among them", count(api, "API server")));
    }
    dialog.lines = lines;
    dialog.bound = bound;
    dialog.expect = (n >= LARGE || (n > 1 && api > 0)).then(|| format!("{} {n}", app.cluster_word()));
    Ok(dialog)
}
