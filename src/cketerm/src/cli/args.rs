//! Tree of subcommands, and the options without one.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use super::{
    agent::AgentArgs,
    cluster::ClusterCommand,
    complete::CompleteArgs,
    config::ConfigCommand,
    constraints::ConstraintsCommand,
    doctor::DoctorArgs,
    engine::EngineCommand,
    history::HistoryArgs,
    hosts::HostsCommand,
    init::InitArgs,
    listing::ListingArgs,
    machines::MachinesCommand,
    maintenance::MaintenanceCommand,
    membership::MembershipCommand,
    nodes::NodesCommand,
    notices::NoticesCommand,
    options::{Globals, Reason},
    policy::PolicyCommand,
    power::PowerCommand,
    reboot_queue::RebootCommand,
    reference::Shell,
    repair_queue::RepairCommand,
    sabakan::{AutoRepairCommand, SabakanCommand},
    sandbox::SandboxCommand,
    sandbox_options::Choice,
    screenshot::ScreenshotArgs,
    state::DecideArgs,
    support_bundle::SupportBundleArgs,
    theme::ThemeCommand,
    windows::{FreezeArgs, WindowsArgs},
};
use crate::config::Overrides;

/// Console and controller for keeping bare-metal Kubernetes clusters running.
///
/// Without a subcommand: runs the console, and an engine if the policy allows it to campaign. Exit status of
/// subcommands: 0 done, 1 failed, 2 wrong usage, 3 refused, 5 done, except for unreadable entries.
#[derive(Debug, Parser)]
#[command(name = "cketerm", version, max_term_width = 100, args_conflicts_with_subcommands = false)]
pub struct Cli {
    /// Options of every subcommand.
    #[command(flatten)]
    pub globals: Globals,
    /// Options without a subcommand.
    #[command(flatten)]
    pub run: RunOptions,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// A command line without a subcommand. A console or a daemon starts two milliseconds sooner if the subcommands, their
/// options and texts are not built.
#[derive(Debug, Parser)]
#[command(name = "cketerm", version)]
struct WithoutSubcommand {
    #[command(flatten)]
    globals: Globals,
    #[command(flatten)]
    run: RunOptions,
}

impl Cli {
    /// Parses a command line without a subcommand. Returns none if it has a subcommand or cannot be parsed. [`Cli`] then
    /// parses it, and reports the error.
    pub fn without_subcommand(words: &[OsString]) -> Option<Self> {
        if words.get(1).is_some_and(|word| !word.as_encoded_bytes().starts_with(b"-")) {
            return None;
        }
        let WithoutSubcommand { globals, run } = WithoutSubcommand::try_parse_from(words).ok()?;
        Some(Self { globals, run, command: None })
    }
}

/// Options without a subcommand.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a flag of its own
pub struct RunOptions {
    /// Run the engine without a console
    #[arg(long, conflicts_with_all = ["observe", "read_only", "view", "theme", "sandbox"])]
    pub daemon: bool,
    /// Listen address of the daemon's /healthz, /readyz, /metrics (on loopback also /state), or off
    #[arg(long, value_name = "ADDRESS", requires = "daemon", value_parser = http)]
    pub http: Option<String>,
    /// Run the console without an engine; actions are allowed
    #[arg(long)]
    pub observe: bool,
    /// Run the console without an engine; actions are refused until `:write TIME`
    #[arg(long)]
    pub read_only: bool,
    /// Print changes line by line, for logs, screen readers and simple terminals
    #[arg(long, conflicts_with_all = ["daemon", "view"])]
    pub plain: bool,
    /// First view of the console
    #[arg(long, value_name = "NAME")]
    pub view: Option<String>,
    /// Theme of the console: a name from `theme list`, or auto
    #[arg(long, value_name = "NAME")]
    pub theme: Option<String>,
    /// Run the console on a simulated data centre in this process; contacts no server
    #[arg(long, conflicts_with_all = ["observe", "read_only"])]
    pub sandbox: bool,
    /// Options of the sandbox.
    #[command(flatten)]
    pub choice: Choice,
}

/// Parses an address, or `off`.
fn http(text: &str) -> Result<String, String> {
    let good = text == "off" || text.parse::<SocketAddr>().is_ok();
    good.then(|| text.to_owned()).ok_or_else(|| "expected an address such as 127.0.0.1:10181, or off".to_owned())
}

impl RunOptions {
    /// Reports whether any of them was given. They make no sense beside a subcommand, and an ignored `--read-only`
    /// would be worse than an error.
    pub fn any(&self) -> bool {
        self.daemon
            || self.observe
            || self.read_only
            || self.plain
            || self.view.is_some()
            || self.theme.is_some()
            || self.http.is_some()
            || self.sandbox
            || self.choice.any()
    }
}

/// Top-level subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Reboot queue
    #[command(visible_alias = "rq", subcommand_required = true, arg_required_else_help = true)]
    RebootQueue {
        /// Subcommand.
        #[command(subcommand)]
        command: RebootCommand,
    },
    /// Repair queue
    #[command(subcommand_required = true, arg_required_else_help = true)]
    RepairQueue {
        /// Subcommand.
        #[command(subcommand)]
        command: RepairCommand,
    },
    /// Cluster definition generated from sabakan, the registry of machines
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Sabakan {
        /// Subcommand.
        #[command(subcommand)]
        command: SabakanCommand,
    },
    /// Cluster definition that follows the Nodes of Kubernetes (policy membership)
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Membership {
        /// Subcommand.
        #[command(subcommand)]
        command: MembershipCommand,
    },
    /// Automatic repairs of machines that sabakan reports as broken
    #[command(subcommand_required = true, arg_required_else_help = true)]
    AutoRepair {
        /// Subcommand.
        #[command(subcommand)]
        command: AutoRepairCommand,
    },
    /// Limits set by administrators
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Constraints {
        /// Subcommand.
        #[command(subcommand)]
        command: ConstraintsCommand,
    },
    /// Cluster definition and cluster identity
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Cluster {
        /// Subcommand.
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Nodes that are drained and kept cordoned for maintenance, without a reboot
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Maintenance {
        /// Subcommand.
        #[command(subcommand)]
        command: MaintenanceCommand,
    },
    /// Machines that sabakan knows
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Machines {
        /// Subcommand.
        #[command(subcommand)]
        command: MachinesCommand,
    },
    /// Nodes of Kubernetes and of the definition
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Nodes {
        /// Subcommand.
        #[command(subcommand)]
        command: NodesCommand,
    },
    /// Notices to chat, mail and pagers
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Notices {
        /// Subcommand.
        #[command(subcommand)]
        command: NoticesCommand,
    },
    /// Settings in etcd that every cketerm leader follows
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Policy {
        /// Subcommand.
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Start nothing new in either queue until a time; drains stop and nodes are uncordoned
    Freeze(FreezeArgs),
    /// Disable both queues, whoever leads; running reboots and repairs finish
    Stop(Reason),
    /// Enable the queues that `stop` disabled, except those changed since
    Resume(Reason),
    /// End a freeze early
    Unfreeze(Reason),
    /// Print whether the maintenance windows are open, and the next openings
    Windows(WindowsArgs),
    /// Metal3 BareMetalHosts, through Metal3's reboot interface
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Hosts {
        /// Subcommand.
        #[command(subcommand)]
        command: HostsCommand,
    },
    /// Turn machines off and on, over Redfish or by another driver
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Power {
        /// Subcommand.
        #[command(subcommand)]
        command: PowerCommand,
    },
    /// Run the agent of this node: report that it needs a reboot, and reboot it on order
    Agent(AgentArgs),
    /// Print CKE's records, newest first; or ended entries with their timelines
    History(HistoryArgs),
    /// Print audit records: who did what, when and why; newest first (100 without -n)
    Audit(ListingArgs),
    /// Print everything an engine knows now, as JSON, for bug reports
    State,
    /// Print what the engine would do with a saved state, and why; contacts no server
    Decide(DecideArgs),
    /// Hand the queues over between CKE and cketerm, step by step
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Engine {
        /// Subcommand.
        #[command(subcommand)]
        command: EngineCommand,
    },
    /// Print the host name of the leader
    Leader,
    /// Show the leader's current phase
    Status,
    /// Local settings
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Config {
        /// Subcommand.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Simulated data centre, without the console
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Sandbox {
        /// Subcommand.
        #[command(subcommand)]
        command: SandboxCommand,
    },
    /// Themes of the console
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Theme {
        /// Subcommand.
        #[command(subcommand)]
        command: ThemeCommand,
    },
    /// Print one screen of the console, after some keys; writes nothing
    Screenshot(ScreenshotArgs),
    /// Explain a reason: its meaning, checks and remedies; without one, list all
    Explain {
        /// Name of the reason, such as BlockedByPDB, from `rq why -o json` or the metrics
        reason: Option<String>,
    },
    /// Set up a site without CKE: write the configuration and the definition, and plan a first reboot
    Init(Box<InitArgs>),
    /// Check everything that an engine on this host needs, and name the remedy of each failure; writes nothing
    Doctor(DoctorArgs),
    /// Print versions, servers, the leader and your identity for bug reports; no secrets
    Info,
    /// Write an archive for a defect report: state, queues, history and logs, without secrets; changes nothing
    SupportBundle(SupportBundleArgs),
    /// Write man pages into a folder
    Man {
        /// Folder to write to; created if missing
        folder: PathBuf,
    },
    /// Print a shell completion script
    Completions {
        /// Shell that the script is for.
        shell: Shell,
    },
    /// Print candidates for the last of these words, for shells and kubectl
    #[command(name = "__complete", hide = true)]
    Complete(CompleteArgs),
}

impl Cli {
    /// Reports whether the subcommand contacts no server from the settings. A broken configuration file then does not
    /// matter.
    fn needs_no_settings(&self) -> bool {
        match &self.command {
            Some(
                Command::Sandbox { .. }
                | Command::Decide(_)
                | Command::Completions { .. }
                | Command::Explain { .. }
                | Command::Complete(_)
                | Command::Man { .. },
            ) => true,
            Some(Command::Theme { command }) => command.needs_no_settings(),
            Some(Command::Policy { command }) => command.needs_no_settings(),
            Some(Command::Screenshot(args)) => args.sandbox,
            Some(Command::SupportBundle(args)) => args.list,
            Some(Command::Windows(args)) => args.check.is_some(),
            Some(Command::Config { command }) => {
                matches!(
                    command,
                    ConfigCommand::Default | ConfigCommand::Schema | ConfigCommand::Check { file: Some(_) }
                )
            }
            _ => false,
        }
    }

    /// Returns the settings that the command line overrides.
    pub fn overrides(&self) -> Overrides {
        let g = self.globals.clone();
        Overrides {
            config: g.config,
            etcd_endpoints: g.etcd_endpoints,
            etcd_prefix: g.etcd_prefix,
            kubeconfig: g.kubeconfig,
            context: g.context,
            http: self.run.http.clone(),
            sandbox: self.run.sandbox || self.needs_no_settings(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{super::options::AskedOutput, *};

    #[test]
    fn the_command_tree_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn simple_is_an_output_format_and_rq_an_alias_of_reboot_queue() {
        let cli = Cli::try_parse_from(["cketerm", "rq", "list", "-o", "simple"]).unwrap();
        assert_eq!(cli.globals.output, Some(AskedOutput::Simple));
        assert!(matches!(cli.command, Some(Command::RebootQueue { command: RebootCommand::List })));
    }

    #[test]
    fn extra_arguments_and_unknown_commands_are_usage_errors() {
        for line in [&["cketerm", "rq", "enable", "x"][..], &["cketerm", "nope"], &["cketerm", "rq", "cancel", "x"]] {
            let e = Cli::try_parse_from(line).unwrap_err();
            assert_eq!(e.exit_code(), 2, "{line:?}");
        }
    }
}
