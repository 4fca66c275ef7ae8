use super::*;

#[tokio::test(start_paused = true)]
async fn objects_are_created_patched_and_deleted() {
    let api = api();
    let (code, node) = post(&api, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    assert_eq!((code, node["kind"].as_str()), (201, Some("Node")));
    let (code, response) = merge(&api, "/api/v1/nodes/n", json!({"metadata": {"resourceVersion": "1"}})).await;
    assert_eq!(
        (code, message(&response)),
        (
            409,
            "Operation cannot be fulfilled on nodes \"n\": the object has been modified; please apply your changes to the latest version and try again"
        )
    );
    let version = node["metadata"]["resourceVersion"].clone();
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"unschedulable": true}});
    let (code, node) = merge(&api, "/api/v1/nodes/n", patch).await;
    assert_eq!((code, &node["spec"]), (200, &json!({"unschedulable": true})));
    let (_, node) = merge(&api, "/api/v1/nodes/n", json!({"spec": {"unschedulable": null}})).await;
    assert_eq!(node["spec"], json!({}));
    let (code, status) = delete(&api, "/api/v1/nodes/n", Value::Null).await;
    assert_eq!((code, status["status"].as_str()), (200, Some("Success")));
    let (code, response) = get(&api, "/api/v1/nodes/n").await;
    assert_eq!((code, message(&response)), (404, "nodes \"n\" not found"));
    assert_eq!(
        names(&get(&api, "/api/v1/namespaces").await.1),
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing() {
    let api = api();
    let before = api.objects().revision();
    let (code, made) = post(&api, "/api/v1/nodes?dryRun=All", json!({"metadata": {"generateName": "n-"}})).await;
    assert_eq!((code, made["metadata"]["resourceVersion"].is_null()), (201, true));
    assert_eq!(api.objects().revision(), before);
    post(&api, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    assert_eq!(post(&api, "/api/v1/nodes?dryRun=All", json!({"metadata": {"name": "n"}})).await.0, 409);
    pod(&api, "p").await;
    let before = api.objects().revision();
    let (code, response) = merge(&api, "/api/v1/nodes/n?dryRun=All", json!({"spec": {"unschedulable": true}})).await;
    assert_eq!((code, &response["spec"]["unschedulable"]), (200, &json!(true)));
    assert_eq!(delete(&api, "/api/v1/nodes/n", json!({"dryRun": ["All"]})).await.0, 200);
    assert_eq!(delete(&api, "/api/v1/namespaces/default/pods/p?dryRun=All", Value::Null).await.0, 200);
    assert_eq!(post(&api, "/api/v1/nodes?dryRun=Some", json!({"metadata": {"name": "m"}})).await.0, 422);
    assert_eq!(api.objects().revision(), before);
}

#[tokio::test(start_paused = true)]
async fn a_second_deletion_can_only_shorten_the_grace_period() {
    let api = api();
    pod(&api, "p").await;
    let path = "/api/v1/namespaces/default/pods/p";
    let (code, gone) = delete(&api, path, json!({"gracePeriodSeconds": 20})).await;
    let meta = &gone["metadata"];
    assert_eq!(
        (code, meta["deletionTimestamp"].as_str(), &meta["generation"]),
        (200, Some("2026-01-01T00:00:20Z"), &json!(2))
    );
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(delete(&api, path, Value::Null).await.1, gone);
    assert_eq!(delete(&api, path, json!({"gracePeriodSeconds": 25})).await.1, gone);
    let (_, shorter) = delete(&api, path, json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
    assert_eq!(shorter["metadata"]["generation"], 2);
    assert_eq!(delete(&api, path, json!({"gracePeriodSeconds": 0})).await.0, 200);
    assert_eq!(get(&api, path).await.0, 404);
    for phase_of in ["Succeeded", "Failed"] {
        pod(&api, "q").await;
        phase(&api, "q", phase_of, false).await;
        assert_eq!(delete(&api, "/api/v1/namespaces/default/pods/q", Value::Null).await.0, 200);
        assert_eq!(get(&api, "/api/v1/namespaces/default/pods/q").await.0, 404);
    }
    let wrong = json!({"preconditions": {"uid": "zzz"}});
    pod(&api, "r").await;
    let (code, response) = delete(&api, "/api/v1/namespaces/default/pods/r", wrong).await;
    assert_eq!((code, message(&response).contains("the UID in the precondition (zzz)")), (409, true));
}

#[tokio::test(start_paused = true)]
async fn an_object_is_removed_after_its_last_finalizer() {
    let api = api();
    let hosts = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts";
    post(&api, hosts, json!({"metadata": {"name": "h", "finalizers": ["a/b"]}, "spec": {}})).await;
    let (code, held) = delete(&api, &format!("{hosts}/h"), Value::Null).await;
    assert_eq!((code, held["kind"].as_str()), (200, Some("BareMetalHost")));
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    merge(&api, &format!("{hosts}/h"), json!({"metadata": {"finalizers": null, "deletionTimestamp": null}})).await;
    assert_eq!(get(&api, &format!("{hosts}/h")).await.0, 404);
    // A pod is removed only after its grace period and its finalizers.
    pod(&api, "p").await;
    let path = "/api/v1/namespaces/default/pods/p";
    merge(&api, path, json!({"metadata": {"finalizers": ["a/b"]}})).await;
    delete(&api, path, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(get(&api, path).await.1["metadata"]["deletionGracePeriodSeconds"], 0);
    merge(&api, path, json!({"metadata": {"finalizers": []}})).await;
    assert_eq!(get(&api, path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn the_status_is_written_only_through_its_subresource() {
    let api = api();
    pod(&api, "p").await;
    let path = "/api/v1/namespaces/default/pods/p";
    merge(&api, path, json!({"status": {"phase": "Failed"}, "metadata": {"labels": {"x": "y"}}})).await;
    let (_, live) = get(&api, path).await;
    assert_eq!((&live["status"]["phase"], &live["metadata"]["labels"]["x"]), (&json!("Running"), &json!("y")));
    merge(&api, &format!("{path}/status"), json!({"status": {"phase": "Failed"}, "spec": {"nodeName": "z"}})).await;
    let (_, live) = get(&api, path).await;
    assert_eq!((&live["status"]["phase"], &live["spec"]["nodeName"]), (&json!("Failed"), &json!("n")));
    let (code, response) = merge(&api, path, json!({"spec": {"nodeName": "m"}})).await;
    assert_eq!((code, message(&response).contains("pod updates may not change fields")), (422, true));
    // PUT requires the resourceVersion for the kinds for which the server requires it.
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let (_, budget) = post(&api, budgets, json!({"metadata": {"name": "b"}, "spec": {}})).await;
    let put = |body| ask(&api, "PUT", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b", body, JSON);
    assert_eq!(put(json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}})).await.0, 422);
    let mut next = budget.clone();
    next["spec"]["minAvailable"] = json!(1);
    assert_eq!(put(next.clone()).await.1["metadata"]["generation"], 2);
    assert_eq!(put(next).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn apply_creates_a_missing_object_and_merges_into_an_existing_one() {
    let api = api();
    let apply = |body: &'static str| {
        ask(&api, "PATCH", "/api/v1/nodes/n?fieldManager=me", json!(body), "application/apply-patch+yaml")
    };
    let (code, _) = apply("metadata: {name: n, labels: {a: b}}\nkind: Node\napiVersion: v1\n").await;
    assert_eq!(code, 201);
    let (code, node) = apply("metadata: {name: n, labels: {c: d}}\nspec: {unschedulable: true}\n").await;
    assert_eq!((code, &node["metadata"]["labels"]), (200, &json!({"a": "b", "c": "d"})));
    let (code, _) = ask(&api, "PATCH", "/api/v1/nodes/n", json!({}), "application/apply-patch+yaml").await;
    assert_eq!(code, 422);
    let (_, node) = ask(
        &api,
        "PATCH",
        "/api/v1/nodes/n/status",
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        STRATEGIC,
    )
    .await;
    assert_eq!(node["status"]["conditions"][0]["type"], "Ready");
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_is_removed_when_it_is_finalized() {
    let api = api();
    let path = "/api/v1/namespaces/x";
    post(&api, "/api/v1/namespaces", json!({"metadata": {"name": "x"}})).await;
    assert_eq!(delete(&api, path, Value::Null).await.1["status"]["phase"], "Terminating");
    let (code, response) = post(&api, "/api/v1/namespaces/x/configmaps", json!({"metadata": {"name": "c"}})).await;
    assert_eq!((code, &response["details"]["causes"][0]["reason"]), (403, &json!("NamespaceTerminating")));
    let (_, mut live) = get(&api, path).await;
    live["spec"]["finalizers"] = json!([]);
    assert_eq!(ask(&api, "PUT", "/api/v1/namespaces/x/finalize", live, JSON).await.0, 200);
    assert_eq!(get(&api, path).await.0, 404);
    assert_eq!(delete(&api, "/api/v1/namespaces/default", Value::Null).await.0, 403);
    assert_eq!(post(&api, "/api/v1/namespaces/y/configmaps", json!({"metadata": {"name": "c"}})).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn every_combination_of_path_method_and_body_gets_a_response() {
    let api = api();
    pod(&api, "p").await;
    post(&api, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let bodies = [
        "",
        "{",
        "[]",
        "5",
        "null",
        "\"x\"",
        "{\"metadata\":5}",
        "{\"metadata\":{\"labels\":[1]}}",
        "{\"spec\":5}",
        "{\"status\":[]}",
        "{\"metadata\":{\"name\":{}}}",
        "{\"metadata\":null}",
        "{\"kind\":\"Pod\",\"apiVersion\":7}",
        "{\"metadata\":{\"finalizers\":[5]}}",
        "{\"deleteOptions\":5}",
        "{\"metadata\":{\"name\":\"p\"},\"deleteOptions\":{\"preconditions\":5,\"dryRun\":[7]}}",
        "[{\"op\":\"remove\",\"path\":\"\"}]",
        "[{\"op\":\"replace\",\"path\":\"/metadata\",\"value\":1}]",
        "[{\"op\":\"replace\",\"path\":\"\",\"value\":null}]",
        "{\"$patch\":\"replace\"}",
        "{\"$patch\":\"delete\"}",
    ];
    let paths = [
        "/api/v1/nodes",
        "/api/v1/nodes/n",
        "/api/v1/nodes/n/status",
        "/api/v1/namespaces/default/pods/p",
        "/api/v1/namespaces/default/pods/p/status",
        "/api/v1/namespaces/default/pods/p/eviction",
        "/api/v1/namespaces/default/pods/p/binding",
        "/api/v1/namespaces/default/pods",
        "/apis",
        "/",
        "/nope",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/api/v1/namespaces/default/finalize",
        "/readyz",
    ];
    let media = [
        "",
        JSON,
        "application/yaml",
        MERGE,
        STRATEGIC,
        "application/json-patch+json",
        "application/apply-patch+yaml",
        "application/vnd.kubernetes.protobuf",
    ];
    for path in paths {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] {
            for body in bodies {
                for media in media {
                    let query = if media.contains("apply") { "?fieldManager=x" } else { "" };
                    let (code, response) = ask(&api, method, &format!("{path}{query}"), json!(body), media).await;
                    assert!((200..=504).contains(&code), "{method} {path} {body} {media}: {code} {response}");
                    let node = api.objects().get(&NODES, "", "n");
                    assert!(node.is_none_or(|n| n["metadata"]["name"] == "n"), "{method} {path} {body} {media}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn workloads_are_scaled_through_the_scale_subresource() {
    let api = api();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    post(&api, path, json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}})).await;
    let (_, scale) = get(&api, &format!("{path}/d/scale")).await;
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(1), &json!("a=b")));
    let (code, _) = merge(&api, &format!("{path}/d/scale"), json!({"spec": {"replicas": 3}})).await;
    let (_, live) = get(&api, &format!("{path}/d")).await;
    assert_eq!((code, &live["spec"]["replicas"], &live["metadata"]["generation"]), (200, &json!(3), &json!(2)));
    assert_eq!(ask(&api, "PUT", &format!("{path}/d/scale"), scale, JSON).await.0, 409);
}
