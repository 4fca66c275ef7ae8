//! The fields of Nodes that are read from whole lists, with their tags of
//! [`core/v1`](https://github.com/kubernetes/api/blob/master/core/v1/generated.proto) and
//! [`meta/v1`](https://github.com/kubernetes/apimachinery/blob/master/pkg/apis/meta/v1/generated.proto).

use std::collections::BTreeMap;

use cketerm_model::{kube::NodeReadiness, names::NodeName};
use prost::Message;
use serde::Deserialize;

use super::{connect::Kube, error::KubeError, protobuf_list::PartialObject};

const PATH: &str = "/api/v1/nodes";

/// An object of which the server sends nothing but its metadata (`PartialObjectMetadata`).
#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default)]
struct MetadataOnly {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

impl PartialObject for MetadataOnly {
    const CONVERSION: &str = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

    fn name(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| &metadata.name)
    }
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

impl PartialObject for NodeConditions {
    const CONVERSION: &str = "";

    fn name(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| &metadata.name)
    }
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
        self.fold_partial(PATH, add).await.map_err(|fault| self.error(&format!("GET {PATH}"), fault))
    }

    /// Reads which Nodes exist and which of them are Ready, by name.
    pub async fn node_readiness(&self) -> Result<BTreeMap<NodeName, NodeReadiness>, KubeError> {
        let add = |nodes: &mut BTreeMap<NodeName, NodeReadiness>, node: NodeConditions| {
            let ready = node.is_ready();
            let Identity { name, uid } = node.metadata.unwrap_or_default();
            nodes.insert(NodeName::new(name), NodeReadiness { uid, ready });
        };
        self.fold_partial(PATH, add).await.map_err(|fault| self.error(&format!("GET {PATH}"), fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a field of length-delimited content.
    fn field(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    /// A condition as an API server encodes it, with its times and reason.
    fn condition(name: &str, status: &str) -> Vec<u8> {
        let fields = [field(1, name.as_bytes()), field(2, status.as_bytes()), field(3, &[8, 1]), field(5, b"why")];
        field(4, &fields.concat())
    }

    fn node(status: &[Vec<u8>]) -> NodeConditions {
        let metadata = [field(1, b"w1"), field(5, b"uid-1"), field(11, &[field(1, b"rack"), field(2, b"1")].concat())];
        let spec = field(2, &field(1, b"10.0.0.0/24"));
        let bytes = [field(1, &metadata.concat()), spec, field(3, &status.concat())].concat();
        NodeConditions::decode(bytes.as_slice()).unwrap()
    }

    #[test]
    fn a_node_in_protobuf_has_its_identity_and_readiness() {
        let (address, image) = (field(5, &field(1, b"InternalIP")), field(8, &field(1, b"registry/image:1")));
        for (status, ready) in [("True", true), ("False", false), ("Unknown", false)] {
            let read = node(&[
                address.clone(),
                condition("MemoryPressure", "True"),
                condition("Ready", status),
                image.clone(),
            ]);
            assert_eq!((read.name(), read.is_ready()), ("w1", ready), "{status}");
            assert_eq!(read.metadata.unwrap().uid, "uid-1");
        }
        assert!(!node(&[condition("MemoryPressure", "True")]).is_ready());
        assert!(!node(&[]).is_ready());
    }

    #[test]
    fn a_node_in_json_has_the_same() {
        for (status, ready) in [
            (r#""status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r"}], "images": []},"#, true),
            (r#""status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},"#, false),
            (r#""status": {},"#, false),
            (r#""status": null,"#, false),
            ("", false),
        ] {
            let text = format!(
                r#"{{{status} "spec": {{}}, "metadata": {{"name": "w1", "uid": "u", "labels": {{"a": ""}}}}}}"#
            );
            let read: NodeConditions = serde_json::from_str(&text).unwrap();
            assert_eq!((read.name(), read.is_ready()), ("w1", ready), "{text}");
            let metadata = serde_json::from_str::<MetadataOnly>(&text).unwrap().metadata.unwrap();
            assert_eq!((&*metadata.uid, &metadata.labels), ("u", &[("a".to_owned(), String::new())].into()));
        }
    }
}
