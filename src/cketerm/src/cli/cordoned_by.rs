//! The author of a cordon, for a list of nodes. A cordon carries no name: cketerm and CKE leave an annotation, other
//! programs a taint or an annotation of their own. For all others the API server records at least the program that wrote
//! the field, `kubectl` for example, and the time.

use cketerm_clients::kubernetes::Kube;
use cketerm_model::kube::NodeRow;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Number of Nodes that are read at once.
const AT_ONCE: usize = 8;

/// Author of a cordon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CordonedBy {
    /// An entry, a program, or `CKE`.
    pub by: String,
    /// Time of the write, if the API server recorded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Returns the author of each cordon, in the order of the Nodes; none for a Node that is not cordoned. Only Nodes without
/// any sign of the author are read again.
pub async fn cordoned_by(kube: &Kube, rows: &[NodeRow]) -> Vec<Option<CordonedBy>> {
    let each = rows.iter().map(|row| async move {
        match by_signs(row) {
            Author::Nobody => None,
            Author::Known(by) => Some(CordonedBy { by, since: None }),
            Author::Unsigned => {
                let document = kube.node_document(&row.name).await.ok().flatten();
                let writer = document.as_ref().and_then(writer_of_cordon);
                Some(writer.unwrap_or_else(|| CordonedBy { by: "not known".to_owned(), since: None }))
            }
        }
    });
    stream::iter(each).buffered(AT_ONCE).collect().await
}

enum Author {
    /// It is not cordoned.
    Nobody,
    /// Somebody who left a sign.
    Known(String),
    /// Somebody who left none.
    Unsigned,
}

fn by_signs(row: &NodeRow) -> Author {
    if !row.unschedulable {
        return Author::Nobody;
    }
    let kept = if row.keep_cordoned { ", kept by an operator" } else { "" };
    match &row.owner {
        Some(Ok(owner)) if owner.schedulable_before => return Author::Known(format!("{}{kept}", owner.entry)),
        Some(Ok(owner)) => return Author::Known(format!("somebody before {}", owner.entry)),
        Some(Err(_)) => return Author::Known("cketerm (its annotation cannot be read)".to_owned()),
        None => {}
    }
    if row.keep_cordoned {
        return Author::Known("an operator, with cketerm".to_owned());
    }
    if row.cke_mark {
        return Author::Known("CKE".to_owned());
    }
    row.drain_sign().map_or(Author::Unsigned, |sign| Author::Known(sign.program.to_string()))
}

/// Returns the last writer of `spec.unschedulable`, from `metadata.managedFields`.
fn writer_of_cordon(node: &Value) -> Option<CordonedBy> {
    let managers = node["metadata"]["managedFields"].as_array()?;
    let wrote = |entry: &&Value| !entry["fieldsV1"]["f:spec"]["f:unschedulable"].is_null();
    let entry = managers.iter().filter(wrote).max_by_key(|entry| entry["time"].as_str())?;
    let since = entry["time"].as_str().and_then(|time| time.parse().ok());
    entry["manager"].as_str().map(|manager| CordonedBy { by: manager.to_owned(), since })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_writer_of_the_cordon_is_named() {
        let fields = json!({"f:spec": {"f:unschedulable": {}}});
        let node = json!({"metadata": {"managedFields": [
            {"manager": "kubelet", "time": "2026-08-02T12:00:00Z", "fieldsV1": {"f:status": {}}},
            {"manager": "old", "time": "2026-08-01T11:00:00Z", "fieldsV1": fields},
            {"manager": "kubectl", "time": "2026-08-01T12:00:00Z", "fieldsV1": fields},
        ]}});
        let found = writer_of_cordon(&node).unwrap();
        assert_eq!((found.by.as_str(), found.since), ("kubectl", "2026-08-01T12:00:00Z".parse().ok()));
        assert_eq!(writer_of_cordon(&json!({"metadata": {}})), None);
    }
}
