//! Actions on the cluster definition and on the identity of its cluster.

use cketerm_model::{
    cketerm_records::Identity,
    cluster::{Fault, check, parse, written},
};

use super::{error::ActionError, operator::Operator};

/// Result of setting a definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetCluster {
    /// Unknown fields that were kept, missing commands.
    pub warnings: Vec<Fault>,
    /// Whether the sabakan integration will overwrite the definition.
    pub overwritten_by_sabakan: bool,
    /// Note about what CKE would refuse; set only if CKE has never worked on this etcd.
    pub note: Option<String>,
}

/// Identities that etcd and Kubernetes report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterIdentities {
    /// Identity stored in etcd.
    pub stored: Option<Identity>,
    /// Identity of Kubernetes: the UID of its `kube-system` namespace.
    pub found: String,
}

impl ClusterIdentities {
    /// Returns true if the two identities differ.
    pub fn mismatch(&self) -> bool {
        self.stored.as_ref().is_some_and(|s| s.uid != self.found)
    }
}

impl Operator {
    /// Checks a definition (YAML or JSON) against the rules and the constraints, and stores it in CKE's form.
    pub async fn set_cluster(&self, text: &str, reason: Option<&str>) -> Result<SetCluster, ActionError> {
        let definition = parse(text).map_err(|e| ActionError::failed(format!("the definition {e}")))?;
        let constraints = self.store.constraints().await?.unwrap_or_default();
        let checked = check(&definition, Some(&constraints));
        if !checked.faults.is_empty() {
            let lines: Vec<String> = checked.faults.iter().map(ToString::to_string).collect();
            return Err(ActionError::failed(format!("the definition was not set:\n{}", lines.join("\n"))));
        }
        let note = self.check_cri_endpoint(&definition).await?;
        let json = written(&definition).to_string();
        self.store.set_cluster(&json, None, &self.person, reason).await?;
        let keys = self.store.keys();
        let template = self.store.raw(&keys.sabakan("template")).await?;
        let switch = self.store.switch(cketerm_model::stored::keys::SwitchName::Sabakan).await?;
        Ok(SetCluster {
            warnings: checked.warnings,
            overwritten_by_sabakan: template.is_some() && switch.enabled(),
            note,
        })
    }

    /// Checks `options.kubelet.cri_endpoint` (CLU-38). CKE ends at its start with a definition without it, and its
    /// leader stops working. So it is refused if CKE works or has worked here; elsewhere a note is returned.
    async fn check_cri_endpoint(&self, definition: &serde_json::Value) -> Result<Option<String>, ActionError> {
        if has_cri_endpoint(definition) {
            return Ok(None);
        }
        let trace = match self.store.find_cke_trace().await? {
            Some(trace) => Some(trace),
            None => self.store.cluster_text().await?.and_then(|current| trace_in(&current.text)),
        };
        match trace {
            Some(trace) => Err(ActionError::failed(format!(
                "the definition was not set:\noptions.kubelet.cri_endpoint must not be empty: without it CKE exits \
                 at its start (\"kubelet.cri_endpoint should not be empty\"), and its leader stops working; {trace}. \
                 Set it to the socket of the container runtime, such as /run/containerd/containerd.sock"
            ))),
            None => Ok(Some("options.kubelet.cri_endpoint is empty; cketerm accepts that, CKE would not".to_owned())),
        }
    }

    /// Reads the cluster's identity from etcd and Kubernetes. Needs both.
    pub async fn identify(&self) -> Result<ClusterIdentities, ActionError> {
        let kube = self.kube("cluster identify")?;
        let stored = self.store.identity().await?;
        let stored = match stored.map(|s| (s.key, s.value)) {
            None => None,
            Some((_, Ok(identity))) => Some(identity.as_ref().clone()),
            Some((key, Err(e))) => {
                let text = format!("{key} cannot be read: {e}; delete it with etcdctl, then confirm again");
                return Err(ActionError::failed(text));
            }
        };
        let found = kube.cluster_uid().await.map_err(|e| ActionError::failed(format!("cluster identify: {e}")))?;
        Ok(ClusterIdentities { stored, found })
    }

    /// Confirms that this etcd prefix and this Kubernetes cluster belong together. `replace` names the UID of the
    /// cluster that was confirmed before.
    pub async fn confirm_identity(&self, replace: Option<&str>) -> Result<Identity, ActionError> {
        let identities = self.identify().await?;
        Ok(self.store.confirm_identity(&identities.found, replace, &self.person).await?)
    }
}

fn has_cri_endpoint(definition: &serde_json::Value) -> bool {
    let value = definition.pointer("/options/kubelet/cri_endpoint");
    value.and_then(|value| value.as_str()).is_some_and(|text| !text.is_empty())
}

/// Returns the trace of CKE in the stored definition: one that CKE has worked with has a `cri_endpoint`.
fn trace_in(definition: &str) -> Option<String> {
    let definition = serde_json::from_str(definition).ok()?;
    has_cri_endpoint(&definition).then(|| "the current definition has it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_definition_with_a_cri_endpoint_is_a_trace_of_cke() {
        let definition = |endpoint: &str| format!(r#"{{"options": {{"kubelet": {{"cri_endpoint": "{endpoint}"}}}}}}"#);
        let trace = trace_in(&definition("/run/containerd/containerd.sock"));
        assert_eq!(trace.as_deref(), Some("the current definition has it"));
        for without in [definition(""), r#"{"name": "c"}"#.to_owned(), "no JSON".to_owned()] {
            assert_eq!(trace_in(&without), None, "{without}");
        }
    }
}
