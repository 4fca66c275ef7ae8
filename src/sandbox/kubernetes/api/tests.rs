use std::time::Duration;

use futures::StreamExt;
use http_body_util::BodyExt;
use serde_json::Value;

use super::*;
use crate::{clock::Clock, sandbox::kubernetes::resource::PODS};

const MERGE: &str = "application/merge-patch+json";

fn api() -> Api {
    let clock = Clock::tokio("2026-01-01T00:00:00Z".parse().unwrap());
    Api::new(Objects::new(clock), ApiOptions { streaming: true, ..ApiOptions::default() })
}

async fn ask(api: &Api, method: &str, path: &str, body: Value, media: &str) -> (u16, Value) {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder().method(method).uri(path).header("content-type", media).body(body).unwrap();
    let response = api.handle(request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}

async fn get(api: &Api, path: &str) -> (u16, Value) {
    ask(api, "GET", path, Value::Null, "").await
}

async fn post(api: &Api, path: &str, body: Value) -> (u16, Value) {
    ask(api, "POST", path, body, "application/json").await
}

#[tokio::test(start_paused = true)]
async fn objects_are_made_changed_and_deleted() {
    let api = api();
    let (code, node) = post(&api, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    assert_eq!((code, node["kind"].as_str()), (201, Some("Node")));
    let (code, _) = ask(&api, "PATCH", "/api/v1/nodes/n", json!({"metadata": {"resourceVersion": "1"}}), MERGE).await;
    assert_eq!(code, 409);
    let patch =
        json!({"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"unschedulable": true}});
    let (code, node) = ask(&api, "PATCH", "/api/v1/nodes/n", patch, MERGE).await;
    assert_eq!((code, &node["spec"]), (200, &json!({"unschedulable": true})));
    let (code, status) = ask(&api, "DELETE", "/api/v1/nodes/n", Value::Null, "").await;
    assert_eq!((code, status["status"].as_str()), (200, Some("Success")));
    assert_eq!(get(&api, "/api/v1/nodes/n").await.0, 404);
    assert_eq!(get(&api, "/api/v1/namespaces").await.1["items"].as_array().unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_client_in_the_process_lists_and_watches() {
    let api = api();
    let client = api.client();
    let request = Request::get(
        "/api/v1/nodes?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    );
    let mut response = client.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap();
    assert!(response.headers().contains_key("date"));
    let mut lines = response.body_mut().into_data_stream();
    let first = String::from_utf8(lines.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(first.contains("initial-events-end"), "{first}");
    post(&api, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let next = String::from_utf8(lines.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(next.starts_with("{\"type\":\"ADDED\"") && next.ends_with("}\n"), "{next}");
    let before = tokio::time::Instant::now();
    let mark = String::from_utf8(lines.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(mark.contains("BOOKMARK"), "{mark}");
    assert!(before.elapsed() >= Duration::from_secs(59));
    let _ = &PODS;
}
