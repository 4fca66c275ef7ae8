//! The sandbox behind loopback ports, for `etcdctl`, `kubectl`, `curl` and a real `cketerm --daemon`.

use std::{
    collections::BTreeSet,
    io,
    net::{Ipv4Addr, SocketAddr},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Request, State},
    http::{Response, StatusCode},
    routing::{get, post, put},
};
use cketerm_model::attempt::Ended;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{service::Routes, transport::Server};

use super::{
    Sandbox,
    bmc::Bmcs,
    kubernetes::api::Api,
    machines::{Behaviour, Machine, Machines, PowerEvent},
    members::{MemberFaults, Members},
    sabakan::{InjectedFault, Record, Sabakan},
};

/// A command line for the machines, as `cketerm sandbox machine` sends it to `/machines`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineCommand {
    /// Verb, address, and for a check the time.
    pub argv: Vec<String>,
    /// `CKETERM_ENTRY`.
    #[serde(default)]
    pub entry: String,
    /// `CKETERM_ATTEMPT`.
    #[serde(default)]
    pub attempt: String,
}

/// Result of an [`MachineCommand`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommandOutput {
    /// Exit status; 255 if the command did not exit by itself.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Addresses of a served sandbox. Serving ends when this is dropped.
pub struct Served {
    /// etcd.
    pub etcd: SocketAddr,
    /// Members of the Kubernetes etcd; any member that is up answers.
    pub members: SocketAddr,
    /// Kubernetes.
    pub kubernetes: SocketAddr,
    /// sabakan.
    pub sabakan: SocketAddr,
    /// The machines' BMCs: one Redfish service.
    pub redfish: SocketAddr,
    /// The machines and the control routes of the sandbox. `docs/sandbox.md` lists the routes.
    pub machines: SocketAddr,
    tasks: JoinSet<()>,
}

/// Listeners of a sandbox. They are bound before the sandbox exists, because a definition names their ports.
pub struct Ports {
    etcd: TcpListener,
    members: TcpListener,
    kubernetes: TcpListener,
    machines: TcpListener,
    sabakan: TcpListener,
    redfish: TcpListener,
}

impl Ports {
    /// Binds free ports on loopback.
    pub async fn bind() -> io::Result<Self> {
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        Ok(Self {
            etcd: free().await?,
            members: free().await?,
            kubernetes: free().await?,
            machines: free().await?,
            sabakan: free().await?,
            redfish: free().await?,
        })
    }

    /// Returns the URL of the machines' BMCs: `http://127.0.0.1:PORT`.
    pub fn redfish_url(&self) -> io::Result<String> {
        Ok(format!("http://{}", self.redfish.local_addr()?))
    }

    /// Returns the URL of the machines: `http://127.0.0.1:PORT`.
    pub fn machines_url(&self) -> io::Result<String> {
        Ok(format!("http://{}", self.machines.local_addr()?))
    }

    /// Returns the URL of sabakan: `http://127.0.0.1:PORT`.
    pub fn sabakan_url(&self) -> io::Result<String> {
        Ok(format!("http://{}", self.sabakan.local_addr()?))
    }

