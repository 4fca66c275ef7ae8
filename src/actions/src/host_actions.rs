//! Actions of an operator on hosts from the console, with an audit record before and after. Fencing is one action.

use cketerm_clients::{
    kubernetes::WriteError,
    store::operator::{AuditNote, AuditResult},
};
use cketerm_model::{
    cketerm_records::Audit,
    host::{HostRow, Mode, ProofSource},
    kube::{KubeView, OutOfService},
    names::NodeName,
    policy::FenceBy,
};

use super::{
    error::ActionError,
    host::{Hosts, TRIES, keeps_changing, own_key, retry_on_conflict},
    operator::Operator,
};

/// Longest wait of a fence for the proof that the host is off, in seconds. A soft shutdown that hangs is cut off long
/// before that.
const PROOF_TIMEOUT_SECONDS: u64 = 900;
/// Name under which a fence holds a host.
const FENCE_KEY: &str = "fence";

/// Node to fence, and the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedNode {
    /// Name of the Node.
    pub name: NodeName,
    /// Its UID. Another Node of that name is left alone.
    pub uid: String,
    /// Whether the Node is tainted or deleted.
    pub by: FenceBy,
}

/// Actions on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAction {
    /// One power cycle.
    Reboot(Mode),
    /// Hold the host off under cketerm's key until it is released.
    Hold(Mode),
    /// Remove this key of cketerm.
    Release(String),
    /// Set `spec.online`.
    Online(bool),
    /// Hold the host off hard, wait for the proof of off, fence its Node, release the host.
    Fence(FencedNode),
}

impl HostAction {
    /// Name of the action in the audit.
    fn what(&self) -> String {
        match self {
            Self::Reboot(mode) => format!("host reboot ({mode})"),
            Self::Hold(mode) => format!("host hold ({mode})"),
            Self::Release(key) => format!("host release {key}"),
            Self::Online(true) => "host online".to_owned(),
            Self::Online(false) => "host offline".to_owned(),
            Self::Fence(node) => match node.by {
                FenceBy::Delete => format!("fence node {}", node.name),
                FenceBy::Taint => format!("fence node {} by taint", node.name),
            },
        }
    }
}

impl Operator {
    /// Carries out the action on the host `namespace/name` and returns the result as a sentence. `uid` identifies the
    /// host that was shown to the operator; another host of that name is refused.
    pub async fn host(
        &self,
        name: &str,
        uid: &str,
        action: HostAction,
        reason: Option<&str>,
    ) -> Result<String, ActionError> {
        let kube = self.kube("hosts")?.clone();
        if !matches!(action, HostAction::Release(_)) {
            self.refuse_mismatch().await?;
        }
        let hosts = Hosts::new(kube).by(self.who(), self.store.clock()).because(reason).with_bmcs(self.bmcs.clone());
        let found = hosts.find(name).await?;
        if found.uid != uid {
            return Err(ActionError::refused(format!("{name} was replaced by another host; nothing was done")));
        }
        let (what, on) = (action.what(), format!("host {name}"));
        let note = || AuditNote::new(&self.person, &what, &on, reason);
        self.store.write(note(), Audit::BEGUN, Vec::new(), Vec::new()).await?;
        let answer = hosts.perform(name, &action).await;
        let result = answer.as_ref().map_or_else(|e| AuditResult::Failed(&e.text), |_| AuditResult::Done("done"));
        let audited = self.store.write(note(), result, Vec::new(), Vec::new()).await;
        let message = answer?;
        audited.map_err(|e| ActionError::failed(format!("{message}; not recorded in the audit trail: {e}")))?;
        Ok(message)
    }
}

impl Hosts {
    async fn perform(&self, name: &str, action: &HostAction) -> Result<String, ActionError> {
        match action {
            HostAction::Reboot(mode) => {
                let asking = self.reboot(name, *mode).await?;
                Ok(match asking.already {
                    Some(_) => format!("{name}: a reboot is already requested"),
                    None => format!("{name}: a {mode} reboot is requested"),
                })
            }
            HostAction::Hold(mode) => {
                self.hold(name, &own_key(None)?, *mode).await?;
                Ok(format!("{name}: its power is turned off ({mode}) and stays off until it is released (L)"))
            }
            HostAction::Release(key) => {
                let host = self.release(name, key).await?;
                Ok(match holders(&host) {
                    others if others.is_empty() => format!("{name} is released"),
                    others => format!("{name} is released by cketerm, still held by {others}"),
                })
            }
            HostAction::Online(online) => {
                self.set_online(name, *online).await?;
                Ok(format!("{name} will be turned {}", if *online { "on" } else { "off and stay off" }))
            }
            HostAction::Fence(node) => self.fence(name, node).await,
        }
    }

