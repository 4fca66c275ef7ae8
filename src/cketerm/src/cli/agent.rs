//! `agent`.

use std::{path::PathBuf, time::Duration};

use cketerm_actions::ActionError;
use cketerm_clients::kubernetes::{Kube, KubeSettings};
use cketerm_model::{clock::Clock, names::NodeName};
use cketerm_runtime::host::host_name;
use clap::Args;

use super::Context;
use crate::agent::{AgentSettings, RebootMethod, Sentinel, run as run_agent};

/// Options of the agent. Without a kubeconfig it uses the service account of its pod.
#[derive(Args, Debug)]
pub struct AgentArgs {
    /// Its Node; default: this host's name
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// File whose existence means that the node needs a reboot; repeatable
    #[arg(
        long,
        value_name = "FILE",
        default_values = ["/run/reboot-required", "/var/run/reboot-required"],
        conflicts_with = "sentinel_command"
    )]
    sentinel: Vec<PathBuf>,
    /// Program with arguments whose exit status 0 means that the node needs a reboot
    #[arg(long, value_name = "COMMAND")]
    sentinel_command: Option<String>,
    /// Interval between two looks for the sentinel
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    poll: u64,
    /// Directory of the record of obeyed orders; it must survive the agent and a reboot
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/cketerm-agent")]
    state_directory: PathBuf,
    /// Socket of the system's D-Bus, for a reboot through logind
    #[arg(long, value_name = "FILE", default_value = "/run/dbus/system_bus_socket")]
    dbus_socket: PathBuf,
    /// Program with arguments that reboots the machine, instead of logind
    #[arg(long, value_name = "COMMAND")]
    reboot_command: Option<String>,
    /// File with the boot id, for tests
    #[arg(long, value_name = "FILE", default_value = "/proc/sys/kernel/random/boot_id", hide = true)]
    boot_id_file: PathBuf,
}

/// Runs the agent until it is stopped.
pub async fn run(args: AgentArgs, context: &Context) -> Result<(), ActionError> {
    let words = |option: &str, text: Option<String>| -> Result<Option<Vec<String>>, ActionError> {
        let Some(text) = text else { return Ok(None) };
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(ActionError::misused(format!("{option} is empty; give a program with its arguments")));
        }
        Ok(Some(words))
    };
    let command = words("--sentinel-command", args.sentinel_command)?;
    let reboot = match words("--reboot-command", args.reboot_command)? {
        Some(words) => RebootMethod::Command(words),
        None => RebootMethod::Logind(args.dbus_socket),
    };
    let mut kube = context.settings.kube.clone();
    if kube.is_none() {
        kube = KubeSettings { in_cluster: true, ..KubeSettings::default() };
    }
    let kube = Kube::connect(&kube, Clock::host()).await.map_err(|e| ActionError::misused(format!("agent: {e}")))?;
    let files = if command.is_some() { Vec::new() } else { args.sentinel };
    let settings = AgentSettings {
        node: NodeName::new(args.node.unwrap_or_else(|| host_name().to_ascii_lowercase())),
        sentinel: Sentinel { files, command },
        poll: Duration::from_secs(args.poll),
        state_directory: args.state_directory,
        boot_id_file: args.boot_id_file,
        reboot,
    };
    let tell = |text: &str| context.print_message(text);
    Box::pin(run_agent(kube, settings, &tell)).await.map_err(|why| ActionError::failed(format!("agent: {why}")))
}
