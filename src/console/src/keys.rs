//! The single key table. Dispatch, the footer's hints, the `?` overlay and `docs/keys.md` are derived from it.
//!
//! A verb that changes the cluster has one capital letter, the same in every view, and no harmless command shares it.

mod keymap;

pub use self::keymap::{KeyMatch, Keymap, Stroke, normalized, parse, stroke_name};

/// Place where a key works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Context {
    /// In tables and detail panes.
    Everywhere,
    /// In a table.
    Table,
    /// In a detail pane and the help.
    Detail,
    /// In a dialog, outside its text fields.
    Dialog,
    /// While text is typed: a filter, a reason or a confirmation.
    Field,
}

/// Command that a key executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the table below describes each, for people
pub enum Command {
    Down,
    Up,
    PageDown,
    PageUp,
    HalfPageDown,
    HalfPageUp,
    Top,
    Bottom,
    Open,
    Back,
    Mark,
    MarkAll,
    Filter,
    Find,
    NextView,
    PreviousView,
    Overview,
    History,
    Audit,
    Logs,
    LogsOf,
    Line,
    Messages,
    Sort,
    Reverse,
    Reboots,
    Nodes,
    Repairs,
    Machines,
    Diff,
    Hosts,
    Racks,
    Left,
    Right,
    Jump,
    Trouble,
    Columns,
    Blockers,
    Undo,
    Tour,
    Reboot,
    Repair,
    Cancel,
    CancelAll,
    DeleteFinished,
    DeleteUnfinished,
    Hold,
    Unhold,
    ResetBackoff,
    Switch,
    Stop,
    Resume,
    Approve,
    Constraint,
    AutoRepair,
    Retry,
    Done,
    Force,
    KeepCordoned,
    Release,
    HostPower,
    Fence,
    Lead,
    Yaml,
    Follow,
    PreviousEntry,
    NextEntry,
    Mouse,
    Help,
    Quit,
    Suspend,
    Repaint,
    Copy,
    Yes,
    No,
    Press,
    NextField,
    PreviousField,
    Later,
    Earlier,
    NextOption,
    PreviousOption,
    Accept,
    Drop,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// The place where it works.
    pub context: Context,
    /// Its keys; the first one is shown.
    pub keys: &'static [&'static str],
    /// The command.
    pub command: Command,
    /// Its name in the configuration and on the command line.
    pub name: &'static str,
    /// Word for the footer. Empty = not shown there.
    pub hint: &'static str,
    /// Sentence for the help.
    pub help: &'static str,
    /// Whether the command changes the cluster.
    pub changes: bool,
}

const fn view_binding(
    context: Context,
    keys: &'static [&'static str],
    command: Command,
    name: &'static str,
    hint: &'static str,
    help: &'static str,
) -> Binding {
    Binding { context, keys, command, name, hint, help, changes: false }
}

const fn change_binding(
    keys: &'static [&'static str],
    command: Command,
    name: &'static str,
    hint: &'static str,
    help: &'static str,
) -> Binding {
    Binding { context: Context::Everywhere, keys, command, name, hint, help, changes: true }
}

use Context::{Detail, Dialog, Everywhere, Field, Table};

