//! `power test`: checks of each machine's driver that switch nothing.

use std::collections::BTreeSet;

use cketerm_actions::{ActionError, BmcLookup};
use cketerm_clients::power::{
    BmcClients,
    test::{Check, test},
};
use cketerm_model::{kube::NodeRow, names::Address};
use clap::Args;
use futures::{StreamExt, stream};
use serde::Serialize;

use super::{duplicate_claim, find::find, resolved};
use crate::cli::{Context, options::Output, output::columns};

/// Number of machines that are checked at once.
const AT_ONCE: usize = 16;

/// The machines to check.
#[derive(Args, Debug)]
pub struct TestArgs {
    /// Check all machines of the definition, or without etcd all of the file of BMCs
    #[arg(long, conflicts_with = "addresses")]
    all: bool,
    /// Addresses or names of nodes
    #[arg(value_name = "NODE", required_unless_present = "all")]
    addresses: Vec<String>,
}

/// A machine with its checks, in the form that is printed.
#[derive(Debug, Serialize)]
pub struct Tested {
    /// Address of the machine.
    address: String,
    /// Driver, by its target: `BMC https://10.1.0.5`.
    target: Option<String>,
    /// Whether no check failed.
    ok: bool,
    /// The checks.
    checks: Vec<Shown>,
}

impl Tested {
    /// Returns the failures, with the machine and the remedy; none if all is well.
    pub fn failure(&self) -> Option<String> {
        let failed = self.checks.iter().filter(|check| !check.ok);
        let all: Vec<String> = failed.map(|check| format!("{}: {}", check.check, check.message)).collect();
        (!all.is_empty()).then(|| format!("{}: {}", self.address, all.join("; ")))
    }
}

#[derive(Debug, Serialize)]
struct Shown {
    /// Name of the check.
    check: &'static str,
    /// Whether it succeeded.
    ok: bool,
    /// The fact that was found, or the failure with its remedy.
    message: String,
}

impl From<Check> for Shown {
    fn from(check: Check) -> Self {
        let ok = check.result.is_ok();
        Self { check: check.name, ok, message: check.result.unwrap_or_else(|why| why) }
    }
}

/// Runs the checks and prints them. Errors: a check failed.
pub(super) async fn run(args: &TestArgs, context: &Context) -> Result<(), ActionError> {
    let machines = if args.all { all_machines(context).await? } else { named_machines(args, context).await? };
    let tested = test_all(machines, context).await;
    match context.output(Output::Table) {
        Output::Table => context.out.text(table(&tested))?,
        form => context.out.value(&tested, form)?,
    }
    let (all, failed) = (tested.len(), tested.iter().filter(|machine| !machine.ok).count());
    if failed > 0 {
        return Err(ActionError::failed(format!("{failed} of {all} machines failed a check; nothing was switched")));
    }
    Ok(())
}

/// Checks these machines, some at once. Switches nothing.
pub async fn test_all(machines: Vec<Address>, context: &Context) -> Vec<Tested> {
    let nodes = if context.settings.kube.is_none() { None } else { Some(read_nodes(context).await) };
    let each = machines.into_iter().map(|address| test_machine(address, nodes.as_ref(), context));
    stream::iter(each).buffered(AT_ONCE).collect().await
}

async fn read_nodes(context: &Context) -> Result<Vec<NodeRow>, String> {
    let kube = context.kube("power test").await.map_err(|e| e.text)?;
    kube.nodes().await.map_err(|e| e.to_string())
}

async fn named_machines(args: &TestArgs, context: &Context) -> Result<Vec<Address>, ActionError> {
    let mut machines = Vec::new();
    for word in &args.addresses {
        machines.push(Address::new(resolved(word.clone(), context).await?));
    }
    Ok(machines)
}

async fn all_machines(context: &Context) -> Result<Vec<Address>, ActionError> {
    if context.settings.sources.contains_key("etcd") {
        let cluster = context.operator().await?.definition().await?;
        return Ok(cluster.nodes.iter().map(|node| node.address.clone()).collect());
    }
    let inventory = BmcLookup::new(BmcClients::network(context.settings.bmcs.clone())).inventory()?;
    let named: BTreeSet<Address> = inventory.addresses().cloned().collect();
    if named.is_empty() {
        return Err(ActionError::misused("--all needs etcd with a definition, or a file of BMCs that names machines"));
    }
    Ok(named.into_iter().collect())
}

async fn test_machine(address: Address, nodes: Option<&Result<Vec<NodeRow>, String>>, context: &Context) -> Tested {
    let (target, (mut checks, boot_id)) = match find(&address, context).await {
        Err(e) => (None, (vec![Check::new("driver", Err(e.text))], None)),
        Ok(found) => {
            let tested = test(&*found.driver).await;
            found.driver.close().await;
            (Some(found.driver.target().to_string()), tested)
        }
    };
    if let (Some(nodes), true) = (nodes, target.is_some()) {
        checks.push(Check::new("boot proof", boot_proof(&address, boot_id.as_deref(), nodes)));
    }
    let checks: Vec<Shown> = checks.into_iter().map(Shown::from).collect();
    Tested { address: address.to_string(), target, ok: checks.iter().all(|check| check.ok), checks }
}

/// Checks that exactly one Node has this address and reports its boot id, by which `power booted` proves a boot. `boot_id`:
/// the one that the machine itself reports, which must be the same.
fn boot_proof(
    address: &Address,
    boot_id: Option<&str>,
    nodes: &Result<Vec<NodeRow>, String>,
) -> Result<String, String> {
    let nodes = nodes.as_ref().map_err(Clone::clone)?;
    if let Some(why) = duplicate_claim(address, nodes) {
        return Err(why);
    }
    let node = nodes.iter().find(|row| row.addresses.contains(address));
    let node = node.ok_or_else(|| format!("no Node has the address {address}; correct the definition"))?;
    if node.boot_id.is_empty() {
        return Err(format!("Node {} reports no boot id; look at its kubelet", node.name));
    }
    if let Some(boot_id) = boot_id.filter(|boot_id| *boot_id != node.boot_id) {
        return Err(format!(
            "another machine than Node {}: its boot id is {boot_id}, and that of the Node is {}; correct the host of its \
             entry, or look at the kubelet if the machine has just booted",
            node.name, node.boot_id
        ));
    }
    Ok(format!("Node {} reports its boot id", node.name))
}

fn table(tested: &[Tested]) -> String {
    let rows = tested.iter().flat_map(|machine| {
        machine.checks.iter().map(|check| {
            let result = if check.ok { "ok" } else { "FAILED" };
            vec![machine.address.clone(), check.check.to_owned(), result.to_owned(), check.message.clone()]
        })
    });
    columns(&["Node", "Check", "Result", "Detail"], &rows.collect::<Vec<_>>())
}
