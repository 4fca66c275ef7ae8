//! Backends of an engine inside a sandbox: in-process clients, and commands and probes that the machines answer.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use cketerm_clients::{
    kubernetes::{Kube, Streaming},
    net::{Http, NoAnswer},
    power::BmcClients,
    prometheus::Prometheus,
    store::{Store, members::EtcdMembers},
};
use cketerm_engine::{
    backends::Backends,
    command::{self, CommandLine, Purpose, Spawner},
};
use cketerm_model::{
    attempt::Ended,
    clock::Clock,
    result::{CommandResult, ResultLabel, argv_digest},
};
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::{
    Sandbox,
    bmc::{self, Bmcs},
    faults::Link,
    machines::Machines,
    members::{ANY_MEMBER_URL, Members},
    prometheus::Prometheus as SandboxPrometheus,
    sabakan::Sabakan,
};
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use tonic::body::Body as TonicBody;

/// URL of sabakan inside the process. It exists nowhere else.
pub const SABAKAN: &str = "http://sabakan.sandbox:10080";

/// URL of Prometheus inside the process. It exists nowhere else.
pub const PROMETHEUS: &str = "http://prometheus.sandbox:9090";

/// Command results that a host stores, by file name. They outlive the engine and the host's clock.
pub type ResultStore = Arc<Mutex<BTreeMap<String, CommandResult>>>;

/// Runs the definition's commands on the machines, as the helper on a host would: with timeouts, and withholding
/// commands that start too late.
pub struct Commands {
    /// The machines.
    pub machines: Machines,
    /// Clock of the engine that runs the commands.
    pub clock: Clock,
    /// Store for results until they are recorded; `None` keeps no results.
    pub disk: Option<ResultStore>,
}

impl Commands {
    fn store_result(disk: Option<&ResultStore>, line: &CommandLine, clock: &Clock, ended: &(Ended, String, String)) {
        let (Some(disk), Some(label)) = (disk, &line.label) else { return };
        let outcome = command::outcome(clock.wall(), ended.clone());
        let result = CommandResult { label: label.clone(), argv: argv_digest(&line.argv), outcome };
        disk.lock().unwrap_or_else(PoisonError::into_inner).insert(label.file_name(), result);
    }
}

impl command::Commands for Commands {
    fn has(&self, _: &str) -> bool {
        true
    }

    fn run(&self, line: CommandLine) -> BoxFuture<'static, (Ended, String, String)> {
        let (machines, clock, disk) = (self.machines.clone(), self.clock.clone(), self.disk.clone());
        async move {
            if line.start_before.is_some_and(|at| clock.boot() >= at) {
                let withheld =
                    (Ended::Withheld("its start deadline had passed".to_owned()), String::new(), String::new());
                Self::store_result(disk.as_ref(), &line, &clock, &withheld);
                return withheld;
            }
            let env = [("CKETERM_ENTRY", line.entry.clone()), ("CKETERM_ATTEMPT", line.attempt.clone())];
            let env = env.map(|(name, value)| (name.to_owned(), value));
            let bound = Some(Duration::from_secs(line.bound));
            match line.purpose {
                Purpose::Check => machines.command_within(&line.argv, &env, bound, None).await,
                // Goes on even if the engine that started it is gone.
                Purpose::Power => {
                    let task = tokio::spawn(async move {
                        let ended = machines.command_within(&line.argv, &env, bound, line.output.clone()).await;
                        Self::store_result(disk.as_ref(), &line, &clock, &ended);
                        ended
                    });
                    let lost = |e| (Ended::Unknown(format!("the helper ended: {e}")), String::new(), String::new());
                    task.await.unwrap_or_else(lost)
                }
            }
        }
        .boxed()
    }

    fn keeps_results(&self) -> bool {
        self.disk.is_some()
    }

    fn result(&self, label: &ResultLabel) -> Option<CommandResult> {
        let disk = self.disk.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        disk.get(&label.file_name()).cloned()
    }

    fn forget_result(&self, label: &ResultLabel) {
        if let Some(disk) = &self.disk {
            disk.lock().unwrap_or_else(PoisonError::into_inner).remove(&label.file_name());
        }
    }
}

/// Returns a client for `https://ADDRESS:6443/readyz`, which the API server of that machine answers.
pub fn probes(machines: &Machines) -> Http {
    let machines = machines.clone();
    Http::by(move |request: Request<Bytes>| {
        let answer = request.uri().host().and_then(|host| machines.readyz(host.trim_matches(['[', ']'])));
        async move {
            let status = answer.ok_or_else(|| NoAnswer("connection refused or unreachable".to_owned()))?;
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = http::StatusCode::from_u16(status).map_err(|e| NoAnswer(e.to_string()))?;
            Ok(response)
        }
        .boxed()
    })
}

