//! The end of a Node's time out of service: the leader removes the taint once the kubelet reports another boot than the
//! one that ended when the machine went off (MET-67).

use cketerm_model::kube::NodeRow;

use super::{Effect, Guard, Pass};

impl Pass<'_> {
    /// Returns Nodes to service that have booted again. A Node that only looks alive stays: its machine was proven to
    /// be off, and Kubernetes may still be deleting its pods.
    pub(super) fn return_to_service(&mut self) {
        let snap = self.snap;
        for name in &snap.kube.out_of_service {
            let Some(node) = snap.kube.nodes.get(name) else { continue };
            if is_back(node) {
                self.plan(name, None, Guard::default(), Effect::ReturnToService { node: node.clone() });
            }
        }
    }
}

/// Reports whether a Node that cketerm took out of service has booted since. A record that cannot be read proves
/// nothing.
pub fn is_back(node: &NodeRow) -> bool {
    let Some(Ok(record)) = node.out_of_service() else { return false };
    !node.boot_id.is_empty() && node.boot_id != record.boot_id
}

#[cfg(test)]
mod tests {
    use cketerm_model::kube::{OUT_OF_SERVICE_ANNOTATION, OutOfService};
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_node_is_back_only_after_another_boot() {
        let row = |boot: &str, record: &str| {
            let mut row = NodeRow { boot_id: boot.to_owned(), ready: true, ..NodeRow::default() };
            row.described.annotations =
                [(OUT_OF_SERVICE_ANNOTATION.to_owned(), record.to_owned())].into_iter().collect();
            row
        };
        let off = NodeRow { boot_id: "one".to_owned(), ..NodeRow::default() };
        let record = OutOfService::of(&off, Timestamp::UNIX_EPOCH, "ann@host", "metal3/w1");
        let record = serde_json::to_string(&record).unwrap();
        assert!(is_back(&row("two", &record)));
        assert!(!is_back(&row("one", &record)), "it is Ready, but its machine was proven to be off in this boot");
        assert!(!is_back(&row("", &record)), "an empty boot ID proves nothing");
        assert!(!is_back(&row("two", "{")), "a record that cannot be read proves nothing");
        assert!(!is_back(&NodeRow::default()), "without a record the taint is somebody else's");
    }
}
