//! Answers of the API server to evictions, which REB-27 interprets.

use super::*;

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

async fn evict_with(api: &Api, name: &str, options: Value) -> (u16, http::HeaderMap, Value) {
    let body =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options});
    let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
    let request = Request::post(path).header("content-type", JSON).body(body.to_string().into()).unwrap();
    answer(api, request).await
}

async fn evict(api: &Api, name: &str) -> (u16, Value) {
    let (code, _, value) = evict_with(api, name, json!({})).await;
    (code, value)
}

async fn budget(api: &Api, name: &str, spec: Value) {
    let mut body =
        json!({"metadata": {"name": name}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    json_patch::merge(&mut body["spec"], &spec);
    assert_eq!(post(api, BUDGETS, body).await.0, 201);
}

/// Writes a budget's status as its controller does: allowed, healthy, desired.
async fn set_budget_status(api: &Api, allowed: i64, healthy: i64, needed: i64) {
    let generation = get(api, &format!("{BUDGETS}/b")).await.1["metadata"]["generation"].clone();
    let status = json!({"status": {"disruptionsAllowed": allowed, "currentHealthy": healthy,
        "desiredHealthy": needed, "expectedPods": 3, "observedGeneration": generation}});
    assert_eq!(merge(api, &format!("{BUDGETS}/b/status"), status).await.0, 200);
}

async fn allowed(api: &Api) -> Value {
    get(api, &format!("{BUDGETS}/b")).await.1["status"]["disruptionsAllowed"].clone()
}

async fn is_terminating(api: &Api, name: &str) -> bool {
    let (code, pod) = get(api, &format!("/api/v1/namespaces/default/pods/{name}")).await;
    code == 404 || !pod["metadata"]["deletionTimestamp"].is_null()
}

fn cause(value: &Value) -> &str {
    value["details"]["causes"][0]["message"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_unobserved_budget_refuses_evictions_with_retry_after_10_seconds() {
    let api = api();
    pod(&api, "p").await;
    budget(&api, "b", json!({})).await;
    let (code, headers, response) = evict_with(&api, "p", json!({})).await;
    assert_eq!((code, headers["retry-after"].to_str().unwrap()), (429, "10"));
    let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": REFUSED,
        "reason": "TooManyRequests", "details": {"causes": [{"reason": "DisruptionBudget",
            "message": "The disruption budget b is still being processed by the server."}], "retryAfterSeconds": 10},
        "code": 429});
    assert_eq!(response, expected);
    set_budget_status(&api, 5, 3, 2).await;
    merge(&api, &format!("{BUDGETS}/b"), json!({"spec": {"maxUnavailable": 2}})).await;
    assert_eq!(evict(&api, "p").await.1, expected, "observedGeneration is outdated");
}

#[tokio::test(start_paused = true)]
async fn a_budget_refusal_has_its_name_and_counts_and_no_retry_after() {
    let api = api();
    pod(&api, "p").await;
    budget(&api, "b", json!({})).await;
    set_budget_status(&api, 0, 3, 2).await;
    let (code, headers, response) = evict_with(&api, "p", json!({})).await;
    assert_eq!((code, headers.get("retry-after")), (429, None));
    assert_eq!(cause(&response), "The disruption budget b does not allow evicting pods currently");
    assert!(response["details"]["retryAfterSeconds"].is_null());
    assert_eq!(evict_with(&api, "p", json!({"dryRun": ["All"]})).await.2, response);
    set_budget_status(&api, 0, 2, 2).await;
    assert_eq!(cause(&evict(&api, "p").await.1), "The disruption budget b needs 2 healthy pods and has 2 currently");
    set_budget_status(&api, 0, 1, 2).await;
    phase(&api, "p", "Running", false).await;
    assert_eq!(cause(&evict(&api, "p").await.1), "The disruption budget b needs 2 healthy pods and has 1 currently");
    merge(&api, &format!("{BUDGETS}/b"), json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})).await;
    assert_eq!(evict(&api, "p").await.0, 201, "AlwaysAllow");
}