/// Returns a client for the sandbox's sabakan at [`SABAKAN`].
pub fn registry(sabakan: &Sabakan) -> Http {
    let sabakan = sabakan.clone();
    Http::by(move |request: Request<Bytes>| {
        let sabakan = sabakan.clone();
        async move {
            if request.uri().authority().is_some_and(|a| SABAKAN.ends_with(a.as_str())) {
                return Ok(sabakan.serve(request).await);
            }
            Err(NoAnswer("connection refused or unreachable".to_owned()))
        }
        .boxed()
    })
}

/// Returns a client through which the process `name` reaches the sandbox's Prometheus at [`PROMETHEUS`].
pub fn prometheus(prometheus: &SandboxPrometheus, name: &str) -> Prometheus {
    let (prometheus, name) = (prometheus.clone(), name.to_owned());
    Prometheus::in_process(Http::by(move |request: Request<Bytes>| {
        let (prometheus, name) = (prometheus.clone(), name.clone());
        async move {
            if request.uri().authority().is_some_and(|a| PROMETHEUS.ends_with(a.as_str())) {
                return Ok(prometheus.serve(&name, &request).await);
            }
            Err(NoAnswer("connection refused or unreachable".to_owned()))
        }
        .boxed()
    }))
}

/// Returns the clients of the sandbox's Kubernetes etcd.
fn etcd_members(members: &Members) -> EtcdMembers {
    let members = members.clone();
    EtcdMembers::in_process(vec![ANY_MEMBER_URL.to_owned()], move |url| members.client_at(url))
}

/// Returns a client without any reachable server. A sandbox has no webhook receivers; tests that need one replace this
/// client.
fn unreachable_receivers() -> Http {
    Http::by(|_| async { Err(NoAnswer("connection refused or unreachable".to_owned())) }.boxed())
}

/// Returns clients of the sandbox's BMCs at `bmc-NAME.sandbox`, with the sandbox's BMC file.
pub fn bmcs(machines: &Machines) -> BmcClients {
    let bmcs = Bmcs::new(machines.clone());
    let names = bmcs.clone();
    let http = Http::by(move |request: Request<Bytes>| {
        let bmcs = bmcs.clone();
        let none = || NoAnswer("no answer in 10 s".to_owned());
        async move { bmcs.serve(request).await.ok_or_else(none) }.boxed()
    });
    BmcClients::in_process(http, bmc::FILE, move |host| names.resolve(host))
}

/// Links of one process to the servers. Each link can have faults.
#[derive(Clone)]
pub struct Links {
    /// Link to etcd.
    pub etcd: Link,
    /// Link to Kubernetes.
    pub kubernetes: Link,
}

impl Links {
    /// Creates links without faults for the process `name` behind `gate`. `seed` determines which requests meet which
    /// faults.
    pub fn new(name: &str, gate: &Gate, seed: u64) -> Self {
        let link = |salt| Link::new(name, gate.clone(), seed ^ salt);
        Self { etcd: link(0x0065_7463), kubernetes: link(0x006b_3873) }
    }
}

/// Returns a connection to the sandbox's API server.
pub fn kube(sandbox: &Sandbox, link: &Link, clock: Clock) -> Kube {
    let client = sandbox.api.client_through(|wire| link.wrap_unary(wire, axum::body::Body::new));
    Kube::from_client(client, clock)
}

/// Returns the backends of an engine on the host `name`.
pub fn backends(sandbox: &Sandbox, name: &str, clock: Clock, links: &Links) -> Backends {
    let etcd = sandbox.etcd.client_through(|wire| links.etcd.wrap(wire, TonicBody::new, TonicBody::new));
    Backends {
        store: Store::from_client(etcd, "/cke/", clock.clone()),
        kube: Some(kube(sandbox, &links.kubernetes, clock.clone())),
        streaming: Streaming::Auto,
        spawner: Spawner::elsewhere(Commands { machines: sandbox.machines.clone(), clock, disk: None }),
        probes: probes(&sandbox.machines),
        etcd_members: etcd_members(&sandbox.members),
        registry: registry(&sandbox.sabakan),
        bmcs: bmcs(&sandbox.machines),
        notices: Arc::default(),
        webhooks: unreachable_receivers(),
        prometheus: prometheus(&sandbox.prometheus, name),
        repeats_cancels: true,
        examines: false,
        ttl: Duration::from_secs(10),
        host: name.to_owned(),
        pid: std::process::id(),
        node: None,
    }
}
