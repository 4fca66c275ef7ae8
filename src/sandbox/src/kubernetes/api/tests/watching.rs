use axum::body::BodyDataStream;
use futures::{FutureExt, StreamExt};

use super::*;

const STREAM: &str = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

/// A watch that is read event by event.
pub(super) struct WatchReader {
    body: BodyDataStream,
    rest: Vec<Value>,
}

impl WatchReader {
    pub(super) async fn open(api: &Api, path: &str) -> Self {
        let response = api.handle(Request::get(path).body(Bytes::new()).unwrap()).await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body().into_data_stream(), rest: Vec::new() }
    }

    /// Returns the next event; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        if self.rest.is_empty() {
            let bytes = self.body.next().await?.unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            self.rest = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        Some(self.rest.remove(0))
    }

    /// Returns the type of the next event and the name of its object.
    async fn summary(&mut self) -> (String, String) {
        let event = self.next().await.unwrap();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }

    /// Returns true if no event is available now.
    pub(super) fn quiet(&mut self) -> bool {
        self.rest.is_empty() && self.body.next().now_or_never().is_none()
    }

    /// Returns true if the connection broke.
    pub(super) async fn broken(mut self) -> bool {
        self.body.next().await.is_some_and(|end| end.is_err())
    }
}

fn summary(verb: &str, name: &str) -> (String, String) {
    (verb.to_owned(), name.to_owned())
}

async fn node(api: &Api, name: &str) {
    assert_eq!(post(api, "/api/v1/nodes", json!({"metadata": {"name": name}})).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_ends_with_a_bookmark_and_continues_as_a_watch() {
    let api = api();
    node(&api, "a").await;
    let mut watch = WatchReader::open(&api, &format!("/api/v1/nodes?{STREAM}")).await;
    assert_eq!(watch.summary().await, summary("ADDED", "a"));
    let bookmark = watch.next().await.unwrap();
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Node")));
    assert_eq!(bookmark["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], api.objects().revision().to_string());
    assert!(watch.quiet());
    merge(&api, "/api/v1/nodes/a", json!({"spec": {"unschedulable": true}})).await;
    delete(&api, "/api/v1/nodes/a", Value::Null).await;
    assert_eq!(watch.summary().await, summary("MODIFIED", "a"));
    let deleted = watch.next().await.unwrap();
    assert_eq!(deleted["object"]["metadata"]["resourceVersion"], api.objects().revision().to_string());
    let before = tokio::time::Instant::now();
    assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(before.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_without_etcd_support_fails_with_an_error_event() {
    let api = api_with(ApiOptions { streaming: false, ..ApiOptions::default() });
    let mut watch = WatchReader::open(&api, &format!("/api/v1/nodes?{STREAM}")).await;
    let response = watch.next().await.unwrap();
    assert_eq!((&response["type"], &response["object"]["code"]), (&json!("ERROR"), &json!(500)));
    assert!(message(&response["object"]).ends_with("the required storage feature RequestWatchProgress is disabled"));
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_the_selection_is_reported_as_deleted() {
    let api = api();
    for name in ["a", "b"] {
        node(&api, name).await;
    }
    let version = api.objects().revision();
    let mut some =
        WatchReader::open(&api, &format!("/api/v1/nodes?watch=1&resourceVersion={version}&labelSelector=x%3Dy")).await;
    let mut one = WatchReader::open(&api, &format!("/api/v1/watch/nodes/b?resourceVersion={version}")).await;
    let label = |value: Value| json!({"metadata": {"labels": {"x": value}}});
    merge(&api, "/api/v1/nodes/a", label(json!("y"))).await;
    merge(&api, "/api/v1/nodes/b", label(json!("z"))).await;
    merge(&api, "/api/v1/nodes/a", label(Value::Null)).await;
    assert_eq!(some.summary().await, summary("ADDED", "a"));
    let left = some.next().await.unwrap();
    assert_eq!((&left["type"], &left["object"]["metadata"]["labels"]["x"]), (&json!("DELETED"), &json!("y")));
    assert_eq!(left["object"]["metadata"]["resourceVersion"], api.objects().revision().to_string());
    assert!(some.quiet());
    assert_eq!(one.summary().await, summary("MODIFIED", "b"));
    assert!(one.quiet());
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_compacted_version_gets_410_and_ends() {
    let api = api();
    node(&api, "a").await;
    api.objects().compact();
    let mut watch = WatchReader::open(&api, "/api/v1/nodes?watch=1&resourceVersion=1").await;
    let response = watch.next().await.unwrap();
    let version = api.objects().revision();
    assert_eq!(
        (&response["type"], &response["object"]["code"], &response["object"]["reason"]),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert_eq!(message(&response["object"]), format!("too old resource version: 1 ({version})"));
    assert_eq!(watch.next().await, None);
    // A watch that is up to date is not affected.
    let mut watch = WatchReader::open(&api, &format!("/api/v1/nodes?watch=1&resourceVersion={version}")).await;
    assert!(watch.quiet());
    api.objects().compact();
    node(&api, "b").await;
    assert_eq!(watch.summary().await, summary("ADDED", "b"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_timeout_seconds() {
    let api = api();
    let began = tokio::time::Instant::now();
    let mut watch = WatchReader::open(&api, "/api/v1/nodes?watch=1&timeoutSeconds=290&allowWatchBookmarks=1").await;
    let mut marks = 0;
    while let Some(event) = watch.next().await {
        assert_eq!(event["type"], "BOOKMARK");
        marks += 1;
    }
    assert_eq!((began.elapsed().as_secs(), marks), (290, 5), "one a minute and one at the end");
}

#[tokio::test(start_paused = true)]
async fn a_table_watch_sends_its_column_definitions_once() {
    let api = api();
    for name in ["a", "b"] {
        node(&api, name).await;
    }
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = Request::get("/api/v1/nodes?watch=1").header("accept", accept).body(Bytes::new()).unwrap();
    let body = api.handle(request).await.into_body().into_data_stream();
    let mut watch = WatchReader { body, rest: Vec::new() };
    let (first, second) = (watch.next().await.unwrap(), watch.next().await.unwrap());
    assert!(first["object"]["columnDefinitions"].is_array() && second["object"]["columnDefinitions"].is_null());
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
}

#[tokio::test(start_paused = true)]
async fn an_in_process_kube_client_gets_lists_and_watches() {
    let api = api();
    let client = api.client();
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client.clone());
    let made = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    nodes.create(&kube::api::PostParams::default(), &made).await.unwrap();
    assert!(nodes.get("n").await.unwrap().metadata.uid.is_some());
    assert_eq!(nodes.list(&kube::api::ListParams::default().limit(1)).await.unwrap().items.len(), 1);
    let mut watch = nodes.watch(&kube::api::WatchParams::default(), "0").await.unwrap().boxed();
    assert!(
        matches!(watch.next().await, Some(Ok(kube::core::WatchEvent::Added(node))) if node.metadata.name.as_deref() == Some("n"))
    );
    let refused = nodes.get("m").await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 404));
}
