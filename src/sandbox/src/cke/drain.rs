//! CKE's drain of one node: cordon, preview, eviction or deletion of its pods.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{cluster::Eviction, kube::CKE_ANNOTATION};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{Cke, Fault, Refusal, RefusalCause, Site, Transition, failed_nodes};

/// Treatment of a pod by a drain.
enum Treatment {
    /// It stays: of a DaemonSet, static, or a pod of a Job that does not run.
    Ignore,
    /// A protected pod of a Job that runs: the drain backs off.
    Wait,
    /// It is deleted: an unprotected pod of a Job.
    Delete,
    /// It is evicted; deleted if a budget refuses that and the namespace is not protected.
    Evict { protected: bool },
}

impl Cke {
    /// Returns the names of the Nodes with CKE's annotation.
    pub(super) async fn marked_nodes(&self) -> Result<BTreeSet<String>, Fault> {
        let nodes = Api::<Node>::all(self.kube.clone()).list(&ListParams::default()).await?;
        let marked = |node: &Node| node.annotations().get(CKE_ANNOTATION).is_some_and(|value| value == "true");
        Ok(nodes.items.iter().filter(|n| marked(n)).map(ResourceExt::name_any).collect())
    }

    async fn patch_node(&self, name: &str, patch: &Value) -> Result<(), Fault> {
        let nodes = Api::<Node>::all(self.kube.clone());
        match nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Uncordons a node and removes the annotation.
    pub(super) async fn uncordon(&self, seen: &Site, address: &str) -> Result<(), Fault> {
        let name = seen.node_name(&cketerm_model::names::Address::new(address));
        let patch = json!({"metadata": {"annotations": {CKE_ANNOTATION: null}}, "spec": {"unschedulable": null}});
        self.patch_node(&name, &patch).await
    }

    /// Returns whether no pod is left that a drain removes, and no volume is in use.
    pub(super) async fn is_drained(&self, node: &str) -> Result<bool, Fault> {
        let found = Api::<Node>::all(self.kube.clone()).get_opt(node).await?;
        let volumes = found.and_then(|n| n.status).and_then(|s| s.volumes_in_use).unwrap_or_default();
        let left = |pod: &Pod| !is_of_daemon_set(pod) && !is_static(pod) && (job_of(pod).is_none() || runs(pod));
        Ok(volumes.is_empty() && !self.pods_on(node).await?.iter().any(left))
    }

    async fn pods_on(&self, node: &str) -> Result<Vec<Pod>, Fault> {
        let on = ListParams::default().fields(&format!("spec.nodeName={node}"));
        Ok(Api::<Pod>::all(self.kube.clone()).list(&on).await?.items)
    }

    async fn namespaces(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>, Fault> {
        let all = Api::<Namespace>::all(self.kube.clone()).list(&ListParams::default()).await?;
        Ok(all.items.into_iter().map(|n| (n.name_any(), n.metadata.labels.unwrap_or_default())).collect())
    }

    /// Marks the entry, cordons the node, and removes its pods once, or backs off. Returns the `info` of its record.
    pub(super) async fn start_drain(&self, seen: &Site, index: u64) -> Result<String, Fault> {
        let Some(entry) = self.overwrite(index, Transition::starts_drain).await? else { return Ok(String::new()) };
        let name = seen.node_name(&entry.node);
        let patch = json!({"metadata": {"annotations": {CKE_ANNOTATION: "true"}}, "spec": {"unschedulable": true}});
        self.patch_node(&name, &patch).await?;
        let Some(refusal) = self.remove_pods(index, &name, seen.cluster.reboot.eviction()).await? else {
            return Ok(String::new());
        };
        self.locked().refusals.push(refusal);
        self.back_off(index).await?;
        Ok(failed_nodes("drain", &[entry.node]))
    }

    /// Previews all pods, then removes them. Returns the refusal that stops the drain.
    async fn remove_pods(&self, entry: u64, node: &str, rules: Eviction<'_>) -> Result<Option<Refusal>, Fault> {
        let (namespaces, pods) = (self.namespaces().await?, self.pods_on(node).await?);
        let refusal = |pod: &Pod, cause| {
            let pod = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            Refusal { at: self.clock.wall(), entry, pod, cause }
        };
        let of = |pod: &Pod| treatment(pod, &namespaces, rules);
        if let Some(pod) = pods.iter().find(|pod| matches!(of(pod), Treatment::Wait)) {
            return Ok(Some(refusal(pod, RefusalCause::Job)));
        }
        for dry_run in [true, false] {
            for pod in &pods {
                let gone = match of(pod) {
                    Treatment::Ignore | Treatment::Wait => true,
                    Treatment::Delete => dry_run || self.delete(pod).await?,
                    Treatment::Evict { protected: false } if dry_run => true,
                    Treatment::Evict { protected } => {
                        self.evict(pod, dry_run).await? || (!protected && self.delete(pod).await?)
                    }
                };
                if !gone {
                    return Ok(Some(refusal(pod, RefusalCause::TooManyRequests)));
                }
            }
        }
        Ok(None)
    }

    /// Returns whether the eviction was accepted, or the pod is gone.
    async fn evict(&self, pod: &Pod, dry_run: bool) -> Result<bool, Fault> {
        let pods = Api::<Pod>::namespaced(self.kube.clone(), &pod.namespace().unwrap_or_default());
        let options =
            EvictParams { post_options: PostParams { dry_run, ..PostParams::default() }, ..EvictParams::default() };
        match pods.evict(&pod.name_any(), &options).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete(&self, pod: &Pod) -> Result<bool, Fault> {
        let pods = Api::<Pod>::namespaced(self.kube.clone(), &pod.namespace().unwrap_or_default());
        match pods.delete(&pod.name_any(), &DeleteParams::default()).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

fn treatment(pod: &Pod, namespaces: &BTreeMap<String, BTreeMap<String, String>>, rules: Eviction<'_>) -> Treatment {
    if is_of_daemon_set(pod) || is_static(pod) {
        return Treatment::Ignore;
    }
    if job_of(pod).is_some() {
        let protected = rules.protected_job_pods.is_none_or(|selector| selector.matches(pod.labels()));
        return match (runs(pod), protected) {
            (false, _) => Treatment::Ignore,
            (true, true) => Treatment::Wait,
            (true, false) => Treatment::Delete,
        };
    }
    let none = BTreeMap::new();
    let labels = pod.namespace().and_then(|name| namespaces.get(&name)).unwrap_or(&none);
    Treatment::Evict { protected: rules.protected_namespaces.is_none_or(|selector| selector.matches(labels)) }
}

fn controller<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let owners = pod.owner_references().iter();
    owners.clone().find(|o| o.controller == Some(true) && o.kind == kind).map(|o| o.name.as_str())
}

fn is_of_daemon_set(pod: &Pod) -> bool {
    controller(pod, "DaemonSet").is_some()
}

fn job_of(pod: &Pod) -> Option<&str> {
    controller(pod, "Job")
}

fn is_static(pod: &Pod) -> bool {
    pod.annotations().contains_key("kubernetes.io/config.mirror")
}

fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running")
}
