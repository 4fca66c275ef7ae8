//! The operator in whose name every action is done.

use std::time::Duration;

use cketerm_clients::{kubernetes::Kube, store::Store};
use cketerm_model::{cketerm_records::Who, fence::Person};

use super::{bmcs::BmcLookup, error::ActionError, who};

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
    /// Proof that the operator asks, with the identity for the audit.
    pub person: Person,
    /// BMCs of machines, for the proof that a host is off. `None`: no BMC is queried.
    pub bmcs: Option<BmcLookup>,
    /// Whether rules that the current leader does not know are stored for the next leader.
    pub handover: bool,
}

impl Operator {
    /// Creates an operator for the user who runs this process.
    pub fn new(store: Store, kube: Option<Kube>) -> Self {
        Self { store, kube, person: Person::asks(&who::current_user()), bmcs: None, handover: false }
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

    /// Returns the operator's identity.
    pub fn who(&self) -> &Who {
        self.person.who()
    }

    /// Returns Kubernetes, or the error of an action that needs it; `what` names the action.
    pub(crate) fn kube(&self, what: &str) -> Result<&Kube, ActionError> {
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
