//! Keys on the command line, and the effects of its commands.

use cketerm_model::{
    boot_time::Seconds,
    entry::{EntryId, QueueKind},
    names::Address,
    time::after,
};
use crossterm::event::{Event as Terminal, KeyCode, KeyEvent};
use tui_input::{Input, backend::crossterm::EventHandler};

use super::navigation;
use crate::{
    dialogs,
    keys::{Command, Context},
    state::{
        App, HostId, Target, View, calendar,
        columns::{
            self, Actions, Changes, EndedEntries, Hosts, Lines, Machines, Nodes, Reboots, Records, Repairs, RowCells,
        },
        command_line::{self, CommandLine, ParsedCommand},
        event::{Effect, count},
        filter::{Filter, duration},
        queries,
    },
};

/// Opens the command line.
pub(super) fn begin(app: &mut App) {
    app.navigation.help = None;
    let suggestions = command_line::completions(app, "");
    app.typing.line = Some(CommandLine { suggestions, ..CommandLine::default() });
}

/// Handles a key while a command is typed.
pub(super) fn press(app: &mut App, command: Option<Command>, key: KeyEvent) -> Vec<Effect> {
    let Some(mut line) = app.typing.line.take() else { return Vec::new() };
    match command {
        Some(Command::Drop) => {}
        Some(Command::Accept) if line.input.value().trim().is_empty() => {}
        Some(Command::Accept) => match run(app, line.input.value()) {
            Ok(effects) => {
                remember_line(app, line.input.value());
                return effects;
            }
            Err(why) => {
                (line.error, line.is_refused) = (Some(why), true);
                app.typing.line = Some(line);
            }
        },
        Some(direction @ (Command::NextField | Command::PreviousField)) => {
            complete(app, &mut line, direction == Command::NextField);
            app.typing.line = Some(line);
        }
        Some(direction @ (Command::Earlier | Command::Later)) => {
            recall(app, &mut line, direction == Command::Earlier);
            app.typing.line = Some(line);
        }
        // a line that was refused is done, unless the next key edits it
        _ if line.is_refused && key.code == KeyCode::Char(':') => begin(app),
        _ if line.is_refused && is_digit(key) => {
            let command = app.config.keymap.lookup(Context::Table, key);
            return command.map(|command| super::execute(app, command)).unwrap_or_default();
        }
        _ => {
            line.input.handle_event(&Terminal::Key(key));
            line.is_refused = false;
            (line.error, line.completions, line.history_index) = (None, None, None);
            line.suggestions = command_line::completions(app, line.input.value());
            app.typing.line = Some(line);
        }
    }
    Vec::new()
}

/// Reports whether a key is a digit, which shows a view.
fn is_digit(key: KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char('0'..='9')) && key.modifiers.is_empty()
}

/// Number of lines in the command history.
const MAX_HISTORY: usize = 100;

/// Adds a line that was carried out to the history, without duplicates.
fn remember_line(app: &mut App, text: &str) {
    let text = text.trim().to_owned();
    app.typing.lines.retain(|line| *line != text);
    app.typing.lines.push(text);
    if app.typing.lines.len() > MAX_HISTORY {
        app.typing.lines.remove(0);
    }
}

/// Replaces the current line by the previous or next line of the history.
fn recall(app: &App, line: &mut CommandLine, earlier: bool) {
    let at = match (line.history_index, earlier) {
        (None, true) => Some(0),
        (None, false) => return,
        (Some(at), true) => Some((at + 1).min(app.typing.lines.len().saturating_sub(1))),
        (Some(at), false) => at.checked_sub(1),
    };
    let text = at.and_then(|at| app.typing.lines.iter().rev().nth(at)).cloned();
    if text.is_none() && earlier {
        return;
    }
    line.history_index = at;
    line.is_refused = false;
    line.input = Input::new(text.unwrap_or_default());
    (line.error, line.completions) = (None, None);
    line.suggestions = command_line::completions(app, line.input.value());
}

