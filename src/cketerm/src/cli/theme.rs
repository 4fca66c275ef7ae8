//! `theme`: the console's looks. No server is contacted.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::path::PathBuf;

use cketerm_actions::ActionError;
use cketerm_console::theme::{
    AUTO, DEFAULT, ROLES,
    loader::{ThemeLoader, ThemeSource},
};
use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::{
    Context,
    options::Output,
    output::{Lines, columns},
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ThemeCommand {
    /// List the themes and their sources: the user's folder, the host's, the program
    List,
    /// Print a theme with everything that it inherits, in the form of a theme file
    Show {
        /// Name of the theme
        name: String,
    },
    /// Check themes: unknown roles, looks and colours, missing bases, similar roles
    Check {
        /// Theme files; without any, all themes of `theme list`
        files: Vec<PathBuf>,
    },
}

impl ThemeCommand {
    /// Reports whether a broken configuration does not matter to the subcommand. `list` reads it to show the theme in
    /// force.
    pub fn needs_no_settings(&self) -> bool {
        !matches!(self, Self::List)
    }
}

/// Runs one of the subcommands.
pub fn run(word: &ThemeCommand, context: &Context) -> Result<(), ActionError> {
    let loader = ThemeLoader::with_default_folders();
    match word {
        ThemeCommand::List => list(&loader, context),
        ThemeCommand::Show { name } => show(&loader, name, context),
        ThemeCommand::Check { files } => {
            let found =
                if files.is_empty() { loader.list() } else { files.iter().map(|file| loader.at(file)).collect() };
            check(&loader, &found, context)
        }
    }
}

fn list(loader: &ThemeLoader, context: &Context) -> Result<(), ActionError> {
    let chosen = context.settings.console.theme.as_str();
    let note = |found: &ThemeSource| match (found.hidden, loader.check(found).len()) {
        (true, _) => "hidden by another theme of this name".to_owned(),
        (false, 1..) => "broken: see `theme check`".to_owned(),
        (false, 0) if found.name == chosen => "in use".to_owned(),
        (false, 0) if chosen == AUTO && [DEFAULT, "light", "dark"].contains(&found.name.as_str()) => {
            "in use by auto".to_owned()
        }
        (false, 0) => String::new(),
    };
    let file = |found: &ThemeSource| found.path.as_ref().map(|path| path.display().to_string());
    let all = loader.list();
    match context.output(Output::Table) {
        Output::Table => {
            let row = |found: &ThemeSource| {
                vec![found.name.clone(), found.origin.to_string(), file(found).unwrap_or_default(), note(found)]
            };
            let rows: Vec<Vec<String>> = all.iter().map(row).collect();
            context.out.text(columns(&["Name", "From", "File", "Note"], &rows))
        }
        form => {
            let value = |found: &ThemeSource| {
                let (from, hidden) = (found.origin.to_string(), found.hidden);
                json!({"name": found.name, "from": from, "file": file(found), "hidden": hidden,
                    "in_use": !hidden && found.name == chosen, "good": loader.check(found).is_empty()})
            };
            context.out.value(&all.iter().map(value).collect::<Vec<_>>(), form)
        }
    }
}

fn show(loader: &ThemeLoader, name: &str, context: &Context) -> Result<(), ActionError> {
    let merged = loader.merged(name).map_err(|wrong| {
        let all: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        ActionError::failed(all.join("; "))
    })?;
    let chain: Vec<String> = merged.chain.iter().map(ThemeSource::place).collect();
    match context.output(Output::Table) {
        Output::Table => {
            let mut lines = Lines::default();
            lines.line(format_args!("# {}", chain.join(", on ")));
            for (role, what) in &ROLES {
                let face = merged.faces.get(role).map(|face| format!("{role}: {}", face.yaml())).unwrap_or_default();
                lines.line(format_args!("{face:<58} # {what}"));
            }
            context.out.text(lines)
        }
        form => {
            let face = |role: &str| {
                let face = merged.faces.get(role).cloned().unwrap_or_default();
                json!({"fg": face.fg, "bold": face.bold, "dim": face.dim, "underline": face.underline,
                    "reverse": face.reverse})
            };
            let roles: Map<String, Value> = ROLES.iter().map(|(role, _)| ((*role).to_owned(), face(role))).collect();
            context.out.value(&json!({"name": name, "made_of": chain, "roles": roles}), form)
        }
    }
}

fn check(loader: &ThemeLoader, all: &[ThemeSource], context: &Context) -> Result<(), ActionError> {
    let wrong: Vec<_> = all.iter().map(|found| (found, loader.check(found))).collect();
    match context.output(Output::Table) {
        Output::Table => {
            for (found, faults) in &wrong {
                for fault in faults {
                    context.out.line(&format!("error: {fault}"))?;
                }
                if faults.is_empty() {
                    context.out.line(&format!("{}: ok", found.place()))?;
                }
            }
        }
        form => {
            let errors = wrong
                .iter()
                .flat_map(|(_, faults)| faults)
                .map(|wrong| json!({"file": wrong.place, "line": wrong.fault.line, "text": wrong.fault.text}));
            context.out.value(&json!({"errors": errors.collect::<Vec<_>>()}), form)?;
        }
    }
    match wrong.iter().map(|(_, faults)| faults.len()).sum::<usize>() {
        0 => Ok(()),
        1 => Err(ActionError::failed("one error")),
        n => Err(ActionError::failed(format!("{n} errors"))),
    }
}