    /// Fences a host and a Node given by their names, which have to belong together.
    pub async fn fence_node(&self, name: &str, node: &NodeName, by: FenceBy) -> Result<String, ActionError> {
        let host = self.ready(name, "fenced").await?;
        let full = host.full_name();
        let mut view = KubeView::default();
        let nodes = self.kube.nodes().await.map_err(|e| ActionError::failed(e.to_string()))?;
        for row in nodes {
            view.put_node(row);
        }
        match view.node_of_host(&host) {
            Some((found, _)) if found.name == *node => {
                let node = FencedNode { name: found.name.clone(), uid: found.uid.clone(), by };
                self.fence(&full, &node).await
            }
            Some((found, by)) => Err(ActionError::refused(format!(
                "{full} is node {} by {by}, not {node}; nothing was done",
                found.name
            ))),
            None => Err(ActionError::refused(format!(
                "no Node matches {full} by address or host name; annotate the host with \
                 cketerm.io/node={node}"
            ))),
        }
    }

    async fn set_online(&self, name: &str, online: bool) -> Result<(), ActionError> {
        for _ in 0..TRIES {
            let host = self.find(name).await?;
            if host.online == online {
                return Ok(());
            }
            match self.kube.set_online(&host, online).await {
                Ok(_) => return Ok(()),
                Err(e) => retry_on_conflict(&host, e)?,
            }
        }
        Err(keeps_changing(name))
    }

    /// Fences the Node only while the host is known to be off. Metal3's proposal: "the caller can perform any required
    /// actions while the node is in a known safe state". Without a proof the host stays held and the Node stays
    /// (MET-27).
    async fn fence(&self, name: &str, node: &FencedNode) -> Result<String, ActionError> {
        let key = own_key(Some(FENCE_KEY))?;
        let asking = self.hold(name, &key, Mode::Hard).await?;
        let proof = self.proof(&asking.host).await;
        let answer = async {
            let by = self.watch(&asking.host, &key, PROOF_TIMEOUT_SECONDS, &proof).await?;
            self.final_check(&asking.host, Some(&node.name), &key, by, &proof).await.map(|()| by)
        };
        let answer = answer.await;
        // Right after the last look; closing the BMC's session can wait.
        let fenced = if answer.is_ok() { Some(self.fence_now(name, node).await) } else { None };
        proof.close().await;
        let (shown, done) = (&node.name, fenced_word(node.by));
        let by = answer.map_err(|e| {
            ActionError::failed(format!(
                "node {shown} was NOT {done}: {}; {name} stays held under {key} until released",
                e.text
            ))
        })?;
        let done = match fenced {
            Some(Ok(())) => done,
            // Another client deleted it, or an earlier request of cketerm whose answer was lost.
            Some(Err(WriteError::NotFound)) | None => "already gone",
            Some(Err(e)) => {
                let remedy = match node.by {
                    FenceBy::Delete => "delete it",
                    FenceBy::Taint => "try again, or taint it with `kubectl`",
                };
                return Err(ActionError::failed(format!(
                    "{name} is off and held under {key}, but node {shown} was not {done}: {e}; {remedy}, then release \
                     the host"
                )));
            }
        };
        let host = self.release(name, &key).await.map_err(|e| {
            ActionError::failed(format!("node {shown} is {done}, but {name} is still held: {}", e.text))
        })?;
        let others = holders(&host);
        let after = if others.is_empty() { "released".to_owned() } else { format!("still held by {others}") };
        let proof = match by {
            ProofSource::Change => "was off",
            ProofSource::Bmc => "was off according to its BMC",
        };
        Ok(format!("{name} {proof}, node {shown} is {done}, the host is {after}"))
    }

    /// Fences the Node at once.
    async fn fence_now(&self, host: &str, node: &FencedNode) -> Result<(), WriteError> {
        match node.by {
            FenceBy::Delete => self.kube.delete_node(&node.name, &node.uid).await,
            FenceBy::Taint => self.take_out_of_service(host, node).await,
        }
    }

    /// Taints the Node. Its status may change between read and write, so this is tried again; another Node of the same
    /// name is left alone.
    async fn take_out_of_service(&self, host: &str, node: &FencedNode) -> Result<(), WriteError> {
        let mut last = WriteError::Conflict;
        for _ in 0..TRIES {
            let read = self.kube.node(&node.name).await.map_err(|e| WriteError::NoAnswer(e.to_string()))?;
            let row = read.filter(|row| row.uid == node.uid).ok_or(WriteError::NotFound)?;
            let record = OutOfService::of(&row, self.clock.wall(), &self.author().to_string(), host);
            match self.kube.take_out_of_service(&row, &record).await {
                Ok(_) => return Ok(()),
                Err(e @ (WriteError::Conflict | WriteError::NoAnswer(_))) => last = e,
                Err(e) => return Err(e),
            }
        }
        Err(last)
    }
}

fn fenced_word(by: FenceBy) -> &'static str {
    match by {
        FenceBy::Delete => "deleted",
        FenceBy::Taint => "out of service",
    }
}

fn holders(host: &HostRow) -> String {
    host.asked.keys.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}
