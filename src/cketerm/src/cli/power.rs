//! `power`.

mod find;
pub mod test;

use cketerm_actions::ActionError;
use cketerm_clients::power::{Found, Machine, Off, PowerError, Rebooted, booted::booted, switch};
use cketerm_model::{host::Mode, kube::NodeRow, names::NodeName, power_state::PowerState};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use self::{find::find, test::TestArgs};
use super::{Context, options::Output};

/// The subcommands. Progress and reasons go to standard error.
#[derive(Debug, Subcommand)]
pub enum PowerCommand {
    /// Print on or off, or what else the driver reports
    Status {
        /// The node's address, or its name
        address: String,
    },
    /// Turn the machine on, and verify that it is on
    On {
        /// The node's address, or its name
        address: String,
    },
    /// Shut the machine down, or else cut its power, and verify that it is off
    Off(OffArgs),
    /// Turn the machine off and on, and verify both; for `reboot_command`
    Cycle(OffArgs),
    /// Check logins, reachability and rights of drivers, without switching anything
    Test(TestArgs),
    /// Print whether the machine booted after UNIXTIME; for `boot_check_command`
    Booted {
        /// Take a machine that is on as booted if neither the BMC nor Kubernetes can tell
        #[arg(long)]
        on_is_enough: bool,
        /// The node's address, or its name
        address: String,
        /// Unix time in seconds.
        unixtime: i64,
    },
}

/// The machine to turn off, and the mode.
#[derive(Args, Debug)]
pub struct OffArgs {
    /// Cut the power at once, without shutting down the operating system
    #[arg(long)]
    hard: bool,
    /// The node's address, or its name
    address: String,
}

impl OffArgs {
    fn mode(&self) -> Mode {
        if self.hard { Mode::Hard } else { Mode::Soft }
    }
}

/// A machine in the form that `status` prints.
#[derive(Debug, Serialize)]
struct Shown {
    /// Address of the machine.
    address: String,
    /// Its BMC or other driver.
    bmc: String,
    /// Id of the system at the BMC.
    system: String,
    /// Name of the system at the BMC.
    name: String,
    /// Whether it is on.
    power: String,
    /// Kinds of reset that the BMC offers.
    reset_types: Vec<String>,
    /// Time since its last reset, if the BMC reports it.
    seconds_since_reset: Option<u64>,
}

/// Runs one of the subcommands.
pub async fn run(command: PowerCommand, context: &Context) -> Result<(), ActionError> {
    let report = |text: &str| context.print_message(text);
    match command {
        PowerCommand::Status { address } => {
            let address = resolved(address, context).await?;
            let found = find(&address, context).await?;
            let machine = found.driver.read().await;
            found.driver.close().await;
            status(address, &found, &machine.map_err(|e| failed(&e))?, context)
        }
        PowerCommand::On { address } => {
            let address = resolved(address, context).await?;
            let found = find(&address, context).await?;
            let answer = switch::on(&*found.driver, &found.timeouts, &report).await;
            found.driver.close().await;
            let turned = answer.map_err(|e| failed(&e))?;
            context.print_message(if turned { "the machine is on" } else { "the machine was on already" });
            Ok(())
        }
        PowerCommand::Off(args) => {
            let found = find(&resolved(args.address.clone(), context).await?, context).await?;
            let answer = switch::off(&*found.driver, args.mode(), &found.timeouts, &report).await;
            found.driver.close().await;
            context.print_message(match answer.map_err(|e| failed(&e))? {
                Off::Already => "the machine was off already",
                Off::Graceful => "the machine is off: its operating system shut down",
                Off::Hard => "the machine is off: its power was cut",
            });
            Ok(())
        }
        PowerCommand::Cycle(args) => {
            let found = find(&resolved(args.address.clone(), context).await?, context).await?;
            let answer = switch::reboot(&*found.driver, args.mode(), &found.timeouts, &report).await;
            found.driver.close().await;
            context.print_message(match answer.map_err(|e| failed(&e))? {
                Rebooted::Cycled(_) => "the machine is on again",
                Rebooted::Restarting => "the machine took the order to reboot; the boot check shows when it is back",
            });
            Ok(())
        }
        PowerCommand::Test(args) => Box::pin(test::run(&args, context)).await,
        PowerCommand::Booted { on_is_enough, address, unixtime } => {
            let since = Timestamp::from_second(unixtime)
                .map_err(|_| ActionError::misused(format!("{unixtime} is not a time: give Unix time in seconds")))?;
            let address = resolved(address, context).await?;
            let found = find(&address, context).await?;
            let machine = found.driver.read().await;
            found.driver.close().await;
            let machine = machine.map_err(|e| failed(&e))?;
            let node = if context.settings.kube.is_none() { None } else { node(&address, context).await? };
            let (booted, why) = booted(&machine, node.as_ref(), since, Timestamp::now(), on_is_enough);
            if booted && node.is_some() {
                check_claimed_once(&address, context).await?;
            }
            context.print_verbose(&why);
            context.out.line(if booted { "true" } else { "false" })
        }
    }
}

