//! The command line: commands that can be typed after `:`, and the completions that tab goes through. Its commands are
//! the names of the key table and a few that need an argument.

use std::borrow::Cow;

use cketerm_model::entry::EntryId;
use nucleo_matcher::{
    Config, Matcher,
    pattern::{CaseMatching, Normalization, Pattern},
};
use tui_input::Input;

use super::{App, View, columns, theme_picker::CONFIGURED};
use crate::{
    keys::{Command, TABLE, is_typable},
    theme::loader::BUILT_IN,
};

/// Most completions.
const MAX_COMPLETIONS: usize = 40;

/// The open command line.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// The text.
    pub input: Input,
    /// The error of the text, until another letter is typed.
    pub error: Option<String>,
    /// Whether the line was carried out and refused: `:` then opens a new one, and digits show a view.
    pub is_refused: bool,
    /// The completions that tab goes through, and the one that is inserted.
    pub completions: Option<Completions>,
    /// The completions of the present text.
    pub suggestions: Completions,
    /// The recalled line that replaces the typed text, counted from the last one.
    pub history_index: Option<usize>,
}

/// Completions for the end of the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// The text before the word that is completed.
    pub before: String,
    /// The completions, best first.
    pub words: Vec<String>,
    /// Index of the inserted one.
    pub at: usize,
}

/// A command that is not in the key table.
pub struct ArgumentCommand {
    /// Its name.
    pub name: &'static str,
    /// Its argument. Empty = none.
    pub argument: &'static str,
    /// Its help text.
    pub help: &'static str,
}

const fn word(name: &'static str, argument: &'static str, help: &'static str) -> ArgumentCommand {
    ArgumentCommand { name, argument, help }
}

/// The commands that are not in the key table.
pub const ARGUMENT_COMMANDS: &[ArgumentCommand] = &[
    word("goto", "NODE|ADDRESS|ENTRY", "Go to a node by name or address, or to an entry such as reboots/3"),
    word("view", "NAME", "Open a view"),
    word(
        "mark",
        "FILTER",
        "Mark the matching rows instead of the present marks; without FILTER: the row under the cursor",
    ),
    word("unmark", "", "Clear all marks"),
    word("sort", "COLUMN [desc]", "Sort by a column; without COLUMN: by the next one"),
    word(
        "freeze",
        "TIME REASON",
        "Start nothing new in either queue until TIME: 2h, 3d, tomorrow 08:00, or 2026-12-28T08:00:00Z",
    ),
    word("unfreeze", "[REASON]", "End a freeze before its time"),
    word(
        "maintenance",
        "[TIME REASON]",
        "Drain the marked nodes, or the one under the cursor, and keep them cordoned until TIME, without a reboot; \
         without argument: list the nodes in maintenance",
    ),
    word("end-maintenance", "[REASON]", "End the maintenance of the marked nodes, or of the one under the cursor"),
    word(
        "columns",
        "COLUMN,COLUMN,...|default",
        "Show these columns in this order; default: the view's own; without argument: choose in a list",
    ),
    word(
        "theme",
        "[NAME]",
        "Use a theme, now and at the next start; without NAME: choose it with a preview; default: the configured one",
    ),
    word("settings", "forget", "Forget the saved columns, sort orders, theme and use of the mouse"),
    word("filter", "FILTER", "Show only matching rows; without FILTER: type it"),
    word(
        "write",
        "TIME|off",
        "In a console started with --read-only: allow changes for this time (15m, 2h; at most 8h); off: end that",
    ),
    word("q", "", "Quit"),
];

/// Verbs that take rows as an argument: a filter, or names, addresses or indexes.
pub const ROW_COMMANDS: [&str; 9] =
    ["reboot", "repair", "cancel", "hold", "unhold", "reset-backoff", "retry", "done", "force"];

