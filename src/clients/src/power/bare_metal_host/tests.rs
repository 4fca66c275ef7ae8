use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_model::names::Address;
use http::{Request, Response};
use kube::client::Body;
use serde_json::Value;

use super::*;
use crate::power::{BmcClients, BmcInventory, Off, Timeouts, switch};

/// A host with its controller, which acts at once.
struct Fake {
    host: Value,
    /// Number of writes that meet a conflict.
    conflicts: usize,
    /// Whether the controller does nothing.
    idle: bool,
    patches: Vec<Value>,
}

impl Fake {
    fn new(powered_on: bool, annotations: &Value) -> Self {
        let host = json!({
            "metadata": {"name": "w1", "namespace": "m", "uid": "u", "resourceVersion": "5", "annotations": annotations},
            "spec": {"online": true},
            "status": {"poweredOn": powered_on, "provisioning": {"state": "provisioned"}},
        });
        Self { host, conflicts: 0, idle: false, patches: Vec::new() }
    }

    fn patch(&mut self, patch: Value) -> (u16, Value) {
        if self.conflicts > 0 {
            self.conflicts -= 1;
            return (409, json!({"kind": "Status", "status": "Failure", "code": 409, "message": "changed"}));
        }
        for (name, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
            let annotations = self.host["metadata"]["annotations"].as_object_mut().unwrap();
            if value.is_null() {
                annotations.remove(name);
            } else {
                annotations.insert(name.clone(), value.clone());
            }
        }
        self.patches.push(patch);
        if !self.idle {
            let held = self.host["metadata"]["annotations"].as_object().is_some_and(|all| !all.is_empty());
            self.host["status"]["poweredOn"] = json!(!held);
        }
        (200, self.host.clone())
    }

    /// Returns the modes of the patches that set a key, and `None` for those that remove it.
    fn modes(&self) -> Vec<Option<Mode>> {
        let value = |patch: &Value| patch["metadata"]["annotations"]["reboot.metal3.io/cketerm-power"].clone();
        self.patches.iter().map(|patch| value(patch).as_str().map(Mode::of)).collect()
    }
}

/// Returns the fake, and a driver that talks to it.
fn driver(fake: Fake) -> (Arc<Mutex<Fake>>, BareMetalHostDriver) {
    let fake = Arc::new(Mutex::new(fake));
    let to = Arc::clone(&fake);
    let service = tower::service_fn(move |request: Request<Body>| {
        let to = Arc::clone(&to);
        async move {
            let path = request.uri().path().to_owned();
            let patches = request.method() == "PATCH";
            let body = request.into_body().collect_bytes().await.unwrap();
            let (code, answer) = match (path.as_str(), patches) {
                ("/apis/metal3.io/v1alpha1/namespaces/m/baremetalhosts/w1", true) => {
                    to.lock().unwrap().patch(serde_json::from_slice(&body).unwrap())
                }
                ("/apis/metal3.io/v1alpha1/namespaces/m/baremetalhosts/w1", false) => {
                    (200, to.lock().unwrap().host.clone())
                }
                _ => (404, json!({"kind": "Status", "status": "Failure", "code": 404, "message": "none"})),
            };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, std::convert::Infallible>(answer.unwrap())
        }
    });
    let kube = Kube::from_client(kube::Client::new(service, "default"), Clock::host());
    let target = Target { kind: "BareMetalHost", name: "m/w1".to_owned() };
    let (namespace, name, kube) = ("m".to_owned(), "w1".to_owned(), OnceCell::new_with(Some(kube)));
    (fake, BareMetalHostDriver { namespace, name, target, settings: KubeSettings::default(), kube })
}

fn quick() -> Timeouts {
    let poll = Duration::from_millis(5);
    Timeouts { soft: poll, off: poll, on: poll * 4, poll }
}

const NO_REPORT: switch::Report<'_> = &|_| {};

#[tokio::test]
async fn a_cycle_holds_the_host_off_and_releases_it_with_a_key_of_its_own() {
    let (fake, driver) = driver(Fake { conflicts: 2, ..Fake::new(true, &json!({})) });
    assert_eq!(switch::cycle(&driver, Mode::Soft, &quick(), NO_REPORT).await.unwrap(), Off::Graceful);
    let fake = fake.lock().unwrap();
    assert_eq!(fake.modes(), [Some(Mode::Soft), None]);
    assert_eq!(fake.host["status"]["poweredOn"], true);
    for patch in &fake.patches {
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["metadata"]["annotations"].as_object().unwrap().len(), 1, "no other annotation is written");
    }
}

#[tokio::test]
async fn a_soft_hold_without_effect_becomes_hard_and_a_late_host_is_an_error() {
    let (fake, driver) = driver(Fake { idle: true, ..Fake::new(true, &json!({})) });
    let e = switch::off(&driver, Mode::Soft, &quick(), NO_REPORT).await.unwrap_err();
    assert!(e.to_string().starts_with("BareMetalHost m/w1: the machine is PoweringOff"), "{e}");
    assert_eq!(fake.lock().unwrap().modes(), [Some(Mode::Soft), Some(Mode::Hard)], "a hard hold is not repeated");
    // The key is still there, so the machine is not simply on: `on` removes the key.
    assert!(switch::on(&driver, &quick(), NO_REPORT).await.unwrap());
    assert_eq!(fake.lock().unwrap().modes().last(), Some(&None));
}

