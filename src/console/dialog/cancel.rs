//! Cancel entries of the reboot queue.

use super::{Bound, Deed, Dialog, LARGE};
use crate::{
    console::{
        app::App,
        brief,
        event::{Action, count},
        facts,
    },
    model::reboot::RebootStatus,
};

/// Opens it, or says why there is nothing to cancel.
pub fn open(app: &App) -> Result<Dialog, String> {
    let chosen = app.chosen_entries();
    if chosen.is_empty() {
        return Err(app.nothing_chosen("entry"));
    }
    let (mut entries, mut lines, mut bound, mut rebooting) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut broken = Vec::new();
    for id in &chosen {
        let Some(stored) = facts::stored(&app.seen, *id) else { continue };
        let Some(entry) = stored.get() else {
            broken.push(stored.key.clone());
            continue;
        };
        entries.push((id.index, stored.mod_revision));
        bound.push(Bound::Entry(*id, stored.mod_revision));
        rebooting += usize::from(entry.status == RebootStatus::Rebooting);
        let name = app.seen.snapshot.machine(&entry.node);
        let api = if facts::is_api_server(&app.seen, &name) { "  API server" } else { "" };
        lines.push(format!("{id}  {name}  {}{api}", brief::status(entry, app.now.wall)));
    }
    if entries.is_empty() {
        return Err(match broken.first() {
            Some(key) => {
                format!("the entry cannot be read, so nobody can cancel it: mend or delete {key} with etcdctl")
            }
            None => "the entry is gone: it ended or was cancelled".to_owned(),
        });
    }
    if !broken.is_empty() {
        lines.insert(0, format!("! left out, cannot be read: {}", broken.join(", ")));
    }
    if rebooting > 0 {
        lines.insert(0, "! a command that runs goes on; the node stays cordoned until it has booted".to_owned());
    }
    if let (1, Some(why)) = (entries.len(), chosen.first().and_then(|id| app.seen.reasons.get(id))) {
        lines.push(brief::sentence(why));
    }
    let n = entries.len();
    let title = format!("Cancel {} on {}?", count(n, "entry"), app.cluster_word());
    let mut dialog = Dialog::new(title, "Cancel entries", Deed::Act(Action::Cancel { entries, reason: None }));
    dialog.lines = lines;
    dialog.bound = bound;
    dialog.expect = (n >= LARGE).then(|| format!("{} {n}", app.cluster_word()));
    Ok(dialog)
}
