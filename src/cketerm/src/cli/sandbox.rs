//! `cketerm sandbox …`: the simulated data centre without the console.

use std::{
    convert::Infallible,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use cketerm_actions::ActionError;
use cketerm_clients::net::Http;
use cketerm_model::clock::Clock;
use cketerm_sandbox::{
    Sandbox,
    durations::Durations,
    machines::Machines,
    serve::{CommandOutput, MachineCommand, Ports},
    workload::Population,
};
use cketerm_scenario::{Scenario, Stage};
use clap::Subcommand;
use http::Request;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::{Context, sandbox_options::Choice};

/// Subcommands about the sandbox.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Serve the sandbox on loopback ports until SIGTERM; prints its URLs as a JSON line
    Serve {
        /// Options of the sandbox.
        #[command(flatten)]
        choice: Choice,
        /// Folder for kubeconfig and config.yaml [default: a new temporary folder]
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
        /// YAML file of durations that override the scenario's: `{boot: {seconds: 1}, api_settle: 1}`
        #[arg(long, value_name = "FILE")]
        pace: Option<PathBuf>,
        /// Start with no machines, workloads or keys of cketerm; add machines with `PUT /machines/ADDRESS`
        #[arg(long, conflicts_with_all = ["nodes", "scenario"])]
        empty: bool,
    },
    /// List the scenarios
    Scenarios,
    /// Run one command of the served sandbox's definition
    #[command(hide = true)]
    Machine {
        /// URL of the machines.
        #[arg(long)]
        at: String,
        /// Verb, address, and for a check the time.
        #[arg(required = true, trailing_var_arg = true)]
        argv: Vec<String>,
    },
}

/// Runs one subcommand.
pub async fn run(command: SandboxCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        SandboxCommand::Serve { choice, dir, pace, empty } => Box::pin(serve(&choice, dir, pace, empty, context)).await,
        SandboxCommand::Scenarios => {
            for scenario in Scenario::all().map_err(ActionError::failed)? {
                context.out.line(&format!("{:<16}{}", scenario.name, scenario.about))?;
            }
            Ok(())
        }
        SandboxCommand::Machine { at, argv } => match machine(&at, argv, context).await? {},
    }
}

async fn serve(
    choice: &Choice,
    dir: Option<PathBuf>,
    pace: Option<PathBuf>,
    empty: bool,
    context: &Context,
) -> Result<(), ActionError> {
    let failed = |e: std::io::Error| ActionError::failed(format!("cannot serve the sandbox: {e}"));
    let on = |kind| signal(kind).map_err(failed);
    let (mut term, mut int, mut hup) =
        (on(SignalKind::terminate())?, on(SignalKind::interrupt())?, on(SignalKind::hangup())?);
    let ports = Ports::bind().await.map_err(failed)?;
    let machines = ports.machines_url().map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let (mut scenario, mut options) = choice.build().map_err(ActionError::misused)?;
    if let Some(file) = pace {
        scenario.pace =
            read_pace(&file).map_err(|e| ActionError::misused(format!("--pace {}: {e}", file.display())))?;
    }
    options.program = vec![
        program.display().to_string(),
        "sandbox".to_owned(),
        "machine".to_owned(),
        "--at".to_owned(),
        machines.clone(),
    ];
    // the kubeconfig below uses the first token; each token is its user's name, so the audit distinguishes the two
    options.api.tokens.extend(["admin", "bench"].map(|user| (user.to_owned(), user.to_owned())));
    options.sabakan = ports.sabakan_url().map_err(failed)?;
    let redfish = ports.redfish_url().map_err(failed)?;
    // for the controller of the reboot interface: the engine, once the policy enables it
    scenario.population.metal3.get_or_insert_default().redfish = Some(redfish.clone());
    options.probe = format!("{machines}/machines/{{address}}/readyz");
    let backends = if empty {
        let pace = scenario.pace.divided_by(options.speed);
        Sandbox::new(&Population::empty(), pace, options.api, Clock::host(), options.seed)
            .map(Box::new)
            .map(SandboxBackends::Bare)
    } else {
        Stage::set(scenario, options, Clock::host()).await.map(Box::new).map(SandboxBackends::Stage)
    };
    let backends = backends.map_err(ActionError::failed)?;
    let mut served = match &backends {
        SandboxBackends::Bare(sandbox) => ports.serve(sandbox),
        SandboxBackends::Stage(stage) => ports.serve(&stage.sandbox),
    }
    .map_err(failed)?;
    let is_temporary = dir.is_none();
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join(format!("cketerm-sandbox-{}", std::process::id())));
    // the files in it name the kubeconfig's path and are read from other directories
    let dir = std::path::absolute(&dir).unwrap_or(dir);
    if is_temporary {
        // a new directory that only this user can read; an existing one is refused
        std::fs::DirBuilder::new().mode(0o700).create(&dir).map_err(failed)?;
    } else {
        std::fs::create_dir_all(&dir).map_err(failed)?;
    }
    let (kubeconfig, config) = (dir.join("kubeconfig"), dir.join("config.yaml"));
    let (etcd, kubernetes) = (format!("http://{}", served.etcd), format!("http://{}", served.kubernetes));
    std::fs::write(&kubeconfig, kubeconfig_text(&kubernetes)).map_err(failed)?;
    let text = format!(
        "etcd: {{endpoints: [\"{etcd}\"]}}\ncluster_etcd: {{endpoints: [\"http://{}\"]}}\nkubernetes: {{kubeconfig: {}}}\nengine: {{lease_ttl_seconds: 10, state_directory: state}}\n\
         power: {{bmcs: bmcs.yaml}}\n",
        served.members,
        json!(kubeconfig)
    );
    std::fs::write(&config, text).map_err(failed)?;
    let bmcs = match &backends {
        SandboxBackends::Bare(sandbox) => bmcs_text(&sandbox.machines, &redfish),
        SandboxBackends::Stage(stage) => bmcs_text(&stage.sandbox.machines, &redfish),
    };
    std::fs::write(dir.join("bmcs.yaml"), bmcs).map_err(failed)?;
    let line = json!({"etcd": etcd, "kubeconfig": kubeconfig, "config": config, "kubernetes": kubernetes, "machines": machines,
        "sabakan": format!("http://{}", served.sabakan), "redfish": redfish});
    context.out.line(&line.to_string())?;
    // A script needs an engine that acts; without a scenario's name nothing happens in the data centre.
    let script = async {
        if let SandboxBackends::Stage(stage) = &backends
            && choice.scenario.is_some()
        {
            stage.play().await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = script => {}
        _ = term.recv() => {}
        _ = int.recv() => {}
        _ = hup.recv() => {}
        () = served.ended() => return Err(ActionError::failed("a server of the sandbox ended: see the log")),
    }
    if is_temporary {
        // this process wrote everything in this directory
        let _ = std::fs::remove_dir_all(&dir);
    }
    Ok(())
}

