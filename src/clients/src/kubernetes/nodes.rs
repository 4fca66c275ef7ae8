//! Cordons. Each is one patch, conditioned on the Node's resourceVersion that it was decided from, so that a late patch
//! of a deposed leader fails (SAF-11, SAF-33, SAF-34; I9, I11, I12, I23).

use cketerm_model::{
    fault,
    fence::{Permit, Person},
    kube::{
        CKE_ANNOTATION, KEEP_CORDONED_ANNOTATION, MAINTENANCE_ANNOTATION, MetadataPatch, NodeRow, OWNER_ANNOTATION,
        OutOfService, Owner,
    },
    names::NodeName,
};
use serde_json::{Map, Value, json};

use super::{call::with_body, connect::Kube, error::Fault, read::node_path, wire::Node};

pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";

/// Reason why a write was not carried out, or is not known to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object changed since it was read (409).
    #[error("the object changed since it was read; try again")]
    Conflict,
    /// The object does not exist (404).
    #[error("the object no longer exists")]
    NotFound,
    /// Another answer.
    #[error("the API server refused the request ({code}): {message}")]
    Refused {
        /// The status code.
        code: u16,
        /// The server's message, and the permission that is missing.
        message: String,
    },
    /// No answer. The write may or may not have been carried out, so read again before anything else.
    #[error("no answer; the request may or may not have taken effect: {0}")]
    NoAnswer(String),
}

impl From<Fault> for WriteError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Silent(why) => Self::NoAnswer(why),
            Fault::Answered(status) => match status.code {
                404 => Self::NotFound,
                409 => Self::Conflict,
                // The API server, or a proxy in front of it, gave up in the middle.
                502 | 504 => Self::NoAnswer(format!("{}: {}", status.code, status.message)),
                403 => Self::Refused {
                    code: 403,
                    message: format!("{}; grant the right (docs/rbac.yaml)", status.message),
                },
                code => Self::Refused { code, message: status.message },
            },
        }
    }
}

/// Changes that an uncordon makes beside removing cketerm's annotation and CKE's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// Whether to clear `unschedulable`: the cordon is cketerm's, and nobody keeps it.
    pub uncordon: bool,
    /// Whether to remove `keep-cordoned`: the cordon is an ordinary one of the administrator's from now on.
    pub drop_keep: bool,
}

impl Kube {
    /// Writes the owner annotation to the Node, in one patch. `cordon` also sets `unschedulable`; without it the field
    /// stays as it is. `cke_mark` also sets CKE's annotation. The record of another kind of work is removed, and for a
    /// maintenance CKE's annotation. Errors: [`WriteError::Conflict`] if the Node has changed
    /// since `node` was read.
    pub async fn stamp(
        &self,
        _: &Permit,
        node: &NodeRow,
        owner: &Owner,
        cordon: bool,
        cke_mark: bool,
    ) -> Result<NodeRow, WriteError> {
        let record = serde_json::to_string(owner)
            .map_err(|e| WriteError::Refused { code: 0, message: format!("cannot encode the owner: {e}") })?;
        // The record of an ended entry of another kind gives way. CKE's mark on a Node in maintenance would let CKE
        // uncordon it.
        let is_maintenance = owner.annotation() == MAINTENANCE_ANNOTATION;
        let others = if is_maintenance { &[OWNER_ANNOTATION, CKE_ANNOTATION][..] } else { &[MAINTENANCE_ANNOTATION] };
        let mut annotations: Map<String, Value> = others.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
        annotations.insert(owner.annotation().to_owned(), Value::String(record));
        fault!(CordonUnrecorded => annotations.clear());
        if cke_mark {
            annotations.insert(CKE_ANNOTATION.to_owned(), json!("true"));
        }
        self.patch_node(node, annotations, cordon.then_some(json!(true))).await
    }

    /// Removes cketerm's annotations and CKE's, and applies `what`, in one patch.
    pub async fn release(&self, _: &Permit, node: &NodeRow, what: Release) -> Result<NodeRow, WriteError> {
        let marks = [OWNER_ANNOTATION, MAINTENANCE_ANNOTATION, CKE_ANNOTATION];
        let mut annotations = Map::from_iter(marks.map(|key| (key.to_owned(), Value::Null)));
        if what.drop_keep {
            annotations.insert(KEEP_CORDONED_ANNOTATION.to_owned(), Value::Null);
        }
        self.patch_node(node, annotations, what.uncordon.then_some(Value::Null)).await
    }

