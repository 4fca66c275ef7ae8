//! Tree of subcommands, and the global options.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{
    cluster::ClusterWord,
    config::ConfigWord,
    constraints::ConstraintsWord,
    history::HistoryArgs,
    hosts::HostsWord,
    nodes::NodesWord,
    notices::NoticesWord,
    policy::PolicyWord,
    power::PowerWord,
    reboot_queue::RebootWord,
    reference::Shell,
    repair_queue::RepairWord,
    roll::Much,
    sabakan::{AutoRepairWord, SabakanWord},
    sandbox::{Choice, SandboxWord},
    screenshot::ShotArgs,
    state::DecideArgs,
    theme::ThemeWord,
    windows::{FreezeArgs, WindowsArgs},
};
use crate::config::Overrides;

/// Console and controller for keeping bare-metal Kubernetes clusters running.
///
/// Without a word: the console, and an engine where the policy lets one campaign. Exit status of words: 0 done,
/// 1 failed, 2 misused, 3 refused, 5 done but for what in etcd cannot be read.
#[derive(Debug, Parser)]
#[command(name = "cketerm", version, max_term_width = 100, args_conflicts_with_subcommands = false)]
pub struct Cli {
    /// Options of every word.
    #[command(flatten)]
    pub globals: Globals,
    /// How to run without a word.
    #[command(flatten)]
    pub run: RunOptions,
    /// The word.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options that every word takes. Those that say where the servers are are read from the environment too, below the
/// options (`CKETERM_CONFIG`, `CKETERM_ETCD_ENDPOINTS` …).
#[derive(Args, Clone, Debug)]
pub struct Globals {
    /// Configuration file, in our form or CKE's [env: CKETERM_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
    /// URLs of etcd, separated by commas [env: CKETERM_ETCD_ENDPOINTS]
    #[arg(long, global = true, value_name = "URLS", help_heading = "Global options")]
    pub etcd_endpoints: Option<String>,
    /// What all keys in etcd begin with [env: CKETERM_ETCD_PREFIX]
    #[arg(long, global = true, value_name = "PREFIX", help_heading = "Global options")]
    pub etcd_prefix: Option<String>,
    /// Kubeconfig; never taken from KUBECONFIG or a home directory [env: CKETERM_KUBECONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [env: CKETERM_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub context: Option<String>,
    /// Form of the output; each word has a default of its own
    #[arg(short, long, global = true, env = "CKETERM_OUTPUT", hide_env_values = true, help_heading = "Global options")]
    pub output: Option<AskedOutput>,
    /// Colours
    #[arg(
        long,
        global = true,
        env = "CKETERM_COLOR",
        hide_env_values = true,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Global options"
    )]
    pub color: Color,
    /// Say more on standard error
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub verbose: u8,
}

/// What may be asked for with `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AskedOutput {
    /// Columns, for people.
    Table,
    /// The columns of `ckecli` where it has some, for its scripts; else those for people.
    Simple,
    /// JSON, indented by four.
    Json,
    /// YAML.
    Yaml,
}

/// Forms of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Columns.
    Table,
    /// JSON, indented by four.
    Json,
    /// YAML.
    Yaml,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How to run without a word.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a flag of its own