/// Words that other programs have for setting keys.
const KEY_WORDS: [&str; 7] = ["key", "keys", "keymap", "bind", "map", "unmap", "unbind"];

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedCommand {
    /// Execute this command, as its key does.
    Press(Command),
    /// A verb with the rows that its argument names (`None` = the chosen ones), and its reason.
    Verb(Command, Option<String>, Option<String>),
    /// Reset the backoff of all entries, with the reason.
    AllBackoffs(Option<String>),
    /// A command of [`ARGUMENT_COMMANDS`] with its argument.
    ArgumentCommand(&'static str, String),
}

/// Parses a command line.
pub fn read(text: &str) -> Result<ParsedCommand, String> {
    let (name, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let rest = rest.trim();
    if let Some(word) = ARGUMENT_COMMANDS.iter().find(|w| w.name == name) {
        let optional = ["mark", "sort", "filter", "columns", "unfreeze", "maintenance", "end-maintenance", "theme"]
            .contains(&name);
        if word.argument.is_empty() && !rest.is_empty() {
            return Err(format!("{name} takes no argument"));
        }
        if !word.argument.is_empty() && rest.is_empty() && !optional {
            return Err(format!("{name} {}: the argument is missing", word.argument));
        }
        return Ok(ParsedCommand::ArgumentCommand(word.name, rest.to_owned()));
    }
    let found = TABLE.iter().find(|b| b.name == name && is_typable(b.context));
    let Some(binding) = found else {
        if KEY_WORDS.contains(&name) {
            return Err(format!("there is no command {name:?}: `console.keys` of the configuration file sets keys"));
        }
        let near = matching_candidates(name, names().map(str::to_owned));
        let near = near.first().map(|n| format!(": did you mean {n}?")).unwrap_or_default();
        return Err(format!("there is no command {name:?}{near}"));
    };
    if !binding.changes || binding.command == Command::KeepCordoned {
        return if rest.is_empty() {
            Ok(ParsedCommand::Press(binding.command))
        } else {
            Err(format!("{name} takes no argument"))
        };
    }
    let (rows, reason) = split_reason(rest);
    if rows.is_some() && !ROW_COMMANDS.contains(&binding.name) {
        return Err(format!("{name} takes no argument, but a reason after {REASON}"));
    }
    if binding.command == Command::ResetBackoff && rows.as_deref() == Some("all") {
        return Ok(ParsedCommand::AllBackoffs(reason));
    }
    Ok(ParsedCommand::Verb(binding.command, rows, reason))
}

/// Separator between a verb's rows and its reason.
pub const REASON: &str = "--";

/// Splits `rack=3 -- kernel 6.12` into the rows and the reason. Either may be missing.
fn split_reason(text: &str) -> (Option<String>, Option<String>) {
    let words = || text.split(' ');
    let non_empty = |part: &str| Some(part.trim().to_owned()).filter(|part| !part.is_empty());
    match words().position(|word| word == REASON) {
        None => (non_empty(text), None),
        Some(at) => {
            let join = |words: Vec<&str>| non_empty(&words.join(" "));
            (join(words().take(at).collect()), join(words().skip(at + 1).collect()))
        }
    }
}

/// Returns the verbs with their arguments on the command line, for the help and the document.
pub fn verb_usages() -> impl Iterator<Item = (String, &'static str)> {
    TABLE.iter().filter(|b| b.changes && b.name != "keep-cordoned").map(|b| {
        let rows = match b.name {
            "reset-backoff" => " [ROWS|all]",
            name if ROW_COMMANDS.contains(&name) => " [ROWS]",
            _ => "",
        };
        (format!("{}{rows} [{REASON} REASON]", b.name), b.help)
    })
}

/// Explanation of ROWS.
pub const ROWS_HELP: &str = "ROWS are names or addresses of nodes, indexes of entries, or a filter such as rack=3 or \
    node:w1; without them a verb acts on the marked rows or the one under the cursor. It confirms as its key.";

/// Returns all commands.
fn names() -> impl Iterator<Item = &'static str> {
    let table = TABLE.iter().filter(|b| is_typable(b.context)).map(|b| b.name);
    ARGUMENT_COMMANDS.iter().map(|w| w.name).chain(table)
}

/// Returns the meaning of a line's first word, for the hint beside it.
pub fn meaning(text: &str) -> Option<String> {
    let name = text.split_whitespace().next()?;
    if let Some(word) = ARGUMENT_COMMANDS.iter().find(|w| w.name == name) {
        return Some(format!("{}: {}", word.argument, word.help).trim_start_matches(": ").to_owned());
    }
    let binding = TABLE.iter().find(|b| b.name == name && is_typable(b.context))?;
    let rows = if ROW_COMMANDS.contains(&name) { "[ROWS] " } else { "" };
    let takes =
        if binding.changes && name != "keep-cordoned" { format!("{rows}[{REASON} REASON]: ") } else { String::new() };
    Some(format!("{takes}{}", binding.help))
}

/// Returns a command with its arguments, and its help text.
pub fn usage(name: &str) -> (String, String) {
    if let Some(word) = ARGUMENT_COMMANDS.iter().find(|w| w.name == name) {
        return (format!("{name} {}", word.argument).trim_end().to_owned(), word.help.to_owned());
    }
    let form = verb_usages().find(|(form, _)| form.split(' ').next() == Some(name));
    let help = || TABLE.iter().find(|b| b.name == name && is_typable(b.context)).map_or("", |b| b.help);
    form.map_or_else(|| (name.to_owned(), help().to_owned()), |(form, help)| (form, help.to_owned()))
}

/// Completions for times.
const TIME_EXAMPLES: [&str; 7] = ["15m", "30m", "1h", "2h", "8h", "1d", "tomorrow"];

/// Returns the completions for the last word of a line, by the kind of argument at that place.
pub fn completions(app: &App, text: &str) -> Completions {
    let commas = text.starts_with("columns ");
    // A space may be wider than one byte: input methods type U+3000.
    let last = text.rsplit(|c: char| c.is_whitespace() || (commas && c == ',')).next().unwrap_or_default();
    let before = &text[..text.len() - last.len()];
    let mut words = before.split_whitespace();
    let (first, place) = (words.next(), words.count());
    let argument = first.and_then(|name| ARGUMENT_COMMANDS.iter().find(|w| w.name == name)).map(|w| w.argument);
    // Only the completions are copied.
    let nodes = || app.seen.snapshot.kube.nodes.keys().map(|name| Cow::Borrowed(name.as_str()));
    let owned = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<String>>();
    let words: Vec<String> = match (first, argument) {
        // A reason has no completions.
        (Some(_), None) if before.split_whitespace().any(|word| word == REASON) => Vec::new(),
        (None, _) => matching_candidates(last, names().map(str::to_owned)),
        (Some("view"), _) => matching_candidates(last, View::ALL.iter().map(|v| v.name().to_owned())),
        (Some("columns"), _) => {
            let all = columns::all(app.navigation.view, app.navigation.second_table());
            let named: Vec<&str> = before.split([' ', ',']).collect();
            let left = all.into_iter().filter(|id| !named.contains(&id.as_str())).map(|id| id.to_string());
            matching_candidates(last, left.chain((named.len() == 2).then(|| "default".to_owned())))
        }
        (Some("sort"), _) if place == 0 => matching_candidates(last, columns::of(app).iter().map(ToString::to_string)),
        (Some("sort"), _) => matching_candidates(last, owned(&["desc", "asc"]).into_iter()),
        (Some("write"), _) => matching_candidates(last, owned(&["off"]).into_iter().chain(owned(&TIME_EXAMPLES[..5]))),
        (Some("theme"), _) => {
            let built_in = BUILT_IN.iter().map(|(name, _)| (*name).to_owned());
            matching_candidates(last, built_in.chain([CONFIGURED.to_owned()]))
        }
        (Some("settings"), _) => matching_candidates(last, owned(&["forget"]).into_iter()),
        (Some("freeze" | "maintenance"), _) if place == 0 => {
            matching_candidates(last, owned(&TIME_EXAMPLES).into_iter())
        }
        (Some("filter" | "mark"), _) => matching_candidates(last, columns::of(app).iter().map(|c| format!("{c}:"))),
        (Some("reboot" | "repair"), _) => matching_candidates(last, nodes()),
        (Some("goto"), _) => matching_candidates(last, nodes().chain(entries(app, true, true).map(Cow::Owned))),
        (Some(verb), None) if ROW_COMMANDS.contains(&verb) => {
            let repairs = app.navigation.view == View::Repairs;
            let all = (verb == "reset-backoff" && place == 0).then(|| "all".to_owned());
            matching_candidates(last, all.into_iter().chain(entries(app, !repairs, repairs)))
        }
        (Some(_), _) => Vec::new(),
    };
    Completions { before: before.to_owned(), words, at: 0 }
}

/// Returns the entries of the queues.
fn entries(app: &App, reboots: bool, repairs: bool) -> impl Iterator<Item = String> {
    let store = &app.seen.snapshot.store;
    let of_reboots = store.reboots.entries.keys().filter(move |_| reboots).map(|i| EntryId::reboot(*i).to_string());
    let of_repairs = store.repairs.entries.keys().filter(move |_| repairs).map(|i| EntryId::repair(*i).to_string());
    of_reboots.chain(of_repairs)
}

/// Returns the completions of a text, best first: words that start with it or, if none does, words that resemble it.
pub fn matching_candidates<T: AsRef<str> + Into<String>>(text: &str, words: impl Iterator<Item = T>) -> Vec<String> {
    if text.is_empty() {
        return words.take(MAX_COMPLETIONS).map(Into::into).collect();
    }
    let mut matcher = Matcher::new(Config::DEFAULT);
    let pattern = Pattern::parse(text, CaseMatching::Ignore, Normalization::Smart);
    let mut found: Vec<(T, u32)> = pattern.match_list(words, &mut matcher);
    let begins = |(word, _): &(T, u32)| word.as_ref().starts_with(text);
    if found.iter().any(begins) {
        found.retain(begins);
    }
    found.sort_by_key(|(word, score)| (word.as_ref().len(), std::cmp::Reverse(*score)));
    found.into_iter().map(|(word, _)| word.into()).take(MAX_COMPLETIONS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_table_names_and_commands_with_arguments_are_parsed() {
        assert_eq!(read(" hosts "), Ok(ParsedCommand::Press(Command::Hosts)));
        let rows = Some("rack=3 !role:api".to_owned());
        assert_eq!(read("reboot rack=3 !role:api"), Ok(ParsedCommand::Verb(Command::Reboot, rows.clone(), None)));
        let why = Some("kernel 6.12 -- again".to_owned());
        assert_eq!(
            read("reboot rack=3 !role:api -- kernel 6.12 -- again"),
            Ok(ParsedCommand::Verb(Command::Reboot, rows, why))
        );
        let why = Some("stop it".to_owned());
        assert_eq!(read("switch -- stop it"), Ok(ParsedCommand::Verb(Command::Switch, None, why)));
        assert_eq!(read("hold"), Ok(ParsedCommand::Verb(Command::Hold, None, None)));
        assert!(read("switch now").unwrap_err().contains("a reason after --"));
        assert_eq!(read("goto 10.0.0.7"), Ok(ParsedCommand::ArgumentCommand("goto", "10.0.0.7".into())));
        assert_eq!(read("sort"), Ok(ParsedCommand::ArgumentCommand("sort", String::new())));
        assert_eq!(read("q"), Ok(ParsedCommand::ArgumentCommand("q", String::new())));
        assert_eq!(read("goto").unwrap_err(), "goto NODE|ADDRESS|ENTRY: the argument is missing");
        assert_eq!(read("hosts 3").unwrap_err(), "hosts takes no argument");
        let keys = read("key X hold").unwrap_err();
        assert!(keys.contains("`console.keys` of the configuration file"), "{keys}");
        assert_eq!(read("rebot").unwrap_err(), "there is no command \"rebot\": did you mean reboot?");
    }

    #[test]
    fn argument_commands_do_not_shadow_key_table_names_except_three() {
        for word in ARGUMENT_COMMANDS {
            let same = TABLE.iter().any(|b| b.name == word.name && is_typable(b.context));
            assert!(!same || ["filter", "mark", "sort"].contains(&word.name), "{}", word.name);
        }
        for name in ROW_COMMANDS {
            assert!(TABLE.iter().any(|b| b.name == name), "{name}");
        }
    }

    #[test]
    fn completion_prefers_prefix_matches_and_falls_back_to_fuzzy_matches() {
        let found = matching_candidates("re", names().map(str::to_owned));
        assert!(found.iter().all(|name| name.starts_with("re")), "{found:?}");
        assert_eq!(matching_candidates("rstb", names().map(str::to_owned)), ["reset-backoff"]);
    }
}
