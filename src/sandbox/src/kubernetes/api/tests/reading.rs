use super::*;

async fn as_table(api: &Api, path: &str) -> Value {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    answer(api, Request::get(path).header("accept", accept).body(Bytes::new()).unwrap()).await.2
}

#[tokio::test(start_paused = true)]
async fn a_paginated_list_is_a_snapshot_of_one_resource_version() {
    let api = api();
    for i in 0..5 {
        post(
            &api,
            "/api/v1/nodes",
            json!({"metadata": {"name": format!("n{i}"), "labels": {"odd": (i % 2).to_string()}}}),
        )
        .await;
    }
    let (_, one) = get(&api, "/api/v1/nodes?limit=2").await;
    assert_eq!((names(&one), &one["metadata"]["remainingItemCount"]), (vec!["n0", "n1"], &json!(3)));
    assert!(one["items"][0]["kind"].is_null() && one["kind"] == "NodeList");
    delete(&api, "/api/v1/nodes/n3", Value::Null).await;
    let token = one["metadata"]["continue"].as_str().unwrap().to_owned();
    let (_, two) = get(&api, &format!("/api/v1/nodes?limit=10&continue={token}")).await;
    assert_eq!(names(&two), ["n2", "n3", "n4"]);
    assert_eq!(two["metadata"], json!({"resourceVersion": one["metadata"]["resourceVersion"]}));
    let (_, odd) = get(&api, "/api/v1/nodes?limit=1&labelSelector=odd%3D0").await;
    assert_eq!((names(&odd), odd["metadata"]["remainingItemCount"].is_null()), (vec!["n0"], true));
    let version = one["metadata"]["resourceVersion"].as_str().unwrap();
    let (_, then) = get(&api, &format!("/api/v1/nodes?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    assert_eq!(names(&then).len(), 5);
    api.objects().compact();
    let (code, response) = get(&api, &format!("/api/v1/nodes?limit=10&continue={token}")).await;
    assert_eq!((code, response["reason"].as_str()), (410, Some("Expired")));
    assert!(response["metadata"]["continue"].is_string());
    let (code, response) = get(&api, "/api/v1/nodes?resourceVersion=999").await;
    assert_eq!((code, &response["details"]["retryAfterSeconds"]), (504, &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_get_the_error_messages_of_kube_apiserver() {
    let api = api();
    for (path, code, response) in [
        ("/nope", 404, "404 page not found\n"),
        ("/apis/nope/v1", 404, "404 page not found\n"),
        ("/api/v1/nope", 404, "the server could not find the requested resource"),
        (
            "/api/v1/nodes?labelSelector=a%20b",
            400,
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("/api/v1/nodes?fieldSelector=spec.foo%3Da", 400, "field label not supported: spec.foo"),
        (
            "/api/v1/nodes?resourceVersionMatch=Exact",
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        ("/api/v1/nodes?limit=abc", 400, "strconv.ParseInt: parsing \"abc\": invalid syntax"),
        (
            "/api/v1/nodes?watch=1&resourceVersion=abc",
            500,
            "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
    ] {
        let (is, value) = get(&api, path).await;
        assert_eq!((is, value.as_str().unwrap_or_else(|| message(&value))), (code, response), "{path}");
    }
    assert_eq!(ask(&api, "PUT", "/api/v1/nodes", json!({}), JSON).await.0, 405);
    assert_eq!(ask(&api, "PATCH", "/api/v1/nodes/n", json!({}), JSON).await.0, 415);
}

#[tokio::test(start_paused = true)]
async fn every_response_has_a_date_header_from_the_servers_clock() {
    let api = api();
    tokio::time::advance(Duration::from_secs(3661)).await;
    for path in ["/readyz", "/api/v1/nodes", "/nope"] {
        let (_, headers, _) = answer(&api, Request::get(path).body(Bytes::new()).unwrap()).await;
        assert_eq!(headers["date"], "Thu, 01 Jan 2026 01:01:01 GMT", "{path}");
    }
    assert_eq!(get(&api, "/readyz").await.1, "ok");
    assert_eq!(get(&api, "/version").await.1["gitVersion"], "v1.35.4");
}

#[tokio::test(start_paused = true)]
async fn tables_have_the_columns_of_kubectl() {
    let api = api();
    let node = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/cp": ""}}, "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.35.4"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
    post(&api, "/api/v1/nodes", node).await;
    pod(&api, "p").await;
    tokio::time::advance(Duration::from_secs(7384)).await;
    let table = as_table(&api, "/api/v1/nodes").await;
    assert_eq!(table["kind"], "Table");
    assert_eq!(
        table["columnDefinitions"][5],
        json!({"name": "Internal-IP", "type": "string", "format": "", "description": "", "priority": 1})
    );
    let cells = json!([
        "n",
        "Ready,SchedulingDisabled",
        "cp",
        "123m",
        "v1.35.4",
        "10.0.0.1",
        "<none>",
        "<unknown>",
        "<unknown>",
        "<unknown>"
    ]);
    assert_eq!(table["rows"][0]["cells"], cells);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let table = as_table(&api, "/api/v1/namespaces/default/pods/p").await;
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["p", "0/1", "Running", "0", "123m", "<none>", "n", "<none>", "<none>"])
    );
}

#[tokio::test(start_paused = true)]
async fn discovery_names_every_kind_and_its_subresources() {
    let api = api();
    let (_, core) = get(&api, "/api/v1").await;
    let all: Vec<&str> = core["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    for name in ["nodes", "nodes/status", "pods/eviction", "pods/log", "namespaces/finalize"] {
        assert!(all.contains(&name), "{name}");
    }
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let (_, headers, all) =
        answer(&api, Request::get("/apis").header("accept", accept).body(Bytes::new()).unwrap()).await;
    assert!(headers["content-type"].to_str().unwrap().ends_with("as=APIGroupDiscoveryList"));
    assert_eq!(all["kind"], "APIGroupDiscoveryList");
    for path in ["/api", "/apis", "/apis/policy", "/apis/policy/v1", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/"] {
        assert_eq!(get(&api, path).await.0, 200, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_pods_are_listed_and_selected_in_reasonable_time() {
    let api = api();
    for i in 0..20_000 {
        let spec = json!({"nodeName": format!("n{}", i / 20)});
        let pod = json!({"metadata": {"name": format!("p{i:06}")}, "spec": spec, "status": {"phase": "Running"}});
        api.objects().create(&super::super::super::resource::PODS, "default", pod).unwrap();
    }
    let began = std::time::Instant::now();
    let mut path = "/api/v1/pods?limit=500".to_owned();
    let mut seen = 0;
    loop {
        let (_, page) = get(&api, &path).await;
        seen += page["items"].as_array().unwrap().len();
        let Some(token) = page["metadata"]["continue"].as_str() else { break };
        path = format!("/api/v1/pods?limit=500&continue={token}");
    }
    assert_eq!(seen, 20_000);
    assert_eq!(
        get(&api, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn77").await.1["items"].as_array().unwrap().len(),
        20
    );
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
