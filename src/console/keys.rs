//! The single key table. Dispatch, the footer's hints, the `?` overlay and `docs/keys.md` are derived from it.
//!
//! A verb that changes the cluster has one capital letter, the same in every view, and no harmless command shares it.

use std::fmt::Write as _;

pub use super::keymap::{Heard, Keymap, Stroke, named, normal, parse};

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
    Top,
    Bottom,
    Open,
    Back,
    Mark,
    MarkAll,
    Filter,
    Find,
    NextView,
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
    Keep,
    Release,
    HostPower,
    Fence,
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

const fn look(
    context: Context,
    keys: &'static [&'static str],
    command: Command,
    name: &'static str,
    hint: &'static str,
    help: &'static str,
) -> Binding {
    Binding { context, keys, command, name, hint, help, changes: false }
}

const fn verb(
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
    look(Table, &["enter"], Command::Open, "open", "detail", "Open the detail pane of the row"),
    look(Detail, &["enter"], Command::Back, "close", "back", "Close the pane"),
    look(Detail, &["/"], Command::Find, "find", "find", "In the help and similar lists: show only lines with these words; beside a pane: filter the table"),
    verb(&["X"], Command::Cancel, "cancel", "cancel", "Cancel the marked reboots, delete the marked repairs, or the one under the cursor"),
    verb(&[], Command::CancelAll, "cancel-all", "", "Cancel all reboots"),
    verb(&["R"], Command::Reboot, "reboot", "reboot", "Queue a reboot of the marked nodes, or of the one under the cursor"),
    verb(&["P"], Command::Repair, "repair", "repair", "Queue a repair of the marked nodes, or of the one under the cursor; on a repair: queue it again"),
    verb(&["B"], Command::ResetBackoff, "reset-backoff", "reset backoff", "End the backoff of the entries; the next pass takes them"),
    verb(&["H"], Command::Hold, "hold", "hold", "Hold the entries until they are released; in Machines and Diff: stop applying definitions"),
    verb(&["L"], Command::Unhold, "unhold", "unhold", "Release entries on hold; in Machines and Diff: resume applying; in Hosts: release a host held off by cketerm"),
    verb(&["E"], Command::Switch, "switch", "on/off", "Enable or disable the queue: in Repairs the repair queue, in Machines and Diff the sabakan integration, elsewhere the reboot queue"),
    verb(&[], Command::Stop, "stop", "", "Disable both queues, whoever leads, and record which were enabled"),
    verb(&[], Command::Resume, "resume", "", "Enable the queues that stop disabled, except those that somebody changed since"),
    verb(&["Y"], Command::Approve, "approve", "approve", "Approve the pending change of the definition"),
    verb(&["S"], Command::Constraint, "constraint", "constraint", "Set a constraint: choose it and type its value"),
    verb(&["M"], Command::AutoRepair, "auto-repair", "auto-repair", "Enable or disable automatic repair"),
    verb(&["A"], Command::Retry, "retry", "retry", "Order a retry: run the reboot or repair command again"),
    verb(&["D"], Command::Done, "done", "done", "Order done: treat the machine as booted, or as healthy"),
    verb(&["F"], Command::Force, "force", "force", "Order force: continue without waiting for pods and volumes"),
    verb(&["Z"], Command::DeleteFinished, "delete-finished", "delete ended", "Delete all repairs that have succeeded or failed"),
    verb(&["K"], Command::DeleteUnfinished, "delete-unfinished", "", "Delete all repairs that are queued or in work"),
    verb(&["C"], Command::Keep, "keep-cordoned", "keep cordoned", "Keep the node cordoned when the work ends, or undo that; no confirmation"),
    verb(&["U"], Command::Release, "release", "", "Uncordon a node that a cancelled entry left cordoned"),
    verb(&["W"], Command::HostPower, "host-power", "power", "Hosts: reboot, hold off, turn on or turn off at once through Metal3's interface; no queue, no drain"),
    verb(&["I"], Command::Fence, "fence", "fence", "Hosts: isolate: hold the host off, wait for proof, delete its Node, release the host"),
    look(Table, &["space"], Command::Mark, "mark", "mark", "Mark or unmark the row and move down"),
    look(Table, &["*"], Command::MarkAll, "mark-all", "", "Mark all rows that match the filter; again: unmark them"),
    look(Table, &["/"], Command::Filter, "filter", "filter", "Show only matching rows: words, /regex/, !not, column:word, rack=3, since>10m, or"),
    look(Table, &["n"], Command::Trouble, "trouble", "trouble", "Go to the next stuck row; if there is none, to the next row that waits on something"),
    look(Everywhere, &["o"], Command::Jump, "jump", "node/entry", "Go from an entry or a host to its node, from a node to its entries, or from an audit record to its object"),
    look(Everywhere, &["b"], Command::Blockers, "blockers", "blockers", "Drain blockers, worst first"),
    look(Everywhere, &["u"], Command::Undo, "undo", "undo", "Undo this console's last action (1 minute)"),
    look(Everywhere, &[], Command::Tour, "tour", "", "In the sandbox: start the tour of the first steps; again: end it"),
    look(Everywhere, &["tab"], Command::NextView, "next-view", "", "Next view"),
    look(Everywhere, &["0"], Command::Overview, "overview", "", "Overview: progress, stuck entries, leader, time left"),
    look(Everywhere, &["1"], Command::Reboots, "reboots", "", "Reboots"),
    look(Everywhere, &["2"], Command::Nodes, "nodes", "", "Nodes"),
    look(Everywhere, &["3"], Command::Repairs, "repairs", "", "Repairs"),
    look(Everywhere, &["4"], Command::Machines, "machines", "", "Machines"),
    look(Everywhere, &["5"], Command::Diff, "diff", "", "Diff"),
    look(Everywhere, &["6"], Command::Hosts, "hosts", "", "Hosts"),
    look(Everywhere, &["7"], Command::History, "history", "", "History: entries that ended, with their timelines"),
    look(Everywhere, &["8"], Command::Audit, "audit", "", "Audit: who did what, when, why, from where"),
    look(Everywhere, &["9"], Command::Logs, "logs", "", "Logs: log lines of this process"),
    look(Everywhere, &["l"], Command::LogsOf, "logs-of", "its logs", "Log lines of the entry or node under the cursor"),
    look(Everywhere, &[":"], Command::Line, "command", "command", "Type a command: any name in this table, goto, view, mark, sort ...; tab completes"),
    look(Everywhere, &[], Command::Messages, "messages", "", "The last 200 messages with their times"),
    look(Table, &["s"], Command::Sort, "sort", "sort", "Sort by the next column; after the last one: the view's own order"),
    look(Table, &["r"], Command::Reverse, "reverse", "", "Reverse the order"),
    look(Table, &["|"], Command::Columns, "choose-columns", "", "Choose the columns of the view and their order; saved for the next start"),
    look(Table, &["v"], Command::Racks, "racks", "racks", "In Nodes: racks as a map (one letter per machine) or as rows; in Machines and Diff: racks as counts by role and state; in History: CKE's records or cketerm's"),
    look(Table, &["right"], Command::Right, "right", "", "In the rack map: next machine"),
    look(Table, &["left"], Command::Left, "left", "", "In the rack map: previous machine"),
    look(Everywhere, &["j", "down"], Command::Down, "down", "", "Down"),
    look(Everywhere, &["k", "up"], Command::Up, "up", "", "Up"),
    look(Everywhere, &["pgdn", "ctrl-f"], Command::PageDown, "page-down", "", "Page down"),
    look(Everywhere, &["pgup", "ctrl-b"], Command::PageUp, "page-up", "", "Page up"),
    look(Everywhere, &["g", "home"], Command::Top, "top", "", "First row"),
    look(Everywhere, &["G", "end"], Command::Bottom, "bottom", "", "Last row"),
    look(Everywhere, &["esc"], Command::Back, "back", "", "Close the pane, or clear filter, marks or message"),
    look(Everywhere, &["?"], Command::Help, "help", "help", "These keys"),
    look(Everywhere, &["q", "ctrl-c"], Command::Quit, "quit", "quit", "Quit; asks if this console leads and no other engine stands by"),
    look(Everywhere, &["ctrl-z"], Command::Suspend, "suspend", "", "Suspend the program; `fg` resumes it. If it leads and no other engine is known to stand by, it warns first and suspends at the second press"),
    look(Everywhere, &["c"], Command::Copy, "copy", "", "Copy the row under the cursor, or the text of the open pane, to the clipboard (OSC 52)"),
    look(Everywhere, &["ctrl-l"], Command::Repaint, "repaint", "", "Redraw the screen"),
    look(Dialog, &["y"], Command::Yes, "yes", "yes", "On the buttons: yes, do it. Elsewhere it is text of the reason, like every other letter"),
    look(Dialog, &["esc", "ctrl-c", "n", "q"], Command::No, "no", "no", "No, do nothing; the letters work only if the dialog takes no reason"),
    look(Dialog, &["enter"], Command::Press, "press", "next", "Go to the next field, then to the buttons; there, press the focused one: Cancel, unless something was typed"),
    look(Dialog, &["tab", "down"], Command::NextField, "next-field", "next", "Next field or button"),
    look(Dialog, &["backtab", "up"], Command::PreviousField, "previous-field", "", "Previous field or button"),
    look(Dialog, &["right"], Command::NextOption, "next-option", "", "Next option of a choice; otherwise the next field or button"),
    look(Dialog, &["left"], Command::PreviousOption, "previous-option", "", "Previous option of a choice; otherwise the previous field or button"),
    look(Dialog, &["pgdn"], Command::PageDown, "dialog-down", "", "Scroll down in a long list"),
    look(Dialog, &["pgup"], Command::PageUp, "dialog-up", "", "Scroll up in a long list"),
    look(Field, &["enter"], Command::Accept, "accept", "next", "Accept the text; in a dialog: go to the next field, then to the buttons"),
    look(Field, &["esc", "ctrl-c"], Command::Drop, "drop", "no", "Discard the text; in a dialog: no, do nothing"),
    look(Field, &["tab"], Command::NextField, "field-next", "", "Accept the text and go to the next field; on the command line: complete, or the next suggestion"),
    look(Field, &["backtab"], Command::PreviousField, "field-previous", "", "Accept the text and go back; on the command line: the previous suggestion"),
    look(Field, &["down"], Command::Later, "field-down", "", "Next field; on the command line: next line of the history"),
    look(Field, &["up"], Command::Earlier, "field-up", "", "Previous field; on the command line: previous line of the history"),
];

