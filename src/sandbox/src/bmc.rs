//! BMCs of the simulated machines: Redfish at `bmc-NAME.sandbox`, one computer system each. They have the faults of
//! real BMCs (see [`OnBmc`]). Behind a port they are one Redfish service that holds all systems.
//!
//! A second listener has an address outside the BMC networks. It answers like a BMC, and no login may reach it (I50).
//! [`Machines::logins`] returns the addresses that received a login.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};

use super::machines::{Behaviour, Machines, OnBmc, State};

const ROOT: &str = "/redfish/v1";
const SYSTEMS: &str = "/redfish/v1/Systems";
const RESET: &str = "Actions/ComputerSystem.Reset";

/// BMC file of a sandbox (`docs/power.md`): the networks that contain every [`address`], and a login.
pub const FILE: &str = "networks: [172.0.0.0/8, 'fd72::/16']\ndefaults: {username: cketerm, password: sandbox}\n";
/// Address of a listener that is no BMC of the site.
pub const FOREIGN_ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// Host name that resolves to [`FOREIGN_ADDRESS`].
pub const FOREIGN_HOST_NAME: &str = "bmc.stranger.example";

/// Returns the address of the BMC of the machine with this address.
pub fn address(machine: &str) -> Option<IpAddr> {
    Some(match machine.parse().ok()? {
        IpAddr::V4(ip) => {
            let mut octets = ip.octets();
            octets[0] = 172;
            IpAddr::from(octets)
        }
        IpAddr::V6(ip) => {
            let mut segments = ip.segments();
            segments[0] = 0xfd72;
            IpAddr::from(segments)
        }
    })
}

/// All BMCs. Cheap to clone.
#[derive(Clone)]
pub struct Bmcs(Machines);

/// Returns the base URL of the BMC of the machine with this name.
pub fn origin(name: &str) -> String {
    format!("https://bmc-{name}.sandbox")
}

impl Bmcs {
    /// Creates the BMCs of these machines.
    pub fn new(machines: Machines) -> Self {
        Self(machines)
    }

    /// Resolves a host name to addresses.
    pub fn resolve(&self, host: &str) -> Vec<IpAddr> {
        if host == FOREIGN_HOST_NAME {
            return vec![IpAddr::V4(FOREIGN_ADDRESS)];
        }
        let name = host.strip_prefix("bmc-").and_then(|rest| rest.strip_suffix(".sandbox"));
        name.and_then(|name| address(&self.0.address_of(name)?)).into_iter().collect()
    }

    /// Serves one request. Returns `None` if there is no such BMC, or if it does not answer.
    pub async fn serve(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let addresses = host.parse().map_or_else(|_| self.resolve(&host), |ip: IpAddr| vec![ip]);
        if let Some(addresses) = addresses.first().filter(|_| has_login(&request)) {
            self.0.record_login(*addresses);
        }
        if addresses.contains(&IpAddr::V4(FOREIGN_ADDRESS)) {
            return serve_foreign(request.uri().path());
        }
        let name = host.strip_prefix("bmc-")?.strip_suffix(".sandbox")?;
        let path = request.uri().path().trim_end_matches('/');
        let (code, body) = match path.strip_prefix(SYSTEMS) {
            Some("") => (200, json!({"Members": [{"@odata.id": format!("{SYSTEMS}/1")}]})),
            Some(rest) => self.serve_system(name, "1", rest.strip_prefix("/1")?, &request).await?,
            None if path == ROOT => (200, root()),
            None => (404, Value::Null),
        };
        answer(code, &body)
    }

    /// Serves one request to the service that holds the systems of all machines, by name. Returns `None` if it does not
    /// answer.
    pub async fn serve_all(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        let path = request.uri().path().trim_end_matches('/');
        let (code, body) = match path.strip_prefix(SYSTEMS) {
            Some("") => {
                let all = self.0.list().into_iter().map(|m| json!({"@odata.id": format!("{SYSTEMS}/{}", m.name)}));
                let all: Vec<Value> = all.collect();
                (200, json!({"Members@odata.count": all.len(), "Members": all}))
            }
            Some(rest) => {
                let rest = rest.trim_start_matches('/');
                let (name, rest) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
                if self.0.address_of(name).is_none() {
                    (404, json!({"error": {"message": format!("there is no system {name}")}}))
                } else {
                    self.serve_system(name, name, rest, &request).await?
                }
            }
            None if path == ROOT => (200, root()),
            None => (404, Value::Null),
        };
        answer(code, &body)
    }

