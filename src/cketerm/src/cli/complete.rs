//! Candidates for the last word of a command line: in the form that kubectl asks a plugin for, or names of live objects
//! alone, which the completion scripts of shells add to their own candidates.

mod objects;

use cketerm_actions::ActionError;
use clap::{Arg, ArgAction, Args, Command, ValueHint};

use self::objects::Kind;
use super::{Context, output::Lines};
use crate::config::Overrides;

/// Words of a command line, without the program.
#[derive(Args, Debug)]
pub struct CompleteArgs {
    /// Print names of live objects alone
    #[arg(long)]
    pub objects: bool,
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
    /// Live objects that the word may name.
    objects: Option<Kind>,
    /// Servers that the line names.
    servers: Overrides,
}

/// Prints the candidates, one a line, and a line that says whether files may follow.
pub async fn run(args: &CompleteArgs, tree: Command, context: &Context) -> Result<(), ActionError> {
    let found = candidates(tree, &args.words);
    let last = args.words.last().map(String::as_str).unwrap_or_default();
    let mut lines = Lines::default();
    if let Some(kind) = found.objects {
        let names = kind.names(&found.servers).await;
        names.iter().filter(|name| name.starts_with(last)).for_each(|name| lines.line(name));
    }
    if !args.objects {
        found.words.iter().for_each(|word| lines.line(word));
        lines.line(if found.files { WITH_FILES } else { WITHOUT_FILES });
    }
    context.out.text(lines)
}

fn candidates(mut tree: Command, words: &[String]) -> Candidates {
    tree.build();
    let Some((last, before)) = words.split_last() else { return Candidates::default() };
    let mut place = Place {
        command: &tree,
        top_level: "",
        positional: 0,
        option: None,
        only_values: false,
        servers: Overrides::default(),
    };
    for word in before {
        place = place.after(word);
    }
    let mut found = place.words(last);
    found.words.retain(|word| word.starts_with(last.as_str()));
    found
}

/// Place in a command line.
#[derive(Clone)]
struct Place<'a> {
    command: &'a Command,
    /// Name of the top-level subcommand.
    top_level: &'a str,
    /// Number of values that the command has got.
    positional: usize,
    /// Option whose value is next.
    option: Option<&'a Arg>,
    /// Whether `--` was given: all further words are values.
    only_values: bool,
    /// Servers that the options so far name.
    servers: Overrides,
}

impl<'a> Place<'a> {
    /// Returns the place behind one more word.
    fn after(self, word: &str) -> Self {
        if let Some(option) = self.option {
            let servers = with_option(self.servers, option.get_long().unwrap_or_default(), word);
            return Self { option: None, servers, ..self };
        }
        if self.only_values {
            return Self { positional: self.positional + 1, ..self };
        }
        if word == "--" {
            return Self { only_values: true, ..self };
        }
        if let Some(name) = word.strip_prefix("--") {
            if let Some((name, value)) = name.split_once('=') {
                let servers = with_option(self.servers, name, value);
                return Self { servers, ..self };
            }
            return Self { option: self.arg(|arg| arg.get_long() == Some(name)), ..self };
        }
        if let Some(name) = word.strip_prefix('-').and_then(|names| names.chars().last()) {
            let option = self.arg(|arg| arg.get_short() == Some(name));
            // `-n5` is complete, because 5 is no option
            return Self { option, ..self };
        }
        match self.command.find_subcommand(word) {
            Some(command) if self.positional == 0 => {
                let top_level = if self.top_level.is_empty() { command.get_name() } else { self.top_level };
                Self { command, top_level, ..self }
            }
            Some(_) | None => Self { positional: self.positional + 1, ..self },
        }
    }

