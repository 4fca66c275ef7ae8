//! Commands that the footer and the help name in the open view.

use cketerm_model::policy::MemberSource;

use super::WIDE;
use crate::{
    keys::{Context, TABLE},
    state::{App, Target, View, blockers, object::Object, overview::OverviewRow},
};

/// Returns the commands that the footer names in the open view, most important first.
fn view_hints(app: &App) -> &'static [&'static str] {
    match app.navigation.view {
        View::Overview => &[
            "open",
            "trouble",
            "retry",
            "done",
            "reset-backoff",
            "force",
            "hold",
            "unhold",
            "approve",
            "host-power",
            "release",
            "cancel",
            "repair",
            "reboot",
            "switch",
            "sort",
        ],
        View::Reboots | View::Repairs if app.navigation.shows_batches() => {
            &["open", "hold", "unhold", "cancel", "mark", "racks", "filter", "sort"]
        }
        View::Reboots => &[
            "open",
            "trouble",
            "mark",
            "cancel",
            "hold",
            "unhold",
            "filter",
            "retry",
            "done",
            "force",
            "reset-backoff",
            "switch",
            "jump",
            "sort",
            "logs-of",
            "yaml",
        ],
        View::Repairs => &[
            "open",
            "trouble",
            "mark",
            "cancel",
            "repair",
            "hold",
            "unhold",
            "retry",
            "done",
            "filter",
            "delete-finished",
            "force",
            "reset-backoff",
            "switch",
            "jump",
            "sort",
            "logs-of",
            "yaml",
        ],
        View::Nodes => &[
            "open",
            "trouble",
            "mark",
            "reboot",
            "repair",
            "filter",
            "racks",
            "keep-cordoned",
            "cancel",
            "jump",
            "sort",
            "logs-of",
            "yaml",
        ],
        // before sabakan is set up there is nothing to approve or to hold
        View::Machines | View::Diff if app.seen.snapshot.store.member_source() == MemberSource::Operators => {
            &["open", "trouble", "filter"]
        }
        View::Diff if app.seen.snapshot.store.member_source() == MemberSource::Nodes => {
            &["open", "approve", "hold", "unhold", "trouble", "filter"]
        }
        View::Machines => &[
            "open",
            "approve",
            "constraint",
            "hold",
            "unhold",
            "switch",
            "auto-repair",
            "racks",
            "repair",
            "mark",
            "filter",
            "trouble",
            "sort",
            "yaml",
        ],
        View::Diff => {
            &["open", "approve", "constraint", "hold", "unhold", "switch", "auto-repair", "racks", "filter", "sort"]
        }
        View::Hosts => {
            &["open", "host-power", "hold", "unhold", "fence", "mark", "jump", "filter", "trouble", "sort", "yaml"]
        }
        View::History if app.navigation.cke_records => &["open", "racks", "filter", "sort"],
        View::History => &["open", "racks", "reboot", "filter", "trouble", "sort", "jump", "logs-of"],
        View::Audit => &["open", "jump", "logs-of", "filter", "sort"],
        View::Logs => &["open", "filter", "trouble", "sort"],
    }
}

/// Returns the commands of the view below the overlay, most important first.
pub(in crate::views) fn names_here(app: &App) -> Vec<&'static str> {
    let context = if app.navigation.pane.is_some() { Context::Detail } else { Context::Table };
    let names: Vec<&'static str> = match (context, &app.lists.overview_rows.cursor) {
        (Context::Detail, _) => {
            let of_view = view_hints(app).iter().copied().filter(|name| !matches!(*name, "jump" | "logs-of" | "yaml"));
            let first = ["close", "follow", "previous-entry", "next-entry"];
            // of an entry that something blocks, this is the question that its detail leaves open
            let is_blocked = matches!(app.target(), Some(Target::Entry(id)) if blockers::any(app, id));
            let blockers = is_blocked.then_some("blockers");
            first.into_iter().chain(blockers).chain(of_view).chain(["jump", "logs-of", "yaml", "find"]).collect()
        }
        (_, Some(row)) if app.navigation.view == View::Overview => overview_hints(app, row),
        _ => view_hints(app).to_vec(),
    };
    let blockers = matches!(app.navigation.view, View::Overview | View::Reboots | View::Repairs | View::Nodes);
    names.into_iter().chain(blockers.then_some("blockers")).filter(|name| is_bound(name, context)).collect()
}

/// Reports whether a command has its key in this context.
fn is_bound(name: &str, context: Context) -> bool {
    TABLE.iter().any(|b| b.name == name && (b.context == context || b.context == Context::Everywhere))
}

/// Returns the commands that the footer names for a line of the Overview: those of its object, then the others.
fn overview_hints(app: &App, row: &OverviewRow) -> Vec<&'static str> {
    let name_of = |command| TABLE.iter().find(|b| b.command == command).map(|b| b.name);
    let keys = match row {
        OverviewRow::NeedsYou(object) => {
            let line = app.knowledge.needs_you.iter().find(|line| line.object == *object);
            line.map(|line| line.keys(app)).unwrap_or_default()
        }
        OverviewRow::Progress(_)
        | OverviewRow::Batch(..)
        | OverviewRow::Work(_)
        | OverviewRow::Racks
        | OverviewRow::Day
        | OverviewRow::Ended(_)
        | OverviewRow::Action(_)
        | OverviewRow::Cke(_) => Vec::new(),
    };
    let mut names = vec!["open", "trouble"];
    // on a narrow screen the line itself shows its first key
    let from = usize::from(app.size.width < WIDE);
    names.extend(keys.into_iter().filter_map(name_of).skip(from).filter(|name| *name != "open"));
    let verbs = match row {
        // nothing but its own keys ends what is not a row of a table
        OverviewRow::NeedsYou(Object::Source(_) | Object::Leadership | Object::Definition) => [].as_slice(),
        _ => view_hints(app),
    };
    let verbs = verbs.iter().copied();
    for name in verbs {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
