use std::sync::{Arc, Mutex};

use cketerm_model::agent::{
    ANSWER_ANNOTATION, Answer, ORDER_ANNOTATION, Order, REPORT_ANNOTATION, Report as AgentReport, json as text_of,
};
use http::{Request, Response};
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::power::{BmcInventory, Rebooted, Timeouts, switch, test::test};

/// A Node with its agent, which answers in the same moment.
struct Fake {
    node: Value,
    version: u64,
    /// Number of writes that meet a conflict.
    conflicts: usize,
    /// The agent's answer to an order: obeyed, refused with a reason, or none.
    agent: Option<Result<(), &'static str>>,
    /// Whether the agent knows ids of orders; earlier versions do not.
    knows_ids: bool,
    /// Orders that were written, and removals (`None`).
    orders: Vec<Option<Order>>,
}

impl Fake {
    fn new(agent: Option<Result<(), &'static str>>) -> Self {
        let report = AgentReport { boot_id: "b1".into(), version: "0.2.0".into() };
        let node = json!({
            "metadata": {"name": "w1", "uid": "u1", "resourceVersion": "1", "annotations": {REPORT_ANNOTATION: text_of(&report)}},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "nodeInfo": {"bootID": "b1"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        Self { node, version: 1, conflicts: 0, agent, knows_ids: true, orders: Vec::new() }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.node["metadata"]["annotations"][name] = json!(value);
    }

    fn patch(&mut self, patch: &Value, dry_run: bool) -> (u16, Value) {
        let stale = patch["metadata"]["resourceVersion"] != self.node["metadata"]["resourceVersion"];
        if self.conflicts > 0 || stale {
            self.conflicts = self.conflicts.saturating_sub(1);
            return (409, json!({"kind": "Status", "status": "Failure", "code": 409, "message": "changed"}));
        }
        if dry_run {
            return (200, self.node.clone());
        }
        let changes = patch["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(changes.keys().collect::<Vec<_>>(), [ORDER_ANNOTATION], "no other annotation is written");
        match changes[ORDER_ANNOTATION].as_str() {
            None => {
                self.node["metadata"]["annotations"].as_object_mut().unwrap().remove(ORDER_ANNOTATION);
                self.orders.push(None);
            }
            Some(text) => {
                self.set(ORDER_ANNOTATION, text);
                let order: Order = serde_json::from_str(text).unwrap();
                if let Some(answer) = self.agent {
                    let (attempt, why) = (order.attempt.clone(), answer.err().map(str::to_owned));
                    let order_id = if self.knows_ids { order.id.clone() } else { String::new() };
                    let at = Timestamp::UNIX_EPOCH;
                    let answer = Answer { order_id, attempt, boot_id: "b1".into(), at, obeyed: why.is_none(), why };
                    self.set(ANSWER_ANNOTATION, &text_of(&answer));
                }
                self.orders.push(Some(order));
            }
        }
        self.version += 1;
        self.node["metadata"]["resourceVersion"] = json!(self.version.to_string());
        (200, self.node.clone())
    }
}

fn driver(fake: Fake) -> (Arc<Mutex<Fake>>, AgentDriver) {
    let fake = Arc::new(Mutex::new(fake));
    let to = Arc::clone(&fake);
    let service = tower::service_fn(move |request: Request<Body>| {
        let to = Arc::clone(&to);
        async move {
            let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
            let patches = request.method() == "PATCH";
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut fake = to.lock().unwrap();
            let (code, answer) = match (path.as_str(), patches) {
                ("/api/v1/nodes/w1", true) => {
                    fake.patch(&serde_json::from_slice(&body).unwrap(), query.contains("dryRun=All"))
                }
                ("/api/v1/nodes/w1", false) => (200, fake.node.clone()),
                _ => (200, json!({"metadata": {}, "items": [fake.node]})),
            };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, std::convert::Infallible>(answer.unwrap())
        }
    });
    let kube = Kube::from_client(kube::Client::new(service, "default"), Clock::host());
    let timeout = Duration::from_secs(1);
    let driver = AgentDriver {
        target: Target { kind: "agent", name: "of 10.0.0.1".to_owned() },
        address: "10.0.0.1".to_owned(),
        deadline: timeout,
        settings: KubeSettings::default(),
        order: OnceCell::new_with(Some(AgentOrder::new(kube, "10.0.0.1", "o1".to_owned(), "a1".to_owned(), timeout))),
    };
    (fake, driver)
}

async fn reboot(driver: &AgentDriver) -> Result<Rebooted, String> {
    let mode = cketerm_model::host::Mode::Soft;
    switch::reboot(driver, mode, &Timeouts::default(), &|_| {}).await.map_err(|e| e.to_string())
}

#[tokio::test]
async fn an_order_is_written_once_and_the_answer_ends_the_command() {
    let (fake, driver) = driver(Fake { conflicts: 2, ..Fake::new(Some(Ok(()))) });
    assert_eq!(reboot(&driver).await, Ok(Rebooted::Restarting));
    // The same attempt again gives no second order.
    assert_eq!(reboot(&driver).await, Ok(Rebooted::Restarting));
    let fake = fake.lock().unwrap();
    let [Some(order)] = fake.orders.as_slice() else { panic!("{:?}", fake.orders) };
    assert_eq!((order.id.as_str(), order.attempt.as_str(), order.boot_id.as_str()), ("o1", "a1", "b1"));
}

/// A new queue gives the same ids of attempts again.
#[tokio::test]
async fn an_answer_to_an_earlier_order_of_the_same_attempt_is_no_answer() {
    let earlier = |order_id: &str| {
        let (order_id, attempt, boot_id) = (order_id.into(), "a1".into(), "b1".into());
        Answer { order_id, attempt, boot_id, at: Timestamp::UNIX_EPOCH, obeyed: true, why: None }
    };
    let (fake, silent) = driver(Fake::new(None));
    fake.lock().unwrap().set(ANSWER_ANNOTATION, &text_of(&earlier("o0")));
    let why = reboot(&silent).await.unwrap_err();
    assert!(why.contains("did not answer within 1 s"), "{why}");
    let (fake, obeyed) = driver(Fake::new(Some(Ok(()))));
    fake.lock().unwrap().set(ANSWER_ANNOTATION, &text_of(&earlier("o0")));
    assert_eq!(reboot(&obeyed).await, Ok(Rebooted::Restarting));
    assert_eq!(fake.lock().unwrap().orders.len(), 1);
}

#[tokio::test]
async fn an_agent_of_an_earlier_version_answers_without_an_id() {
    let (_, driver) = driver(Fake { knows_ids: false, ..Fake::new(Some(Ok(()))) });
    assert_eq!(reboot(&driver).await, Ok(Rebooted::Restarting));
}

#[tokio::test]
async fn a_refusal_is_shown_and_an_order_without_an_answer_is_withdrawn() {
    let (_, refused) = driver(Fake::new(Some(Err("the clock is wrong"))));
    assert_eq!(reboot(&refused).await.unwrap_err(), "the agent of Node w1 refused to reboot: the clock is wrong");
    let (fake, silent) = driver(Fake::new(None));
    let why = reboot(&silent).await.unwrap_err();
    assert!(why.contains("did not answer within 1 s; the order was withdrawn and nothing was rebooted"), "{why}");
    let orders = &fake.lock().unwrap().orders;
    assert!(matches!(orders.as_slice(), [Some(_), None]), "{orders:?}");
}

#[tokio::test]
async fn an_answer_just_before_the_withdrawal_counts() {
    let (fake, late) = driver(Fake::new(None));
    let node = late.order().await.unwrap().node().await.unwrap();
    let (id, attempt, boot_id) = ("o1".to_owned(), "a1".to_owned(), "b1".to_owned());
    let order =
        Order { id: id.clone(), attempt: attempt.clone(), boot_id: boot_id.clone(), deadline: Timestamp::UNIX_EPOCH };
    fake.lock().unwrap().set(ORDER_ANNOTATION, &text_of(&order));
    let answer = Answer { order_id: id, attempt, boot_id, at: Timestamp::UNIX_EPOCH, obeyed: true, why: None };
    fake.lock().unwrap().set(ANSWER_ANNOTATION, &text_of(&answer));
    assert!(late.order().await.unwrap().withdraw(&node, &order).await.unwrap());
    assert!(fake.lock().unwrap().orders.is_empty(), "an obeyed order stays");
}

#[tokio::test]
async fn nothing_is_ordered_where_no_agent_would_obey() {
    let pending = Order { id: "o0".into(), attempt: "a0".into(), boot_id: "b1".into(), deadline: Timestamp::MAX };
    for (what, change, expected) in [
        ("no agent", json!({"annotations": {}}), "no agent reports on Node w1"),
        (
            "an agent of another boot",
            json!({"annotations": {REPORT_ANNOTATION: r#"{"boot_id":"b0","version":"1"}"#}}),
            "the agent reports boot b0 and the kubelet boot b1",
        ),
        ("another order", json!({"order": text_of(&pending)}), "has another order (a0)"),
    ] {
        let mut fake = Fake::new(Some(Ok(())));
        if let Some(annotations) = change.get("annotations") {
            fake.node["metadata"]["annotations"] = annotations.clone();
        }
        if let Some(order) = change["order"].as_str() {
            fake.set(ORDER_ANNOTATION, order);
        }
        let (fake, driver) = driver(fake);
        let why = reboot(&driver).await.unwrap_err();
        assert!(why.contains(expected), "{what}: {why}");
        assert!(fake.lock().unwrap().orders.is_empty(), "{what}");
    }
}

#[tokio::test]
async fn a_test_gives_no_order() {
    let (fake, good) = driver(Fake::new(Some(Ok(()))));
    let (checks, _) = test(&good).await;
    assert!(checks.iter().all(|check| check.result.is_ok()), "{checks:?}");
    assert!(checks[2].result.as_ref().unwrap().contains("(version 0.2.0) can be given an order"), "{checks:?}");
    assert!(fake.lock().unwrap().orders.is_empty());
    let mut fake = Fake::new(None);
    fake.node["metadata"]["annotations"] = json!({});
    fake.node["status"]["conditions"] = json!([]);
    let (_, bad) = driver(fake);
    let failures: Vec<String> = test(&bad).await.0.into_iter().filter_map(|check| check.result.err()).collect();
    assert!(failures.len() == 2 && failures[1].contains("no agent reports on Node w1"), "{failures:?}");
}

#[test]
fn machines_with_an_agent_are_known_before_a_drain() {
    let machines = ["10.0.0.1", "10.0.0.2"].map(cketerm_model::names::Address::new);
    let text = "bmcs: {10.0.0.1: {url: 'https://10.1.0.1'}}\nothers: {driver: agent}";
    let inventory = BmcInventory::parse(text).unwrap();
    assert_eq!(inventory.agents_among(&machines).into_iter().collect::<Vec<_>>(), ["10.0.0.2"]);
    assert!(inventory.refused_among(&machines).is_empty() && !inventory.names_programs());
    for (settings, expected) in [
        ("{deadline-seconds: 5}", "deadline-seconds must be 15 to 1800"),
        ("{deadline: 5}", "the keys are deadline-seconds"),
    ] {
        let text = format!("others: {{driver: agent, settings: {settings}}}");
        let errors = BmcInventory::parse(&text).unwrap().errors();
        assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:?}");
    }
}
