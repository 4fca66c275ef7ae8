use futures::FutureExt;

use super::{watching::WatchReader, *};

async fn node(api: &Api, name: &str) {
    assert_eq!(post(api, "/api/v1/nodes", json!({"metadata": {"name": name}})).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_server_refuses_connections_and_cuts_watches() {
    let api = api();
    let watch = WatchReader::open(&api, "/api/v1/nodes?watch=1").await;
    let client = api.client();
    api.set_available(false);
    assert!(watch.broken().await);
    let error = client.apiserver_version().await.unwrap_err();
    assert!(!matches!(error, kube::Error::Api(_)), "{error:?}");
    api.set_available(true);
    assert!(client.apiserver_version().await.is_ok());
    let watch = WatchReader::open(&api, "/api/v1/nodes?watch=1").await;
    api.cut_watches();
    assert!(watch.broken().await);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_watch_delivers_its_events_after_the_stall() {
    let api = api();
    let mut watch = WatchReader::open(&api, "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=3000").await;
    api.stall_watches(true);
    for name in ["a", "b"] {
        node(&api, name).await;
    }
    assert!(watch.quiet());
    assert!(tokio::time::timeout(Duration::from_mins(10), watch.next()).await.is_err(), "no bookmark either");
    api.stall_watches(false);
    for name in ["a", "b"] {
        assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], name);
    }
}

#[tokio::test(start_paused = true)]
async fn denied_permissions_show_in_access_reviews_and_refuse_requests() {
    let api = api();
    let text = str::to_owned;
    let denied = DeniedPermission {
        user: Some(text("nobody")),
        verb: text("create"),
        group: text(""),
        resource: text("pods/eviction"),
    };
    api.deny(vec![denied]);
    let review = |user: &'static str, verb: &str, resource: &str| {
        let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let body = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "spec": {"resourceAttributes": {"verb": verb, "group": "", "resource": resource, "subresource": sub}}});
        let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let request = request.header(USER_HEADER, user).header("content-type", JSON);
        let api = &api;
        async move { answer(api, request.body(body.to_string().into()).unwrap()).await.2["status"]["allowed"].clone() }
    };
    assert_eq!(review("nobody", "create", "pods/eviction").await, false);
    assert_eq!(review("nobody", "*", "*").await, false);
    assert_eq!(review("nobody", "get", "pods").await, true);
    assert_eq!(review("somebody", "*", "*").await, true);
    let request = Request::post("/api/v1/namespaces/default/pods/p/eviction").header("authorization", "Bearer nobody");
    let (code, _, response) = answer(&api, request.body(Bytes::from("{}")).unwrap()).await;
    let why = "pods \"p\" is forbidden: User \"nobody\" cannot create resource \"pods/eviction\" in API group \"\" in the namespace \"default\"";
    assert_eq!((code, message(&response)), (403, why));
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_records_user_verb_path_and_code() {
    let api = api_with(ApiOptions { audit: 2, ..ApiOptions::default() });
    let client = api.client_through(|wire| {
        let named = tower::ServiceExt::map_request(wire, |mut request: Request<Bytes>| {
            request.headers_mut().insert(USER_HEADER, http::HeaderValue::from_static("me"));
            request
        });
        Wire::new(named)
    });
    assert!(client.apiserver_version().await.is_ok());
    node(&api, "n").await;
    delete(&api, "/api/v1/nodes/n", json!({"dryRun": ["All"]})).await;
    client.apiserver_version().now_or_never();
    client.apiserver_version().await.unwrap();
    let log = api.audit();
    assert_eq!(log.len(), 2);
    let last = &log[1];
    assert_eq!((last.user.as_str(), last.verb, last.path.as_str(), last.code), ("me", "get", "/version", 200));
    node(&api, "m").await;
    let made = api.audit().pop().unwrap();
    assert_eq!((made.verb, made.code, made.at.to_string().as_str()), ("create", 201, "2026-01-01T00:00:00Z"));
    assert!(String::from_utf8_lossy(&made.body).contains("\"m\""));
}

#[tokio::test(start_paused = true)]
async fn ten_idle_watches_for_an_hour_take_less_than_half_a_second() {
    let api = api();
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(WatchReader::open(&api, "/api/v1/nodes?watch=1&timeoutSeconds=7200").await);
    }
    let began = std::time::Instant::now();
    let nothing = futures::future::join_all(watches.iter_mut().map(WatchReader::next));
    assert!(tokio::time::timeout(Duration::from_hours(1), nothing).await.is_err());
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn external_clients_are_authenticated_by_token() {
    use tower::ServiceExt as _;
    let tokens = [("secret".to_owned(), "me".to_owned())].into();
    let api = api_with(ApiOptions { tokens, ..ApiOptions::default() });
    let code = async |path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        api.router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
    };
    let authorization = |value| [("authorization", value)];
    let nodes = "/api/v1/nodes";
    assert_eq!(code(nodes, &authorization("Bearer secret")).await, 200);
    assert_eq!(api.audit().pop().unwrap().user, "me");
    assert_eq!(code(nodes, &authorization("Basic bWU6c2VjcmV0")).await, 200, "me:secret");
    for wrong in ["Bearer me", "Basic bWU6bm8=", "Basic %", "Bearer "] {
        assert_eq!(code(nodes, &authorization(wrong)).await, 401, "{wrong}");
        assert_eq!(code("/readyz", &authorization(wrong)).await, 401, "{wrong}");
    }
    assert_eq!(code(nodes, &[]).await, 403);
    assert_eq!(code(nodes, &[(USER_HEADER, "me"), ("impersonate-user", "me")]).await, 403);
    assert_eq!((code("/readyz", &[]).await, code("/version", &[]).await, code("/api", &[]).await), (200, 200, 403));
    assert_eq!(get(&api, nodes).await.0, 200, "in-process requests are trusted");
}