/// Returns a key as it is shown to people: `X`, `Esc`, `Ctrl-f`.
pub fn title(key: &str) -> String {
    if key.contains(' ') {
        return key.split_whitespace().map(title).collect::<Vec<_>>().join(" ");
    }
    match key {
        "pgdn" => return "PgDn".to_owned(),
        "pgup" => return "PgUp".to_owned(),
        _ => {}
    }
    match key.split_at_checked(1) {
        Some((first, rest)) if !rest.is_empty() => format!("{}{rest}", first.to_uppercase()),
        _ => key.to_owned(),
    }
}

/// Returns true if names of this context can be typed on the command line.
pub fn typed(context: Context) -> bool {
    matches!(context, Everywhere | Table)
}

/// Returns the whole of `docs/keys.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Keys\n\nGenerated from the key table in `src/console/keys.rs`; a test compares them \
         (`UPDATE_DOCS=1 cargo test keys` writes this file).\nA key that changes the cluster means the same in every view \
         and nothing else. Every command can be bound to other keys, or to none, by its name.\n",
    );
    for (title, context, changes) in [
        ("Changing the cluster", Everywhere, true),
        ("Tables", Table, false),
        ("Everywhere", Everywhere, false),
        ("Detail panes and help", Detail, false),
        ("Dialogs", Dialog, false),
        ("Text fields", Field, false),
    ] {
        let _ = write!(out, "\n## {title}\n\n| key | name | what it does |\n| --- | --- | --- |\n");
        for b in TABLE.iter().filter(|b| b.context == context && b.changes == changes) {
            let mut keys: Vec<_> = b.keys.iter().map(|k| format!("`{k}`")).collect();
            keys.extend((keys.is_empty() && typed(context)).then(|| format!("`:{}`", b.name)));
            let _ = writeln!(out, "| {} | `{}` | {} |", keys.join(" "), b.name, b.help);
        }
    }
    out.push_str(
        "\n## Confirmations\n\nA confirmation expires when the state that it showed changes; one that stops something shows the new state \
         instead. The focus\nnever begins on the button that confirms. For an entry that cannot be read, `cancel` asks you to type the \
         cluster's name and the index.\n\n| name | confirmation |\n| --- | --- |\n",
    );
    for (name, tier) in super::dialog::tier::TIERS {
        let _ = writeln!(out, "| `{name}` | {} |", tier.told());
    }
    let _ = write!(
        out,
        "\n## Command line\n\nEvery name above that works in tables or everywhere can be typed after `:`; tab completes. \
         There are also the commands below, and verbs\ntake rows and a reason.\n{}\n\n| command | what it does |\n| --- | --- |\n",
        super::command_line::ROWS
    );
    let words = super::command_line::WORDS.iter().map(|w| (format!("{} {}", w.name, w.argument), w.help));
    for (form, help) in words.chain(super::command_line::verb_forms()) {
        let _ = writeln!(out, "| `:{}` | {help} |", form.trim_end().replace('|', "\\|"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_no_key_twice() {
        assert_eq!(Keymap::new(&std::collections::BTreeMap::new()).map(|_| ()), Ok(()));
        assert_eq!(Keymap::default().key("cancel"), Some("X"));
    }

    #[test]
    fn a_verb_that_changes_the_cluster_is_a_capital_letter_and_never_a_control_key() {
        for b in TABLE.iter().filter(|b| b.changes) {
            assert!(b.keys.iter().all(|k| k.len() == 1 && k.chars().all(char::is_uppercase)), "{}", b.name);
            let sharing = TABLE.iter().filter(|o| o.keys.iter().any(|k| b.keys.contains(k))).count();
            assert!(sharing == b.keys.len().min(1), "{}", b.name);
        }
    }

    #[test]
    fn the_document_of_the_keys_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/keys.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), markdown(), "UPDATE_DOCS=1 cargo test keys");
    }
}
