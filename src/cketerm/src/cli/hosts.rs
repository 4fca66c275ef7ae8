//! `hosts`.

use cketerm_actions::{ActionError, BmcLookup, Hosts, own_key};
use cketerm_clients::{net::Http, power::BmcClients, sabakan as client};
use cketerm_model::{
    host::{HostRow, Mode, ProofSource},
    names::NodeName,
    policy::FenceBy,
};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::{Context, options::Output, output::columns};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum HostsCommand {
    /// List BareMetalHosts: power, requests, and what blocks a request
    List,
    /// Request one power cycle
    Reboot {
        /// The host, and options of the request.
        #[command(flatten)]
        how: PowerArgs,
    },
    /// Turn a host off, and hold it off until `release`
    Hold {
        /// The host, and options of the request.
        #[command(flatten)]
        how: PowerArgs,
        /// Hold under the key cketerm-NAME instead of cketerm
        #[arg(long = "as", value_name = "NAME")]
        key: Option<String>,
    },
    /// Hold a host off, wait for proof that it is off, fence its Node, release it
    Fence {
        /// NAME, NAMESPACE/NAME, or the name or address of its Node
        name: String,
        /// Node to fence; it must belong to this host
        node: String,
        /// Fence by the taint out-of-service, or delete the Node [default: policy fence]
        #[arg(long, value_enum)]
        by: Option<FenceWay>,
    },
    /// Remove cketerm's key; the host is turned on when no key is left
    Release {
        /// NAME, NAMESPACE/NAME, or the name or address of its Node
        name: String,
        /// Name that was given to `hold`
        #[arg(long = "as", value_name = "NAME")]
        key: Option<String>,
    },
}

/// A host, and options of the request.
#[derive(Args, Debug)]
pub struct PowerArgs {
    /// NAME, NAMESPACE/NAME, or the name or address of its Node
    name: String,
    /// Cut its power at once, without shutting down its operating system
    #[arg(long)]
    hard: bool,
    /// Wait this long until the host is off (and on again)
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
}

impl PowerArgs {
    fn mode(&self) -> Mode {
        if self.hard { Mode::Hard } else { Mode::Soft }
    }
}

/// A host in the form that is listed.
#[derive(Debug, Serialize)]
struct Listed {
    /// Its namespace.
    namespace: String,
    /// Its name.
    name: String,
    /// Whether it is on (`status.poweredOn`).
    powered_on: Option<bool>,
    /// Whether it should be on (`spec.online`).
    online: bool,
    /// State of its provisioning (`status.provisioning.state`); may be empty.
    provisioning: String,
    /// Requested modes: `reboot` is the basic annotation, the others are keys.
    asked: Vec<String>,
    /// Reason why a request would not be carried out.
    hindrance: Option<String>,
    /// Its error message.
    error: Option<String>,
    /// Time since which a requested reboot is not over.
    pending_reboot_since: Option<jiff::Timestamp>,
    /// Time at which it was last turned on, if known.
    last_powered_on: Option<jiff::Timestamp>,
    /// Name of the object that uses it (`spec.consumerRef`); may be empty.
    consumer: String,
}

impl From<HostRow> for Listed {
    fn from(host: HostRow) -> Self {
        let base = host.asked.base.iter().map(|value| format!("reboot ({})", Mode::of(value)));
        let keys = host.asked.keys.iter().map(|(key, value)| format!("held by {key} ({})", Mode::of(value)));
        Self {
            asked: base.chain(keys).collect(),
            hindrance: host.hindrance().map(|why| why.to_string()),
            error: (!host.error.is_empty()).then_some(host.error),
            pending_reboot_since: host.pending_reboot_since,
            last_powered_on: host.last_powered_on,
            namespace: host.namespace,
            name: host.name,
            powered_on: host.powered_on,
            online: host.online,
            provisioning: host.provisioning,
            consumer: host.consumer,
        }
    }
}

/// The ways to fence a Node.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FenceWay {
    /// The taint node.kubernetes.io/out-of-service
    Taint,
    /// Deletion of the Node
    Delete,
}

/// Returns the way that was given, else that of the policy. Without etcd it is the default policy's.
async fn fence_by(given: Option<FenceWay>, context: &Context) -> Result<FenceBy, ActionError> {
    match given {
        Some(FenceWay::Taint) => return Ok(FenceBy::Taint),
        Some(FenceWay::Delete) => return Ok(FenceBy::Delete),
        None => {}
    }
    if !context.settings.sources.contains_key("etcd") {
        return Ok(FenceBy::default());
    }
    let unread = |why: String| ActionError::failed(format!("hosts fence: {why}; say --by taint or --by delete"));
    let store = context.store().await.map_err(|e| unread(e.text))?;
    match store.policy().await.map_err(|e| unread(e.to_string()))?.map(|stored| stored.value) {
        Some(Ok(policy)) => Ok(policy.fence),
        Some(Err(why)) => Err(unread(format!("the policy cannot be read: {why}"))),
        None => Ok(FenceBy::default()),
    }
}

