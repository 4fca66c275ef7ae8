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
    look(Detail, &["/"], Command::Find, "find", "find", "In the help and the sheets like it: show only what has these words; beside a pane: filter the table"),
    verb(&["X"], Command::Cancel, "cancel", "cancel", "Cancel the reboots, or delete the repairs, that are marked or under the cursor"),
    verb(&[], Command::CancelAll, "cancel-all", "", "Cancel all reboots"),
    verb(&["R"], Command::Reboot, "reboot", "reboot", "Queue a reboot of the nodes that are marked, or of the one under the cursor"),
    verb(&["P"], Command::Repair, "repair", "repair", "Queue a repair of the nodes that are marked, or of the one under the cursor; of a repair: once more"),
    verb(&["B"], Command::ResetBackoff, "reset-backoff", "reset backoff", "End the backoff of the entries, so that the next pass takes them"),
    verb(&["H"], Command::Hold, "hold", "hold", "Keep the entries from starting until they are let go; in Machines and Diff: stop all applying"),
    verb(&["L"], Command::Unhold, "unhold", "let go", "Let entries go that are on hold; in Machines and Diff: let applying go on; in Hosts: release a host that we hold off"),
    verb(&["E"], Command::Switch, "switch", "on/off", "Enable or disable the queue: in Repairs the repair queue, in Machines and Diff the sabakan integration, elsewhere the reboot queue"),
    verb(&[], Command::Stop, "stop", "", "Disable both queues at once, whoever leads, and remember which were enabled"),
    verb(&[], Command::Resume, "resume", "", "Enable the queues that stop disabled, but for those that somebody turned since"),
    verb(&["Y"], Command::Approve, "approve", "approve", "Let the change of the definition that waits at the gate pass (yes)"),
    verb(&["S"], Command::Constraint, "constraint", "constraint", "Set a constraint: choose it and type its value"),
    verb(&["M"], Command::AutoRepair, "auto-repair", "auto-repair", "Enable or disable automatic repair"),
    verb(&["A"], Command::Retry, "retry", "again", "Order: run the reboot or repair command once more (again)"),
    verb(&["D"], Command::Done, "done", "done", "Order: treat the machine as booted, or as healthy"),
    verb(&["F"], Command::Force, "force", "force", "Order: go on without waiting for pods and volumes"),
    verb(&["Z"], Command::DeleteFinished, "delete-finished", "delete ended", "Delete all repairs that have succeeded or failed"),
    verb(&["K"], Command::DeleteUnfinished, "delete-unfinished", "", "Delete all repairs that are queued or in work"),
    verb(&["C"], Command::Keep, "keep-cordoned", "keep cordoned", "Keep the node cordoned when the work ends, or give that up; asks nothing"),
    verb(&["U"], Command::Release, "release", "", "Order: release a cordon that was left behind by a cancelled entry"),
    verb(&["W"], Command::HostPower, "host-power", "power", "Hosts: reboot them, hold them off, or turn them on or off through Metal3's interface, now: no queue, no drain"),
    verb(&["I"], Command::Fence, "fence", "fence", "Hosts: isolate: hold the host off, wait for the proof, delete its Node, release the host"),
    look(Table, &["space"], Command::Mark, "mark", "mark", "Mark or unmark the row and go on"),
    look(Table, &["*"], Command::MarkAll, "mark-all", "", "Mark all rows that pass the filter; once more: unmark them"),
    look(Table, &["/"], Command::Filter, "filter", "filter", "Show only rows that pass: words, /regex/, !not, column:word, rack=3, since>10m, or"),
    look(Table, &["n"], Command::Trouble, "trouble", "trouble", "Go to the next row that is stuck; where none is, to one that waits on something"),
    look(Everywhere, &["o"], Command::Jump, "jump", "node/entry", "Go from an entry or a host to its node, or from a node to its entry or entries; from an audit record to what it is about"),
    look(Everywhere, &["b"], Command::Blockers, "blockers", "blockers", "What keeps pods on nodes that are to go, by what keeps them; what holds the most nodes first"),
    look(Everywhere, &["u"], Command::Undo, "undo", "undo", "The way back of what this console did last, for a minute and where there is one: opens its confirmation"),
    look(Everywhere, &[], Command::Tour, "tour", "", "In the sandbox: the first steps, one at a time; again: end them"),
    look(Everywhere, &["tab"], Command::NextView, "next-view", "", "Next view"),
    look(Everywhere, &["0"], Command::Overview, "overview", "", "Overview: is it moving, what is stuck, who leads, how long to go"),
    look(Everywhere, &["1"], Command::Reboots, "reboots", "", "Reboots"),
    look(Everywhere, &["2"], Command::Nodes, "nodes", "", "Nodes"),
    look(Everywhere, &["3"], Command::Repairs, "repairs", "", "Repairs"),
    look(Everywhere, &["4"], Command::Machines, "machines", "", "Machines"),
    look(Everywhere, &["5"], Command::Diff, "diff", "", "Diff"),
    look(Everywhere, &["6"], Command::Hosts, "hosts", "", "Hosts"),
    look(Everywhere, &["7"], Command::History, "history", "", "History: entries that ended, with their timelines"),
    look(Everywhere, &["8"], Command::Audit, "audit", "", "Audit: who did what, when, why, from where"),
    look(Everywhere, &["9"], Command::Logs, "logs", "", "Logs: this process's own log lines"),
    look(Everywhere, &["l"], Command::LogsOf, "logs-of", "its logs", "The log lines of the entry, or of the node, under the cursor"),
    look(Everywhere, &[":"], Command::Line, "command", "command", "Type a command: any name of this table, goto, view, mark, sort ...; tab completes"),
    look(Everywhere, &[], Command::Messages, "messages", "", "The last 200 messages with their times"),
    look(Table, &["s"], Command::Sort, "sort", "sort", "Sort by the next column; after the last one the view's own order again"),
    look(Table, &["r"], Command::Reverse, "reverse", "", "Turn the order round"),
    look(Table, &["|"], Command::Columns, "choose-columns", "", "Choose the columns of the view, and their order; kept for the next time"),
    look(Table, &["v"], Command::Racks, "racks", "racks", "In Nodes: the racks as a map, a letter a machine, or the rows again; in Machines and Diff: racks as counts by role and state; in History: CKE's records, or ours again"),
    look(Table, &["right"], Command::Right, "right", "", "In the map of the racks: the next machine"),
    look(Table, &["left"], Command::Left, "left", "", "In the map of the racks: the machine before"),
    look(Everywhere, &["j", "down"], Command::Down, "down", "", "Down"),
    look(Everywhere, &["k", "up"], Command::Up, "up", "", "Up"),
    look(Everywhere, &["pgdn", "ctrl-f"], Command::PageDown, "page-down", "", "A page down"),
    look(Everywhere, &["pgup", "ctrl-b"], Command::PageUp, "page-up", "", "A page up"),
    look(Everywhere, &["g", "home"], Command::Top, "top", "", "First row"),
    look(Everywhere, &["G", "end"], Command::Bottom, "bottom", "", "Last row"),
    look(Everywhere, &["esc"], Command::Back, "back", "", "Peel off: pane, filter, marks, message"),
    look(Everywhere, &["?"], Command::Help, "help", "help", "These keys"),
    look(Everywhere, &["q", "ctrl-c"], Command::Quit, "quit", "quit", "Leave; asks when this console leads and no other engine stands by"),
    look(Everywhere, &["ctrl-z"], Command::Suspend, "suspend", "", "Stop the program; `fg` brings it back. Where it leads and nobody is known to stand by it says so first, and stops at the second press"),
    look(Everywhere, &["c"], Command::Copy, "copy", "", "Copy what the cursor is on, or the text of the open pane, to the clipboard, by the terminal (OSC 52)"),
    look(Everywhere, &["ctrl-l"], Command::Repaint, "repaint", "", "Paint everything again"),
    look(Dialog, &["y"], Command::Yes, "yes", "yes", "On the buttons: yes, do it. Elsewhere, and every other letter: text of the reason"),
    look(Dialog, &["esc", "ctrl-c", "n", "q"], Command::No, "no", "no", "No, do nothing; letters only where no reason can be given"),
    look(Dialog, &["enter"], Command::Press, "press", "goes on", "Go on to the next field and to the buttons; there press the one that has the focus: Cancel, unless something was typed"),
    look(Dialog, &["tab", "down"], Command::NextField, "next-field", "next", "Next field or button"),
    look(Dialog, &["backtab", "up"], Command::PreviousField, "previous-field", "", "Previous field or button"),
    look(Dialog, &["right"], Command::NextOption, "next-option", "", "Next option of a choice; else the next field or button"),
    look(Dialog, &["left"], Command::PreviousOption, "previous-option", "", "Previous option of a choice; else the previous field or button"),
    look(Dialog, &["pgdn"], Command::PageDown, "dialog-down", "", "Further down in a long list"),
    look(Dialog, &["pgup"], Command::PageUp, "dialog-up", "", "Further up in a long list"),
    look(Field, &["enter"], Command::Accept, "accept", "goes on", "Take the text; in a dialog: on to the next field, then to the buttons"),
    look(Field, &["esc", "ctrl-c"], Command::Drop, "drop", "no", "Drop the text; in a dialog: no, do nothing"),
    look(Field, &["tab"], Command::NextField, "field-next", "", "Take the text and go on to the next field; on the command line: complete, or the next proposal"),
    look(Field, &["backtab"], Command::PreviousField, "field-previous", "", "Take the text and go back; on the command line: the proposal before"),
    look(Field, &["down"], Command::Later, "field-down", "", "The next field; on the command line: the line that was typed after this one"),
    look(Field, &["up"], Command::Earlier, "field-up", "", "The field before; on the command line: the line that was typed before this one"),
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
        "\n## What asks how\n\nA confirmation is bound to what it showed: when that changes, it expires; one that stops something follows \
         it instead. The focus\nnever begins on the button that does it. Of an entry that cannot be read `cancel` asks for the cluster's name and \
         the index, typed.\n\n| name | asks |\n| --- | --- |\n",
    );
    for (name, tier) in super::dialog::tier::TIERS {
        let _ = writeln!(out, "| `{name}` | {} |", tier.told());
    }
    let _ = write!(
        out,
        "\n## Command line\n\nEvery name above that works in tables or everywhere can be typed after `:`; tab completes. \
         Beside them there are these, and verbs take\nrows and a reason.\n{}\n\n| words | what they do |\n| --- | --- |\n",
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
