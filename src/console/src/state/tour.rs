//! Tours of the sandbox: a tour names the next step, and waits until it is done. Beside CKE the tour is another one.

use cketerm_model::{
    entry::{EntryId, Stored},
    names::Address,
    reason::Reason,
    reboot::RebootStatus,
};
use cketerm_rules::beside_cke;

use super::{App, Target, View, event::Action};
use crate::keys::Command;

/// Progress of the tour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tour {
    /// The tour.
    kind: Kind,
    /// The step, from 0.
    pub at: usize,
    /// Addresses of the reboots that were queued during the tour.
    queued: Vec<Address>,
    /// Index of the newest entry before them.
    newest: Option<u64>,
    /// Whether an own entry was cancelled in this step.
    cancelled: bool,
    /// All entries that were cancelled during the tour.
    withdrawn: Vec<EntryId>,
    /// Whether the command for the next stuck row was used in this step.
    saw_trouble: bool,
    /// Whether the drain blockers were shown in this step.
    saw_blockers: bool,
}

/// A tour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The first steps with cketerm.
    #[default]
    FirstSteps,
    /// cketerm as the console of a CKE that leads.
    BesideCke,
}

impl Kind {
    /// All tours.
    #[cfg(test)]
    pub const ALL: [Self; 2] = [Self::FirstSteps, Self::BesideCke];

    /// Returns the steps, in their order.
    pub fn steps(self) -> &'static [Step] {
        match self {
            Self::FirstSteps => &FIRST_STEPS,
            Self::BesideCke => &BESIDE_CKE,
        }
    }
}

impl Tour {
    /// Returns the steps, in their order.
    pub fn steps(&self) -> &'static [Step] {
        self.kind.steps()
    }
}

/// A step.
pub struct Step {
    /// Instruction; `{name}` stands for a command's key.
    pub text: &'static str,
    /// Reports whether it is done.
    done: fn(&App, &Tour) -> bool,
}

/// The first steps with cketerm.
const FIRST_STEPS: [Step; 10] = [
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

/// cketerm as the console of a CKE that leads.
const BESIDE_CKE: [Step; 7] = [
    Step {
        text: "CKE leads this data centre. The first line names its host, the lease of its program and its phase. \
               Open its reboot queue: press {reboots}.",
        done: |app, _| app.navigation.view == View::Reboots,
    },
    Step {
        text: "CKE gives no reasons: cketerm reads them from CKE's rules. Open an entry whose drain CKE gave up \
               (backoff) with {open}: it names the pod, and the budget or Job that holds it.",
        done: |app, _| {
            let Some(Target::Entry(id)) = app.navigation.pane.as_ref().map(|pane| &pane.of) else { return false };
            app.seen.reasons.get(id).is_some_and(names_a_pod)
        },
    },
    Step {
        text: "Close it ({back}). Press {blockers}: all that keeps pods on CKE's nodes, worst first, with each \
               budget's numbers.",
        done: |_, tour| tour.saw_blockers,
    },
    Step {
        text: "Go back ({back}) and cancel an entry that waits: {cancel}. CKE's write may lose a cancel: cketerm \
               repeats it until CKE has removed the entry. This step waits for that.",
        done: |app, tour| tour.withdrawn.iter().any(|id| app.seen.snapshot.store.stored_entry(*id).is_none()),
    },
    Step {
        text: "Who did what: press {audit}. A cancel that CKE's write lost has a second record, *reboot cancel \
               repeated*.",
        done: |app, _| app.navigation.view == View::Audit,
    },
    Step {
        text: "To hand over, `cketerm engine take --check` on a real host names what is missing, and where to stop \
               CKE. It changes nothing. Press {overview}: Latest shows what CKE's records tell.",
        done: |app, _| app.navigation.view == View::Overview,
    },
    Step {
        text: "That was the tour. docs/beside-cke.md says what works under which leader. In this scenario CKE is \
               stopped after four minutes. {back} closes this.",
        done: |_, _| false,
    },
];

/// Reports whether a reason names the pod that holds a drain, now or before its backoff.
fn names_a_pod(reason: &Reason) -> bool {
    let names = |reason: &Reason| {
        reason.names_object() || matches!(reason, Reason::PdbNeverAllows { .. } | Reason::BlockedByManyPdbs { .. })
    };
    match reason {
        Reason::Backoff { cause: Some(cause), .. } => names(cause),
        reason => names(reason),
    }
}

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
    let kind = if beside_cke::applies(&app.seen.snapshot.store) { Kind::BesideCke } else { Kind::FirstSteps };
    app.session.tour = Some(Tour { kind, ..Tour::default() });
}

/// Ends the tour if it is at its last step, and hides the offer of the tour.
pub fn leave(app: &mut App) {
    app.session.tour_offered = false;
    if app.session.tour.as_ref().is_some_and(|tour| tour.at + 1 == tour.steps().len()) {
        app.session.tour = None;
    }
}

/// Skips the steps that are done.
pub fn advance(app: &mut App) {
    let Some(mut tour) = app.session.tour.take() else { return };
    while tour.steps().get(tour.at).is_some_and(|step| (step.done)(app, &tour)) {
        tour.at += 1;
        (tour.saw_trouble, tour.saw_blockers, tour.cancelled) = (false, false, false);
    }
    app.session.tour = Some(tour);
}

/// Notes that a command was executed.
pub fn on_command(app: &mut App, command: Command) {
    if let Some(tour) = &mut app.session.tour {
        tour.saw_trouble |= command == Command::Trouble;
        tour.saw_blockers |= command == Command::Blockers;
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
            tour.withdrawn.extend(entries.iter().copied());
        }
        _ => {}
    }
    app.session.tour = Some(tour);
}

/// Returns the text of the present step, with the active keys.
pub fn text(app: &App, tour: &Tour) -> String {
    let mut rendered = String::new();
    let mut rest = tour.steps().get(tour.at).map_or("", |step| step.text);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        rendered.push_str(before);
        rendered.push_str(&app.key(name));
        rest = after;
    }
    rendered.push_str(rest);
    rendered
}