/// Runs one of the subcommands.
pub async fn run(command: HostsCommand, context: &Context) -> Result<(), ActionError> {
    let kube = context.kube("hosts").await?;
    let hosts = Hosts::new(kube).with_bmcs(Some(bmcs(context).await));
    match command {
        HostsCommand::List => list(hosts.list().await?, context),
        HostsCommand::Reboot { how } => {
            let asking = hosts.reboot(&how.name, how.mode()).await?;
            let name = asking.host.full_name();
            match &asking.already {
                Some(value) => context.print_message(&format!("{name}: a reboot is requested already: {value}")),
                None => context.print_message(&format!("{name}: a {} reboot is requested", how.mode())),
            }
            let Some(seconds) = how.wait else { return Ok(()) };
            hosts.wait_until_rebooted(&asking.host, seconds).await?;
            context.print_message(&format!("{name} was off and is on again"));
            Ok(())
        }
        HostsCommand::Hold { how, key } => {
            let key = own_key(key.as_deref())?;
            let asking = hosts.hold(&how.name, &key, how.mode()).await?;
            let name = asking.host.full_name();
            match &asking.already {
                Some(value) => context.print_message(&format!("{name} is held under {key} already: {value}")),
                None => context.print_message(&format!("{name} will be held off ({}) under {key}", how.mode())),
            }
            let Some(seconds) = how.wait else { return Ok(()) };
            let by = hosts.wait_until_off(&asking.host, &key, seconds).await?;
            context.print_message(&match by {
                ProofSource::Change => format!("{name} went off, and is held off"),
                ProofSource::Bmc => format!("{name} is off, as its BMC reports, and is held off"),
            });
            Ok(())
        }
        HostsCommand::Fence { name, node, by } => {
            let by = fence_by(by, context).await?;
            let summary = hosts.fence_node(&name, &NodeName::new(node), by).await?;
            context.print_message(&summary);
            if by == FenceBy::Taint {
                context.print_message(
                    "a cketerm leader removes the taint after the next boot; without one: `kubectl taint nodes NODE \
                     node.kubernetes.io/out-of-service-`",
                );
            }
            Ok(())
        }
        HostsCommand::Release { name, key } => {
            let key = own_key(key.as_deref())?;
            let host = hosts.release(&name, &key).await?;
            let others: Vec<&str> = host.asked.keys.keys().map(String::as_str).collect();
            context.print_message(&match others.as_slice() {
                [] => format!("{} is released", host.full_name()),
                held => format!("{} is released by cketerm, still held by {}", host.full_name(), held.join(", ")),
            });
            Ok(())
        }
    }
}

/// Returns the BMCs that can be queried for the proof of off.
async fn bmcs(context: &Context) -> BmcLookup {
    let settings = &context.settings;
    let bmcs = BmcLookup::new(BmcClients::network(settings.bmcs.clone()));
    // The registry has no passwords, so it is of no use without the file. An unreachable etcd is no error.
    if settings.bmcs.is_none() || !settings.sources.contains_key("etcd") {
        return bmcs;
    }
    match context.store().await {
        Ok(store) => bmcs.and_registry(store, Http::verified(client::TIMEOUT, client::MOST_BYTES)),
        Err(_) => bmcs,
    }
}

fn list(hosts: Vec<HostRow>, context: &Context) -> Result<(), ActionError> {
    let listed: Vec<Listed> = hosts.into_iter().map(Listed::from).collect();
    match context.output(Output::Table) {
        Output::Table => {
            let power = |on| match on {
                Some(true) => "on",
                Some(false) => "off",
                None => "-",
            };
            let rows: Vec<Vec<String>> = listed
                .into_iter()
                .map(|h| {
                    let why = h.hindrance.or(h.error).unwrap_or_default();
                    let online = if h.online { "yes" } else { "no" };
                    let name = format!("{}/{}", h.namespace, h.name);
                    vec![
                        name,
                        power(h.powered_on).to_owned(),
                        online.to_owned(),
                        h.provisioning,
                        h.asked.join(", "),
                        why,
                    ]
                })
                .collect();
            context.out.text(columns(&["Host", "Power", "Online", "Provisioning", "Requests", "Remarks"], &rows))
        }
        form => context.out.value(&listed, form),
    }
}
