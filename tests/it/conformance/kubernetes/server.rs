//! The server itself: version, health, discovery, rights.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{PODS, Session},
};

crate::conformance::cases!("server":
    version, health, groups, kinds, aggregated_discovery, own_rights, a_review_that_does_not_fit, without_a_token, with_a_wrong_token,
    paths_without_a_token,
    json_that_is_pretty, leases, endpoints, config_maps, a_kind_that_nobody_defined, dates);

async fn version(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let answer = k.get("/version").await;
    let git = answer.body["gitVersion"].as_str().unwrap_or_default().starts_with("v1.35.");
    k.note_answer("version", &answer, &["/major", "/minor"]);
    k.note("1.35", &json!(git));
    k.end()
}

async fn health(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for path in ["/readyz", "/livez", "/healthz"] {
        k.note_object(path, path, &[]).await;
    }
    let text = k.get("/readyz?verbose").await.body.as_str().unwrap_or_default().to_owned();
    k.note("verbose", &json!([text.contains("[+]ping ok"), text.ends_with("readyz check passed\n")]));
    k.end()
}

async fn groups(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.note_object("core", "/api", &["/kind", "/versions"]).await;
    let groups = k.get("/apis").await;
    k.note_answer("groups", &groups, &["/kind", "/apiVersion"]);
    for wanted in ["apps", "batch", "policy", "coordination.k8s.io", "discovery.k8s.io", "authorization.k8s.io"] {
        let list = groups.body["groups"].as_array().cloned().unwrap_or_default();
        let group = list.iter().find(|g| g["name"] == wanted).cloned().unwrap_or_default();
        k.note(wanted, &json!({"preferred": group["preferredVersion"]}));
    }
    k.note_object("one group", "/apis/policy", &["/kind", "/name", "/preferredVersion"]).await;
    k.end()
}

async fn kinds(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let expected_kinds: BTreeMap<&str, &[&str]> = BTreeMap::from([
        (
            "/api/v1",
            &[
                "nodes",
                "nodes/status",
                "pods",
                "pods/status",
                "pods/eviction",
                "pods/binding",
                "namespaces",
                "endpoints",
            ][..],
        ),
        ("/apis/apps/v1", &["daemonsets", "replicasets"]),
        ("/apis/batch/v1", &["jobs"]),
        ("/apis/policy/v1", &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
        ("/apis/coordination.k8s.io/v1", &["leases"]),
        ("/apis/discovery.k8s.io/v1", &["endpointslices"]),
        ("/apis/authorization.k8s.io/v1", &["selfsubjectaccessreviews"]),
    ]);
    for (path, names) in expected_kinds {
        let answer = k.get(path).await;
        k.note_answer(path, &answer, &["/kind", "/groupVersion"]);
        let list = answer.body["resources"].as_array().cloned().unwrap_or_default();
        for name in names {
            let found = list.iter().find(|r| r["name"] == *name).cloned().unwrap_or_default();
            let verbs = found["verbs"].as_array().cloned().unwrap_or_default();
            let has = |verb: &&str| verbs.iter().any(|v| v == verb);
            let verbs: Vec<&str> =
                ["create", "delete", "get", "list", "patch", "update", "watch"].into_iter().filter(has).collect();
            k.note(
                name,
                &json!({"kind": found["kind"], "namespaced": found["namespaced"], "singular": found["singularName"],
                "short": found["shortNames"], "verbs": verbs}),
            );
        }
    }
    k.end()
}

async fn aggregated_discovery(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for (path, group, resource) in [("/api", "", "nodes"), ("/apis", "policy", "poddisruptionbudgets")] {
        let answer = k.accepting("GET", path, &Value::Null, "application/json", accept).await;
        // A server may answer with the old form: kubectl reads both.
        let new = answer.body["kind"] == "APIGroupDiscoveryList";
        let found = if new {
            let items = answer.body["items"].as_array().cloned().unwrap_or_default();
            let wanted = |i: &&Value| i["metadata"]["name"].as_str().unwrap_or_default() == group;
            let item = items.iter().find(wanted).cloned().unwrap_or_default();
            let list = item["versions"][0]["resources"].as_array().cloned().unwrap_or_default();
            list.iter().any(|r| r["resource"] == resource)
        } else {
            answer.code == 200
        };
        k.note(path, &json!(found));
    }
    k.end()
}

async fn own_rights(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, group, resource, sub) in [
        ("patch", "", "nodes", ""),
        ("create", "", "pods", "eviction"),
        ("watch", "policy", "poddisruptionbudgets", ""),
    ] {
        let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes":
            {"verb": verb, "group": group, "resource": resource, "subresource": sub}}});
        let answer = k.post(path, body).await;
        k.note_answer(
            resource,
            &answer,
            &["/kind", "/apiVersion", "/status/allowed", "/status/denied", "/spec/resourceAttributes/verb"],
        );
    }
    k.end()
}

