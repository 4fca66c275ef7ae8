//! Candidates for the last word of a command line, in the form that kubectl asks a plugin for.

use cketerm_actions::ActionError;
use clap::{Arg, ArgAction, Args, Command, ValueHint};

use super::{Context, output::Lines};

/// Words of a command line, without the program.
#[derive(Args, Debug)]
pub struct CompleteArgs {
    /// Words of the command line; the last one is completed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub words: Vec<String>,
}

/// Last line of the answer: the shell adds no names of files, or adds them.
const WITHOUT_FILES: &str = ":4";
const WITH_FILES: &str = ":0";

/// Candidates for a word.
#[derive(Debug, Default, PartialEq, Eq)]
struct Candidates {
    words: Vec<String>,
    /// Whether the word may be the name of a file.
    files: bool,
}

/// Prints the candidates, one a line, and a line that says whether files may follow.
pub fn run(args: &CompleteArgs, tree: Command, context: &Context) -> Result<(), ActionError> {
    let found = candidates(tree, &args.words);
    let mut lines = Lines::default();
    found.words.iter().for_each(|word| lines.line(word));
    lines.line(if found.files { WITH_FILES } else { WITHOUT_FILES });
    context.out.text(lines)
}

fn candidates(mut tree: Command, words: &[String]) -> Candidates {
    tree.build();
    let Some((last, before)) = words.split_last() else { return Candidates::default() };
    let mut place = Place { command: &tree, positional: 0, option: None, only_values: false };
    for word in before {
        place = place.after(word);
    }
    let mut found = place.words(last);
    found.words.retain(|word| word.starts_with(last.as_str()));
    found
}

/// Place in a command line.
#[derive(Clone, Copy)]
struct Place<'a> {
    command: &'a Command,
    /// Number of values that the command has got.
    positional: usize,
    /// Option whose value is next.
    option: Option<&'a Arg>,
    /// Whether `--` was given: all further words are values.
    only_values: bool,
}

impl<'a> Place<'a> {
    /// Returns the place behind one more word.
    fn after(self, word: &str) -> Self {
        if self.option.is_some() {
            return Self { option: None, ..self };
        }
        if self.only_values {
            return Self { positional: self.positional + 1, ..self };
        }
        if word == "--" {
            return Self { only_values: true, ..self };
        }
        if let Some(name) = word.strip_prefix("--") {
            // `--name=value` is complete
            return Self { option: self.arg(|arg| arg.get_long() == Some(name)), ..self };
        }
        if let Some(name) = word.strip_prefix('-').and_then(|names| names.chars().last()) {
            let option = self.arg(|arg| arg.get_short() == Some(name));
            // `-n5` is complete, because 5 is no option
            return Self { option, ..self };
        }
        match self.command.find_subcommand(word) {
            Some(command) if self.positional == 0 => Self { command, ..self },
            Some(_) | None => Self { positional: self.positional + 1, ..self },
        }
    }

    /// Returns an option that takes a value.
    fn arg(self, is_wanted: impl Fn(&Arg) -> bool) -> Option<&'a Arg> {
        let takes_value = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        self.command.get_opts().filter(takes_value).find(|arg| is_wanted(arg))
    }

    /// Returns all words that may follow, whatever they begin with.
    fn words(self, last: &str) -> Candidates {
        if let Some(option) = self.option {
            return values(option);
        }
        if last.starts_with('-') && !self.only_values {
            let options = self.command.get_arguments().filter(|arg| !arg.is_hide_set());
            let words = options.filter_map(|arg| arg.get_long().map(|name| format!("--{name}")));
            return Candidates { words: words.collect(), files: false };
        }
        let mut positionals = self.command.get_positionals();
        let value = positionals.nth(self.positional).or_else(|| {
            // the last one may take any number of values
            self.command.get_positionals().last().filter(|arg| matches!(arg.get_action(), ArgAction::Append))
        });
        let mut found = value.map(values).unwrap_or_default();
        if self.positional == 0 && !self.only_values {
            let shown = self.command.get_subcommands().filter(|command| !command.is_hide_set());
            found.words.extend(shown.map(|command| command.get_name().to_owned()));
        }
        found
    }
}

/// Returns the known values of an argument.
fn values(arg: &Arg) -> Candidates {
    let shown = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    let files = matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath);
    Candidates { words: shown.map(|value| value.get_name().to_owned()).collect(), files }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{super::Cli, *};

    fn found(line: &[&str]) -> Candidates {
        candidates(Cli::command(), &line.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn subcommands_options_and_values_are_candidates() {
        assert_eq!(found(&["reb"]).words, ["reboot-queue"]);
        assert_eq!(found(&["rq", "unh"]).words, ["unhold"]);
        assert_eq!(found(&["--config", "f", "rq", "unh"]).words, ["unhold"]);
        assert_eq!(found(&["-o", "js"]).words, ["json"]);
        assert_eq!(found(&["rq", "list", "--output", ""]).words, ["table", "simple", "json", "yaml"]);
        assert_eq!(found(&["completions", "z"]).words, ["zsh"]);
        assert_eq!(found(&["rq", "cancel", "--reas"]).words, ["--reason"]);
        assert_eq!(found(&["-v", "leader", "--kubec"]).words, ["--kubeconfig"]);
        assert!(found(&["rq", "cancel", "--reason", "li"]).words.is_empty());
        assert!(found(&["rq", "cancel", "--", "--reas"]).words.is_empty());
        assert!(found(&[""]).words.contains(&"nodes".to_owned()));
        assert!(!found(&[""]).words.iter().any(|word| word.starts_with("__")), "hidden");
        assert!(found(&[]).words.is_empty());
    }

    #[test]
    fn only_names_of_files_are_completed_as_files() {
        assert!(found(&["--config", ""]).files && found(&["support-bundle", ""]).files);
        assert!(!found(&["rq", ""]).files && !found(&["rq", "cancel", ""]).files);
    }
}