/// Backend that is served.
enum SandboxBackends {
    /// Empty sandbox.
    Bare(Box<Sandbox>),
    /// Data centre of a scenario.
    Stage(Box<Stage>),
}

fn read_pace(file: &Path) -> Result<Durations, String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    serde_yaml::from_str(&text).map_err(|e| e.to_string())
}

/// Renders the file of `power.bmcs`: which system of the Redfish service belongs to which address.
fn bmcs_text(machines: &Machines, redfish: &str) -> String {
    let all = machines.list().into_iter().map(|m| (m.address, json!({"url": redfish, "system": m.name})));
    let bmcs: serde_json::Map<_, _> = all.collect();
    // BareMetalHosts name the same service
    let networks = json!([{"cidr": "127.0.0.1/32", "http": true}]);
    format!("{}\n", json!({"networks": networks, "bmcs": bmcs}))
}

fn kubeconfig_text(server: &str) -> String {
    // kubectl sends no token without TLS, but it sends the credentials of the URL
    let server = server.replacen("://", "://admin:admin@", 1);
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": {"server": server}}],
        "users": [{"name": "admin", "user": {"token": "admin"}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}],
    });
    format!("{text}\n")
}

/// Sends one command of the definition to the served machines.
async fn machine(at: &str, argv: Vec<String>, context: &Context) -> Result<Infallible, ActionError> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let order = MachineCommand { argv, entry: variable("CKETERM_ENTRY"), attempt: variable("CKETERM_ATTEMPT") };
    let failed = |why: String| ActionError::failed(format!("the sandbox's machines at {at}: {why}"));
    // the helper enforces the command's timeout; this one only makes sure that the request ends
    let http = Http::for_liveness(Duration::from_hours(24)).map_err(|e| failed(e.to_string()))?;
    let body = serde_json::to_vec(&order).map_err(|e| failed(e.to_string()))?;
    let request = Request::post(format!("{at}/machines")).header("content-type", "application/json");
    let request = request.body(Bytes::from(body)).map_err(|e| failed(e.to_string()))?;
    let answer = http.send(request).await.map_err(|e| failed(e.to_string()))?;
    let ran: CommandOutput =
        serde_json::from_slice(answer.body()).map_err(|e| failed(format!("{}: {e}", answer.status())))?;
    context.out.text(&ran.stdout)?;
    if !ran.stderr.is_empty() {
        context.out.message(ran.stderr.trim_end());
    }
    // exit as the simulated command did: the engine judges the status
    std::process::exit(ran.code)
}
