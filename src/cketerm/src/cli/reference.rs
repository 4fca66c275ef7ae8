//! Output about the tree of subcommands: `docs/commands.md`, man pages, completion scripts.

use std::{fmt::Write as _, path::Path};

use cketerm_actions::ActionError;
use clap::{Arg, Command};

use super::Context;
pub use clap_complete::Shell;

/// Prints the completion script of one shell.
pub fn completions(shell: Shell, tree: &Command, context: &Context) -> Result<(), ActionError> {
    context.out.text(with_objects(shell, &fixed_words(shell, tree)))
}

/// Returns clap's script, which completes fixed words. clap would also offer hidden subcommands.
fn fixed_words(shell: Shell, tree: &Command) -> String {
    let shown = tree.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    let mut tree = Command::new("cketerm")
        .version(env!("CARGO_PKG_VERSION"))
        .args(tree.get_arguments().cloned())
        .subcommands(shown);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree, "cketerm", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns a completion script that also asks the program for names of live objects. Without an answer, the script's own
/// candidates remain. Other shells than these get none.
fn with_objects(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{BASH}"),
        Shell::Zsh => script.replacen(ZSH_FUNCTION, &format!("{ZSH_FUNCTION}{ZSH}"), 1),
        Shell::Fish => format!("{script}{FISH}"),
        // the enum may grow
        _ => script.to_owned(),
    }
}