pub struct RunOptions {
    /// The engine alone, without a console
    #[arg(long, conflicts_with_all = ["observe", "read_only", "view", "theme", "sandbox"])]
    pub daemon: bool,
    /// Where the daemon's /healthz, /readyz, /metrics and, on a loopback address, /state listen; off = nowhere
    #[arg(long, value_name = "ADDRESS", requires = "daemon", value_parser = http)]
    pub http: Option<String>,
    /// The console without an engine
    #[arg(long)]
    pub observe: bool,
    /// The console without an engine and without actions
    #[arg(long)]
    pub read_only: bool,
    /// Lines in place of a screen: what changes, one a line; for logs, screen readers and terminals that cannot draw
    #[arg(long, conflicts_with_all = ["daemon", "view"])]
    pub plain: bool,
    /// The console's first view
    #[arg(long, value_name = "NAME")]
    pub view: Option<String>,
    /// The console's looks: a name of `theme list`, or auto
    #[arg(long, value_name = "NAME")]
    pub theme: Option<String>,
    /// The console on a simulated data centre inside this process; no server is needed, none is touched
    #[arg(long, conflicts_with_all = ["observe", "read_only"])]
    pub sandbox: bool,
    /// What the sandbox is like.
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

/// The nouns.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The reboot queue
    #[command(visible_alias = "rq", subcommand_required = true, arg_required_else_help = true)]
    RebootQueue {
        /// What to do with it.
        #[command(subcommand)]
        word: RebootWord,
    },
    /// The repair queue
    #[command(subcommand_required = true, arg_required_else_help = true)]
    RepairQueue {
        /// What to do with it.
        #[command(subcommand)]
        word: RepairWord,
    },
    /// The definition from the registry of machines
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Sabakan {
        /// What to do with it.
        #[command(subcommand)]
        word: SabakanWord,
    },
    /// Repairs that the registry asks for
    #[command(subcommand_required = true, arg_required_else_help = true)]
    AutoRepair {
        /// What to do with it.
        #[command(subcommand)]
        word: AutoRepairWord,
    },
    /// The limits that administrators set
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Constraints {
        /// What to do with them.
        #[command(subcommand)]
        word: ConstraintsWord,
    },
    /// The cluster definition, and which cluster it is
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Cluster {
        /// What to do with it.
        #[command(subcommand)]
        word: ClusterWord,
    },
    /// The machines that sabakan knows
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Machines {
        /// What to do with them.
        #[command(subcommand)]
        word: MachinesWord,
    },
    /// Kubernetes' Nodes and the definition's
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Nodes {
        /// What to do with them.
        #[command(subcommand)]
        word: NodesWord,
    },
    /// Who is told what happens
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Notices {
        /// What to do with them.
        #[command(subcommand)]
        word: NoticesWord,
    },
    /// What every leader decides by
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Policy {
        /// What to do with it.
        #[command(subcommand)]
        word: PolicyWord,
    },
    /// Nothing new starts until then, in either queue; drains that are under way are unwound. Kubernetes is not asked
    Freeze(FreezeArgs),
    /// Disable both queues at once, whoever leads, and remember which were enabled; running reboots and repairs finish
    Stop(Reason),
    /// Enable the queues that `stop` disabled, but for those that somebody turned since
    Resume(Reason),
    /// End a freeze before its time
    Unfreeze(Reason),
    /// Print whether the maintenance windows are open, and when next
    Windows(WindowsArgs),
    /// BareMetalHosts of Metal3, as a client of its reboot interface
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Hosts {
        /// What to do with them.
        #[command(subcommand)]
        word: HostsWord,
    },
    /// Turn machines off and on through their BMCs
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Power {
        /// What to do with which machine.
        #[command(subcommand)]
        word: PowerWord,
    },
    /// Print CKE's records, newest first; or the entries that ended, with their timelines
    History(HistoryArgs),
    /// Print who did what on what, when, why and from where, newest first (100 without -n)
    Audit(Much),
    /// Print everything that an engine knows now, as JSON: what a bug report needs
    State,
    /// Print what the engine would do with a state, and why; writes nothing, asks nobody
    Decide(DecideArgs),
    /// Print the host name of the leader
    Leader,
    /// Print what the leader is at
    Status,
    /// The local settings
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Config {
        /// What to do with them.
        #[command(subcommand)]
        word: ConfigWord,
    },
    /// The simulated data centre, without the console
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Sandbox {
        /// What to do with it.
        #[command(subcommand)]
        word: SandboxWord,
    },
    /// The console's looks
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Theme {
        /// What to do with them.
        #[command(subcommand)]
        word: ThemeWord,
    },
    /// Print one frame of the console, after some keys; never writes
    Screenshot(ShotArgs),
    /// Print what a reason means, what to check and which key or word helps; without one: all reasons
    Explain {
        /// Its name, such as BlockedByPDB, as `rq why -o json` and the metrics have it
        reason: Option<String>,
    },
    /// Print version, host, servers with their versions, who leads and who you are, for bug reports; no secrets
    Info,
    /// Write man pages into a folder
    Man {
        /// The folder; made where it is not there
        folder: PathBuf,
    },
    /// Print a completion script
    Completions {
        /// For which shell.
        shell: Shell,
    },
}

/// Words about sabakan's machines.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum MachinesWord {
    /// List them: state and time in it, role, rack, lifetime, place in the cluster, what the plan does with each
    List,
}

impl Cli {
    /// Reports whether the subcommand contacts no server from the settings. A broken configuration file then does not
    /// matter.
    fn needs_no_settings(&self) -> bool {
        match &self.command {
            Some(Command::Sandbox { .. } | Command::Decide(_) | Command::Completions { .. } | Command::Man { .. }) => {
                true
            }
            Some(Command::Theme { word }) => word.needs_no_settings(),
            Some(Command::Screenshot(args)) => args.sandbox,
            Some(Command::Windows(args)) => args.check.is_some(),
            Some(Command::Config { word }) => {
                matches!(word, ConfigWord::Default | ConfigWord::Schema | ConfigWord::Check { file: Some(_) })
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

/// Why, for the audit.
#[derive(Args, Clone, Debug)]
pub struct Reason {
    /// Reason or ticket, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// For rules that the leader does not know.
#[derive(Args, Clone, Copy, Debug)]
pub struct Handover {
    /// Store it although CKE leads: it comes into force once a cketerm engine leads, and is shown as not in force before
    #[arg(long)]
    pub for_handover: bool,
}

impl Reason {
    /// Returns the reason in the form that actions take.
    pub fn get(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_tree_of_words_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn simple_is_a_form_of_output_and_rq_an_alias_of_reboot_queue() {
        let cli = Cli::try_parse_from(["cketerm", "rq", "list", "-o", "simple"]).unwrap();
        assert_eq!(cli.globals.output, Some(AskedOutput::Simple));
        assert!(matches!(cli.command, Some(Command::RebootQueue { word: RebootWord::List })));
    }

    #[test]
    fn extra_arguments_and_unknown_words_are_misuse() {
        for line in [&["cketerm", "rq", "enable", "x"][..], &["cketerm", "nope"], &["cketerm", "rq", "cancel", "x"]] {
            let e = Cli::try_parse_from(line).unwrap_err();
            assert_eq!(e.exit_code(), 2, "{line:?}");
        }
    }
}
