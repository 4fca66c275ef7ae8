//! The fields of Nodes that are read from whole lists, with their tags of
//! [`core/v1`](https://github.com/kubernetes/api/blob/master/core/v1/generated.proto) and
//! [`meta/v1`](https://github.com/kubernetes/apimachinery/blob/master/pkg/apis/meta/v1/generated.proto).

use std::collections::BTreeMap;

use cketerm_model::{kube::NodeReadiness, names::NodeName};
use prost::Message;
use serde::Deserialize;

use super::{connect::Kube, error::KubeError, protobuf_list::Fields};

const PATH: &str = "/api/v1/nodes";

/// An object of which the server sends nothing but its metadata (`PartialObjectMetadata`).
#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default)]
struct MetadataOnly {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

impl Fields for MetadataOnly {
    const CONVERSION: &str = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
}

#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
}

/// A Node of which only its identity and the condition `Ready` are used.
#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default)]
struct NodeConditions {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Identity>,
    #[prost(message, optional, tag = "3")]
    status: Option<NodeStatus>,
}

impl Fields for NodeConditions {
    const CONVERSION: &str = "";
}

#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default)]
struct Identity {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "5")]
    uid: String,
}

#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default)]
struct NodeStatus {
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<NodeCondition>,
}

#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default)]
struct NodeCondition {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(string, tag = "2")]
    status: String,
}

impl NodeConditions {
    fn is_ready(&self) -> bool {
        let mut conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions.find(|condition| condition.r#type == "Ready").is_some_and(|condition| condition.status == "True")
    }
}

impl Kube {
    /// Reads all labels of all Nodes, by name.
    pub async fn node_labels(&self) -> Result<BTreeMap<NodeName, BTreeMap<String, String>>, KubeError> {
        self.node_metadata(|node| node.labels).await
    }

    /// Reads the UIDs of all Nodes, by name.
    pub async fn node_uids(&self) -> Result<BTreeMap<NodeName, String>, KubeError> {
        self.node_metadata(|node| node.uid).await
    }

    /// Reads a part of the metadata of all Nodes, by name. The rest of each page is dropped before the next one.
    async fn node_metadata<V>(&self, part: fn(ObjectMeta) -> V) -> Result<BTreeMap<NodeName, V>, KubeError> {
        let add = |nodes: &mut BTreeMap<NodeName, V>, node: MetadataOnly| {
            let metadata = node.metadata.unwrap_or_default();
            nodes.insert(NodeName::new(metadata.name.clone()), part(metadata));
        };
        self.fold_fields(PATH, add).await.map_err(|fault| self.error(&format!("GET {PATH}"), fault))
    }

    /// Reads which Nodes exist and which of them are Ready, by name.
    pub async fn node_readiness(&self) -> Result<BTreeMap<NodeName, NodeReadiness>, KubeError> {
        let add = |nodes: &mut BTreeMap<NodeName, NodeReadiness>, node: NodeConditions| {
            let ready = node.is_ready();
            let Identity { name, uid } = node.metadata.unwrap_or_default();
            nodes.insert(NodeName::new(name), NodeReadiness { uid, ready });
        };
        self.fold_fields(PATH, add).await.map_err(|fault| self.error(&format!("GET {PATH}"), fault))
    }
}
