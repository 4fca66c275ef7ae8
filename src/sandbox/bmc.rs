//! The machines' BMCs: Redfish at `bmc-NAME.sandbox`, one computer system each, with the habits of real ones
//! (spec/metal3.md, How a Redfish BMC can behave).

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::machines::{Behaviour, Machines, OnBmc, State};

const SYSTEM: &str = "/redfish/v1/Systems/1";
const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";

/// All BMCs. Cheap to clone.
#[derive(Clone)]
pub struct Bmcs(Machines);

/// Where the BMC of the machine with this name is.
pub fn origin(name: &str) -> String {
    format!("https://bmc-{name}.sandbox")
}

impl Bmcs {
    /// Those of these machines.
    pub fn new(machines: Machines) -> Self {
        Self(machines)
    }

    /// One request; none = there is no such BMC, or it does not answer.
    pub async fn serve(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let name = host.strip_prefix("bmc-")?.strip_suffix(".sandbox")?;
        let address = self.0.address_of(name)?;
        let behaviour = self.0.behaviour(&address)?;
        if behaviour.bmc == OnBmc::Mute {
            tokio::time::sleep(std::time::Duration::from_secs(10)).await;
            return None;
        }
        let (code, body) = match (request.method(), request.uri().path().trim_end_matches('/')) {
            (&Method::GET, "/redfish/v1") => (200, json!({"Systems": {"@odata.id": "/redfish/v1/Systems"}})),
            (&Method::GET, "/redfish/v1/Systems") => (200, json!({"Members": [{"@odata.id": SYSTEM}]})),
            (&Method::GET, SYSTEM) => {
                let on = self.0.look(&address)?.state != State::Off && behaviour.bmc != OnBmc::SaysOff;
                let types = ["On", "ForceOff", "GracefulShutdown"];
                let reset = json!({"target": RESET, "ResetType@Redfish.AllowableValues": types});
                let actions = json!({"#ComputerSystem.Reset": reset});
                (200, json!({"Name": name, "PowerState": if on { "On" } else { "Off" }, "Actions": actions}))
            }
            (&Method::POST, RESET) => {
                let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
                self.reset(&address, body["ResetType"].as_str().unwrap_or_default(), &behaviour)
            }
            _ => (404, Value::Null),
        };
        let mut response = Response::new(if body.is_null() { Bytes::new() } else { body.to_string().into() });
        *response.status_mut() = StatusCode::from_u16(code).ok()?;
        Some(response)
    }

    /// 204 means accepted: the machine changes later, or never.
    fn reset(&self, address: &str, kind: &str, behaviour: &Behaviour) -> (u16, Value) {
        let refusal = |code: u16, message: &str| (code, json!({"error": {"message": message}}));
        if self.0.bmc_fails(address) {
            return refusal(503, "the service is busy");
        }
        match (kind, behaviour.bmc) {
            ("GracefulShutdown", OnBmc::Refuses) => refusal(400, "the operating system does not answer"),
            ("On" | "ForceOff" | "GracefulShutdown", OnBmc::Lies | OnBmc::SaysOff)
            | ("GracefulShutdown", OnBmc::Deaf) => (204, Value::Null),
            ("On" | "ForceOff" | "GracefulShutdown", _) => {
                self.0.press(address, kind);
                (204, Value::Null)
            }
            ("", _) => refusal(500, "no ResetType"),
            _ => refusal(501, "not implemented"),
        }
    }
}