/// All key bindings.
#[rustfmt::skip]
pub const TABLE: &[Binding] = &[
    view_binding(Table, &["enter", "d"], Command::Open, "open", "detail", "Describe: open the detail pane of the row"),
    view_binding(Detail, &["enter", "d"], Command::Back, "close", "back", "Close the pane"),
    view_binding(Detail, &["/"], Command::Find, "find", "find", "In the help and similar lists: show only lines with these words; beside a pane: filter the table"),
    change_binding(&["X"], Command::Cancel, "cancel", "cancel", "Cancel the marked reboots, delete the marked repairs, or the one under the cursor"),
    change_binding(&[], Command::CancelAll, "cancel-all", "", "Cancel all reboots"),
    change_binding(&["R"], Command::Reboot, "reboot", "reboot", "Queue a reboot of the marked nodes, or of the one under the cursor"),
    change_binding(&["P"], Command::Repair, "repair", "repair", "Queue a repair of the marked nodes, or of the one under the cursor; on a repair: queue it again"),
    change_binding(&["B"], Command::ResetBackoff, "reset-backoff", "reset backoff", "End the backoff of the entries; the next pass takes them"),
    change_binding(&["H"], Command::Hold, "hold", "hold", "Hold the entries until their hold is ended; in Machines and Diff: stop applying definitions; in Hosts: hold the host off"),
    change_binding(&["L"], Command::Unhold, "unhold", "unhold", "End the hold of entries; in Machines and Diff: resume applying; in Hosts: release a host held off by cketerm"),
    change_binding(&["E"], Command::Switch, "switch", "on/off", "Enable or disable the queue: in Repairs the repair queue, in Machines and Diff the sabakan integration, elsewhere the reboot queue"),
    change_binding(&[], Command::Stop, "stop", "", "Disable both queues, whoever leads, and record which were enabled"),
    change_binding(&[], Command::Resume, "resume", "", "Enable the queues that :stop disabled, except those changed since"),
    change_binding(&["Y"], Command::Approve, "approve", "approve", "Approve the pending change of the definition"),
    change_binding(&["S"], Command::Constraint, "constraint", "constraint", "Set a constraint: choose it and type its value"),
    change_binding(&["M"], Command::AutoRepair, "auto-repair", "auto-repair", "Enable or disable automatic repair"),
    change_binding(&["A"], Command::Retry, "retry", "retry", "Order a retry: run the reboot or repair command again"),
    change_binding(&["D"], Command::Done, "done", "done", "Order done: treat the machine as booted, or as healthy"),
    change_binding(&["F"], Command::Force, "force", "force", "Order force: continue without waiting for pods and volumes"),
    change_binding(&["Z"], Command::DeleteFinished, "delete-finished", "delete finished", "Delete all finished repairs: those that succeeded or failed"),
    change_binding(&[], Command::DeleteUnfinished, "delete-unfinished", "", "Delete all repairs that are queued or in work"),
    change_binding(&["C"], Command::KeepCordoned, "keep-cordoned", "keep cordoned", "Keep the node cordoned when the work ends, or undo that"),
    change_binding(&["U"], Command::Release, "release", "uncordon", "Uncordon a node that an ended entry left cordoned"),
    change_binding(&["W"], Command::HostPower, "host-power", "power", "Hosts: reboot, hold off, turn on or turn off at once through Metal3's interface; no queue, no drain"),
    change_binding(&["I"], Command::Fence, "fence", "fence", "Hosts: isolate: hold the host off, wait for proof, fence its Node, release the host"),
    change_binding(&["T"], Command::Lead, "lead", "", "Let this console campaign and lead for this session, if nobody leads"),
    view_binding(Table, &["space"], Command::Mark, "mark", "mark", "Mark or unmark the row and move down"),
    view_binding(Table, &["*"], Command::MarkAll, "mark-all", "", "Mark all rows that match the filter; again: unmark them"),
    view_binding(Table, &["/"], Command::Filter, "filter", "filter", "Show only matching rows: words, /regex/, !not, or, column:word, rack=3, since>10m"),
    view_binding(Everywhere, &["n"], Command::Trouble, "trouble", "trouble", "Go to the next object that needs you, in whatever view it is; an open pane stays open and shows it"),
    view_binding(Everywhere, &["o"], Command::Jump, "jump", "node/entry", "Go from an entry or a host to its node, from a node to its entries, or from an audit record to its object"),
    view_binding(Everywhere, &["y"], Command::Yaml, "yaml", "yaml", "YAML of the object under the cursor or in the pane: the entry, the Node, the host or the member of the definition; secrets are masked"),
    view_binding(Everywhere, &["["], Command::PreviousEntry, "previous-entry", "prev row", "Previous row; an open pane stays open and shows it"),
    view_binding(Everywhere, &["]"], Command::NextEntry, "next-entry", "next row", "Next row; an open pane stays open and shows it"),
    view_binding(Everywhere, &["f"], Command::Follow, "follow", "follow", "Only the output of the entry's newest command, kept to its end; again: everything about the entry"),
    view_binding(Everywhere, &["b"], Command::Blockers, "blockers", "blockers", "Drain blockers, worst first"),
    view_binding(Everywhere, &["u"], Command::Undo, "undo", "undo", "Undo this console's last action (1 minute)"),
    view_binding(Everywhere, &[], Command::Tour, "tour", "", "In the sandbox: start the tour of the first steps; again: end it"),
    view_binding(Everywhere, &["tab"], Command::NextView, "next-view", "", "Next view"),
    view_binding(Everywhere, &["backtab"], Command::PreviousView, "previous-view", "", "Previous view"),
    view_binding(Everywhere, &["0"], Command::Overview, "overview", "", "Overview: progress, stuck entries, leader, time left"),
    view_binding(Everywhere, &["1"], Command::Reboots, "reboots", "", "Reboots"),
    view_binding(Everywhere, &["2"], Command::Nodes, "nodes", "", "Nodes"),
    view_binding(Everywhere, &["3"], Command::Repairs, "repairs", "", "Repairs"),
    view_binding(Everywhere, &["4"], Command::Machines, "machines", "", "Machines"),
    view_binding(Everywhere, &["5"], Command::Diff, "diff", "", "Diff"),
    view_binding(Everywhere, &["6"], Command::Hosts, "hosts", "", "Hosts"),
    view_binding(Everywhere, &["7"], Command::History, "history", "", "History: entries that ended, with their timelines"),
    view_binding(Everywhere, &["8"], Command::Audit, "audit", "", "Audit: who did what, when, why, from where"),
    view_binding(Everywhere, &["9"], Command::Logs, "logs", "", "Logs: log lines of this process"),
    view_binding(Everywhere, &["l"], Command::LogsOf, "logs-of", "its logs", "Log lines of the entry or node under the cursor"),
    view_binding(Everywhere, &[":"], Command::Line, "command", "command", "Type a command: any name in this table, goto, view, mark, sort ...; tab completes"),
    view_binding(Everywhere, &[], Command::Messages, "messages", "", "The last 200 messages with their times"),
    view_binding(Table, &["s"], Command::Sort, "sort", "sort", "Sort by the next column; after the last one: the view's own order"),
    view_binding(Table, &["r"], Command::Reverse, "reverse", "", "Reverse the order"),
    view_binding(Table, &["|"], Command::Columns, "choose-columns", "", "Choose the columns of the view and their order; saved for the next start"),
    view_binding(Table, &["v"], Command::Racks, "racks", "racks", "In Nodes: racks as a map (one sign per machine) or as rows; in Machines and Diff: racks as counts; in History: CKE's records or cketerm's; in the queues: batches or entries"),
    view_binding(Table, &["right"], Command::Right, "right", "", "In the rack map: next machine"),
    view_binding(Table, &["left"], Command::Left, "left", "", "In the rack map: previous machine"),
    view_binding(Everywhere, &["j", "down"], Command::Down, "down", "", "Down"),
    view_binding(Everywhere, &["k", "up"], Command::Up, "up", "", "Up"),
    view_binding(Everywhere, &["pgdn", "ctrl-f"], Command::PageDown, "page-down", "", "Page down"),
    view_binding(Everywhere, &["pgup", "ctrl-b"], Command::PageUp, "page-up", "", "Page up"),
    view_binding(Everywhere, &["ctrl-d"], Command::HalfPageDown, "half-page-down", "", "Half a page down"),
    view_binding(Everywhere, &["ctrl-u"], Command::HalfPageUp, "half-page-up", "", "Half a page up"),
    view_binding(Everywhere, &["g g", "home"], Command::Top, "top", "", "First row"),
    view_binding(Everywhere, &["G", "end"], Command::Bottom, "bottom", "", "Last row"),
    view_binding(Everywhere, &["esc"], Command::Back, "back", "", "Close the pane, or clear filter, marks or message"),
    view_binding(Everywhere, &["?"], Command::Help, "help", "help", "All keys"),
    view_binding(Everywhere, &["q", "ctrl-c"], Command::Quit, "quit", "quit", "Close help or a pane; from the bare view quit, which asks if this console leads and no other engine stands by"),
    view_binding(Everywhere, &["ctrl-z"], Command::Suspend, "suspend", "", "Suspend the program; `fg` resumes it. If it leads and no other engine is known to stand by, it warns first and suspends at the second press"),
    view_binding(Everywhere, &["c"], Command::Copy, "copy", "", "Copy the row under the cursor, or the text of the open pane, to the clipboard (OSC 52)"),
    view_binding(Everywhere, &[], Command::Mouse, "mouse", "", "Turn the mouse on or off; saved for the next start"),
    view_binding(Everywhere, &["ctrl-l"], Command::Repaint, "repaint", "", "Redraw the screen"),
    view_binding(Dialog, &["y"], Command::Yes, "yes", "yes", "On the buttons: do it. Elsewhere it is text of the reason, like every other letter"),
    view_binding(Dialog, &["esc", "ctrl-c", "n", "q"], Command::No, "no", "back", "Close the dialog and do nothing; the letters work only if the dialog takes no reason"),
    view_binding(Dialog, &["enter"], Command::Press, "press", "next", "Go to the next field, from the last one to the button that acts; on a button, press it"),
    view_binding(Dialog, &["tab", "down"], Command::NextField, "next-field", "next", "Next field or button"),
    view_binding(Dialog, &["backtab", "up"], Command::PreviousField, "previous-field", "", "Previous field or button"),
    view_binding(Dialog, &["right"], Command::NextOption, "next-option", "", "Next option of a choice; otherwise the next field or button"),
    view_binding(Dialog, &["left"], Command::PreviousOption, "previous-option", "", "Previous option of a choice; otherwise the previous field or button"),
    view_binding(Dialog, &["pgdn"], Command::PageDown, "dialog-down", "", "Scroll down in a long list"),
    view_binding(Dialog, &["pgup"], Command::PageUp, "dialog-up", "", "Scroll up in a long list"),
    view_binding(Field, &["enter"], Command::Accept, "accept", "next", "Accept the text; in a dialog: go to the next field, from the last one to the button that acts"),
    view_binding(Field, &["esc", "ctrl-c"], Command::Drop, "drop", "back", "Discard the text; in a dialog: close it and do nothing"),
    view_binding(Field, &["tab"], Command::NextField, "field-next", "", "Accept the text and go to the next field; on the command line: complete, or the next suggestion"),
    view_binding(Field, &["backtab"], Command::PreviousField, "field-previous", "", "Accept the text and go back; on the command line: the previous suggestion"),
    view_binding(Field, &["down"], Command::Later, "field-down", "", "Next field; on the command line: next line of the history"),
    view_binding(Field, &["up"], Command::Earlier, "field-up", "", "Previous field; on the command line: previous line of the history"),
];