    /// Answers one request about the machine `name`, whose system has the id `id`. `subpath` is the rest of the path.
    async fn serve_system(
        &self,
        name: &str,
        id: &str,
        subpath: &str,
        request: &Request<Bytes>,
    ) -> Option<(u16, Value)> {
        let address = self.0.address_of(name)?;
        let behaviour = self.0.behaviour(&address)?;
        if behaviour.bmc == OnBmc::Mute {
            tokio::time::sleep(std::time::Duration::from_secs(10)).await;
            return None;
        }
        Some(match (request.method(), subpath.trim_start_matches('/')) {
            (&Method::GET, "") => {
                let on = self.0.machine_status(&address)?.state != State::Off && behaviour.bmc != OnBmc::SaysOff;
                let types = ["On", "ForceOff", "GracefulShutdown"];
                let target = format!("{SYSTEMS}/{id}/{RESET}");
                let reset = json!({"target": target, "ResetType@Redfish.AllowableValues": types});
                let actions = json!({"#ComputerSystem.Reset": reset});
                let power = if on { "On" } else { "Off" };
                let odata_id = format!("{SYSTEMS}/{id}");
                (200, json!({"@odata.id": odata_id, "Id": id, "Name": name, "PowerState": power, "Actions": actions}))
            }
            (&Method::POST, RESET) => {
                let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
                self.reset(&address, body["ResetType"].as_str().unwrap_or_default(), &behaviour)
            }
            _ => (404, Value::Null),
        })
    }

    /// Handles a reset request. 204 means accepted: the machine changes later, or never.
    fn reset(&self, address: &str, kind: &str, behaviour: &Behaviour) -> (u16, Value) {
        let error_body = |code: u16, message: &str| (code, json!({"error": {"message": message}}));
        if self.0.bmc_fails(address) {
            return error_body(503, "the service is busy");
        }
        match (kind, behaviour.bmc) {
            ("GracefulShutdown", OnBmc::Refuses) => error_body(400, "the operating system does not answer"),
            ("On" | "ForceOff" | "GracefulShutdown", OnBmc::Lies | OnBmc::SaysOff)
            | ("GracefulShutdown", OnBmc::Deaf) => (204, Value::Null),
            ("On" | "ForceOff" | "GracefulShutdown", _) => {
                self.0.request_reset(address, kind);
                (204, Value::Null)
            }
            ("", _) => error_body(500, "no ResetType"),
            _ => error_body(501, "not implemented"),
        }
    }
}

/// Reports whether the request contains a password or a session token.
fn has_login(request: &Request<Bytes>) -> bool {
    let headers = request.headers();
    let password = b"\"Password\"";
    headers.contains_key(http::header::AUTHORIZATION)
        || headers.contains_key("x-auth-token")
        || request.body().windows(password.len()).any(|part| part == password)
}

fn serve_foreign(path: &str) -> Option<Response<Bytes>> {
    match path.trim_end_matches('/').strip_prefix(SYSTEMS) {
        Some("") => answer(200, &json!({"Members": [{"@odata.id": format!("{SYSTEMS}/1")}]})),
        Some(_) => answer(200, &json!({"@odata.id": format!("{SYSTEMS}/1"), "Id": "1", "PowerState": "On"})),
        None => answer(200, &root()),
    }
}

fn root() -> Value {
    json!({"@odata.id": ROOT, "RedfishVersion": "1.6.0", "Systems": {"@odata.id": SYSTEMS}})
}

fn answer(code: u16, body: &Value) -> Option<Response<Bytes>> {
    let mut response = Response::new(if body.is_null() { Bytes::new() } else { body.to_string().into() });
    *response.status_mut() = StatusCode::from_u16(code).ok()?;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(response)
}
