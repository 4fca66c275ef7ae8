//! A small fake BMC with bad habits of real ones: delays, refusals, ignored requests, lost answers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use cketerm_model::{host::Mode, power_state::PowerState};
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Address, Bmc, BmcError, Login, RedfishDriver, SignIn};
use crate::{
    net::{Http, NoAnswer},
    power::{Off, PowerDriver as _, PowerError, PowerRequest, Timeouts, switch},
};

/// State of the fake, and a log of the requests to it.
struct Fake {
    on: bool,
    /// The next power state, and when it takes effect.
    pending: Option<(bool, Instant)>,
    delay: Duration,
    /// Requested resets.
    resets: Vec<String>,
    /// Reset types on offer. `None`: not listed.
    offered: Option<Vec<&'static str>>,
    /// Reset types that are refused, with the status and the number of times.
    refused: Vec<(&'static str, u16, usize)>,
    /// Reset types that are accepted and never carried out.
    ignored: Vec<&'static str>,
    /// Whether resets are carried out without an answer.
    no_reset_answer: bool,
    /// Number of requests for the state that get no answer.
    unanswered: usize,
    sessions: bool,
    /// Number of requests that a session lasts for.
    session_lasts: usize,
    open: Vec<String>,
    members: Vec<&'static str>,
    seen: Vec<String>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            on: true,
            pending: None,
            delay: Duration::from_secs(5),
            resets: Vec::new(),
            offered: Some(vec!["On", "ForceOff", "GracefulShutdown", "Nmi"]),
            refused: Vec::new(),
            ignored: Vec::new(),
            no_reset_answer: false,
            unanswered: 0,
            sessions: false,
            session_lasts: usize::MAX,
            open: Vec::new(),
            members: vec!["/redfish/v1/Systems/1"],
            seen: Vec::new(),
        }
    }
}

