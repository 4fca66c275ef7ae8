//! Plugin of kubectl: `kubectl cketerm …` starts this program under the name `kubectl-cketerm`. It behaves the same, and
//! its help shows the line that the user typed.

use std::{ffi::OsString, path::Path};

use clap::{Command, CommandFactory, FromArgMatches};

use super::Cli;

/// Name of the program's file as a plugin.
const FILE: &str = "kubectl-cketerm";
/// Name of the program as users of the plugin type it.
const SHOWN: &str = "kubectl cketerm";

/// Parses a command line, whose first word is the name under which the program was started.
pub fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    if let Some(cli) = Cli::without_subcommand(words) {
        return Ok(cli);
    }
    let mut command = named(Cli::command(), words.first());
    let mut matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|e| e.format(&mut command))
}

fn named(command: Command, name: Option<&OsString>) -> Command {
    match name.and_then(|name| Path::new(name).file_name()) {
        Some(name) if name == FILE => command.bin_name(SHOWN),
        Some(_) | None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        parse(&words).unwrap_err().to_string()
    }

    #[test]
    fn the_help_of_the_plugin_shows_the_line_that_was_typed() {
        for (name, shown) in [("/usr/bin/kubectl-cketerm", SHOWN), ("kubectl-cketerm", SHOWN), ("cketerm", "cketerm")] {
            let help = text(&[name, "--help"]);
            assert!(help.contains(&format!("Usage: {shown} [OPTIONS]")), "{help}");
            let help = text(&[name, "rq", "add", "--help"]);
            assert!(help.contains(&format!("Usage: {shown} reboot-queue add")), "{help}");
            let error = text(&[name, "rq", "cancel", "x"]);
            assert!(error.contains("invalid value 'x'"), "{error}");
            assert!(text(&[name, "--version"]).starts_with("cketerm "));
        }
    }

    /// Lines without a subcommand have a parser of their own.
    #[test]
    fn both_parsers_read_a_line_without_a_subcommand_alike() {
        let lines = [
            "",
            "--daemon --http off",
            "--observe --view nodes",
            "--kubeconfig k --read-only",
            "--view=nodes --theme rq",
            "--sandbox --nodes 40 --seed 7 --speed 2",
            "--config c --plain --color never",
            "--view rq",
        ];
        for line in lines {
            let words: Vec<OsString> =
                std::iter::once("cketerm").chain(line.split_whitespace()).map(Into::into).collect();
            let mut matches = Cli::command().try_get_matches_from(&words).unwrap();
            let whole = Cli::from_arg_matches_mut(&mut matches).unwrap();
            assert_eq!(format!("{:?}", Cli::without_subcommand(&words)), format!("{:?}", Some(whole)), "{line}");
        }
        for line in
            ["rq list", "--view nodes rq list", "help", "--help", "--version", "--nodes 3 rq list", "-- rq", "--daemn"]
        {
            let words: Vec<OsString> =
                std::iter::once("cketerm").chain(line.split_whitespace()).map(Into::into).collect();
            assert!(Cli::without_subcommand(&words).is_none(), "{line}");
        }
    }

    #[test]
    fn the_plugin_parses_the_same_command_lines() {
        for name in ["kubectl-cketerm", "cketerm", "/opt/other-name"] {
            let words = [name, "--kubeconfig", "k", "rq", "list", "-o", "json"].map(OsString::from);
            let cli = parse(&words).unwrap();
            assert!(matches!(cli.command, Some(super::super::Command::RebootQueue { .. })));
            assert_eq!(cli.globals.kubeconfig.as_deref(), Some(Path::new("k")));
        }
    }
}