    /// Serves a sandbox on these listeners.
    pub fn serve(self, sandbox: &Sandbox) -> io::Result<Served> {
        let (etcd, kubernetes) = (self.etcd.local_addr()?, self.kubernetes.local_addr()?);
        let machines = self.machines.local_addr()?;
        let mut tasks = JoinSet::new();
        let services = sandbox.etcd.routes();
        tasks.spawn(grpc(services, self.etcd));
        let members = self.members.local_addr()?;
        tasks.spawn(grpc(sandbox.members.routes(None), self.members));
        tasks.spawn(serve_members(sandbox.members.clone(), sandbox.machines.subscribe()));
        let app = sandbox.api.router();
        tasks.spawn(async move {
            if let Err(e) = axum::serve(self.kubernetes, app).await {
                tracing::error!(error = %e, "the sandbox's API server ended");
            }
        });
        let sabakan = self.sabakan.local_addr()?;
        let app = Router::new().fallback(registry).with_state(sandbox.sabakan.clone());
        tasks.spawn(async move {
            if let Err(e) = axum::serve(self.sabakan, app).await {
                tracing::error!(error = %e, "the sandbox's sabakan ended");
            }
        });
        let redfish = self.redfish.local_addr()?;
        let app = Router::new().fallback(bmcs).with_state(Bmcs::new(sandbox.machines.clone()));
        tasks.spawn(async move {
            if let Err(e) = axum::serve(self.redfish, app).await {
                tracing::error!(error = %e, "the sandbox's BMCs ended");
            }
        });
        let app = control_routes(
            sandbox.machines.clone(),
            sandbox.members.clone(),
            sandbox.api.clone(),
            sandbox.sabakan.clone(),
        );
        tasks.spawn(async move {
            if let Err(e) = axum::serve(self.machines, app).await {
                tracing::error!(error = %e, "the sandbox's machines ended");
            }
        });
        Ok(Served { etcd, members, kubernetes, sabakan, redfish, machines, tasks })
    }
}

/// Serves etcd's protocol on the listener.
async fn grpc(services: Routes, listener: TcpListener) {
    let incoming = TcpListenerStream::new(listener);
    if let Err(e) = Server::builder().add_routes(services).serve_with_incoming(incoming).await {
        tracing::error!(error = %e, "one of the sandbox's etcds ended");
    }
}

