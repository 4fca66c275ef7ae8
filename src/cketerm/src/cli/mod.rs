//! Subcommands: one file per top-level command, and their output.
//!
//! A subcommand parses its arguments, calls the store or an action, and prints. Checks that the console needs too
//! belong to `actions`; decisions belong to the engine.

mod add;
mod agent;
mod args;
mod audit;
mod batches;
mod cluster;
mod complete;
mod config;
mod confirm;
mod constraints;
mod context;
mod cordoned_by;
mod diff;
mod doctor;
mod engine;
mod explain;
mod history;
mod hosts;
mod info;
mod init;
mod input_file;
#[cfg(test)]
mod json_fields;
mod leader;
mod listing;
mod machines;
mod maintenance;
mod masked;
mod membership;
mod moment;
mod needed;
mod node_row;
mod nodes;
mod notices;
mod observe;
mod options;
mod orders;
mod output;
mod plan;
mod plugin;
mod policy;
mod power;
mod queue_plan;
mod reboot_queue;
pub mod reference;
mod registry;
mod repair_queue;
mod requested;
mod restrictions;
mod runbook;
mod sabakan;
mod sandbox;
mod sandbox_options;
mod screenshot;
mod state;
mod stop;
mod support_bundle;
mod switches;
mod theme;
mod unreadable_entries;
mod wait;
mod why;
mod windows;
mod yaml;

use cketerm_actions::ActionError;
use clap::CommandFactory;

pub use args::{Cli, Command, RunOptions};
pub use context::Context;
pub use options::Color;
pub use output::Out;
pub use plugin::parse;

/// Runs one subcommand.
pub async fn run(command: Command, context: &Context) -> Result<(), ActionError> {
    match command {
        Command::RebootQueue { command } => Box::pin(reboot_queue::run(command, context)).await,
        Command::RepairQueue { command } => Box::pin(repair_queue::run(command, context)).await,
        Command::Sabakan { command } => Box::pin(sabakan::run(command, context)).await,
        Command::Membership { command } => Box::pin(membership::run(command, context)).await,
        Command::AutoRepair { command } => sabakan::run_auto_repair(command, context).await,
        Command::Constraints { command } => Box::pin(constraints::run(command, context)).await,
        Command::Cluster { command } => Box::pin(cluster::run(command, context)).await,
        Command::Maintenance { command } => Box::pin(maintenance::run(command, context)).await,
        Command::Machines { command } => machines::run(command, context).await,
        Command::Nodes { command } => Box::pin(nodes::run(command, context)).await,
        Command::Notices { command } => Box::pin(notices::run(command, context)).await,
        Command::Policy { command } => Box::pin(policy::run(command, context)).await,
        Command::Freeze(args) => Box::pin(windows::freeze(&args, context)).await,
        Command::Stop(reason) => Box::pin(stop::stop(&reason, context)).await,
        Command::Resume(reason) => Box::pin(stop::resume(&reason, context)).await,
        Command::Unfreeze(reason) => Box::pin(windows::unfreeze(&reason, context)).await,
        Command::Windows(args) => Box::pin(windows::windows(&args, context)).await,
        Command::Hosts { command } => Box::pin(hosts::run(command, context)).await,
        Command::Agent(args) => Box::pin(agent::run(args, context)).await,
        Command::Power { command } => Box::pin(power::run(command, context)).await,
        Command::History(args) => Box::pin(history::run(&args, context)).await,
        Command::Audit(listing_args) => Box::pin(audit::run(listing_args, context)).await,
        Command::State => Box::pin(state::state(context)).await,
        Command::Decide(args) => state::decide(&args, context),
        Command::Engine { command } => Box::pin(engine::run(command, context)).await,
        Command::Leader => leader::leader(context).await,
        Command::Status => leader::status(context).await,
        Command::Config { command } => Box::pin(config::run(&command, context)).await,
        Command::Sandbox { command } => Box::pin(sandbox::run(command, context)).await,
        Command::Theme { command } => theme::run(&command, context),
        Command::Screenshot(args) => Box::pin(screenshot::run(&args, context)).await,
        Command::Explain { reason } => explain::run(reason.as_deref(), context),
        Command::Doctor(args) => Box::pin(doctor::run(&args, context)).await,
        Command::Init(args) => Box::pin(init::run(&args, context)).await,
        Command::Info => Box::pin(info::run(context)).await,
        Command::SupportBundle(args) => Box::pin(support_bundle::run(&args, context)).await,
        Command::Completions { shell } => reference::completions(shell, &Cli::command(), context),
        Command::Complete(args) => Box::pin(complete::run(&args, Cli::command(), context)).await,
        Command::Man { folder } => reference::man(&folder, Cli::command(), context),
    }
}
