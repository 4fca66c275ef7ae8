//! A BMC with arbitrary answers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use cketerm_clients::{
    net::Http,
    power::{
        PowerDriver as _, Timeouts,
        redfish::{Address, Bmc, Login, RedfishDriver, SignIn},
        switch,
    },
};
use cketerm_fuzz::{Fuzz, Took};
use cketerm_model::host::Mode;
use futures::FutureExt as _;
use http::{Request, Response};

const ANSWERS: &str = r##"{
 "root": {"Systems": {"@odata.id": "/redfish/v1/Systems"}, "Links": {"Sessions": {"@odata.id": "/redfish/v1/S"}}},
 "list": {"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]},
 "system": {"Name": "node", "PowerState": "On", "LastResetTime": "2026-01-01T00:00:00Z", "@odata.id": "/redfish/v1/Systems/1",
  "Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
   "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown"], "@Redfish.ActionInfo": "/redfish/v1/A"}}},
 "info": {"Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "ForceOff"]}]},
 "error": {"error": {"code": "x", "message": "no", "@Message.ExtendedInfo": [{"Message": "not now"}]}},
 "status": 200, "reset": 204, "location": "/redfish/v1/Systems/1", "date": "Sun, 22 Nov 2026 08:49:37 GMT"
}"##;

/// Returns the response to a request: the part of the mutated document that fits the path, or the whole document.
fn answered(bytes: &[u8], request: &Request<Bytes>, asked: usize) -> Response<Bytes> {
    let whole = serde_json::from_slice::<serde_json::Value>(bytes).ok();
    let path = request.uri().path();
    let part = match path {
        "/redfish/v1/" => "root",
        "/redfish/v1/Systems" => "list",
        path if path.ends_with(".Reset") => "error",
        path if path.starts_with("/redfish/v1/A") => "info",
        _ => "system",
    };
    let number = |name: &str| whole.as_ref().and_then(|v| v[name].as_u64()?.try_into().ok()).unwrap_or(200_u16);
    let status = if request.method() == "POST" { number("reset") } else { number("status") };
    let body = match &whole {
        Some(whole) if whole.is_object() => whole[part].to_string().into(),
        _ => Bytes::copy_from_slice(bytes),
    };
    let mut response = Response::builder().status(status);
    if path == "/redfish/v1/S" {
        response = response.header("x-auth-token", "hunter2-session");
    }
    for name in ["location", "date"] {
        if let Some(text) = whole.as_ref().and_then(|v| v[name].as_str())
            && let Ok(value) = http::HeaderValue::from_str(text)
        {
            response = response.header(name, value);
        }
    }
    // Every fifth request reports power off.
    let body = if asked % 5 == 4 {
        String::from_utf8_lossy(&body).replace("\"On\"", "\"Off\"").into_bytes().into()
    } else {
        body
    };
    response.body(body).unwrap_or_default()
}

#[test]
fn fuzz_bmc_answers() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let login = || Login { username: "u".to_owned(), password: "hunter2".to_owned() };
    let seeds = [ANSWERS, ANSWERS, "<html>", "{\"status\":307,\"location\":\"https://evil.example/\"}"];
    Fuzz::new("redfish", 400).seeds(seeds).run(|bytes| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (kept, given) = (Arc::clone(&seen), bytes.to_vec());
        let http = Http::by(move |request| {
            let mut seen = kept.lock().unwrap();
            seen.push(request.uri().clone());
            let response = answered(&given, &request, seen.len());
            std::future::ready(Ok(response)).boxed()
        });
        let driver = RedfishDriver::new(Bmc::new(
            http,
            Address::parse("https://bmc.example").unwrap(),
            Some(login()),
            SignIn::Auto,
        ));
        let timeouts = Timeouts {
            soft: Duration::from_secs(4),
            off: Duration::from_secs(4),
            on: Duration::from_secs(4),
            poll: Duration::from_secs(1),
        };
        let (done, errors) = runtime.block_on(async {
            let errors = Mutex::new(Vec::new());
            let on_error = |line: &str| errors.lock().unwrap().push(line.to_owned());
            let system = driver.read().await;
            let off = switch::off(&driver, Mode::Soft, &timeouts, &on_error).await;
            let on = switch::on(&driver, &timeouts, &on_error).await;
            let cycle = switch::cycle(&driver, Mode::Hard, &timeouts, &on_error).await;
            driver.close().await;
            let results = [off.map(|_| ()), on.map(|_| ()), cycle.map(|_| ())];
            (
                system.map(|_| ()),
                results.into_iter().chain([Ok(())]).filter_map(Result::err).map(|e| e.to_string()).collect::<Vec<_>>(),
            )
        });
        // The password reaches no other server and no message.
        if seen.lock().unwrap().iter().any(|uri| uri.host() != Some("bmc.example")) {
            return Err(format!("another server got a request: {:?}", seen.lock().unwrap()));
        }
        let first = done.as_ref().err().map(ToString::to_string);
        for why in errors.iter().chain(&first) {
            if !why.contains("BMC https://bmc.example") || why.contains("hunter2") {
                return Err(format!("an error does not name the BMC or shows its password: {why}"));
            }
        }
        Ok(Took::of(&done))
    });
}

#[test]
fn fuzz_bmc_addresses() {
    let seeds = [
        "10.0.0.1",
        "https://bmc:8443/redfish/v1/",
        "redfish://bmc/redfish/v1/Systems/1",
        "redfish-virtualmedia+http://[::1]:8000/redfish/v1/Systems/uuid",
        "ipmi://10.0.0.1:623",
    ];
    Fuzz::new("bmc-address", 800)
        .seeds(seeds)
        .run(|bytes| Ok(Took::of(&Address::parse(&String::from_utf8_lossy(bytes)))));
}