/// Serves each member on its own port, also those of machines that are added later.
async fn serve_members(members: Members, mut changed: watch::Receiver<usize>) {
    let (mut served, mut tasks) = (BTreeSet::new(), JoinSet::new());
    loop {
        for member in members.list() {
            if served.contains(&member.address) {
                continue;
            }
            let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let Ok((listener, at)) = bound.and_then(|listener| listener.local_addr().map(|at| (listener, at))) else {
                tracing::error!(address = member.address, "no port for this member of the sandbox's etcd");
                continue;
            };
            members.advertise(&member.address, format!("http://{at}"));
            tasks.spawn(grpc(members.routes(Some(&member.address)), listener));
            served.insert(member.address);
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

impl Served {
    /// Resolves when one of the servers has ended. They do not end by themselves.
    pub async fn ended(&mut self) {
        self.tasks.join_next().await;
    }
}

/// Builds the control routes: everything that is reachable besides the real protocols.
fn control_routes(machines: Machines, members: Members, api: Api, sabakan: Sabakan) -> Router {
    let api =
        Router::new().route("/apiserver/{what}", post(apiserver)).route("/apiserver/audit", get(audit)).with_state(api);
    let etcd = Router::new().route("/members/{address}", post(trouble)).with_state(members);
    let registry = Router::new()
        .route("/sabakan/behave", post(inject_fault))
        .route("/sabakan/machines", put(register))
        .route("/sabakan/racks/{rack}/vanish", post(remove_rack))
        .with_state((sabakan, machines.clone()));
    Router::new()
        .route("/machines", post(order).get(list))
        .route("/machines/log", get(log))
        .route("/machines/{address}", put(rack))
        .route("/machines/{address}/readyz", get(readyz))
        .route("/machines/{address}/behave", post(behave))
        .route("/kubelets/{what}", post(kubelets))
        .with_state(machines)
        .merge(api)
        .merge(registry)
        .merge(etcd)
}

/// Passes every request on to sabakan.
async fn registry(State(sabakan): State<Sabakan>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    sabakan.serve(Request::from_parts(head, body)).await.map(Body::from)
}

/// Serves the machines' BMCs. A BMC that does not answer keeps the connection open until the client gives up.
async fn bmcs(State(bmcs): State<Bmcs>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 16).await.unwrap_or_default();
    match bmcs.serve_all(Request::from_parts(head, body)).await {
        Some(answer) => answer.map(Body::from),
        None => std::future::pending().await,
    }
}

async fn inject_fault(State((sabakan, _)): State<(Sabakan, Machines)>, Json(how): Json<InjectedFault>) -> StatusCode {
    sabakan.inject_fault(how);
    StatusCode::NO_CONTENT
}

async fn register(State((sabakan, _)): State<(Sabakan, Machines)>, Json(record): Json<Record>) -> StatusCode {
    sabakan.put(record);
    StatusCode::CREATED
}

async fn remove_rack(State((sabakan, machines)): State<(Sabakan, Machines)>, Path(rack): Path<i64>) -> Json<Value> {
    Json(json!({"machines": sabakan.rack_gone(rack, &machines)}))
}

async fn order(State(machines): State<Machines>, Json(order): Json<MachineCommand>) -> Json<CommandOutput> {
    let env = [("CKETERM_ENTRY".to_owned(), order.entry), ("CKETERM_ATTEMPT".to_owned(), order.attempt)];
    let (ended, stdout, stderr) = machines.command(&order.argv, &env).await;
    let code = if let Ended::Exit(code) = ended { code } else { 255 };
    Json(CommandOutput { code, stdout, stderr })
}

async fn list(State(machines): State<Machines>) -> Json<Value> {
    let all = machines.list().into_iter().map(|m| {
        let seen = machines.machine_status(&m.address);
        json!({
            "name": m.name, "address": m.address, "control_plane": m.control_plane, "rack": m.rack,
            "state": seen.as_ref().map(|s| format!("{:?}", s.state).to_lowercase()),
            "boot_id": seen.map(|s| s.boot_id), "behaviour": m.behaviour,
        })
    });
    Json(all.collect())
}

async fn log(State(machines): State<Machines>) -> Json<Value> {
    let lines = machines.power_log().into_iter().map(|p| {
        let (what, code) = match p.what {
            PowerEvent::Begin => ("begin", None),
            PowerEvent::End(code) => ("end", code),
            PowerEvent::Down => ("down", None),
            PowerEvent::Up => ("up", None),
        };
        json!({
            "at": p.at.to_string(), "what": what, "code": code, "address": p.address,
            "entry": p.entry, "attempt": p.attempt, "argv": p.argv,
        })
    });
    Json(lines.collect())
}

async fn readyz(State(machines): State<Machines>, Path(address): Path<String>) -> StatusCode {
    // Behind one shared port there is no refused connection, so an unreachable API server answers 503.
    let answer = machines.readyz(&address).unwrap_or(503);
    StatusCode::from_u16(answer).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

async fn behave(
    State(machines): State<Machines>,
    Path(address): Path<String>,
    Json(behaviour): Json<Behaviour>,
) -> StatusCode {
    if machines.behave(&address, behaviour) { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }
}

async fn trouble(
    State(members): State<Members>,
    Path(address): Path<String>,
    Json(trouble): Json<MemberFaults>,
) -> StatusCode {
    if members.trouble(&address, trouble) { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }
}

async fn rack(
    State(machines): State<Machines>,
    Path(address): Path<String>,
    Json(mut machine): Json<Map<String, Value>>,
) -> Result<StatusCode, (StatusCode, String)> {
    machine.insert("address".to_owned(), Value::String(address));
    let machine: Machine = serde_json::from_value(Value::Object(machine))
        .map_err(|e| (StatusCode::UNPROCESSABLE_ENTITY, format!("{e}\n")))?;
    let taken = || (StatusCode::CONFLICT, "there is a machine of this name or address\n".to_owned());
    if machines.rack(machine) { Ok(StatusCode::CREATED) } else { Err(taken()) }
}

async fn kubelets(State(machines): State<Machines>, Path(what): Path<String>) -> StatusCode {
    match what.as_str() {
        "freeze" => machines.freeze_kubelets(true),
        "thaw" => machines.freeze_kubelets(false),
        _ => return StatusCode::NOT_FOUND,
    }
    StatusCode::NO_CONTENT
}

async fn apiserver(State(api): State<Api>, Path(what): Path<String>) -> StatusCode {
    match what.as_str() {
        "stop" => api.set_available(false),
        "start" => api.set_available(true),
        _ => return StatusCode::NOT_FOUND,
    }
    StatusCode::NO_CONTENT
}

async fn audit(State(api): State<Api>) -> Json<Value> {
    Json(api.audit().iter().map(crate::kubernetes::api::ApiRequest::event).collect())
}
