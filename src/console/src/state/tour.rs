//! Tour of the sandbox: it names the next step, and waits until it is done.

use cketerm_model::{
    entry::{EntryId, Stored},
    names::Address,
    reboot::RebootStatus,
};

use super::{App, Target, View, event::Action};
use crate::keys::Command;

/// Progress of the tour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tour {
    /// The step, from 0.
    pub at: usize,
    /// Addresses of the reboots that were queued during the tour.
    queued: Vec<Address>,
    /// Index of the newest entry before them.
    newest: Option<u64>,
    /// Whether an own entry was cancelled in this step.
    cancelled: bool,
    /// Whether the command for the next stuck row was used in this step.
    saw_trouble: bool,
}

/// A step.
pub struct Step {
    /// Instruction; `{name}` stands for a command's key.
    pub text: &'static str,
    /// Reports whether it is done.
    done: fn(&App, &Tour) -> bool,
}

/// The steps, in their order.
pub const STEPS: [Step; 10] = [
    Step {
        text: "This data centre is simulated inside this program. All keys are the same as on real servers. Open the \
               nodes: press {nodes}.",
        done: |app, _| app.navigation.view == View::Nodes,
    },
    Step {
        text: "Show only some of them: press {filter}, type  rack=1 !role:api  and {accept}. Esc clears a filter.",
        done: |app, _| {
            app.navigation.view == View::Nodes
                && !app.lists.nodes.active_filter.is_empty()
                && app.typing.filter.is_none()
        },
    },
    Step {
        text: "Mark two nodes with {mark}: marks stay with the nodes when the rows move.",
        done: |app, _| app.lists.nodes.marks.len() > 1,
    },
    Step {
        text: "Queue their reboot: {reboot}. The dialog shows what would block it. Type a reason, {accept}, and \
               confirm: nothing happens before that.",
        done: |app, tour| !tour.queued.is_empty() && queued(app, tour).next().is_some(),
    },
    Step {
        text: "The queue: press {reboots}. The draining one shows how many pods have left; REASON shows why each \
               of the others waits.",
        done: |app, _| app.navigation.view == View::Reboots && working(app),
    },
    Step {
        text: "Open an entry with {open}: its timeline and the pods left, each with its blocker. {back} closes it.",
        done: |app, _| matches!(app.navigation.pane.as_ref().map(|pane| &pane.of), Some(Target::Entry(_))),
    },
    Step {
        text: "Close it ({back}) and look for what needs an operator: {trouble} goes to the next stuck row, from \
               any view, or says that there is none.",
        done: |_, tour| tour.saw_trouble,
    },
    Step {
        text: "Cancel your reboots: mark them in Reboots ({reboots}, {mark}), or put the cursor on one, and press \
               {cancel}. {undo} would requeue those that had not begun.",
        // The entries may have ended by themselves.
        done: |app, tour| tour.cancelled || queued(app, tour).next().is_none(),
    },
    Step {
        text: "Who did what, when, why, from where: press {audit}. It shows your reasons.",
        done: |app, _| app.navigation.view == View::Audit,
    },
    Step {
        text: "That was the tour. {help} lists all keys, {command} all commands; docs/tasks.md lists everyday tasks. \
               {back} closes this.",
        done: |_, _| false,
    },
];

/// Returns the entries of the tour's own reboots.
fn queued<'a>(app: &'a App, tour: &'a Tour) -> impl Iterator<Item = u64> + 'a {
    let entries = app.seen.snapshot.store.reboots.entries.iter();
    entries
        .filter(|(index, _)| tour.newest.is_none_or(|newest| **index > newest))
        .filter(|(_, stored)| stored.get().is_some_and(|e| tour.queued.contains(&e.node)))
        .map(|(index, _)| *index)
}

/// Returns true if a drain or a reboot is in progress.
fn working(app: &App) -> bool {
    let mut entries = app.seen.snapshot.store.reboots.entries.values().filter_map(Stored::get);
    entries.any(|e| matches!(e.status, RebootStatus::Draining | RebootStatus::Rebooting))
}

/// Starts the tour, or ends it.
pub fn toggle(app: &mut App) {
    if app.session.tour.take().is_some() {
        return;
    }
    if !app.config.sandbox {
        app.print_error_here("the tour works only in the sandbox: `cketerm --sandbox`, then :tour");
        return;
    }
    app.session.message = None;
    app.session.tour_offered = false;
    app.session.tour = Some(Tour::default());
}

/// Ends the tour if it is at its last step, and hides the offer of the tour.
pub fn leave(app: &mut App) {
    app.session.tour_offered = false;
    if app.session.tour.as_ref().is_some_and(|tour| tour.at + 1 == STEPS.len()) {
        app.session.tour = None;
    }
}

/// Skips the steps that are done.
pub fn advance(app: &mut App) {
    let Some(mut tour) = app.session.tour.take() else { return };
    while STEPS.get(tour.at).is_some_and(|step| (step.done)(app, &tour)) {
        tour.at += 1;
        (tour.saw_trouble, tour.cancelled) = (false, false);
    }
    app.session.tour = Some(tour);
}

/// Notes that a command was executed.
pub fn on_command(app: &mut App, command: Command) {
    if let Some(tour) = &mut app.session.tour {
        tour.saw_trouble |= command == Command::Trouble;
    }
}

/// Notes that an action was confirmed.
pub fn on_action(app: &mut App, action: &Action) {
    let newest = app.seen.snapshot.store.reboots.entries.keys().next_back().copied();
    let Some(mut tour) = app.session.tour.take() else { return };
    match action {
        Action::AddReboots { addresses, .. } => {
            tour.newest = tour.newest.or(newest);
            tour.queued.extend(addresses.iter().cloned());
        }
        // Cancelling other people's entries does not count.
        Action::Cancel { entries, .. } => {
            let own = queued(app, &tour).any(|index| entries.contains(&EntryId::reboot(index)));
            tour.cancelled |= own;
        }
        _ => {}
    }
    app.session.tour = Some(tour);
}

/// Returns the text of a step, with the active keys.
pub fn text(app: &App, at: usize) -> String {
    let mut rendered = String::new();
    let mut rest = STEPS.get(at).map_or("", |step| step.text);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        rendered.push_str(before);
        rendered.push_str(&app.key(name));
        rest = after;
    }
    rendered.push_str(rest);
    rendered
}
