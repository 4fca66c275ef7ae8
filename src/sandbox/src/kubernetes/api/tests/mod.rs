//! Tests of the API as its clients see it, in the process and on a paused clock.

mod evictions;
mod reading;
mod switches;
mod watching;
mod writing;

use http_body_util::BodyExt;
use serde_json::Value;

use super::*;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn api() -> Api {
    api_with(ApiOptions::default())
}

fn api_with(options: ApiOptions) -> Api {
    Api::new(Objects::new(cketerm_runtime::tokio_clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())), options)
}

/// Returns a whole response.
async fn answer(api: &Api, request: Request<Bytes>) -> (u16, http::HeaderMap, Value) {
    let response = api.handle(request).await;
    let (code, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let value = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    (code, headers, value)
}

async fn ask(api: &Api, method: &str, path: &str, body: Value, media: &str) -> (u16, Value) {
    let body = match body {
        Value::Null => Bytes::new(),
        Value::String(raw) => raw.into(),
        other => other.to_string().into(),
    };
    let request = Request::builder().method(method).uri(path).header("content-type", media).body(body).unwrap();
    let (code, _, value) = answer(api, request).await;
    (code, value)
}

async fn get(api: &Api, path: &str) -> (u16, Value) {
    ask(api, "GET", path, Value::Null, "").await
}

async fn post(api: &Api, path: &str, body: Value) -> (u16, Value) {
    ask(api, "POST", path, body, JSON).await
}

async fn merge(api: &Api, path: &str, body: Value) -> (u16, Value) {
    ask(api, "PATCH", path, body, MERGE).await
}

async fn delete(api: &Api, path: &str, body: Value) -> (u16, Value) {
    ask(api, "DELETE", path, body, JSON).await
}

/// Creates a running and ready pod on a node.
async fn pod(api: &Api, name: &str) {
    let body = json!({"metadata": {"name": name, "labels": {"a": "b"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(post(api, "/api/v1/namespaces/default/pods", body).await.0, 201);
    phase(api, name, "Running", true).await;
}

async fn phase(api: &Api, name: &str, phase: &str, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
    let path = format!("/api/v1/namespaces/default/pods/{name}/status");
    assert_eq!(merge(api, &path, status).await.0, 200);
}

fn message(value: &Value) -> &str {
    value["message"].as_str().unwrap_or_default()
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect()
}
