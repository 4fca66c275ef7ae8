//! The HTTP API over the objects, with the role of a kube-apiserver. Paths, status codes and messages were observed on
//! kube-apiserver 1.35.

mod admission;
mod answer;
mod audit;
mod call;
mod cells;
mod columns;
mod defaults;
mod delete;
mod discovery;
mod envelope;
mod events;
mod evict;
mod openapi;
mod patch;
mod path;
mod permissions;
mod read;
mod request_body;
mod scale;
mod selector;
mod serve;
mod status_error;
mod table;
mod validate;
mod watch;
mod write;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::json;
use tokio::sync::watch::Sender;

pub use self::{
    admission::{Behaviour, Interceptor},
    audit::ApiRequest,
    call::USER_HEADER,
    permissions::DeniedPermission,
    serve::Wire,
};
use self::{
    call::{Call, Caller, Reply},
    path::{RequestInfo, Target},
    status_error::StatusError,
};
use super::{
    Objects,
    resource::{NAMESPACES, NODES},
};

/// Configuration of the kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiOptions {
    /// Whether streaming lists (`sendInitialEvents`) are supported. Without support they are refused, as on an etcd
    /// before 3.4.31: with an error event inside the stream.
    pub streaming: bool,
    /// Interval of bookmarks on a quiet watch.
    pub bookmark_every: Duration,
    /// Lifetime of a watch that does not specify a timeout.
    pub watch_timeout: Duration,
    /// Number of requests to keep for [`Api::audit`].
    pub audit: usize,
    /// Users by bearer token, for clients of [`Api::router`]. An unknown token is refused with 401. Without a token a
    /// client can read only health and version. If empty, every client is trusted with the name that it claims and may
    /// do everything. Clients inside the process are always trusted.
    pub tokens: BTreeMap<String, String>,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            streaming: true,
            bookmark_every: Duration::from_mins(1),
            watch_timeout: Duration::from_mins(30),
            audit: 10_000,
            tokens: BTreeMap::new(),
        }
    }
}

/// The API. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Api {
    objects: Objects,
    shared: Arc<Shared>,
}

struct Shared {
    options: ApiOptions,
    state: Sender<State>,
    log: Mutex<audit::Log>,
    denied: Mutex<Vec<DeniedPermission>>,
    interceptors: Mutex<admission::Interceptors>,
}

/// State that observers and faults can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    available: bool,
    stalled: bool,
    cuts: u64,
}

impl Api {
    /// Serves these objects. Creates the namespaces of every cluster if they are missing.
    pub fn new(objects: Objects, options: ApiOptions) -> Self {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let mut namespace = json!({"metadata": {"name": name}});
            defaults::fill(&NAMESPACES, name, &mut namespace);
            // Fails if it exists already, which is fine.
            let _ = objects.create(&NAMESPACES, "", namespace);
        }
        let state = Sender::new(State { available: true, stalled: false, cuts: 0 });
        let log = Mutex::new(audit::Log::new(options.audit));
        Self {
            objects,
            shared: Arc::new(Shared { options, state, log, denied: Mutex::default(), interceptors: Mutex::default() }),
        }
    }

    /// Returns the objects.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Sets whether the server answers. While it does not, the connection is refused inside the process, requests on
    /// loopback get 503, and watches are cut.
    pub fn set_available(&self, available: bool) {
        self.shared.state.send_modify(|state| {
            state.available = available;
            state.cuts += u64::from(!available);
        });
    }

    /// Cuts the connections of all watches.
    pub fn cut_watches(&self) {
        self.shared.state.send_modify(|state| state.cuts += 1);
    }

    /// Holds back all watch events, including bookmarks, or delivers the held events in order.
    pub fn stall_watches(&self, stalled: bool) {
        self.shared.state.send_modify(|state| state.stalled = stalled);
    }

    /// Denies these rights, and grants those denied before.
    pub fn deny(&self, permissions: Vec<DeniedPermission>) {
        *self.shared.denied.lock().unwrap_or_else(PoisonError::into_inner) = permissions;
    }

    /// Returns the last requests, oldest first.
    pub fn audit(&self) -> Vec<ApiRequest> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).all()
    }

    fn available(&self) -> bool {
        self.shared.state.borrow().available
    }

    /// Answers one request of a trusted client.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<Body> {
        self.handle_after_webhooks(request, Caller::Trusted).await
    }

    /// Answers one request. An eviction waits for its webhooks first.
    async fn handle_after_webhooks(&self, request: Request<Bytes>, caller: Caller) -> Response<Body> {
        if let Some(time) = self.webhook_delay(&request) {
            tokio::time::sleep(time).await;
        }
        self.answer(request, caller)
    }

    fn answer(&self, request: Request<Bytes>, caller: Caller) -> Response<Body> {
        let audit_entry = audit::ApiRequest::begin(self.objects.clock().wall(), &request);
        let call = Call::of(request, caller);
        let target = Target::read(&call.path);
        let verb = call.verb(match &target {
            Ok(Target::Objects(info)) => Some(info),
            _ => None,
        });
        let user = call.user().to_owned();
        let reply = target.and_then(|target| {
            self.authorize(&call, verb, &target)?;
            self.dispatch(&call, &target)
        });
        let message = reply.as_ref().err().and_then(|f| f.body["message"].as_str()).unwrap_or_default().to_owned();
        let response = answer::write(&call, reply, self.objects.clock().wall());
        let audit_entry = audit_entry.end(user, verb, response.status().as_u16(), message);
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).push(audit_entry);
        response
    }

    fn dispatch(&self, call: &Call, target: &Target) -> Result<Reply, StatusError> {
        match target {
            Target::Objects(info) => self.dispatch_object(call, info),
            Target::Review(name) => self.review(call, name),
            Target::Other(parts) => discovery::answer(call, parts),
        }
    }

    fn dispatch_object(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        if !info.kind.namespaced && !info.namespace.is_empty() && info.kind != &NODES {
            return Err(StatusError::no_resource());
        }
        match (&call.method, info.sub.as_str()) {
            (_, "scale") => self.scale(call, info),
            (&Method::GET | &Method::HEAD, _) => self.read(call, info),
            (&Method::POST, "eviction") => self.evict(call, info),
            (&Method::POST, "binding") => self.bind(call, info),
            (&Method::POST, "") => self.create(call, info),
            (&Method::PUT, "" | "status" | "finalize") => self.replace(call, info),
            (&Method::PATCH, "" | "status") => self.patch(call, info),
            (&Method::DELETE, "") => self.delete(call, info),
            _ => Err(StatusError::no_method()),
        }
    }
}

#[cfg(test)]
mod tests;
