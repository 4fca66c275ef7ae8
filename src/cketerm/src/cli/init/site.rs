//! Facts that `init` reads of a site, and its changes of etcd.

use cketerm_actions::{ActionError, Operator};
use cketerm_model::{
    kube::NodeRow,
    names::NodeName,
    policy::{Membership, NodeSelector, Policy},
    stored::view::StoreView,
};
use serde_json::json;

use super::{InitArgs, Members, Words, ask::Asked};
use crate::{
    cli::node_row::{as_member, control_plane},
    config::Settings,
};

/// Grace for running Jobs where the members follow the Nodes: such sites have Jobs of every kind, and a machine on
/// which a short one runs should not go back to the end of the queue.
const JOB_GRACE_SECONDS: u64 = 300;

/// Nodes, identity and what etcd holds already.
pub(super) struct Site {
    uid: String,
    confirmed: bool,
    store: StoreView,
    nodes: Vec<NodeRow>,
    /// Nodes that the selector does not pick.
    others: usize,
}

/// Changes of etcd.
pub(super) struct Plan {
    membership: Membership,
    selector: NodeSelector,
    /// Whether somebody has set the grace for Jobs before.
    job_grace_chosen: bool,
    /// The definition and its number of control planes; none if one is stored already.
    definition: Option<(String, usize)>,
    members: usize,
}

impl Site {
    /// Reads the site, and refuses one that cannot be set up.
    pub(super) async fn read(args: &InitArgs, operator: &Operator) -> Result<Self, ActionError> {
        let identities = operator.identify().await?;
        if identities.mismatch() {
            let stored = identities.stored.map(|stored| stored.uid).unwrap_or_default();
            return Err(ActionError::refused(format!(
                "etcd belongs to the cluster {stored}, Kubernetes is {}: correct the configuration",
                identities.found
            )));
        }
        let confirmed = identities.stored.is_some_and(|stored| stored.confirmed_by.is_some());
        let store = operator.store.read_view().await?;
        if let Some(Err(why)) = store.cluster.as_ref().map(|stored| &stored.value) {
            return Err(ActionError::failed(format!("the stored definition cannot be read: {why}; set it again")));
        }
        let kube = operator.kube.as_ref().ok_or_else(|| ActionError::misused("init needs --kubeconfig FILE"))?;
        let rows = kube.nodes().await.map_err(|e| ActionError::failed(format!("init: {e}")))?;
        let all = rows.len();
        let picked = |row: &NodeRow| {
            let labels = row.described.labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            args.node_selector.as_str().is_empty() || args.node_selector.picks(&labels)
        };
        let nodes: Vec<NodeRow> = rows.into_iter().filter(picked).collect();
        if nodes.is_empty() {
            return Err(ActionError::refused(format!(
                "Kubernetes has {all} Nodes, and --node-selector {:?} picks none",
                args.node_selector.as_str()
            )));
        }
        Ok(Self { uid: identities.found, confirmed, store, others: all - nodes.len(), nodes })
    }