/// Inserts the next proposal.
fn complete(app: &App, line: &mut CommandLine, forward: bool) {
    let mut completions = match line.completions.take() {
        Some(mut again) if !again.words.is_empty() => {
            let n = again.words.len();
            again.at = (again.at + if forward { 1 } else { n - 1 }) % n;
            again
        }
        _ => command_line::completions(app, line.input.value()),
    };
    let Some(word) = completions.words.get(completions.at) else {
        line.error = Some("no completion here".to_owned());
        return;
    };
    // a single proposal completes the word
    let end = if completions.words.len() == 1 && !word.ends_with(':') { " " } else { "" };
    line.input = Input::new(format!("{}{word}{end}", completions.before));
    line.error = None;
    if completions.words.len() == 1 {
        completions.words.clear();
    }
    line.completions = Some(completions).filter(|p| !p.words.is_empty());
}

/// Carries out a line; after an error the line stays open.
fn run(app: &mut App, text: &str) -> Result<Vec<Effect>, String> {
    let read = command_line::read(text).map_err(|why| match find(app, text.trim()) {
        // somebody typed only where to go
        Ok(_) => format!("there is no command {:?}: did you mean `goto {}`?", text.trim(), text.trim()),
        Err(_) => why,
    });
    match read? {
        ParsedCommand::Press(command) => Ok(super::execute(app, command)),
        ParsedCommand::Verb(command, rows, reason) => {
            if let Some(rows) = rows {
                choose(app, command, &rows)?;
            }
            Ok(super::verbs::begin(app, command, reason))
        }
        ParsedCommand::AllBackoffs(reason) => {
            let opened = dialogs::backoff::all(app).map(|mut opened| {
                opened.set_reason(reason.unwrap_or_default());
                opened
            });
            super::verbs::open(app, opened)
        }
        ParsedCommand::ArgumentCommand(name, argument) => word(app, name, &argument),
    }
}

fn word(app: &mut App, name: &str, argument: &str) -> Result<Vec<Effect>, String> {
    match (name, argument) {
        ("q", _) => return Ok(super::execute(app, Command::Quit)),
        ("view", name) => navigation::show(app, name.parse::<View>()?),
        ("goto", to) => navigation::visit(app, find(app, to)?),
        ("freeze", argument) => {
            let opened = dialogs::freeze::freeze(app, argument);
            return super::verbs::open(app, opened);
        }
        ("unfreeze", reason) => {
            let opened = dialogs::freeze::unfreeze(app, reason);
            return super::verbs::open(app, opened);
        }
        // who holds which nodes, and until when
        ("maintenance", "") => {
            navigation::show(app, View::Nodes);
            // the list, whatever was chosen for all Nodes
            (app.navigation.map, app.navigation.map_decided) = (None, true);
            super::typing::set_filter(app, "maintenance:/./");
        }
        ("maintenance", argument) => {
            let opened = dialogs::maintenance::begin(app, argument);
            return super::verbs::open(app, opened);
        }
        ("end-maintenance", reason) => {
            let opened = dialogs::maintenance::end(app, reason);
            return super::verbs::open(app, opened);
        }
        ("write", duration_text) => allow_writes(app, duration_text)?,
        ("columns", names) => super::columns::word(app, names)?,
        ("theme", name) => return Ok(vec![Effect::ReadThemes(Some(name.to_owned()).filter(|name| !name.is_empty()))]),
        ("settings", "forget") => navigation::forget(app),
        ("settings", what) => return Err(format!("settings {what:?}: only `settings forget` is known")),
        ("unmark", _) => app.list_mut().unmark(),
        ("mark", "") => app.list_mut().mark(),
        ("mark", filter) => drop(mark(app, filter, true)?),
        ("filter", "") => return Ok(super::execute(app, Command::Filter)),
        ("filter", filter) => {
            Filter::parse(filter, &columns::of(app))?;
            super::typing::set_filter(app, filter);
        }
        ("sort", "") => return Ok(super::execute(app, Command::Sort)),
        (_, by) => {
            let (name, direction) = by.split_once(' ').unwrap_or((by, ""));
            let columns = columns::of(app);
            let column = columns.iter().find(|c| **c == name);
            let column = column.ok_or_else(|| format!("there is no column {name}: {}", columns.join(" ")))?;
            if !["", "desc", "asc"].contains(&direction.trim()) {
                return Err(format!("{direction:?} is neither asc nor desc"));
            }
            navigation::set_sort_order(app, Some((*column, direction.trim() == "desc")));
        }
    }
    Ok(Vec::new())
}

