//! Fields of all Nodes, read in Kubernetes' protobuf encoding and compared with the same Nodes in JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use cketerm_clients::kubernetes::{Kube, KubeError, KubeSettings};
use cketerm_model::{clock::Clock, kube::NodeReadiness, names::NodeName};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::servers::{Api, both};

/// More than one page.
const NODES: usize = 520;

async fn create_nodes(api: &Api) -> Vec<Value> {
    let created = futures::stream::iter(0..NODES).map(|n| async move {
        let labels = json!({"test": "protobuf", "number": n.to_string(), "text": "", "name.example.com/part": "a_b.c"});
        let node = json!({"metadata": {"name": format!("protobuf-{n}"), "labels": labels,
            "annotations": {"text": "ü and \u{1F600}"}}});
        api.post("/api/v1/nodes", node).await
    });
    created.buffer_unordered(8).collect().await
}

fn is_own(name: &NodeName) -> bool {
    name.starts_with("protobuf-")
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_in_protobuf_are_those_of_json_over_several_pages() {
    for server in both() {
        let (api, kube) = (server.api().await, server.kube().await);
        let created = create_nodes(&api).await;
        let condition = |of: &str, is: &str| json!({"type": of, "status": is, "message": "m", "reason": "r"});
        for (n, conditions) in [
            (0, vec![condition("MemoryPressure", "True"), condition("Ready", "False")]),
            (1, vec![condition("MemoryPressure", "False"), condition("Ready", "True")]),
            (2, vec![condition("Ready", "Unknown")]),
            (3, vec![condition("NetworkUnavailable", "True")]),
        ] {
            let status = json!({"status": {"conditions": conditions, "images": [{"names": ["a", "b"], "sizeBytes": 7}],
                "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
            api.merge(&format!("/api/v1/nodes/protobuf-{n}/status"), status).await;
        }

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

        let mut ready = kube.node_readiness().await.unwrap();
        ready.retain(|name, _| is_own(name));
        let rows = kube.nodes().await.unwrap().into_iter().filter(|row| is_own(&row.name));
        assert_eq!(ready, rows.map(|row| (row.name, NodeReadiness { uid: row.uid, ready: row.ready })).collect());
        assert_eq!(
            ready.iter().filter(|(_, node)| node.ready).map(|(name, _)| &**name).collect::<Vec<_>>(),
            ["protobuf-1"]
        );

        let pages =
            server.requests().iter().filter(|(_, uri)| uri.starts_with("/api/v1/nodes?limit=500&continue=")).count();
        assert!(pages >= 4, "each of the four reads needs a second page; the audit log has {pages}");
        api.delete("/api/v1/nodes?labelSelector=test%3Dprotobuf").await;
    }
}

/// The comparison above would not notice an API server that answers in JSON.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_answers_in_protobuf() {
    for server in both() {
        let (client, seen) = (server.api().await.client, Arc::new(Mutex::new(BTreeSet::new())));
        let types = Arc::clone(&seen);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (client, types) = (client.clone(), Arc::clone(&types));
            async move {
                let answer = client.send(request).await?;
                let media_type = answer.headers()["content-type"].to_str().unwrap_or_default();
                types.lock().unwrap().insert(media_type.split(';').next().unwrap_or_default().to_owned());
                Ok::<_, kube::Error>(answer)
            }
        });
        let kube = Kube::from_client(kube::Client::new(service, "default"), Clock::host());
        kube.node_uids().await.unwrap();
        kube.node_readiness().await.unwrap();
        let types = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(types, ["application/vnd.kubernetes.protobuf".to_owned()].into());
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