#[tokio::test]
async fn a_host_that_others_hold_stays_off() {
    let others = json!({"reboot.metal3.io/capbm": ""});
    let (fake, driver) = driver(Fake::new(false, &others));
    let text = switch::on(&driver, &quick(), NO_REPORT).await.unwrap_err().to_string();
    let remedy = "it stays off until the owner of capbm removes the annotation reboot.metal3.io/capbm";
    assert_eq!(text, format!("BareMetalHost m/w1 is held off by capbm: {remedy}"));
    assert_eq!(switch::off(&driver, Mode::Soft, &quick(), NO_REPORT).await.unwrap(), Off::Already);
    assert!(fake.lock().unwrap().patches.is_empty());
}

#[tokio::test]
async fn a_host_that_would_not_carry_out_the_request_gets_none() {
    let (fake, driver) = driver(Fake::new(true, &json!({"baremetalhost.metal3.io/paused": ""})));
    let text = driver.request(PowerRequest::Off(Mode::Hard)).await.unwrap_err().to_string();
    assert!(text.contains("BareMetalHost m/w1: cannot turn off the host: the host is paused"), "{text}");
    assert!(fake.lock().unwrap().patches.is_empty());
}

#[tokio::test]
async fn a_refusal_that_cannot_change_is_reported_once_and_nothing_is_forced() {
    let mut fake = Fake::new(true, &json!({}));
    fake.host["status"]["provisioning"]["state"] = json!("");
    let (fake, driver) = driver(fake);
    let reports = Mutex::new(Vec::new());
    let report = |text: &str| reports.lock().unwrap().push(text.to_owned());
    let text = switch::off(&driver, Mode::Soft, &quick(), &report).await.unwrap_err().to_string();
    assert_eq!(
        text,
        "BareMetalHost m/w1: cannot turn off the host: the host is not registered; only provisioned hosts can be \
         turned off and on"
    );
    assert!(reports.lock().unwrap().is_empty(), "{reports:?}");
    assert!(fake.lock().unwrap().patches.is_empty());
}

#[tokio::test]
async fn a_host_that_others_would_keep_off_is_not_cycled() {
    let (fake, driver) = driver(Fake { idle: true, ..Fake::new(true, &json!({"reboot.metal3.io/capbm": ""})) });
    let e = switch::cycle(&driver, Mode::Soft, &quick(), NO_REPORT).await.unwrap_err();
    assert!(e.to_string().contains("held off by capbm"), "{e}");
    assert!(fake.lock().unwrap().patches.is_empty(), "nothing was requested");
}

#[tokio::test]
async fn a_power_state_that_is_about_to_change_is_neither_on_nor_off() {
    for (on, annotations, expected) in [
        (Some(true), json!({}), PowerState::On),
        (Some(true), json!({"reboot.metal3.io/cketerm-power": ""}), PowerState::Other("PoweringOff".to_owned())),
        (Some(false), json!({"reboot.metal3.io/cketerm-power": ""}), PowerState::Off),
        (Some(false), json!({"reboot.metal3.io/capbm": ""}), PowerState::Off),
        (Some(false), json!({}), PowerState::Other("PoweringOn".to_owned())),
        (None, json!({}), PowerState::Unknown),
    ] {
        let mut fake = Fake::new(true, &annotations);
        fake.host["status"]["poweredOn"] = json!(on);
        let (_, driver) = driver(fake);
        assert_eq!(driver.read().await.unwrap().power, expected, "{on:?} {annotations}");
        assert_eq!(driver.evidence(), Evidence::Reported, "a status never proves that a machine is off");
    }
}

#[tokio::test]
async fn a_missing_host_and_a_missing_kubernetes_are_errors() {
    let (_, mut driver) = driver(Fake::new(true, &json!({})));
    "w2".clone_into(&mut driver.name);
    "m/w2".clone_into(&mut driver.target.name);
    assert!(driver.read().await.unwrap_err().to_string().starts_with("BareMetalHost m/w2 not found"));
    let text = "bmcs: {10.0.0.1: {driver: bare-metal-host, settings: {host: m/w1}}}";
    let inventory = BmcInventory::parse(text).unwrap();
    assert!(inventory.refused().is_empty() && !inventory.names_programs());
    assert_eq!(inventory.hosts()["10.0.0.1"], ("m".to_owned(), "w1".to_owned()));
    let found = inventory.find(&Address::new("10.0.0.1"), BmcClients::network(None).connector()).unwrap().unwrap();
    assert!(found.driver.read().await.unwrap_err().to_string().contains("no Kubernetes is configured"));
    let text = "bmcs: {10.0.0.1: {driver: bare-metal-host, settings: {host: w1}}}";
    let refused = BmcInventory::parse(text).unwrap().refused();
    assert!(refused["10.0.0.1"].contains("host: write NAMESPACE/NAME"), "{refused:?}");
}