const BASH: &str = r#"
_cketerm_objects() {
    local IFS=$'\n'
    COMPREPLY=($(cketerm __complete --objects -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        unset IFS
        _cketerm "$@"
    fi
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _cketerm_objects -o nosort -o bashdefault -o default cketerm
else
    complete -F _cketerm_objects -o bashdefault -o default cketerm
fi
"#;

/// Beginning of the function in clap's script.
const ZSH_FUNCTION: &str = "\n_cketerm() {\n";

const ZSH: &str = r#"    local -a live_objects
    live_objects=(${(f)"$(cketerm __complete --objects -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#live_objects )); then
        compadd -a live_objects
        return
    fi

"#;

/// Offers no files beside objects. A command substitution without output is no argument, so an empty word is passed on in
/// quotes.
const FISH: &str = r#"
function __cketerm_find_objects
    set -l word (commandline -ct)
    set -g __cketerm_objects (cketerm __complete --objects -- (commandline -opc)[2..-1] "$word" 2>/dev/null)
    set -q __cketerm_objects[1]
end
complete -c cketerm -n __cketerm_find_objects -f -a '$__cketerm_objects'
"#;

/// Writes a man page for every subcommand into a folder, and creates the folder if it does not exist.
pub fn man(folder: &Path, tree: Command, context: &Context) -> Result<(), ActionError> {
    let failed = |e: std::io::Error| ActionError::failed(format!("{}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(tree, folder).map_err(failed)?;
    context.print_message(&format!("man pages are in {0}: try `man -l {0}/cketerm.1`", folder.display()));
    Ok(())
}

/// Renders `docs/commands.md`.
pub fn markdown(mut command: Command) -> String {
    command.build();
    let mut out = String::from(
        "# Commands\n\n\
         Generated from the subcommands in `src/cketerm/src/cli`; a test compares them (`make docs` writes this\nfile).\n\n\
         Exit status: 0 done, 1 failed, 2 wrong usage, 3 refused, 5 done, except for unreadable entries\n\
         (a list prints all others). Data goes to standard output, messages to standard error.\n\n\
         ## Options of every subcommand\n",
    );
    let globals: Vec<&Arg> = command.get_arguments().filter(|a| a.is_global_set()).collect();
    table(&mut out, &globals);
    out.push_str("\n## Without a subcommand\n");
    let run: Vec<&Arg> = command.get_arguments().filter(|a| !a.is_global_set()).collect();
    table(&mut out, &run);
    for top_level in subcommands(&command) {
        section(&mut out, top_level, "cketerm", 2);
    }
    out
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set() && subcommand.get_name() != "help")
}

fn section(out: &mut String, subcommand: &Command, before: &str, depth: usize) {
    let name = format!("{before} {}", subcommand.get_name());
    let aliases: Vec<&str> = subcommand.get_visible_aliases().collect();
    let aliases = if aliases.is_empty() { String::new() } else { format!(", `{}`", aliases.join("`, `")) };
    let _ = write!(out, "\n{} `{name}`{aliases}\n", "#".repeat(depth));
    if let Some(about) = subcommand.get_long_about().or_else(|| subcommand.get_about()) {
        let _ = write!(out, "\n{}\n", about.to_string().trim());
    }
    let own: Vec<&Arg> = subcommand.get_arguments().filter(|a| !a.is_global_set() && a.get_id() != "help").collect();
    table(out, &own);
    for inner in subcommands(subcommand) {
        section(out, inner, &name, depth + 1);
    }
}

fn table(out: &mut String, arguments: &[&Arg]) {
    let shown: Vec<&&Arg> = arguments.iter().filter(|a| !a.is_hide_set()).collect();
    if shown.is_empty() {
        return;
    }
    out.push_str("\n| | |\n| --- | --- |\n");
    for argument in shown {
        let value: Vec<String> =
            argument.get_value_names().unwrap_or_default().iter().map(|n| format!("<{n}>")).collect();
        let takes = argument.get_action().takes_values();
        let value = if takes { value.join(" ") } else { String::new() };
        let name = match (argument.get_short(), argument.get_long()) {
            (Some(short), Some(long)) => format!("-{short}, --{long} {value}"),
            (Some(short), None) => format!("-{short} {value}"),
            (None, Some(long)) => format!("--{long} {value}"),
            (None, None) => value,
        };
        let mut help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let possible: Vec<String> = argument
            .get_possible_values()
            .iter()
            .filter(|v| !v.is_hide_set())
            .map(|v| v.get_name().to_owned())
            .collect();
        if takes && !possible.is_empty() {
            let _ = write!(help, " (`{}`)", possible.join("`, `"));
        }
        let defaults: Vec<String> =
            argument.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
        if takes && !defaults.is_empty() && !argument.is_hide_default_value_set() {
            let _ = write!(help, " [default: {}]", defaults.join(" "));
        }
        let _ = writeln!(out, "| `{}` | {} |", name.trim(), help.replace('|', "\\|").replace('<', "&lt;"));
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{super::Cli, *};

    #[test]
    fn docs_commands_md_matches_the_command_tree() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(file, markdown(Cli::command())).unwrap();
        }
        let written = std::fs::read_to_string(file).unwrap_or_default();
        assert!(written == markdown(Cli::command()), "docs/commands.md is outdated: run `make docs`");
    }

    #[test]
    fn scripts_of_bash_zsh_and_fish_ask_for_live_objects() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let fixed = fixed_words(shell, &Cli::command());
            assert!(!fixed.contains("__complete") && fixed.contains("reboot-queue"), "{shell}: hidden words");
            assert!(fixed.contains("--version") || shell == Shell::Fish, "{shell}");
            let script = with_objects(shell, &fixed);
            assert_eq!(script.matches("cketerm __complete --objects").count(), 1, "{shell}");
        }
        let fixed = fixed_words(Shell::Elvish, &Cli::command());
        assert_eq!(with_objects(Shell::Elvish, &fixed), fixed);
    }

    #[test]
    fn a_man_page_is_written_for_every_command() {
        let folder = tempfile::tempdir().unwrap();
        clap_mangen::generate_to(Cli::command(), folder.path()).unwrap();
        for page in ["cketerm.1", "cketerm-reboot-queue-add.1", "cketerm-nodes-drain.1", "cketerm-screenshot.1"] {
            assert!(folder.path().join(page).is_file(), "{page}");
        }
    }
}