/// Resolves the argument of `goto`.
fn find(app: &App, text: &str) -> Result<Target, String> {
    if let Ok(id) = text.parse::<EntryId>() {
        let exists = queries::stored_at(&app.seen, id).is_some();
        return if exists {
            Ok(Target::Entry(id))
        } else {
            Err(format!("there is no {id}: it may have ended (:history)"))
        };
    }
    let seen = &app.seen;
    let by_address = seen.snapshot.machine(&Address::new(text));
    for name in [text, &by_address] {
        if queries::known(seen, name) {
            return Ok(Target::Node(name.to_owned()));
        }
    }
    Err(format!("{text:?} is not a node, its address, or an entry such as reboots/3"))
}

/// Marks the rows of the open view that pass the filter, in place of the earlier marks. If no row passes, the earlier
/// marks stay, unless `none` allows an empty result. Returns the number of rows that pass.
fn mark(app: &mut App, filter: &str, none: bool) -> Result<usize, String> {
    let columns = columns::of(app);
    let active_filter = Filter::parse(filter, &columns)?;
    macro_rules! marked {
        ($list:ident of $table:ty) => {{
            let hits: Vec<_> = app
                .lists
                .$list
                .rows
                .iter()
                .filter(|id| active_filter.passes(&RowCells::<$table>::new(app, id)))
                .cloned()
                .collect();
            let n = hits.len();
            if none || n > 0 {
                app.lists.$list.marks = hits.into_iter().collect();
            }
            n
        }};
    }
    let n = match app.navigation.view {
        View::Overview => return Err("the Overview has no rows to mark: choose a view".to_owned()),
        View::Reboots => marked!(reboots of Reboots),
        View::Nodes => marked!(nodes of Nodes),
        View::Repairs => marked!(repairs of Repairs),
        View::Machines => marked!(machines of Machines),
        View::Diff => marked!(diff of Changes),
        View::Hosts => marked!(hosts of Hosts),
        View::History if app.navigation.cke_records => marked!(records of Records),
        View::History => marked!(history of EndedEntries),
        View::Audit => marked!(audit of Actions),
        View::Logs => marked!(log of Lines),
    };
    app.print(format!("{} marked", count(n, "row")));
    Ok(n)
}

/// Opens the view of a verb, and marks the rows that its argument names.
fn choose(app: &mut App, command: Command, rows: &str) -> Result<(), String> {
    let view = match command {
        Command::Reboot | Command::Repair => View::Nodes,
        Command::Hold | Command::Unhold if app.navigation.view == View::Hosts => View::Hosts,
        _ if app.navigation.view == View::Repairs => View::Repairs,
        _ => View::Reboots,
    };
    let before = app.navigation.view;
    if before != view {
        navigation::push_position(app);
    }
    navigation::enter(app, view);
    let found = chosen(app, view, rows);
    if found.is_err() && before != view {
        navigation::pop_position(app);
    }
    found
}

/// Marks the rows that an argument names. A single word is a name, an address or an index. If it matches none of them,
/// that is an error, because as a filter it could match other rows by chance.
fn chosen(app: &mut App, view: View, rows: &str) -> Result<(), String> {
    let words: Vec<&str> = rows.split([' ', ',']).filter(|w| !w.is_empty()).collect();
    if words.is_empty() {
        return Err(format!("{rows:?} names nothing: give names, indexes or a filter"));
    }
    let bare =
        |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c)) && !word.starts_with('/');
    let joins = |word: &&str| ["or", "and"].contains(word);
    // an address may contain colons, as a filter of a column does
    let filter = |word: &&str| (!bare(word) && word.parse::<std::net::IpAddr>().is_err()) || joins(word);
    if words.iter().any(filter) {
        if mark(app, rows, false)? == 0 {
            return Err(format!("no row of {} matches {rows:?}", view.title()));
        }
        return Ok(());
    }
    if view == View::Nodes {
        let named: Result<Vec<String>, String> = words.iter().map(|word| named(app, word)).collect();
        app.lists.nodes.marks = named?.into_iter().collect();
        return Ok(());
    }
    if view == View::Hosts {
        let named: Result<Vec<HostId>, String> = words.iter().map(|word| host(app, word)).collect();
        app.lists.hosts.marks = named?.into_iter().collect();
        return Ok(());
    }
    let mut ids = Vec::new();
    for word in &words {
        ids.extend(entries(app, view, word)?);
    }
    let list = if view == View::Repairs { &mut app.lists.repairs } else { &mut app.lists.reboots };
    list.marks = ids.into_iter().collect();
    Ok(())
}

