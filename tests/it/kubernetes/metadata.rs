//! Metadata of all Nodes, in Kubernetes' protobuf encoding, compared with the same Nodes in JSON.

use std::collections::BTreeMap;

use cketerm_clients::kubernetes::{KubeError, KubeSettings};
use cketerm_model::clock::Clock;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::servers::both;

/// More than one page.
const NODES: usize = 520;

#[tokio::test(flavor = "multi_thread")]
async fn metadata_in_protobuf_is_that_of_json_over_several_pages() {
    for server in both() {
        let (api, kube) = (server.api().await, server.kube().await);
        let (api, path) = (&api, "/api/v1/nodes");
        let created = futures::stream::iter(0..NODES).map(|n| async move {
            let labels =
                json!({"test": "metadata", "number": n.to_string(), "text": "", "name.example.com/part": "a_b.c"});
            let node = json!({"metadata": {"name": format!("metadata-{n}"), "labels": labels,
                "annotations": {"text": "ü and \u{1F600}"}}});
            api.post(path, node).await
        });
        let created: Vec<Value> = created.buffer_unordered(8).collect().await;
        let is_own = |name: &str| name.starts_with("metadata-");

        let labels = kube.node_labels().await.unwrap();
        let uids = kube.node_uids().await.unwrap();
        let read: BTreeMap<String, (String, BTreeMap<String, String>)> = labels
            .into_iter()
            .filter(|(name, _)| is_own(name))
            .map(|(name, labels)| (name.to_string(), (uids[&name].clone(), labels)))
            .collect();
        let written = created.iter().map(|node| {
            let meta = &node["metadata"];
            let labels = serde_json::from_value(meta["labels"].clone()).unwrap();
            (meta["name"].as_str().unwrap().to_owned(), (meta["uid"].as_str().unwrap().to_owned(), labels))
        });
        assert_eq!(read, written.collect());

        let pages =
            server.requests().iter().filter(|(_, uri)| uri.starts_with("/api/v1/nodes?limit=500&continue=")).count();
        assert!(pages >= 2, "both reads need a second page; the audit log has {pages}");
        api.delete(&format!("{path}?labelSelector=test%3Dmetadata")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_read_of_metadata_says_so_in_words() {
    for server in both() {
        let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
        let token = text.split("token: \"").nth(1).and_then(|t| t.split('"').next()).unwrap().to_owned();
        let file = server.dir.join("kubeconfig-nobody");
        std::fs::write(&file, text.replace(&token, "nobody")).unwrap();
        let settings = KubeSettings { kubeconfig: Some(file), ..KubeSettings::default() };
        let stranger = cketerm_clients::kubernetes::Kube::connect(&settings, Clock::host()).await.unwrap();
        let refused: KubeError = stranger.node_uids().await.unwrap_err();
        assert!(refused.to_string().contains("refused our credentials (401) for GET /api/v1/nodes"), "{refused}");
    }
}
