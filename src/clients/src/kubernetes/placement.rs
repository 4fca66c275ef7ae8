//! Fresh read of all objects that the placement of pods depends on, once for a plan.
//!
//! An object that cannot be understood does not end the read: its row names the field, and answers which depend on it
//! become uncertain. Equal specifications and labels are stored once, because most pods have hundreds of siblings.

mod convert;
mod wire;

use std::{collections::HashSet, hash::Hash, sync::Arc};

use cketerm_model::{
    labels::Labels,
    placement::{PlacementNode, PlacementPod, PlacementSpec, PlacementView},
};

use super::{
    connect::Kube,
    error::{Fault, KubeError},
    wire::Meta,
};

/// Pods of a list, with one copy of equal parts.
#[derive(Default)]
struct Pods {
    rows: Vec<PlacementPod>,
    specs: HashSet<Arc<PlacementSpec>>,
    labels: HashSet<Arc<Labels>>,
}

impl Pods {
    /// Adds a pod, unless it has ended: it takes no room any more.
    fn add(&mut self, pod: wire::Pod) {
        let mut row = convert::pod(pod);
        if row.finished() {
            return;
        }
        row.spec = shared(&mut self.specs, row.spec);
        row.labels = shared(&mut self.labels, row.labels);
        self.rows.push(row);
    }
}

/// Returns the copy that is stored already, or stores this one.
fn shared<T: Eq + Hash>(known: &mut HashSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    if let Some(known) = known.get(&new) {
        return Arc::clone(known);
    }
    known.insert(Arc::clone(&new));
    new
}

/// Namespace, of which only the metadata matters.
#[derive(serde::Deserialize)]
struct Namespace {
    metadata: Meta,
}

impl Kube {
    /// Reads all pods, nodes, claims, volumes and labels of namespaces. Without the permission to list claims and volumes
    /// the view says so.
    pub async fn read_placement(&self) -> Result<PlacementView, KubeError> {
        let (pods, nodes, namespaces) = ("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces");
        let (claims, volumes) = ("/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes");
        let failed = |path: &str, fault: Fault| self.error(&format!("GET {path}"), fault);
        let mut view = PlacementView::default();
        let (read_pods, read_nodes, read_namespaces, read_claims, read_volumes) = tokio::join!(
            self.fold_list(pods, "", |all: &mut Pods, pod| all.add(pod)),
            self.fold_list(nodes, "", |all: &mut Vec<PlacementNode>, node| all.push(convert::node(node))),
            self.fold_list(namespaces, "", |all: &mut Vec<Meta>, namespace: Namespace| all.push(namespace.metadata)),
            self.fold_list(claims, "", |all: &mut Vec<_>, claim| all.push(convert::claim(claim))),
            self.fold_list(volumes, "", |all: &mut Vec<_>, volume| all.push(convert::volume(volume))),
        );
        view.pods = read_pods.map_err(|fault| failed(pods, fault))?.0.rows;
        view.nodes = read_nodes.map_err(|fault| failed(nodes, fault))?.0;
        let read_namespaces = read_namespaces.map_err(|fault| failed(namespaces, fault))?.0;
        view.namespaces = read_namespaces.into_iter().map(|meta| (meta.name, meta.labels)).collect();
        match read_claims {
            Ok((rows, _)) => view.claims = rows.into_iter().collect(),
            Err(fault) => view.volumes_refused = Some(refusal(fault).map_err(|fault| failed(claims, fault))?),
        }
        match read_volumes {
            Ok((rows, _)) => view.volumes = rows.into_iter().collect(),
            Err(fault) => view.volumes_refused = Some(refusal(fault).map_err(|fault| failed(volumes, fault))?),
        }
        Ok(view)
    }
}

/// Returns the message of a missing permission, or of a server without the resource; any other fault is given back.
fn refusal(fault: Fault) -> Result<Box<str>, Fault> {
    match fault {
        Fault::Answered(status) if matches!(status.code, 403 | 404) => Ok(status.message.into()),
        other => Err(other),
    }
}

#[cfg(test)]
mod tests;