    /// UID of the cluster.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// Reports whether a person has confirmed the identity before.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    fn planes(&self) -> usize {
        self.nodes.iter().filter(|row| control_plane(row)).count()
    }

    /// Describes the site in one line.
    pub(super) fn described(&self, settings: &Settings) -> String {
        let (all, planes) = (self.nodes.len(), self.planes());
        let others = if self.others > 0 { format!(" ({} more are not picked)", self.others) } else { String::new() };
        format!(
            "cluster {}: {all} Nodes, {planes} of them control planes by their label{others}; etcd {} below {}",
            self.uid,
            settings.etcd.masked_endpoints().join(","),
            settings.etcd.prefix
        )
    }

    /// Name of the first worker that is Ready, for a first reboot.
    pub(super) fn first_worker(&self) -> Option<&NodeName> {
        let is_fit = |row: &&NodeRow| row.ready && !row.unschedulable && !control_plane(row);
        self.nodes.iter().filter(is_fit).map(|row| &row.name).next()
    }

    /// Returns what has to be written. A definition that is stored already stays as it is.
    pub(super) fn plan(&self, args: &InitArgs, asked: &Asked) -> Result<Plan, ActionError> {
        let membership = match args.membership {
            Members::Nodes => Membership::Nodes,
            Members::Manual => Membership::Manual,
        };
        let definition = match self.store.definition() {
            Some(_) => None,
            None => Some((self.definition(args, asked)?, self.planes())),
        };
        let job_grace_chosen = self.store.policy().job_grace_seconds != Policy::default().job_grace_seconds;
        Ok(Plan {
            membership,
            selector: args.node_selector.clone(),
            job_grace_chosen,
            definition,
            members: self.nodes.len(),
        })
    }

    fn definition(&self, args: &InitArgs, asked: &Asked) -> Result<String, ActionError> {
        let command = |given: &Option<Words>, option: &str, question: &str, default: &str| match given {
            Some(words) => Ok(words.0.clone()),
            None => super::words(&asked.question(option, question, default)?)
                .map(|words| words.0)
                .map_err(|why| ActionError::misused(format!("init: {option}: {why}"))),
        };
        let reboot = command(
            &args.reboot_command,
            "--reboot-command COMMAND",
            "Command that reboots a machine; its address follows (docs/power.md) [cketerm power cycle]: ",
            "cketerm power cycle",
        )?;
        let check = command(
            &args.boot_check_command,
            "--boot-check-command COMMAND",
            "Command that prints `true` once it has booted; address and Unix time follow [cketerm power booted]: ",
            "cketerm power booted",
        )?;
        let nodes = self.nodes.iter().map(as_member).collect::<Result<Vec<_>, _>>()?;
        let definition = json!({
            "name": args.name,
            "nodes": nodes,
            "reboot": {
                "reboot_command": reboot,
                "boot_check_command": check,
                "command_timeout_seconds": 600,
                "eviction_timeout_seconds": 600,
                "max_concurrent_reboots": 1,
            },
        });
        serde_yaml::to_string(&definition)
            .map_err(|e| ActionError::failed(format!("the definition cannot be written: {e}")))
    }

    /// Writes the plan: the definition last but one, the identity last. Run again, it continues. Returns one line for
    /// each change.
    pub(super) async fn write(&self, plan: &Plan, operator: &Operator) -> Result<Vec<String>, ActionError> {
        const REASON: Option<&str> = Some("init");
        let mut done = Vec::new();
        if let Some((definition, planes)) = &plan.definition {
            let set = plan.selector.as_str();
            if self.store.policy().node_selector.as_str() != set {
                operator.set_policy("node_selector", set, REASON).await?;
            }
            let membership = plan.membership_name();
            operator.set_policy("membership", membership, REASON).await?;
            done.push(format!("set policy membership to {membership}"));
            if let Some(seconds) = plan.job_grace() {
                operator.set_policy("job_grace_seconds", &seconds.to_string(), REASON).await?;
                done.push(format!("set policy job_grace_seconds to {seconds}"));
            }
            operator.set_constraint("control-plane-count", &planes.to_string(), REASON).await?;
            done.push(format!("set constraint control-plane-count to {planes}"));
            let set = operator.set_cluster(definition, REASON).await?;
            done.push(format!("stored the definition with {} members", plan.members));
            done.extend(set.warnings.iter().map(|warning| format!("warning: {warning}")));
        } else {
            done.push("kept the stored definition".to_owned());
        }
        let identity = operator.confirm_identity(None).await?;
        done.push(format!("confirmed: etcd below {} belongs to {}", operator.store.keys().prefix(), identity.uid));
        Ok(done)
    }
}

impl Plan {
    fn membership_name(&self) -> &'static str {
        match self.membership {
            Membership::Nodes => "nodes",
            Membership::Manual => "manual",
            Membership::Sabakan => "sabakan",
            Membership::Auto => "auto",
        }
    }

    /// Seconds to set as the grace for Jobs, where the members follow the Nodes and nobody has set one.
    fn job_grace(&self) -> Option<u64> {
        (self.membership == Membership::Nodes && !self.job_grace_chosen).then_some(JOB_GRACE_SECONDS)
    }

    /// Describes each change of etcd.
    pub(super) fn described(&self) -> Vec<String> {
        match &self.definition {
            Some((_, planes)) => {
                let mut all = vec![format!("set policy membership to {}", self.membership_name())];
                all.extend(self.job_grace().map(|seconds| format!("set policy job_grace_seconds to {seconds}")));
                all.push(format!("set constraint control-plane-count to {planes}"));
                all.push(format!("store a definition with {} members, and confirm the identity", self.members));
                all
            }
            None => vec!["keep the stored definition, and confirm the identity".to_owned()],
        }
    }

    /// Returns the definition, if it has to be stored.
    pub(super) fn definition(&self) -> Option<&str> {
        self.definition.as_ref().map(|(text, _)| text.as_str())
    }
}