/// Returns a key as it is shown to people: `X`, `Esc`, `Ctrl-f`, `gg`, `Ctrl-x c`.
pub fn title(key: &str) -> String {
    if key.contains(' ') {
        let letters = key.split_whitespace().all(|part| part.chars().count() == 1);
        return key.split_whitespace().map(title).collect::<Vec<_>>().join(if letters { "" } else { " " });
    }
    match key {
        "pgdn" => return "PgDn".to_owned(),
        "pgup" => return "PgUp".to_owned(),
        "backtab" => return "Shift-Tab".to_owned(),
        _ => {}
    }
    match key.split_at_checked(1) {
        Some((first, rest)) if !rest.is_empty() => format!("{}{rest}", first.to_uppercase()),
        _ => key.to_owned(),
    }
}

/// Returns true if names of this context can be typed on the command line.
pub fn is_typable(context: Context) -> bool {
    matches!(context, Everywhere | Table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_table_has_no_duplicates() {
        assert_eq!(Keymap::new(&std::collections::BTreeMap::new()).map(|_| ()), Ok(()));
        assert_eq!(Keymap::default().key("cancel"), Some("X"));
    }

    #[test]
    fn commands_that_change_the_cluster_are_bound_to_unshared_capital_letters() {
        for b in TABLE.iter().filter(|b| b.changes) {
            assert!(b.keys.iter().all(|k| k.len() == 1 && k.chars().all(char::is_uppercase)), "{}", b.name);
            let sharing = TABLE.iter().filter(|o| o.keys.iter().any(|k| b.keys.contains(k))).count();
            assert!(sharing == b.keys.len().min(1), "{}", b.name);
        }
    }
}