/// Status, body, and one header.
type FakeAnswer = (u16, Value, Option<(&'static str, String)>);

impl Fake {
    fn state(&mut self) -> &'static str {
        if let Some((on, _)) = self.pending.take_if(|(_, at)| Instant::now() >= *at) {
            self.on = on;
        }
        if self.on { "On" } else { "Off" }
    }

    fn answer(&mut self, request: &Request<Bytes>) -> Result<FakeAnswer, NoAnswer> {
        let (method, path) = (request.method().as_str(), request.uri().path().to_owned());
        self.seen.push(format!("{method} {path}"));
        if path == "/redfish/v1/" {
            let mut root = json!({"Systems": {"@odata.id": "/redfish/v1/Systems"}});
            if self.sessions {
                root["Links"] = json!({"Sessions": {"@odata.id": "/redfish/v1/S"}});
            }
            return Ok((200, root, None));
        }
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        if path == "/redfish/v1/S" {
            if body["Password"] != "p:w" {
                return Ok((401, Value::Null, None));
            }
            let token = format!("t{}", self.seen.len());
            self.open.push(token.clone());
            return Ok((201, Value::Null, Some(("x-auth-token", token))));
        }
        let header = |name: &str| request.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
        // Base64 of `u:p:w`.
        let basic = !self.sessions && header("authorization").as_deref() == Some("Basic dTpwOnc=");
        let token = header("x-auth-token").is_some_and(|t| self.open.contains(&t));
        if !basic && !token {
            return Ok((401, Value::Null, None));
        }
        if token {
            self.session_lasts -= 1;
            if self.session_lasts == 0 {
                self.open.clear();
                self.session_lasts = usize::MAX;
            }
        }
        match path.as_str() {
            "/redfish/v1/Systems" => {
                let members: Vec<Value> = self.members.iter().map(|m| json!({"@odata.id": m})).collect();
                Ok((200, json!({"Members": members}), None))
            }
            "/redfish/v1/Systems/name" => {
                Ok((307, Value::Null, Some(("location", "/redfish/v1/Systems/1".to_owned()))))
            }
            "/redfish/v1/Systems/away" => {
                Ok((307, Value::Null, Some(("location", "https://bmc.example.evil/redfish/v1/Systems/1".to_owned()))))
            }
            "/redfish/v1/Systems/2" => {
                // the BMC's clock is an hour ahead
                let system = json!({"PowerState": "On", "LastResetTime": "2026-01-01T11:30:00Z"});
                Ok((200, system, Some(("date", "Thu, 01 Jan 2026 13:00:00 GMT".to_owned()))))
            }
            "/redfish/v1/Systems/1" => {
                if self.unanswered > 0 {
                    self.unanswered -= 1;
                    return Err(NoAnswer("no answer in 10 s".to_owned()));
                }
                let mut reset = json!({"target": "/redfish/v1/Systems/1/Reset"});
                if let Some(offered) = &self.offered {
                    reset["ResetType@Redfish.AllowableValues"] = json!(offered);
                }
                let state = self.state();
                Ok((200, json!({"PowerState": state, "Name": "n", "Actions": {"#ComputerSystem.Reset": reset}}), None))
            }
            "/redfish/v1/Systems/1/Reset" => {
                let kind = body["ResetType"].as_str().unwrap_or_default().to_owned();
                self.resets.push(kind.clone());
                if let Some((_, code, left)) = self.refused.iter_mut().find(|(k, _, left)| *k == kind && *left > 0) {
                    *left -= 1;
                    return Ok((*code, json!({"error": {"message": "not\n now"}}), None));
                }
                self.state();
                let on = kind == "On";
                if self.on != on && !self.ignored.contains(&kind.as_str()) {
                    self.pending = Some((on, Instant::now() + self.delay));
                }
                if self.no_reset_answer {
                    Err(NoAnswer("no answer in 10 s".to_owned()))
                } else {
                    Ok((204, Value::Null, None))
                }
            }
            _ => Ok((404, Value::Null, None)),
        }
    }
}

/// Returns the fake, and a BMC client that talks to it.
fn bmc_at(fake: Fake, address: &str) -> (Arc<Mutex<Fake>>, RedfishDriver) {
    bmc_with_password(fake, address, "p:w")
}

fn bmc_with_password(fake: Fake, address: &str, password: &str) -> (Arc<Mutex<Fake>>, RedfishDriver) {
    let fake = Arc::new(Mutex::new(fake));
    let to = fake.clone();
    let http = Http::by(move |request| {
        let answer = to.lock().unwrap().answer(&request);
        Box::pin(async move {
            let (code, body, header) = answer?;
            let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
            let mut answer = Response::builder().status(code);
            if let Some((name, value)) = header {
                answer = answer.header(name, value);
                if name == "x-auth-token" {
                    answer = answer.header("location", "/redfish/v1/S/1");
                }
            }
            Ok(answer.body(bytes).unwrap())
        })
    });
    let login = Login { username: "u".to_owned(), password: password.to_owned() };
    (fake, RedfishDriver::new(Bmc::new(http, Address::parse(address).unwrap(), Some(login), SignIn::Auto)))
}

fn bmc(fake: Fake) -> (Arc<Mutex<Fake>>, RedfishDriver) {
    bmc_at(fake, "https://bmc.example")
}

fn resets(fake: &Mutex<Fake>) -> Vec<String> {
    fake.lock().unwrap().resets.clone()
}

/// Returns the cause of a failure in the type of the Redfish driver.
fn cause(e: &PowerError) -> &BmcError {
    match e {
        PowerError::Unauthorized(cause) | PowerError::Failed(cause) => cause.downcast_ref().unwrap(),
        PowerError::Refused(_) | PowerError::StillOff(_) | PowerError::NotOffered { .. } | PowerError::Late { .. } => {
            panic!("{e}")
        }
    }
}

const NO_REPORT: &(dyn Fn(&str) + Sync) = &|_| {};

#[test]
fn addresses_are_parsed_in_the_forms_of_files_and_bare_metal_hosts() {
    let system = Some("/redfish/v1/Systems/1".to_owned());
    for (text, origin, path) in [
        ("10.0.0.1", "https://10.0.0.1", None),
        ("https://bmc:8443/redfish/v1/", "https://bmc:8443", None),
        ("redfish://bmc/redfish/v1/Systems/1", "https://bmc", system.clone()),
        ("redfish+http://[fd00::1]:8000/redfish/v1/Systems/1/", "http://[fd00::1]:8000", system.clone()),
        ("idrac-virtualmedia+https://bmc/redfish/v1/Systems/1", "https://bmc", system),
    ] {
        let address = Address::parse(text).unwrap();
        assert_eq!((address.origin.as_str(), address.system), (origin, path), "{text}");
    }
    for wrong in ["ipmi://10.0.0.1", "https://", "redfish+ftp://bmc", ""] {
        assert!(matches!(Address::parse(wrong), Err(BmcError::Address(..))), "{wrong:?}");
    }
    let text = Address::parse("https://root:hunter2@bmc").unwrap_err().to_string();
    assert!(!text.contains("hunter2") && text.contains("must not contain a user name"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_single_system_is_found_and_several_are_an_error_that_names_them() {
    let (_, one) = bmc(Fake::default());
    assert_eq!(one.read().await.unwrap().id, "/redfish/v1/Systems/1");
    let (_, two) = bmc(Fake { members: vec!["/redfish/v1/Systems/1", "/redfish/v1/Systems/2"], ..Fake::default() });
    let text = two.read().await.unwrap_err().to_string();
    assert!(
        text.contains("2 systems (/redfish/v1/Systems/1, /redfish/v1/Systems/2)") && text.contains("system:"),
        "{text}"
    );
    let (_, many) = bmc(Fake { members: vec!["/redfish/v1/Systems/w42"; 60], ..Fake::default() });
    let text = many.read().await.unwrap_err().to_string();
    assert!(text.contains("60 systems (/redfish/") && text.contains("w42 and 56 more); choose"), "{text}");
    let (_, none) = bmc(Fake { members: vec![], ..Fake::default() });
    assert!(matches!(cause(&none.read().await.unwrap_err()), BmcError::Systems { .. }));
}

#[tokio::test(start_paused = true)]
async fn redirects_are_followed_on_the_same_server_only() {
    let (_, named) = bmc_at(Fake::default(), "redfish://bmc.example/redfish/v1/Systems/name");
    assert_eq!(named.read().await.unwrap().power, PowerState::On);
    let (fake, away) = bmc_at(Fake::default(), "redfish://bmc.example/redfish/v1/Systems/away");
    assert!(matches!(cause(&away.read().await.unwrap_err()), BmcError::Elsewhere { .. }));
    assert_eq!(fake.lock().unwrap().seen.last().unwrap(), "GET /redfish/v1/Systems/away");
}

#[tokio::test(start_paused = true)]
async fn a_session_is_reused_renewed_and_closed() {
    let (fake, bmc) = bmc(Fake { sessions: true, session_lasts: 3, ..Fake::default() });
    switch::off(&bmc, Mode::Hard, &Timeouts::default(), NO_REPORT).await.unwrap();
    bmc.close().await;
    let fake = fake.lock().unwrap();
    assert_eq!(fake.resets, ["ForceOff"]);
    assert_eq!(fake.seen.iter().filter(|s| *s == "POST /redfish/v1/S").count(), 2);
    assert_eq!(fake.seen.last().unwrap(), "DELETE /redfish/v1/S/1");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_reported_at_once_and_never_shown() {
    let (fake, wrong) = bmc_with_password(Fake::default(), "https://bmc.example", "hunter2");
    let e = switch::off(&wrong, Mode::Soft, &Timeouts::default(), NO_REPORT).await.unwrap_err();
    assert!(matches!(&e, PowerError::Unauthorized(_)) && matches!(cause(&e), BmcError::Unauthorized { code: 401, .. }));
    assert!(
        !format!("{e} {e:?} {wrong:?} {:?}", Login { username: "u".to_owned(), password: "hunter2".to_owned() })
            .contains("hunter2")
    );
    assert!(resets(&fake).is_empty());
}

#[tokio::test(start_paused = true)]
async fn hard_follows_a_soft_power_off_that_fails_is_refused_or_is_not_offered() {
    for (what, fake, expected, how) in [
        ("works", Fake::default(), vec!["GracefulShutdown"], Off::Graceful),
        (
            "ignored",
            Fake { ignored: vec!["GracefulShutdown"], ..Fake::default() },
            vec!["GracefulShutdown", "ForceOff"],
            Off::Hard,
        ),
        (
            "refused",
            Fake { refused: vec![("GracefulShutdown", 400, 9)], ..Fake::default() },
            vec!["GracefulShutdown", "ForceOff"],
            Off::Hard,
        ),
        (
            "not on offer",
            Fake { offered: Some(vec!["On", "ForceOff"]), ..Fake::default() },
            vec!["ForceOff"],
            Off::Hard,
        ),
        ("no reset types listed", Fake { offered: None, ..Fake::default() }, vec!["GracefulShutdown"], Off::Graceful),
        ("off already", Fake { on: false, ..Fake::default() }, vec![], Off::Already),
    ] {
        let (fake, bmc) = bmc(fake);
        assert_eq!(switch::off(&bmc, Mode::Soft, &Timeouts::default(), NO_REPORT).await.unwrap(), how, "{what}");
        assert_eq!(resets(&fake), expected, "{what}");
        assert_eq!(fake.lock().unwrap().state(), "Off", "{what}");
    }
    let (fake, hard) = bmc(Fake::default());
    assert_eq!(switch::off(&hard, Mode::Hard, &Timeouts::default(), NO_REPORT).await.unwrap(), Off::Hard);
    assert_eq!(resets(&fake), ["ForceOff"]);
}

#[tokio::test(start_paused = true)]
async fn a_reset_repeats_only_after_its_timeout_and_a_false_success_is_an_error() {
    // A repeated ForceOff restarts this BMC's delay: repeating it at each poll would never end.
    let (fake, slow) = bmc(Fake { delay: Duration::from_secs(50), ..Fake::default() });
    switch::off(&slow, Mode::Hard, &Timeouts::default(), NO_REPORT).await.unwrap();
    assert_eq!(resets(&fake), ["ForceOff"]);
    let (fake, liar) = bmc(Fake { ignored: vec!["ForceOff"], ..Fake::default() });
    let e = switch::off(&liar, Mode::Hard, &Timeouts::default(), NO_REPORT).await.unwrap_err();
    assert!(matches!(&e, PowerError::Late { wanted: PowerState::Off, state, .. } if state == "on"), "{e}");
    assert_eq!(resets(&fake), ["ForceOff", "ForceOff"]);
}

#[tokio::test(start_paused = true)]
async fn a_reset_without_an_answer_counts_as_sent_and_no_answer_is_no_power_state() {
    let (fake, bmc) = bmc(Fake { no_reset_answer: true, ..Fake::default() });
    switch::off(&bmc, Mode::Hard, &Timeouts::default(), NO_REPORT).await.unwrap();
    fake.lock().unwrap().unanswered = 0;
    assert_eq!(resets(&fake), ["ForceOff"]);
    let (fake, late) = self::bmc(Fake::default());
    late.read().await.unwrap();
    fake.lock().unwrap().unanswered = 4;
    late.request(PowerRequest::Off(Mode::Hard)).await.unwrap();
    let e = switch::off(&late, Mode::Hard, &Timeouts::default(), NO_REPORT).await.unwrap_err();
    assert!(e.to_string().contains("does not answer"), "{e}");
}

#[tokio::test(start_paused = true)]
async fn a_cycle_waits_for_off_and_turns_the_machine_on_again() {
    let (fake, bmc) = bmc(Fake { refused: vec![("On", 503, 2)], ..Fake::default() });
    assert_eq!(switch::cycle(&bmc, Mode::Soft, &Timeouts::default(), NO_REPORT).await.unwrap(), Off::Graceful);
    assert_eq!(resets(&fake), ["GracefulShutdown", "On", "On", "On"]);
    assert_eq!(fake.lock().unwrap().state(), "On");
    // A machine that cannot be turned on again is not turned off.
    let (fake, bmc) = self::bmc(Fake { offered: Some(vec!["ForceOff"]), ..Fake::default() });
    let text = switch::cycle(&bmc, Mode::Hard, &Timeouts::default(), NO_REPORT).await.unwrap_err().to_string();
    assert!(text.contains("no reset type to turn on the machine; it offers: ForceOff"), "{text}");
    assert!(resets(&fake).is_empty());
}

#[tokio::test(start_paused = true)]
async fn on_waits_for_a_machine_that_is_about_to_go_off_and_turns_it_on_again() {
    // `On` during a pending off is lost: the machine goes off afterwards.
    let (fake, bmc) = bmc(Fake { pending: None, delay: Duration::from_secs(1), ..Fake::default() });
    bmc.request(PowerRequest::Off(Mode::Hard)).await.unwrap();
    assert!(switch::on(&bmc, &Timeouts::default(), NO_REPORT).await.unwrap());
    assert_eq!(resets(&fake), ["ForceOff", "On"]);
    assert_eq!(fake.lock().unwrap().state(), "On");
}

#[tokio::test(start_paused = true)]
async fn the_age_of_the_last_reset_uses_the_bmcs_clock() {
    let (_, bmc) = bmc_at(Fake::default(), "redfish://bmc.example/redfish/v1/Systems/2");
    let age = bmc.read().await.unwrap().reset_age.unwrap();
    assert_eq!(age.as_secs(), 90 * 60);
}