/// Returns the address of a node that is given by name. An address is taken as it is, without a query: CKE's commands
/// give one.
async fn resolved(node: String, context: &Context) -> Result<String, ActionError> {
    if node.parse::<std::net::IpAddr>().is_ok() {
        return Ok(node);
    }
    Ok(context.operator().await?.resolve_machine(&node).await?.to_string())
}

fn failed(e: &PowerError) -> ActionError {
    ActionError::failed(e.to_string())
}

fn status(address: String, found: &Found, machine: &Machine, context: &Context) -> Result<(), ActionError> {
    match context.output(Output::Table) {
        Output::Table => match &machine.power {
            PowerState::Unknown => {
                Err(ActionError::failed(format!("{} does not report whether {address} is on", found.driver.target())))
            }
            power => context.out.line(&power.to_string()),
        },
        form => {
            let shown = Shown {
                address,
                bmc: found.driver.target().name.clone(),
                system: machine.id.clone(),
                name: machine.name.clone(),
                power: if machine.power == PowerState::Unknown {
                    "unknown".to_owned()
                } else {
                    machine.power.to_string()
                },
                reset_types: machine.offered.clone(),
                seconds_since_reset: machine.reset_age.map(|age| age.as_secs()),
            };
            context.out.value(&shown, form)
        }
    }
}

/// Returns the Node with this address.
async fn node(address: &str, context: &Context) -> Result<Option<NodeRow>, ActionError> {
    let kube = context.kube("power booted").await?;
    let failed = |e: cketerm_clients::kubernetes::KubeError| ActionError::failed(format!("power booted: {e}"));
    let is = |row: &NodeRow| row.addresses.iter().any(|a| a == address);
    match kube.node(&NodeName::new(address)).await.map_err(failed)?.filter(is) {
        Some(row) => Ok(Some(row)),
        None => Ok(kube.nodes().await.map_err(failed)?.into_iter().find(is)),
    }
}

/// Refuses an address that several Nodes claim. A Node's status comes from its kubelet, and the boot id of another
/// machine proves nothing. It is checked only where a Node's status is about to count.
async fn check_claimed_once(address: &str, context: &Context) -> Result<(), ActionError> {
    let kube = context.kube("power booted").await?;
    let nodes = kube.nodes().await.map_err(|e| ActionError::failed(format!("power booted: {e}")))?;
    duplicate_claim(address, &nodes).map_or(Ok(()), |why| Err(ActionError::failed(why)))
}

/// Returns the message if several of these Nodes have this address.
fn duplicate_claim(address: &str, nodes: &[NodeRow]) -> Option<String> {
    let claim = nodes.iter().filter(|row| row.addresses.iter().any(|a| a == address));
    let names: Vec<&str> = claim.map(|row| row.name.as_str()).collect();
    (names.len() > 1).then(|| {
        let names = names.join(", ");
        format!(
            "power booted: Nodes {names} all claim the address {address}: remove the wrong one, or correct its address"
        )
    })
}

#[cfg(test)]
mod tests;
