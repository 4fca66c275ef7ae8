//! Subcommands: one file per top-level command, and their output.
//!
//! A subcommand parses its arguments, calls the store or an action, and prints. Checks that the console needs too
//! belong to `actions`; decisions belong to the engine.

mod add;
mod args;
mod audit;
mod cluster;
mod config;
mod constraints;
mod context;
mod diff;
mod explain;
mod history;
mod hosts;
mod info;
mod leader;
mod moment;
mod nodes;
mod notices;
mod output;
mod plan;
mod policy;
mod power;
mod queue_plan;
mod reboot_queue;
pub mod reference;
mod registry;
mod repair_queue;
mod roll;
mod sabakan;
mod sandbox;
mod screenshot;
mod state;
mod stop;
mod switches;
mod theme;
mod wait;
mod why;
mod windows;
mod yaml;

use args::MachinesWord;
pub use args::{Cli, Color, Command, RunOptions};
pub use context::Context;
pub use output::Out;

use crate::actions::ActionError;

/// Runs one subcommand.
pub async fn run(command: Command, context: &Context) -> Result<(), ActionError> {
    match command {
        Command::RebootQueue { word } => Box::pin(reboot_queue::run(word, context)).await,
        Command::RepairQueue { word } => Box::pin(repair_queue::run(word, context)).await,
        Command::Sabakan { word } => Box::pin(sabakan::run(word, context)).await,
        Command::AutoRepair { word } => sabakan::run_auto_repair(word, context).await,
        Command::Constraints { word } => Box::pin(constraints::run(word, context)).await,
        Command::Cluster { word } => Box::pin(cluster::run(word, context)).await,
        Command::Machines { word: MachinesWord::List } => registry::machines(context).await,
        Command::Nodes { word } => Box::pin(nodes::run(word, context)).await,
        Command::Notices { word } => Box::pin(notices::run(word, context)).await,
        Command::Policy { word } => Box::pin(policy::run(word, context)).await,
        Command::Freeze(args) => Box::pin(windows::freeze(&args, context)).await,
        Command::Stop(reason) => Box::pin(stop::stop(&reason, context)).await,
        Command::Resume(reason) => Box::pin(stop::resume(&reason, context)).await,
        Command::Unfreeze(reason) => Box::pin(windows::unfreeze(&reason, context)).await,
        Command::Windows(args) => Box::pin(windows::windows(&args, context)).await,
        Command::Hosts { word } => Box::pin(hosts::run(word, context)).await,
        Command::Power { word } => Box::pin(power::run(word, context)).await,
        Command::History(args) => Box::pin(history::run(&args, context)).await,
        Command::Audit(much) => Box::pin(audit::run(much, context)).await,
        Command::State => Box::pin(state::state(context)).await,
        Command::Decide(args) => state::decide(&args, context),
        Command::Leader => leader::leader(context).await,
        Command::Status => leader::status(context).await,
        Command::Config { word } => Box::pin(config::run(&word, context)).await,
        Command::Sandbox { word } => Box::pin(sandbox::run(word, context)).await,
        Command::Theme { word } => theme::run(&word, context),
        Command::Screenshot(args) => Box::pin(screenshot::run(&args, context)).await,
        Command::Explain { reason } => explain::run(reason.as_deref(), context),
        Command::Info => Box::pin(info::run(context)).await,
        Command::Completions { shell } => reference::completions(shell, context),
        Command::Man { folder } => reference::man(&folder, context),
    }
}