async fn a_review_that_does_not_fit(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = k
        .post(path, json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}))
        .await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("no attributes", &seen);
    let answer = k.get(path).await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("GET", &seen);
    k.end()
}

async fn without_a_token(target: Arc<Target>) -> Value {
    let mut k = Session::new(target.clone()).await;
    k.client = target.client_with(None).await;
    k.note_object("nodes", "/api/v1/nodes", &[]).await;
    k.note_object("pods of a namespace", PODS, &[]).await;
    k.note_object("one", &format!("{PODS}/p"), &[]).await;
    let answer = k.post(PODS, super::session::pod("p")).await;
    k.note_answer("create", &answer, &[]);
    k.note_object("readyz", "/readyz", &[]).await;
    k.end()
}

async fn paths_without_a_token(target: Arc<Target>) -> Value {
    let mut k = Session::new(target.clone()).await;
    k.client = target.client_with(None).await;
    for path in ["/livez", "/api", "/apis/apps/v1", "/none"] {
        k.note_object(path, path, &[]).await;
    }
    let code = k.get("/version").await.code;
    k.note("version", &json!(code));
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = k.post(path, json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "nodes"}}})).await;
    k.note_answer("a review", &answer, &[]);
    k.end()
}

async fn with_a_wrong_token(target: Arc<Target>) -> Value {
    let mut k = Session::new(target.clone()).await;
    k.client = target.client_with(Some("wrong")).await;
    k.note_object("nodes", "/api/v1/nodes", &[]).await;
    k.note_object("readyz", "/readyz", &[]).await;
    k.end()
}

async fn json_that_is_pretty(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.note_object("pretty", "/api/v1/namespaces/@?pretty=true", &["/metadata/name"]).await;
    k.end()
}

async fn leases(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/@/leases";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 40,
        "renewTime": "2025-01-01T00:00:00.000000Z"}});
    let fields = ["/kind", "/apiVersion", "/spec/holderIdentity", "/spec/leaseDurationSeconds", "/spec/renewTime"];
    let made = k.post(path, lease).await;
    k.note_answer("create", &made, &fields);
    let mut body = made.body.clone();
    body["spec"]["holderIdentity"] = json!("two");
    let answer = k.put(&format!("{path}/l"), body.clone()).await;
    k.note_answer("taken over", &answer, &fields);
    let answer = k.put(&format!("{path}/l"), body).await;
    k.note_answer("by a late one", &answer, &[]);
    k.end()
}

async fn endpoints(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = "/api/v1/namespaces/@/endpoints";
    let body = json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.2.0.1"}, {"ip": "10.2.0.2", "nodeName": "n2"}], "ports": [{"port": 6443}]}]});
    let made = k.post(path, body).await;
    k.note_answer("endpoints", &made, &["/kind", "/subsets/0/addresses", "/subsets/0/ports"]);
    let answer = k
        .merge(
            &format!("{path}/e"),
            json!({"subsets": [{"addresses": [{"ip": "10.2.0.2"}], "ports": [{"port": 6443}]}]}),
        )
        .await;
    k.note_answer("one less", &answer, &["/subsets/0/addresses"]);
    let path = "/apis/discovery.k8s.io/v1/namespaces/@/endpointslices";
    let body = json!({"metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "e"}}, "addressType": "IPv4",
        "ports": [{"port": 6443}], "endpoints": [{"addresses": ["10.2.0.1"]}, {"addresses": ["10.2.0.2"], "nodeName": "n2"}]});
    let made = k.post(path, body).await;
    k.note_answer(
        "a slice",
        &made,
        &["/kind", "/addressType", "/endpoints/0/addresses", "/endpoints/1/nodeName", "/ports/0/port"],
    );
    k.end()
}

async fn config_maps(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = "/api/v1/namespaces/@/configmaps";
    let made = k.post(path, json!({"metadata": {"name": "c"}, "data": {"a": "1"}})).await;
    k.note_answer("create", &made, &["/kind", "/data"]);
    let answer = k.delete(&format!("{path}/c"), json!({})).await;
    k.note_answer("delete", &answer, &["/kind"]);
    k.end()
}

async fn a_kind_that_nobody_defined(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for path in ["/apis/example.com/v1/namespaces/@/things", "/apis/example.com/v1", "/apis/example.com"] {
        k.note_object(path, path, &[]).await;
    }
    k.end()
}

async fn dates(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let request = http::Request::builder().uri("/readyz").body(kube::client::Body::empty()).expect("a request");
    let answer = k.client.send(request).await.expect("an answer");
    let header = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let date = header("date").is_some_and(|d| d.ends_with(" GMT"));
    k.note("a date", &json!(date));
    k.note("type", &json!(header("content-type")));
    k.end()
}
