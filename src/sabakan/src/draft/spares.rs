//! Reserved and spare nodes: the strategy `all-healthy` respects the taints of the Nodes (SAB-54, SAB-55).

use cketerm_model::{cluster::Taint, kube::is_planned_taint, policy::Strategy};

use super::Draft;

impl Draft<'_> {
    /// Returns the taints of a machine's Node, if it has one and they are known.
    fn taints(&self, i: usize) -> &[Taint] {
        let Some(nodes) = self.input.kubernetes_nodes else { return &[] };
        let name = match self.nodes[i].and_then(|place| self.current_node(place)) {
            Some(node) if !node.hostname.is_empty() => node.hostname.as_str(),
            // Without a host name CKE registers the Node under its address.
            _ => self.machine(i).address.as_str(),
        };
        nodes.get(name).map_or(&[], Vec::as_slice)
    }

    fn spare_key(&self) -> Option<&str> {
        let key = self.input.template.cluster.sabakan.get("spare_node_taint_key")?.as_str()?;
        (!key.is_empty()).then_some(key)
    }

    /// Reports whether no foreign taint reserves the machine's Node (SAB-54).
    pub(super) fn has_only_tolerated_taints(&self, i: usize) -> bool {
        if self.input.strategy == Strategy::Weighted {
            return true;
        }
        let tolerated = self.input.template.cluster.control_plane_tolerations.as_deref().unwrap_or_default();
        self.taints(i).iter().all(|t| {
            t.key.starts_with("node.kubernetes.io/")
                || matches!(t.key.as_str(), "cke.cybozu.com/state" | "cke.cybozu.com/master")
                || is_planned_taint(t)
                || Some(t.key.as_str()) == self.spare_key()
                || tolerated.contains(&t.key)
        })
    }

    /// Keeps only the spare nodes among the candidates, if there are any (SAB-55).
    pub(super) fn prefer_spares(&self, candidates: &mut Vec<usize>) {
        if self.input.strategy == Strategy::Weighted {
            return;
        }
        let Some(key) = self.spare_key() else { return };
        let spares: Vec<usize> =
            candidates.iter().copied().filter(|&i| self.taints(i).iter().any(|t| t.key == key)).collect();
        if !spares.is_empty() {
            *candidates = spares;
        }
    }
}