#[tokio::test(start_paused = true)]
async fn unready_finished_and_pending_pods_are_evicted_despite_the_budget() {
    let api = api();
    budget(&api, "b", json!({})).await;
    for (name, is, ready) in
        [("p0", "Running", false), ("p1", "Succeeded", false), ("p2", "Failed", false), ("p3", "Pending", false)]
    {
        pod(&api, name).await;
        phase(&api, name, is, ready).await;
        set_budget_status(&api, 0, 2, 2).await;
        let (code, response) = evict(&api, name).await;
        assert_eq!(
            (code, response),
            (
                201,
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Success", "code": 201})
            ),
            "{is}"
        );
        assert!(is_terminating(&api, name).await);
    }
    assert_eq!(evict(&api, "p0").await.0, 201, "the pod is terminating already");
    assert_eq!(allowed(&api).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_decrements_the_budget_and_a_dry_run_does_not() {
    let api = api();
    for name in ["p0", "p1"] {
        pod(&api, name).await;
    }
    budget(&api, "b", json!({})).await;
    set_budget_status(&api, 1, 3, 2).await;
    for name in ["p0", "p1"] {
        assert_eq!(evict_with(&api, name, json!({"dryRun": ["All"]})).await.0, 201);
        assert!(!is_terminating(&api, name).await);
    }
    assert_eq!(allowed(&api).await, 1);
    assert_eq!(evict(&api, "p0").await.0, 201);
    assert_eq!(allowed(&api).await, 0);
    let (_, pod) = get(&api, "/api/v1/namespaces/default/pods/p0").await;
    assert_eq!(pod["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(pod["status"]["conditions"][1]["type"], "DisruptionTarget");
    assert_eq!(evict(&api, "p1").await.0, 429);
    let (_, budget) = get(&api, &format!("{BUDGETS}/b")).await;
    assert_eq!(budget["status"]["disruptedPods"], json!({"p0": "2026-01-01T00:00:00Z"}));
    assert_eq!(budget["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_uid_mismatch_is_a_conflict_and_still_decrements_the_budget() {
    let api = api();
    pod(&api, "p").await;
    let wrong = json!({"preconditions": {"uid": "zzz"}});
    let (code, _, response) = evict_with(&api, "p", wrong.clone()).await;
    assert_eq!(
        (code, response["reason"].as_str(), response["details"]["kind"].as_str()),
        (409, Some("Conflict"), Some("Pod"))
    );
    let start = "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (zzz) does not match the UID in record (";
    assert!(message(&response).starts_with(start), "{response}");
    budget(&api, "b", json!({})).await;
    set_budget_status(&api, 1, 3, 2).await;
    assert_eq!(evict_with(&api, "p", wrong).await.0, 409);
    assert_eq!((allowed(&api).await, is_terminating(&api, "p").await), (json!(0), false));
    let (_, live) = get(&api, "/api/v1/namespaces/default/pods/p").await;
    assert_eq!(live["status"]["conditions"].as_array().unwrap().len(), 1, "the pod is unchanged");
    set_budget_status(&api, 1, 3, 2).await;
    let right = json!({"preconditions": {"uid": live["metadata"]["uid"]}, "gracePeriodSeconds": 0});
    assert_eq!(evict_with(&api, "p", right).await.0, 201);
    assert_eq!(get(&api, "/api/v1/namespaces/default/pods/p").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn eviction_errors_for_two_budgets_missing_pod_and_terminating_namespace() {
    let api = api();
    post(&api, "/api/v1/namespaces", json!({"metadata": {"name": "x"}})).await;
    pod(&api, "p").await;
    for name in ["b", "c"] {
        budget(&api, name, json!({})).await;
    }
    let (code, response) = evict(&api, "p").await;
    let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((code, message(&response)), (500, why));
    let (code, response) = evict(&api, "nope").await;
    assert_eq!((code, message(&response)), (404, "pods \"nope\" not found"));
    let (code, response) =
        post(&api, "/api/v1/namespaces/default/pods/p/eviction", json!({"metadata": {"name": "q"}})).await;
    assert_eq!((code, message(&response)), (400, "name in URL does not match name in Eviction object"));
    delete(&api, "/api/v1/namespaces/x", Value::Null).await;
    let (code, response) = post(&api, "/api/v1/namespaces/x/pods/p/eviction", json!({"metadata": {"name": "p"}})).await;
    let why = "pods \"p\" is forbidden: unable to create new content in namespace x because it is being terminated";
    assert_eq!((code, message(&response)), (403, why));
    assert_eq!(response["details"]["causes"][0]["reason"], "NamespaceTerminating");
}

/// Sets up an interceptor with this behaviour.
fn intercept_with(api: &Api, behaviour: Behaviour) {
    let labels = [("a".to_owned(), "b".to_owned())].into();
    let (name, namespace) = ("evictions.example.com".to_owned(), "default".to_owned());
    api.intercept(vec![Interceptor { name, namespace, labels, behaviour }]);
}

/// Sends a dry run that webhooks see too, because it is also in the query.
async fn dry(api: &Api, name: &str) -> u16 {
    let path = format!("/api/v1/namespaces/default/pods/{name}/eviction?dryRun=All");
    post(api, &path, json!({"metadata": {"name": name}, "deleteOptions": {"dryRun": ["All"]}})).await.0
}

#[tokio::test(start_paused = true)]
async fn webhooks_answer_an_eviction_before_the_budget_is_checked() {
    let api = api();
    pod(&api, "p").await;
    budget(&api, "b", json!({})).await;
    set_budget_status(&api, 1, 3, 2).await;
    intercept_with(&api, Behaviour::Deny(403));
    let (code, response) = evict(&api, "p").await;
    let why = "admission webhook \"evictions.example.com\" denied the request: p stays";
    assert_eq!((code, message(&response)), (403, why));
    assert_eq!(dry(&api, "p").await, 403);

    intercept_with(&api, Behaviour::Defer(2));
    assert_eq!(dry(&api, "p").await, 429, "a dry run does not count as an attempt");
    for _ in 0..2 {
        let (code, response) = evict(&api, "p").await;
        let why = "admission webhook \"evictions.example.com\" denied the request: try again later";
        assert_eq!((code, message(&response), &response["details"]), (429, why, &Value::Null));
    }
    assert_eq!(dry(&api, "p").await, 201);
    assert_eq!(allowed(&api).await, 1);

    intercept_with(&api, Behaviour::Migrate(Duration::from_secs(20)));
    assert_eq!(dry(&api, "p").await, 429);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!is_terminating(&api, "p").await, "a dry run starts nothing");
    for _ in 0..2 {
        assert_eq!(evict(&api, "p").await.0, 429);
    }
    tokio::time::sleep(Duration::from_secs(19)).await;
    assert!(!is_terminating(&api, "p").await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(is_terminating(&api, "p").await);
    assert_eq!(allowed(&api).await, 1);
}

#[tokio::test(start_paused = true)]
async fn eviction_failures_end_after_the_configured_number_of_requests() {
    let late = Behaviour::TimeOut { times: 2, after: Duration::from_secs(10) };
    let start = "Internal error occurred: failed calling webhook \"evictions.example.com\": failed to call webhook: ";
    for (behaviour, code, begins, waits) in [
        (late, 500, start, 10),
        (Behaviour::Fail(2), 500, start, 0),
        (Behaviour::LeaderChanged(2), 500, "etcdserver: leader changed", 0),
        (Behaviour::Overload(2), 429, "Too many requests", 0),
    ] {
        let api = api();
        pod(&api, "p").await;
        intercept_with(&api, behaviour.clone());
        for _ in 0..2 {
            let began = tokio::time::Instant::now();
            let (is, response) = evict(&api, "p").await;
            assert_eq!((is, began.elapsed().as_secs()), (code, waits), "{behaviour:?}");
            assert!(message(&response).starts_with(begins), "{response}");
            assert!(response["details"]["causes"][0]["reason"].is_null());
        }
        let began = tokio::time::Instant::now();
        assert_eq!((evict(&api, "p").await.0, began.elapsed().as_secs()), (201, 0), "{behaviour:?}");
    }
}
