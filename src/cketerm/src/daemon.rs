//! `cketerm --daemon`: the engine alone, with `/healthz`, `/readyz`, `/metrics` and `/state`. On SIGTERM it resigns and
//! ends gracefully (SAF-7).

use std::{net::SocketAddr, sync::Arc, time::Duration};

use cketerm_engine::Counters;
use cketerm_model::{boot_time::Seconds, cketerm_records::EngineMode, clock::Clock, stored::view::migrates};
use cketerm_rules::{preflight_fault::PreflightFault, seen::Seen, state as written};
use cketerm_runtime::telemetry;

mod gauges;
mod metrics;
mod server;
mod systemd;
#[cfg(test)]
mod tests;

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{backends::connect, config::Settings};

pub use self::systemd::watchdog_too_short;

/// Runs until SIGTERM or SIGINT. Without an address it has no HTTP endpoint.
pub async fn run(settings: Settings, http: Option<SocketAddr>) -> anyhow::Result<()> {
    let target = settings.log.directory.as_deref().map_or(telemetry::Target::Stderr, telemetry::Target::Directory);
    let _logs = telemetry::start(target, &settings.log.level, settings.log.json)?;
    let (mut term, mut int, mut hup) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    let short = watchdog_too_short(Duration::from_secs(settings.lease_ttl_seconds));
    for warning in settings.warnings.iter().chain(&settings.exposures()).chain(&short) {
        tracing::warn!("{warning}");
    }
    // Without this check an engine would take its clusters from wherever the environment points.
    settings.check_engine_sources().map_err(|why| anyhow::anyhow!(why))?;
    let listener = match http {
        Some(http) => Some(bind(http).await?),
        None => None,
    };
    let address = listener.as_ref().map(TcpListener::local_addr).transpose()?.map(|address| address.to_string());
    let engine = connect(&settings).await?.start(EngineMode::Daemon, true, address.clone());
    let address = address.as_deref().unwrap_or("off");
    tracing::info!(address, version = env!("CARGO_PKG_VERSION"), "cketerm daemon started");
    let served = listener.map(|listener| tokio::spawn(serve(listener, engine.seen(), engine.counters())));
    let heartbeat = engine.heartbeat();
    let exits = heartbeat.exit_message();
    heartbeat.guard(move || tracing::error!("{exits}"))?;
    systemd::notify("READY=1");
    let watchdog = tokio::spawn(systemd::feed_watchdog(heartbeat.clone()));
    let ends = async {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            _ = hup.recv() => {}
        }
        systemd::notify("STOPPING=1");
        tracing::info!("shutting down: finishing running commands, then resigning");
        engine.stop().await;
        tracing::info!("ended");
    };
    let ended = tokio::select! {
        biased;
        why = heartbeat.stuck() => Err(anyhow::anyhow!(why)),
        () = ends => Ok(()),
    };
    if let Some(served) = served {
        served.abort();
    }
    watchdog.abort();
    ended
}

async fn bind(http: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(http).await;
    listener.map_err(|e| anyhow::anyhow!("cannot listen on {http}: {e}; choose another address with --http"))
}

async fn serve(listener: TcpListener, seen: watch::Receiver<Arc<Seen>>, counters: Arc<Counters>) {
    let mut pages = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz));
    // it names machines, pods and users, so it is served to this host only
    if listener.local_addr().is_ok_and(|address| address.ip().is_loopback()) {
        pages = pages.route("/state", get(state));
    }
    let pages = pages.with_state(seen.clone());
    server::serve(listener, pages.merge(metrics::route(seen, &counters))).await;
}

/// Liveness: the main loop made a pass within the last 30 s.
async fn healthz(State(seen): State<watch::Receiver<Arc<Seen>>>) -> impl IntoResponse {
    let last = seen.borrow().now.boot;
    let age = Clock::host().boot().saturating_duration_since(last);
    if age < Duration::from_secs(30) {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("no pass of the main loop for {} s\n", age.as_secs()))
    }
}

/// Readiness: etcd was read. An engine that only observes is ready too, and reports why it observes.
async fn readyz(State(seen): State<watch::Receiver<Arc<Seen>>>) -> impl IntoResponse {
    let seen = seen.borrow().clone();
    let store = &seen.snapshot.store;
    if !store.synced || seen.now.boot - store.last_seen > Seconds::new(10.0) {
        let why = store.error.clone().unwrap_or_else(|| "etcd has not been read yet".to_owned());
        return (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: etcd: {why}\n"));
    }
    let text = match (&seen.snapshot.engine.leading, seen.snapshot.engine.observing.as_slice()) {
        (Some(_), _) => "leading\n".to_owned(),
        (None, []) => match (&seen.snapshot.engine.migrating, &seen.snapshot.engine.standing_back) {
            (Some(why), _) => format!("{}\n", migrates(&seen.snapshot.engine.host, why)),
            (None, Some(why)) => format!("standing by: {why}\n"),
            (None, None) => "standing by\n".to_owned(),
        },
        (None, faults) => format!("observing: {}\n", PreflightFault::joined(faults)),
    };
    (StatusCode::OK, text)
}

/// Everything that this engine knew at its last pass, including its memory, without secrets. Input of `cketerm decide
/// --from`.
async fn state(State(seen): State<watch::Receiver<Arc<Seen>>>) -> impl IntoResponse {
    let seen = seen.borrow().clone();
    // writing the state of a large cluster takes a while
    let written =
        tokio::task::spawn_blocking(move || written::State::of(&seen).document().map(|d| d.to_string())).await;
    match written.map_err(|e| e.to_string()).and_then(|text| text.map_err(|e| e.to_string())) {
        Ok(text) => (StatusCode::OK, [("content-type", "application/json")], text),
        Err(why) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [("content-type", "text/plain")],
            format!("cannot write the state: {why}\n"),
        ),
    }
}