    /// Sets and removes labels and annotations and replaces the taints, as `what` specifies, in one patch.
    pub async fn describe(&self, _: &Permit, node: &NodeRow, what: &MetadataPatch) -> Result<NodeRow, WriteError> {
        self.patch_metadata(node, what).await
    }

    async fn patch_metadata(&self, node: &NodeRow, what: &MetadataPatch) -> Result<NodeRow, WriteError> {
        let mut patch = json!({"metadata": {
            "resourceVersion": node.resource_version, "labels": what.labels, "annotations": what.annotations,
        }});
        if let Some(taints) = &what.taints {
            patch["spec"] = json!({"taints": taints});
        }
        let answer: Node = self.send(with_body("PATCH", &node_path(&node.name), MERGE_PATCH, &patch)).await?;
        Ok(answer.into())
    }

    async fn patch_node(
        &self,
        node: &NodeRow,
        annotations: Map<String, Value>,
        unschedulable: Option<Value>,
    ) -> Result<NodeRow, WriteError> {
        let mut patch = json!({"metadata": {"resourceVersion": node.resource_version, "annotations": annotations}});
        if let Some(value) = unschedulable {
            patch["spec"] = json!({"unschedulable": value});
        }
        let answer: Node = self.send(with_body("PATCH", &node_path(&node.name), MERGE_PATCH, &patch)).await?;
        Ok(answer.into())
    }

    /// Takes a Node out of service for an operator, for fencing, with this record. Errors: as those of
    /// [`Kube::describe`].
    pub async fn take_out_of_service(&self, node: &NodeRow, record: &OutOfService) -> Result<NodeRow, WriteError> {
        let record = serde_json::to_string(record)
            .map_err(|e| WriteError::Refused { code: 0, message: format!("cannot encode the record: {e}") })?;
        self.patch_metadata(node, &node.take_out_of_service(&record)).await
    }

    /// Deletes the Node of this name and UID for an operator, for fencing. Errors: [`WriteError::Conflict`] if the Node
    /// of that name has another UID now, [`WriteError::NotFound`] if there is none.
    pub async fn delete_node(&self, name: &NodeName, uid: &str) -> Result<(), WriteError> {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
        self.send::<Value>(with_body("DELETE", &node_path(name), "application/json", &body)).await?;
        Ok(())
    }

    /// Cordons a Node for an operator, so that no engine uncordons it, or uncordons it and removes every mark of a
    /// cordon. Conditioned on the Node's resourceVersion in `node`. Not fenced: the write uses the operator's rights.
    pub async fn cordon_manually(&self, _: &Person, node: &NodeRow, cordon: bool) -> Result<NodeRow, WriteError> {
        if cordon {
            let keep = Map::from_iter([(KEEP_CORDONED_ANNOTATION.to_owned(), json!("true"))]);
            return self.patch_node(node, keep, Some(json!(true))).await;
        }
        let marks = [OWNER_ANNOTATION, MAINTENANCE_ANNOTATION, CKE_ANNOTATION, KEEP_CORDONED_ANNOTATION];
        self.patch_node(node, marks.map(|key| (key.to_owned(), Value::Null)).into_iter().collect(), Some(Value::Null))
            .await
    }

    /// Sets or removes the annotation `cketerm.io/keep-cordoned` for an operator. With `keep` a cordon of cketerm
    /// becomes the administrator's. Not fenced: the write uses the operator's rights.
    pub async fn annotate_keep_cordoned(&self, _: &Person, name: &NodeName, keep: bool) -> Result<(), WriteError> {
        let value = if keep { json!("true") } else { Value::Null };
        let patch = json!({"metadata": {"annotations": {KEEP_CORDONED_ANNOTATION: value}}});
        self.send::<Node>(with_body("PATCH", &node_path(name), MERGE_PATCH, &patch)).await?;
        Ok(())
    }
}
