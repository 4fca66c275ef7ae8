//! Actions of an operator: check, write, leave an audit record. The console and the subcommands call the same
//! functions.
//!
//! An action checks before it writes. A refusal names the object, the reason and what to do instead. An action never
//! makes a decision of the engine. Nothing in this module draws, parses arguments or prints.

mod accept;
mod bmcs;
mod choose;
mod definition;
mod error;
mod host;
mod host_actions;
mod manual_drain;
mod node;
pub mod plan;
mod policy;
mod power_off_proof;
pub mod preview;
mod queue;
mod registry;
mod repair;
mod rights;
mod stop;
mod unreadable;
mod who;

use std::time::Duration;

use cketerm_clients::{
    kubernetes::Kube,
    store::{
        Store,
        operator::{AuditNote, AuditResult},
        queue::SwitchChange,
    },
};
use cketerm_model::{acceptance::OperatorCommand, cketerm_records::Who, fence::Person, stored::keys::SwitchName};

pub use accept::{note, refusal};
pub use bmcs::{BmcLookup, Registered};
pub use choose::NodeSelection;
pub use definition::{ClusterIdentities, SetCluster};
pub use error::{ActionError, Kind};
pub use host::{HostRequest, Hosts, own_key};
pub use host_actions::HostAction;
pub use manual_drain::Progress;
pub use node::Turned;
pub use policy::{CONSTRAINTS, DOCUMENTS, constraint, unknown_constraint};
pub use queue::{Added, not_members};
pub use repair::{NewRepair, state as repair_state};
pub use rights::rights;
pub use stop::{resumed, stopped};
pub use unreadable::LEFT;
pub use who::host_name;

/// Longest wait for data that Kubernetes can add to an action. An operator's command must not hang while the API server
/// is unreachable, because many reboots are requested in exactly that situation.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);

/// An operator at a keyboard, or a script that runs in the operator's name.
#[derive(Clone)]
pub struct Operator {
    /// etcd.
    pub store: Store,
    /// Kubernetes, if it is configured *and* the action may query it. Subcommands that touch only etcd never set it.
    pub kube: Option<Kube>,
    /// Identity of the operator, for the audit.
    pub who: Who,
    /// BMCs of machines, for the proof that a host is off. `None`: no BMC is queried.
    pub bmcs: Option<BmcLookup>,
    /// Whether rules that the current leader does not know are stored for the next leader.
    pub handover: bool,
}

impl Operator {
    /// Creates an operator for the user who runs this process.
    pub fn new(store: Store, kube: Option<Kube>) -> Self {
        Self { store, kube, who: who::current_user(), bmcs: None, handover: false }
    }

    /// Adds the BMCs that this operator can query.
    #[must_use]
    pub fn with_bmcs(mut self, bmcs: BmcLookup) -> Self {
        self.bmcs = Some(bmcs);
        self
    }

    /// Sets whether rules are also stored for a later leader (`--for-handover`).
    #[must_use]
    pub fn for_handover(mut self, handover: bool) -> Self {
        self.handover = handover;
        self
    }

    /// Enables or disables one of the four switches.
    pub async fn set_switch(
        &self,
        name: SwitchName,
        enabled: bool,
        reason: Option<&str>,
    ) -> Result<SwitchChange, ActionError> {
        if enabled {
            self.refuse_mismatch().await?;
        }
        Ok(self.store.set_switch(name, enabled, &self.who, reason).await?)
    }

    /// Turns a cordon of cketerm into the administrator's, or gives it back. Needs Kubernetes. The caller checks that
    /// there is a cordon to keep: [`Operator::keep_cordon_of`].
    pub async fn keep_cordoned(&self, node: &str, keep: bool, reason: Option<&str>) -> Result<(), ActionError> {
        let kube = self.kube("keep-cordoned")?;
        self.accepted(if keep { OperatorCommand::KeepCordoned } else { OperatorCommand::GiveCordonBack }).await?;
        let answer = kube.annotate_keep_cordoned(&Person::asks(&self.who), node, keep).await;
        let failure = answer.as_ref().err().map(ToString::to_string);
        let result = failure.as_deref().map_or(AuditResult::Done("done"), AuditResult::Failed);
        let what = if keep { "node keep-cordoned" } else { "node give the cordon back" };
        let record = AuditNote { who: &self.who, what, on: &format!("node {node}"), reason };
        let audited = self.store.write(record, result, Vec::new(), Vec::new()).await;
        answer.map_err(|e| ActionError::failed(format!("node {node}: the annotation was not changed: {e}")))?;
        audited.map_err(|e| ActionError::failed(format!("node {node}: done, but not recorded in the audit: {e}")))?;
        Ok(())
    }

    fn kube(&self, what: &str) -> Result<&Kube, ActionError> {
        self.kube.as_ref().ok_or_else(|| {
            ActionError::misused(format!(
                "{what} needs Kubernetes, which is not configured: give --kubeconfig FILE, or set `kubernetes` in the \
                 configuration file"
            ))
        })
    }

    /// Refuses to start work if etcd and Kubernetes belong to different clusters (STO-25). A Kubernetes API server that
    /// does not answer is no mismatch, and neither is an unconfirmed identity.
    pub(crate) async fn refuse_mismatch(&self) -> Result<(), ActionError> {
        let Some(kube) = &self.kube else { return Ok(()) };
        let kubernetes_uid = tokio::time::timeout(TIMEOUT, kube.cluster_uid());
        let (stored, found) = tokio::join!(self.store.identity(), kubernetes_uid);
        let (Some(stored), Ok(Ok(found))) = (stored?, found) else { return Ok(()) };
        match stored.get() {
            Some(identity) if identity.uid != found => Err(ActionError::refused(format!(
                "etcd below {} belongs to the cluster with the kube-system UID {}, the kubeconfig to {found}; \
                 nothing was started; compare both with `cketerm cluster identify`",
                self.store.keys().prefix(),
                identity.uid
            ))),
            _ => Ok(()),
        }
    }
}
