//! Recorded answers of sabakan 3.1.9, compared with the sandbox's (`tests/fixtures/sabakan.jsonl.gz`).

use std::io::Read;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::*;

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    sabactl: Option<Vec<String>>,
    #[serde(default)]
    method: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    request: Option<String>,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    response: String,
}

fn cases() -> Vec<Case> {
    let packed = include_bytes!("../../../../tests/fixtures/sabakan.jsonl.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the machines as the recorded commands left them.
fn recorded() -> Sabakan {
    let now: Timestamp = "2026-11-21T02:48:53.4Z".parse().unwrap();
    let sabakan = Sabakan::new(Vec::new(), cketerm_runtime::tokio_clock::starting_at(now));
    let all = cases().into_iter().find(|c| c.name == "explicit null" || c.name == "empty lists").unwrap();
    let answer: Value = serde_json::from_str(&all.response).unwrap();
    for machine in answer["data"]["searchMachines"].as_array().unwrap() {
        let (spec, text) = (&machine["spec"], |v: &Value| v.as_str().unwrap_or_default().to_owned());
        let labels = spec["labels"].as_array().into_iter().flatten();
        sabakan.put(Record {
            serial: text(&spec["serial"]),
            labels: labels.map(|l| (text(&l["name"]), text(&l["value"]))).collect(),
            rack: spec["rack"].as_i64().unwrap(),
            index_in_rack: spec["indexInRack"].as_i64().unwrap(),
            role: text(&spec["role"]),
            ipv4: spec["ipv4"].as_array().unwrap().iter().map(text).collect(),
            register_date: text(&spec["registerDate"]),
            retire_date: text(&spec["retireDate"]),
            bmc_type: text(&spec["bmc"]["bmcType"]),
            bmc_ipv4: text(&spec["bmc"]["ipv4"]),
            state: State::from_name(machine["status"]["state"].as_str().unwrap()).unwrap(),
            odd_state: None,
            since: machine["status"]["timestamp"].as_str().unwrap().parse().unwrap(),
        });
    }
    sabakan
}

/// Removes what may differ: durations, request ids, and Go's messages for invalid JSON.
fn comparable(text: &str) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if name == "duration" || name == "request_id" {
                        *value = Value::Null;
                    }
                    strip(value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value: Value = serde_json::from_str(text).unwrap();
    strip(&mut value);
    value
}

#[tokio::test]
async fn every_recorded_request_gets_the_recorded_sabakan_response() {
    let sabakan = recorded();
    let (mut compared, mut wrong) = (0, Vec::new());
    for case in cases().into_iter().filter(|c| c.sabactl.is_none() && c.name != "no machine yet") {
        let mut request = Request::builder().method(case.method.as_str()).uri(&case.path);
        for (name, value) in &case.headers {
            request = request.header(name, value);
        }
        let request = request.body(Bytes::from(case.request.clone().unwrap_or_default())).unwrap();
        let answer = sabakan.serve(request).await;
        let (status, body) = (answer.status().as_u16(), String::from_utf8(answer.body().to_vec()).unwrap());
        if status != case.status || comparable(&body) != comparable(&case.response) {
            wrong.push(format!("{}: {status} {body}\n   recorded {} {}", case.name, case.status, case.response));
        }
        compared += 1;
    }
    assert!(compared >= 35, "only {compared} compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_rest_api_sets_a_state_and_refuses_forbidden_transitions() {
    let sabakan = recorded();
    let put = |path: &str, body: &'static str| Request::put(path).body(Bytes::from_static(body.as_bytes())).unwrap();
    assert_eq!(sabakan.serve(put("/api/v1/state/c0", "unhealthy")).await.status(), 200);
    assert_eq!(sabakan.get("c0").unwrap().state, State::Unhealthy);
    assert_eq!(sabakan.serve(put("/api/v1/state/c0", "retired")).await.status(), 400);
    assert_eq!(sabakan.serve(put("/api/v1/state/nope", "healthy")).await.status(), 404);
}