    /// Returns an option that takes a value.
    fn arg(&self, is_wanted: impl Fn(&Arg) -> bool) -> Option<&'a Arg> {
        let takes_value = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        self.command.get_opts().filter(takes_value).find(|arg| is_wanted(arg))
    }

    /// Returns all words that may follow, whatever they begin with.
    fn words(self, last: &str) -> Candidates {
        if let Some(option) = self.option {
            // the value of an option such as `--as NAME` is no object
            let objects = option.get_long().filter(|name| matches!(*name, "batch" | "node"));
            let objects = objects.and_then(|_| self.kind(option));
            return Candidates { objects, servers: self.servers, ..values(option) };
        }
        if last.starts_with('-') && !self.only_values {
            let options = self.command.get_arguments().filter(|arg| !arg.is_hide_set());
            let words = options.filter_map(|arg| arg.get_long().map(|name| format!("--{name}")));
            return Candidates { words: words.collect(), ..Candidates::default() };
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
        found.objects = value.and_then(|value| self.kind(value));
        Candidates { servers: self.servers, ..found }
    }

    /// Returns the kind of objects that an argument names.
    fn kind(&self, arg: &Arg) -> Option<Kind> {
        Kind::of(self.top_level, arg.get_value_names()?.first()?)
    }
}

/// Returns the servers after one more option.
fn with_option(servers: Overrides, name: &str, value: &str) -> Overrides {
    match name {
        "config" => Overrides { config: Some(value.into()), ..servers },
        "etcd-endpoints" => Overrides { etcd_endpoints: Some(value.to_owned()), ..servers },
        "etcd-prefix" => Overrides { etcd_prefix: Some(value.to_owned()), ..servers },
        "kubeconfig" => Overrides { kubeconfig: Some(value.into()), ..servers },
        "context" => Overrides { context: Some(value.to_owned()), ..servers },
        _ => servers,
    }
}

/// Returns the known values of an argument.
fn values(arg: &Arg) -> Candidates {
    let shown = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    let files = matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath);
    let words = shown.map(|value| value.get_name().to_owned()).collect();
    Candidates { words, files, ..Candidates::default() }
}

#[cfg(test)]
mod tests {
    use cketerm_model::entry::QueueKind;
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
    fn arguments_that_take_live_objects_are_known() {
        for (line, kind) in [
            (&["rq", "cancel", ""][..], Some(Kind::Entries(QueueKind::Reboot))),
            (&["reboot-queue", "wait", "3", ""], Some(Kind::Entries(QueueKind::Reboot))),
            (&["repair-queue", "why", ""], Some(Kind::Entries(QueueKind::Repair))),
            (&["maintenance", "why", ""], Some(Kind::Entries(QueueKind::Maintenance))),
            (&["rq", "cancel", "--batch", ""], Some(Kind::Batches)),
            (&["rq", "pause", ""], Some(Kind::Batches)),
            (&["rq", "add", "w01", ""], Some(Kind::Nodes)),
            (&["nodes", "cordon", ""], Some(Kind::Nodes)),
            (&["history", "--node", ""], Some(Kind::Nodes)),
            (&["power", "status", ""], Some(Kind::Nodes)),
            (&["hosts", "hold", ""], Some(Kind::Hosts)),
            (&["policy", "set", ""], Some(Kind::PolicyFields)),
            (&["constraints", "set", ""], Some(Kind::Constraints)),
            (&["hosts", "hold", "--as", ""], None),
            (&["policy", "set", "engine", ""], None),
            (&["rq", "cancel", "--reason", ""], None),
            (&["rq", "cancel", "-"], None),
            (&["theme", "show", ""], None),
            (&[""], None),
        ] {
            assert_eq!(found(line).objects, kind, "{line:?}");
        }
    }

    #[test]
    fn servers_that_the_line_names_are_asked() {
        let servers = found(&["--config", "f", "rq", "--etcd-prefix=/p/", "cancel", "--context", "c", ""]).servers;
        let config = Some("f".into());
        let expected = Overrides {
            config,
            etcd_prefix: Some("/p/".to_owned()),
            context: Some("c".to_owned()),
            ..Overrides::default()
        };
        assert_eq!(servers, expected);
    }

    #[test]
    fn only_names_of_files_are_completed_as_files() {
        assert!(found(&["--config", ""]).files && found(&["support-bundle", ""]).files);
        assert!(!found(&["rq", ""]).files && !found(&["rq", "cancel", ""]).files);
    }
}
