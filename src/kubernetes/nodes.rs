//! Cordons: one patch each, conditioned on the Node as it was decided from, so that a late one of an older leader
//! fails (spec/safety.md, Effects and Cordons; I9, I11, I12, I23).

use serde_json::{Map, Value, json};

use super::{
    call::{Fault, with_body},
    connect::Kube,
    read::node_path,
    wire::Node,
};
use crate::{
    fence::{Permit, Person},
    model::kube::{CKE_ANNOTATION, Description, KEEP_CORDONED_ANNOTATION, NodeRow, OWNER_ANNOTATION, Owner},
    mutation::{Mutation, on},
};

pub(super) const MERGE: &str = "application/merge-patch+json";

/// Why a write was not carried out, or is not known to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object changed since it was read (409).
    #[error("the object changed in the meantime: read it again and decide anew")]
    Conflict,
    /// The object does not exist (404).
    #[error("the object does not exist any more")]
    NotFound,
    /// Another answer.
    #[error("the API server refused it ({code}): {message}")]
    Refused {
        /// The status code.
        code: u16,
        /// The server's words, and the right that is missing.
        message: String,
    },
    /// No answer: it may or may not have been carried out. Read again before anything else.
    #[error("no answer, it may or may not have been carried out: {0}")]
    NoAnswer(String),
}

impl From<Fault> for WriteError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Silent(why) => Self::NoAnswer(why),
            Fault::Answered(status) => match status.code {
                404 => Self::NotFound,
                409 => Self::Conflict,
                // The server gave up in the middle, or something before it did.
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

/// What letting go of a Node takes off it, beside our annotation and CKE's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// `unschedulable`: it was our cordon, and nobody keeps it.
    pub uncordon: bool,
    /// `keep-cordoned`: the cordon is the administrator's from now on, as any other.
    pub drop_keep: bool,
}

impl Kube {
    /// Cordons the Node and writes down for whom, in one patch. `cordon` sets `unschedulable` (without it the field
    /// is left as it is), `cke_mark` sets CKE's annotation. Errors: [`WriteError::Conflict`] if the Node is not any
    /// more as `node` says.
    pub async fn stamp(
        &self,
        _: &Permit,
        node: &NodeRow,
        owner: &Owner,
        cordon: bool,
        cke_mark: bool,
    ) -> Result<NodeRow, WriteError> {
        let record = serde_json::to_string(owner)
            .map_err(|e| WriteError::Refused { code: 0, message: format!("the owner cannot be written: {e}") })?;
        let mut annotations = Map::from_iter([(OWNER_ANNOTATION.to_owned(), Value::String(record))]);
        if on(Mutation::CordonUnrecorded) {
            annotations.clear();
        }
        if cke_mark {
            annotations.insert(CKE_ANNOTATION.to_owned(), json!("true"));
        }
        self.patch_node(node, annotations, cordon.then_some(json!(true))).await
    }

    /// Takes our annotation and CKE's off, and what `what` says, in one patch.
    pub async fn release(&self, _: &Permit, node: &NodeRow, what: Release) -> Result<NodeRow, WriteError> {
        let mut annotations =
            Map::from_iter([OWNER_ANNOTATION, CKE_ANNOTATION].map(|key| (key.to_owned(), Value::Null)));
        if what.drop_keep {
            annotations.insert(KEEP_CORDONED_ANNOTATION.to_owned(), Value::Null);
        }
        self.patch_node(node, annotations, what.uncordon.then_some(Value::Null)).await
    }

    /// Sets and removes labels and annotations and replaces the taints, as `what` says, in one patch.
    pub async fn describe(&self, _: &Permit, node: &NodeRow, what: &Description) -> Result<NodeRow, WriteError> {
        let mut patch = json!({"metadata": {
            "resourceVersion": node.resource_version, "labels": what.labels, "annotations": what.annotations,
        }});
        if let Some(taints) = &what.taints {
            patch["spec"] = json!({"taints": taints});
        }
        let answer: Node = self.send(with_body("PATCH", &node_path(&node.name), MERGE, &patch)).await?;
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
        let answer: Node = self.send(with_body("PATCH", &node_path(&node.name), MERGE, &patch)).await?;
        Ok(answer.into())
    }

    /// A person's deletion of a Node with this UID and no other, for fencing. Errors: [`WriteError::Conflict`] if the
    /// Node of that name is another one by now, [`WriteError::NotFound`] if there is none.
    pub async fn delete_node(&self, name: &str, uid: &str) -> Result<(), WriteError> {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
        self.send::<Value>(with_body("DELETE", &node_path(name), "application/json", &body)).await?;
        Ok(())
    }

    /// A person's cordon, which no engine takes away, or a person's uncordon, which takes every mark of a cordon with it;
    /// conditioned on the Node as `node` says. Not fenced: it is the person's write, with the person's rights.
    pub async fn cordon_by_hand(&self, _: &Person, node: &NodeRow, cordon: bool) -> Result<NodeRow, WriteError> {
        if cordon {
            let keep = Map::from_iter([(KEEP_CORDONED_ANNOTATION.to_owned(), json!("true"))]);
            return self.patch_node(node, keep, Some(json!(true))).await;
        }
        let marks = [OWNER_ANNOTATION, CKE_ANNOTATION, KEEP_CORDONED_ANNOTATION];
        self.patch_node(node, marks.map(|key| (key.to_owned(), Value::Null)).into_iter().collect(), Some(Value::Null))
            .await
    }

    /// A person's own key: makes a cordon of ours the administrator's (`keep`), or takes that back. Not fenced: it is
    /// the person's write, with the person's rights.
    pub async fn annotate_keep_cordoned(&self, _: &Person, name: &str, keep: bool) -> Result<(), WriteError> {
        let value = if keep { json!("true") } else { Value::Null };
        let patch = json!({"metadata": {"annotations": {KEEP_CORDONED_ANNOTATION: value}}});
        self.send::<Node>(with_body("PATCH", &node_path(name), MERGE, &patch)).await?;
        Ok(())
    }
}