/// Returns the entries of the view's queue that a word names: by index, by id, or by node.
fn entries(app: &App, view: View, word: &str) -> Result<Vec<EntryId>, String> {
    let queue = if view == View::Repairs { QueueKind::Repair } else { QueueKind::Reboot };
    let id = word.parse::<u64>().map(|index| EntryId { queue, index }).ok().or_else(|| word.parse().ok());
    if let Some(id) = id.filter(|id| id.queue == queue) {
        let exists = queries::stored_at(&app.seen, id).is_some();
        return if exists { Ok(vec![id]) } else { Err(format!("there is no {id}")) };
    }
    let node = named(app, word)?;
    let found: Vec<EntryId> = app.knowledge.totals.entries_of(&node).filter(|id| id.queue == queue).collect();
    if found.is_empty() { Err(format!("{node} has no entry in the {queue} queue")) } else { Ok(found) }
}

/// Returns the host with this name, with or without its namespace, or the host of this node.
fn host(app: &App, word: &str) -> Result<HostId, String> {
    let (seen, node) = (&app.seen, app.seen.snapshot.machine(&Address::new(word)));
    let named = |id: &&HostId| id.1 == word || format!("{}/{}", id.0, id.1) == word;
    let of_node = |id: &&HostId| queries::host_node(seen, id).is_some_and(|row| row.name == *word || row.name == *node);
    let hosts = || seen.snapshot.kube.hosts.keys();
    let mut found: Vec<&HostId> = hosts().filter(named).collect();
    if found.is_empty() {
        found = hosts().filter(of_node).collect();
    }
    match found.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(format!("{word} is not a host, nor the node of one")),
        _ => Err(format!("{word} is the name of several hosts: give NAMESPACE/NAME")),
    }
}

/// Returns the node with this name or address.
fn named(app: &App, word: &str) -> Result<String, String> {
    match find(app, word) {
        Ok(Target::Node(name)) => Ok(name),
        _ => Err(format!("{word} is not a node: give names or addresses, or a filter such as node:{word}")),
    }
}

/// Longest time for which `:allow_writes` allows changes.
const MAX_WRITE_TIME: Seconds = Seconds::new(8.0 * 3600.0);

/// Allows changes for a while in a console that was started read-only, or ends that permission.
fn allow_writes(app: &mut App, duration_text: &str) -> Result<(), String> {
    if !app.config.read_only {
        return Err("this console may write: it was not started with --read-only".to_owned());
    }
    if duration_text == "off" {
        app.session.writes_until = None;
        app.print("read-only again");
        return Ok(());
    }
    let span = duration(duration_text).filter(|s| *s > Seconds::ZERO && duration_text.ends_with(char::is_alphabetic));
    let span = span.ok_or_else(|| format!("{duration_text:?} is not a time: write it as 90s, 15m, 2h"))?;
    if span > MAX_WRITE_TIME {
        return Err("8h at most; to write longer, start the console without --read-only".to_owned());
    }
    let length = std::time::Duration::from(span);
    let end = after(app.now.wall, length.as_secs().cast_signed());
    app.session.writes_until = Some((app.now.boot + length, end));
    let end = calendar::time(app, end);
    app.print(format!("changes are allowed until {end}; `:write off` ends it before"));
    Ok(())
}
