//! `cluster`: the definition, and the identity of its cluster.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use cketerm_actions::{ActionError, Operator};
use cketerm_model::{
    cluster::{self, Cluster},
    constraints::Constraints,
    kube::NodeRow,
    policy::Policy,
};
use cketerm_rules::limits;
use clap::Subcommand;
use serde_json::json;

use super::{
    Context,
    input_file::read,
    node_row::{as_member, control_plane},
    options::{Output, Reason},
    output::Lines,
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Check a definition (YAML or JSON) and store it
    Set {
        /// File of the definition; - = standard input
        file: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Print the stored definition as YAML
    Get,
    /// Print all errors and warnings of a definition; stores nothing
    Check {
        /// File of the definition; - = standard input
        file: PathBuf,
    },
    /// Check that etcd and Kubernetes belong to the same cluster; exit 3 if not
    Identify {
        /// Confirm that etcd and Kubernetes belong to the same cluster
        #[arg(long)]
        confirm: bool,
        /// Replace this stored UID, after the cluster was rebuilt
        #[arg(long, value_name = "OLD_UID", requires = "confirm")]
        replace: Option<String>,
    },
    /// Print an initial definition
    Init {
        /// Take the nodes from an existing Kubernetes cluster
        #[arg(long, required = true)]
        from_kubernetes: bool,
        /// Name of the definition
        #[arg(long, default_value = "kubernetes")]
        name: String,
    },
}

/// Runs one of the subcommands.
pub async fn run(word: ClusterCommand, context: &Context) -> Result<(), ActionError> {
    match word {
        ClusterCommand::Set { file, reason } => {
            let text = read(&file)?;
            let set = context.operator().await?.set_cluster(&text, reason.get()).await;
            let set = set.map_err(|e| ActionError { text: format!("{}: {}", file.display(), e.text), ..e })?;
            for warning in &set.warnings {
                context.print_message(&format!("warning: {warning}"));
            }
            if let Some(note) = &set.note {
                context.print_message(&format!("note: {note}"));
            }
            if set.overwritten_by_sabakan {
                context.print_message(
                    "warning: the sabakan integration is enabled and has a template: the leader will overwrite this \
                     definition; prevent it with `cketerm sabakan disable`",
                );
            }
            Ok(())
        }
        ClusterCommand::Get => get(context).await,
        ClusterCommand::Check { file } => check(&file, context).await,
        ClusterCommand::Identify { confirm, replace } => identify(confirm, replace.as_deref(), context).await,
        ClusterCommand::Init { name, .. } => init(&name, context).await,
    }
}

async fn get(context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let raw = store.cluster_text().await?;
    let raw = raw.ok_or_else(|| {
        ActionError::failed("no cluster definition is stored: set one with `cketerm cluster set FILE`")
    })?;
    let value: serde_json::Value = serde_json::from_str(&raw.text).map_err(|e| {
        ActionError::failed(format!("{} is not JSON: {e}; set it again with `cketerm cluster set FILE`", raw.key))
    })?;
    match context.output(Output::Yaml) {
        Output::Json => context.out.value(&value, Output::Json),
        Output::Yaml | Output::Table => context.out.document(&value),
    }
}

/// Reads the constraints and the policy. A policy that cannot be read is an error.
async fn stored_limits(context: &Context) -> Result<(Constraints, Arc<Policy>), ActionError> {
    let store = context.store().await?;
    let constraints = store.constraints().await?.unwrap_or_default();
    match store.policy().await?.map(|stored| stored.value) {
        Some(Ok(policy)) => Ok((constraints, policy)),
        Some(Err(why)) => Err(ActionError::failed(format!("the policy cannot be read: {why}"))),
        None => Ok((constraints, Arc::default())),
    }
}

async fn check(file: &Path, context: &Context) -> Result<(), ActionError> {
    let text = read(file)?;
    let name = file.display();
    let definition = cluster::parse(&text).map_err(|e| ActionError::failed(format!("{name}: the definition {e}")))?;
    let stored = match stored_limits(context).await {
        Ok(stored) => Some(stored),
        Err(e) => {
            context.print_message(&format!("number of control planes not checked against the constraints: {e}"));
            None
        }
    };
    let found = cluster::check(&definition, stored.as_ref().map(|(constraints, _)| constraints));
    let notes = match (serde_json::from_value::<Cluster>(definition), stored) {
        (Ok(cluster), Some((constraints, policy))) if found.faults.is_empty() => {
            limits::explained(&cluster, &policy, &constraints)
        }
        _ => Vec::new(), // the faults say what is wrong, or nothing is known of the limits
    };
    let lines =
        |faults: &[cluster::Fault], word: &str| faults.iter().map(|f| format!("{word}: {f}")).collect::<Vec<_>>();
    match context.output(Output::Table) {
        Output::Table => {
            for line in lines(&found.faults, "error").iter().chain(&lines(&found.warnings, "warning")) {
                context.out.line(line)?;
            }
            for note in &notes {
                context.out.line(&format!("note: {note}"))?;
            }
        }
        form => {
            let list = |faults: &[cluster::Fault]| {
                faults.iter().map(|f| json!({"path": f.path, "what": f.what})).collect::<Vec<_>>()
            };
            context.out.value(
                &json!({"errors": list(&found.faults), "warnings": list(&found.warnings), "notes": notes}),
                form,
            )?;
        }
    }
    if found.faults.is_empty() {
        return Ok(());
    }
    let errors =
        if found.faults.len() == 1 { "one error".to_owned() } else { format!("{} errors", found.faults.len()) };
    Err(ActionError::failed(format!("{name}: {errors}: `cluster set` would refuse it")))
}

/// Remedy for an identity that nobody has confirmed.
const CONFIRM: &str = "if they belong to the same cluster, run `cketerm cluster identify --confirm`";

async fn identify(confirm: bool, replace: Option<&str>, context: &Context) -> Result<(), ActionError> {
    let kube = context.kube("cluster identify").await?;
    let operator = Operator::new(context.store().await?, Some(kube));
    if confirm {
        let identity = operator.confirm_identity(replace).await?;
        context.print_message(&format!(
            "confirmed: etcd below {} belongs to {}",
            operator.store.keys().prefix(),
            identity.uid
        ));
        return Ok(());
    }
    let seen = operator.identify().await?;
    let (state, remedy) = match &seen.stored {
        None => ("not proposed", CONFIRM),
        Some(_) if seen.mismatch() => {
            ("mismatch", "correct the configuration, or use --replace if the cluster was rebuilt")
        }
        Some(s) if s.confirmed_by.is_none() => ("not confirmed", CONFIRM),
        Some(_) => ("confirmed", ""),
    };
    match context.output(Output::Table) {
        Output::Table => {
            let stored = seen.stored.as_ref().map_or("none", |s| s.uid.as_str());
            let mut lines = Lines::default();
            lines.line(format_args!("etcd:       {stored}"));
            lines.line(format_args!("kubernetes: {}", seen.found));
            lines.line(state);
            context.out.text(lines)?;
        }
        form => {
            context.out.value(&json!({"etcd": seen.stored, "kubernetes": seen.found, "state": state}), form)?;
        }
    }
    if seen.mismatch() {
        return Err(ActionError::refused(format!("etcd and Kubernetes belong to different clusters: {remedy}")));
    }
    if !remedy.is_empty() {
        context.print_message(remedy);
    }
    Ok(())
}

const EXAMPLES: &str = "\
# How nodes are rebooted. Each command gets the node's address as its last argument; the check also gets the Unix time
# of the reboot, and the node has booted when it prints `true`.
#reboot:
#  reboot_command: [ssh-reboot]
#  boot_check_command: [has-booted]
#  max_concurrent_reboots: 1
#  eviction_timeout_seconds: 600
#  protected_namespaces: {matchLabels: {important: \"true\"}}
# How failed machines are repaired, by machine type.
#repair:
#  repair_procedures:
#  - machine_types: [any]
#    repair_operations:
#    - operation: unreachable
#      health_check_command: [is-healthy]
#      repair_steps:
#      - {repair_command: [power-cycle], need_drain: true, watch_seconds: 600}
";

async fn init(name: &str, context: &Context) -> Result<(), ActionError> {
    let kube = context.kube("cluster init").await?;
    let rows = kube.nodes().await.map_err(|e| ActionError::failed(format!("cluster init: {e}")))?;
    let (text, planes) = first_definition(name, &rows)?;
    context.out.text(&text)?;
    context.print_message(&format!("before `cluster set`, run: cketerm constraints set control-plane-count {planes}"));
    Ok(())
}

fn first_definition(name: &str, rows: &[NodeRow]) -> Result<(String, usize), ActionError> {
    let nodes = rows.iter().map(as_member).collect::<Result<Vec<_>, _>>()?;
    let planes = rows.iter().filter(|row| control_plane(row)).count();
    let text = serde_yaml::to_string(&json!({"name": name, "nodes": nodes}));
    let text = text.map_err(|e| ActionError::failed(format!("the definition cannot be written: {e}")))?;
    Ok((format!("{text}{EXAMPLES}"), planes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::constraints::Constraints;
    use cketerm_model::names::{Address, NodeName};

    #[test]
    fn a_first_definition_passes_the_check() {
        let row = |name: &str, address: &str, plane: bool| NodeRow {
            name: NodeName::new(name),
            addresses: vec![Address::new(name), Address::new(address)],
            shown_labels: if plane {
                vec![("node-role.kubernetes.io/control-plane".to_owned(), String::new())]
            } else {
                vec![]
            },
            ..NodeRow::default()
        };
        let rows = [row("cp0", "10.0.0.1", true), row("10.0.0.2", "10.0.0.2", false)];
        let (text, planes) = first_definition("x", &rows).unwrap();
        assert_eq!(planes, 1);
        let found = cluster::check(&cluster::parse(&text).unwrap(), Some(&Constraints::default()));
        assert_eq!(found.faults, []);
        let lines: Vec<&str> = text
            .lines()
            .filter(|l| !l.starts_with("# ") || l.starts_with("#  "))
            .map(|l| l.trim_start_matches('#'))
            .collect();
        let uncommented = lines.join("\n");
        let found = cluster::check(&cluster::parse(&uncommented).unwrap(), Some(&Constraints::default()));
        assert_eq!(found, cluster::Checked::default(), "the examples are valid too");
    }
}
