//! A Prometheus inside the process, which answers every query with one text.

use std::{
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
};

use http::Response;

use super::*;
use crate::net::NoAnswer;

/// Requests that it got.
type Got = Arc<Mutex<Vec<Request<Bytes>>>>;

fn prometheus(status: u16, body: &'static str) -> (Prometheus, Got) {
    let got = Got::default();
    let kept = Arc::clone(&got);
    let http = Http::by(move |request| {
        kept.lock().unwrap().push(request);
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        Box::pin(async move { Ok(response) })
    });
    (Prometheus::in_process(http), got)
}

fn gates(text: &str) -> StartGates {
    StartGates::read(&format!("{{prometheus: 'http://prometheus.example:9090/base/', {text}}}")).unwrap()
}

async fn state(prometheus: &Prometheus, settings: &StartGates) -> GateState {
    let states: Vec<(String, GateState)> = prometheus.ask(settings).collect().await;
    assert_eq!(states.len(), 1, "{states:?}");
    states.into_iter().next().unwrap().1
}

#[tokio::test]
async fn an_empty_result_opens_and_alerts_and_series_close_by_their_names() {
    let (alerts, query) = (gates("alerts: {}"), gates("queries: [{name: ceph, query: 'ceph_health_status > 0'}]"));
    let empty = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    let (open, got) = prometheus(200, empty);
    assert_eq!(state(&open, &query).await, GateState::Open);
    let uri = got.lock().unwrap()[0].uri().to_string();
    assert_eq!(uri, "http://prometheus.example:9090/base/api/v1/query?query=ceph_health_status%20%3E%200");

    let fires = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"__name__":"ALERTS","alertname":"HostDown","instance":"b"},"value":[1,"1"]},
        {"metric":{"__name__":"ALERTS","alertname":"DiskFull","instance":"a"},"value":[1,"1"]},
        {"metric":{"__name__":"ALERTS","alertname":"HostDown","instance":"a"},"value":[1,"1"]}]},"warnings":["w"]}"#;
    let (fires, _) = prometheus(200, fires);
    assert_eq!(state(&fires, &alerts).await, GateState::Closed("DiskFull, HostDown".to_owned()));
    let GateState::Closed(why) = state(&fires, &query).await else { panic!() };
    assert_eq!(why, r#"the query has 3 results, such as {__name__="ALERTS", alertname="DiskFull", instance="a"}"#);
}

#[tokio::test]
async fn everything_but_a_complete_answer_is_an_error() {
    for (status, body, expected) in [
        (500, "<html>oops</html>", "answered 500"),
        (302, "", "answered 302, a redirect, which is not followed"),
        (400, r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#, "answered 400: parse error"),
        (200, r#"{"status":"error","error":"query timed out"}"#, "answered error: query timed out"),
        (200, "", "is not of Prometheus"),
        (200, "[]", "is not of Prometheus"),
        (200, r#"{"status":"success"}"#, "answered success"),
        (200, r#"{"status":"success","data":{"result":[]}}"#, "is not of Prometheus: missing field `resultType`"),
        (200, r#"{"status":"success","data":{"resultType":"vector"}}"#, "is not of Prometheus: missing field `result`"),
        (200, r#"{"status":"success","data":{"resultType":"vector","result":null}}"#, "is not of Prometheus"),
        (200, r#"{"status":"success","data":{"resultType":"vector","result":[{}]}}"#, "is not of Prometheus"),
        (
            200,
            r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#,
            "a scalar, which is never empty",
        ),
        (200, r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#, "a matrix, which is never empty"),
        (
            200,
            r#"{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["store"]}"#,
            "a warning: store",
        ),
        (200, r#"{"status":"success","data":{"resultType":"vector","result":[]},"isPartial":true}"#, "is partial"),
    ] {
        let (prometheus, _) = prometheus(status, body);
        let GateState::Failed(why) = state(&prometheus, &gates("alerts: {}")).await else { panic!("{body}") };
        assert!(why.starts_with("http://prometheus.example:9090/base/ ") && why.contains(expected), "{body}: {why}");
    }
    let refused = Prometheus::in_process(Http::by(|_| Box::pin(async { Err(NoAnswer("refused".to_owned())) })));
    let GateState::Failed(why) = state(&refused, &gates("alerts: {}")).await else { panic!() };
    assert!(why.ends_with("gives no answer: refused"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_an_error_after_the_timeout() {
    let silent = Prometheus::in_process(Http::by(|_| Box::pin(std::future::pending())));
    let began = tokio::time::Instant::now();
    let GateState::Failed(why) = state(&silent, &gates("alerts: {}, timeout_seconds: 7")).await else { panic!() };
    assert!(why.ends_with("gives no answer: none in 7 s"), "{why}");
    assert_eq!(began.elapsed(), Duration::from_secs(7));
}

#[tokio::test]
async fn credentials_are_read_from_files_that_not_everyone_can_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let empty = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    let (prometheus, got) = prometheus(200, empty);
    let (token, headers) = (file("token", "s3cret\n", 0o600), file("headers", "X-Scope-OrgID: site\n", 0o600));
    let with = |field: &str, file: &str| gates(&format!("alerts: {{}}, {field}: {file}"));
    assert_eq!(state(&prometheus, &with("bearer_token_file", &token)).await, GateState::Open);
    assert_eq!(state(&prometheus, &with("header_file", &headers)).await, GateState::Open);
    let requests = std::mem::take(&mut *got.lock().unwrap());
    assert_eq!(requests[0].headers()["authorization"], "Bearer s3cret");
    assert!(requests[0].headers()["authorization"].is_sensitive());
    assert_eq!(requests[1].headers()["x-scope-orgid"], "site");
    let open = file("open", "s3cret", 0o644);
    let GateState::Failed(why) = state(&prometheus, &with("bearer_token_file", &open)).await else { panic!() };
    assert!(why.contains("can be read by everyone") && !why.contains("s3cret"), "{why}");
    let odd = file("odd", "a\nb", 0o600);
    let GateState::Failed(why) = state(&prometheus, &with("bearer_token_file", &odd)).await else { panic!() };
    assert!(why.contains("holds no token"), "{why}");
    assert!(got.lock().unwrap().is_empty(), "nothing is sent without the credentials");
    let missing = with("ca_file", "/no/such/ca.pem");
    let GateState::Failed(why) = state(&Prometheus::network(), &missing).await else { panic!() };
    assert!(why.starts_with("ca_file: /no/such/ca.pem cannot be read"), "{why}");
}
