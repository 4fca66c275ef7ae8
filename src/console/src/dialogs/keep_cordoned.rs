//! Dialog that keeps the cordon of a node when its work ends, or gives it back.

use crate::state::{
    App,
    dialog::{Dialog, DialogAction, Precondition, ReasonPolicy},
    event::Action,
    queries, short_text,
};

/// Opens the dialog for the selected node, or returns the reason why there is no cordon to keep.
pub fn open(app: &App) -> Result<Dialog, String> {
    if queries::kube_lost(&app.seen, app.now.boot).is_some() {
        return Err("Kubernetes does not answer: no node can be changed until it is back".to_owned());
    }
    let nodes = app.chosen_nodes();
    if nodes.is_empty() {
        return Err(app.nothing_selected("node"));
    }
    let [name] = nodes.as_slice() else {
        return Err(format!("keep-cordoned takes one node at a time, {} are marked: unmark the others", nodes.len()));
    };
    of(app, name)
}

/// Opens the dialog for this node.
pub fn of(app: &App, name: &str) -> Result<Dialog, String> {
    let Some(row) = queries::node(&app.seen, name) else {
        return Err(format!("{name} has no Node in Kubernetes"));
    };
    if !row.unschedulable && !row.keep_cordoned {
        return Err(format!("{name} is not cordoned: there is no cordon to keep"));
    }
    let keep = !row.keep_cordoned;
    let action = DialogAction::Act(Action::KeepCordoned { node: row.name.clone(), keep });
    let (title, verb) = if keep {
        (format!("Keep {name} cordoned?"), "Keep 1 node cordoned")
    } else {
        (format!("Give back the cordon of {name}?"), "Give back 1 cordon")
    };
    let mut dialog = Dialog::new(title, verb, action);
    dialog.lines = match (keep, row.owner()) {
        (true, Some(owner)) => {
            vec![format!("cordoned by {}: the node stays cordoned when that entry ends", owner.entry)]
        }
        (true, None) => vec!["no entry cordoned it: it stays cordoned until somebody uncordons it".to_owned()],
        (false, _) => vec!["the entry that cordoned it uncordons it when its work ends".to_owned()],
    };
    if let Some(id) = app.knowledge.totals.reboot_of(name)
        && let Some(entry) = queries::entry(&app.seen, id)
    {
        dialog.lines.push(format!("{id}  {}", short_text::status(entry, app.now.wall)));
    }
    dialog.why = ReasonPolicy::Never;
    dialog.preconditions = vec![Precondition::Node(name.to_owned(), row.uid.clone())];
    Ok(dialog)
}
