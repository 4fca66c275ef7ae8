//! Nodes out of service: their machine is proven to be off, and a taint says so. Kubernetes then deletes their pods and
//! detaches their volumes at once, instead of waiting for a kubelet that cannot answer (MET-27, MET-67).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::NodeRow;
use crate::{cluster::Taint, described::MetadataPatch};

/// Key of Kubernetes' taint for a Node whose machine is known to be off.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";
/// cketerm's record of the taint: JSON of [`OutOfService`]. A taint without it belongs to somebody else.
pub const OUT_OF_SERVICE_ANNOTATION: &str = "cketerm.io/out-of-service";
/// Longest text of a person or host in the record. Annotations above 512 bytes are not kept.
const MAX_TEXT: usize = 120;

/// Record of a taint that cketerm set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfService {
    /// Boot that ended when the machine went off; empty if the kubelet never reported one.
    pub boot_id: String,
    /// Time of the proof.
    pub at: Timestamp,
    /// The person who fenced the Node.
    pub by: String,
    /// BareMetalHost of the machine, `namespace/name`.
    pub host: String,
}

impl OutOfService {
    /// Creates the record of this Node. Long texts are cut.
    pub fn of(node: &NodeRow, at: Timestamp, by: &str, host: &str) -> Self {
        let cut = |text: &str| text.chars().take(MAX_TEXT).collect::<String>();
        Self { boot_id: node.boot_id.clone(), at, by: cut(by), host: cut(host) }
    }
}

impl NodeRow {
    /// Returns cketerm's record if it took this Node out of service: the record, or why it cannot be read.
    pub fn out_of_service(&self) -> Option<Result<OutOfService, String>> {
        let text = self.described.annotations.get(OUT_OF_SERVICE_ANNOTATION)?;
        let read = serde_json::from_str(text);
        Some(read.map_err(|e| format!("annotation {OUT_OF_SERVICE_ANNOTATION} cannot be read: {e}")))
    }

    /// Returns the change that takes the Node out of service, with this record.
    pub fn take_out_of_service(&self, record: &str) -> MetadataPatch {
        let mut taints = self.other_taints();
        taints.push(Taint {
            key: OUT_OF_SERVICE_TAINT.to_owned(),
            value: "nodeshutdown".to_owned(),
            effect: "NoExecute".to_owned(),
            ..Taint::default()
        });
        MetadataPatch {
            labels: BTreeMap::new(),
            annotations: [(OUT_OF_SERVICE_ANNOTATION.to_owned(), Some(record.to_owned()))].into(),
            taints: Some(taints),
        }
    }

    /// Returns the change that brings it back into service.
    pub fn return_to_service(&self) -> MetadataPatch {
        let taints = self.other_taints();
        MetadataPatch {
            labels: BTreeMap::new(),
            annotations: [(OUT_OF_SERVICE_ANNOTATION.to_owned(), None)].into(),
            taints: (taints.len() < self.described.taints.len()).then_some(taints),
        }
    }

    fn other_taints(&self) -> Vec<Taint> {
        self.described.taints.iter().filter(|taint| taint.key != OUT_OF_SERVICE_TAINT).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taint_comes_and_goes_with_its_record_and_other_taints_stay() {
        let other = Taint { key: "a".to_owned(), ..Taint::default() };
        let mut row = NodeRow { boot_id: "b1".to_owned(), ..NodeRow::default() };
        row.described.taints = vec![other.clone()];
        let record = OutOfService::of(&row, Timestamp::UNIX_EPOCH, &"x".repeat(500), "metal3/w1");
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.len() < 400, "{}", text.len());
        let set = row.take_out_of_service(&text);
        row.described.taints = set.taints.unwrap();
        assert_eq!((row.described.taints.len(), &row.described.taints[0]), (2, &other));
        row.described.annotations = [(OUT_OF_SERVICE_ANNOTATION.to_owned(), text)].into_iter().collect();
        assert_eq!(row.out_of_service(), Some(Ok(record)));
        let back = row.return_to_service();
        assert_eq!((back.taints, back.annotations[OUT_OF_SERVICE_ANNOTATION].as_ref()), (Some(vec![other]), None));
    }
}
