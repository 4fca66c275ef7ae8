//! The console with an engine in one process: the order in which they start and end.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use cketerm::{
    cli::{Color, Out, RunOptions},
    config::Settings,
};
use cketerm_actions::{BmcLookup, Operator};
use cketerm_console as console;
use cketerm_console::{
    Clients, ClientsReceiver, ConsoleOptions, View,
    terminal::{
        attention::has_title,
        guard::{Modes, leave},
        options::Resign,
    },
    theme::{
        self,
        charset::{Charset, can_report_position},
    },
};
use cketerm_engine::{backends::Backends, run::LONGEST_END};
use cketerm_model::{cketerm_records::EngineMode, clock::Clock};
use cketerm_rules::{console_leads::LeadAnswer, seen::Seen};
use cketerm_runtime::{
    host::host_name,
    telemetry::{self, Logs, Ring, Target},
};
use cketerm_scenario::{Scenario, Stage};
use tokio::sync::{mpsc, oneshot, watch};

/// Delay after the engine resigned for a stop (Ctrl-Z). The process stops in that time, and a new engine starts
/// afterwards.
const RESTART_DELAY: Duration = Duration::from_secs(2);
/// Time after which a slow end is explained to the operator.
const EXPLAIN_AFTER: Duration = Duration::from_secs(2);

/// Converts options and settings for the console, or returns the reason why they are invalid.
pub fn options(settings: &Settings, run: &RunOptions, when: Color) -> Result<ConsoleOptions, String> {
    let view: View = run.view.as_deref().unwrap_or(&settings.console.view).parse()?;
    let colour = match when {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    };
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (config, term) = (&settings.console, environment("TERM"));
    let theme = run.theme.clone().unwrap_or_else(|| config.theme.clone());
    let charset = Charset::of(config.ascii, environment).on_terminal(term.as_deref());
    let options = ConsoleOptions {
        view,
        cluster_badge: run.sandbox.then(|| "SANDBOX".to_owned()),
        keys: config.keys.clone(),
        settings: if run.sandbox { None } else { console::state::settings::path() },
        ask_background: theme == theme::AUTO && colour && theme::background::can_query(term.as_deref()),
        theme,
        probe_width: charset == Charset::All && can_report_position(term.as_deref()),
        theme_is_fixed: run.theme.is_some(),
        charset,
        modes: Modes {
            title: config.title && has_title(term.as_deref()),
            mouse: has_title(term.as_deref())
                && config
                    .mouse
                    .is_enabled(["SSH_CONNECTION", "TMUX", "STY"].into_iter().any(|n| environment(n).is_some())),
        },
        bell: config.bell,
        colour,
        read_only: run.read_only,
        plain: run.plain,
        blocks: charset == Charset::All,
        can_copy: has_title(term.as_deref()),
        sandbox: run.sandbox,
        endpoints: if run.sandbox { vec!["the sandbox".to_owned()] } else { settings.etcd.masked_endpoints() },
        ..ConsoleOptions::default()
    };
    options.config()?;
    Ok(options)
}

/// Runs both until the operator leaves the console. The engine then ends what runs and resigns. The console starts at
/// once; its backends connect in the background.
pub async fn run(
    backends: impl Future<Output = anyhow::Result<Backends>> + Send + 'static,
    campaign: bool,
    mut options: ConsoleOptions,
) -> anyhow::Result<()> {
    let (publish, seen) = watch::channel(Arc::<Seen>::default());
    let (clients, clients_receiver) = watch::channel(None);
    let (ask, resign_requests) = mpsc::channel(1);
    let (modes, read_only) = (options.modes, options.read_only);
    // a sandbox belongs to this console, so it leads without asking
    let answer = (!options.sandbox).then(|| {
        let (sender, answer) = watch::channel(LeadAnswer::default());
        options.lead_answer = Some(sender);
        answer
    });
    options.resign = Some(Resign { requests: ask, longest: LONGEST_END });
    let engine = tokio::spawn(async move {
        let backends = Backends { repeats_cancels: !read_only, ..backends.await? };
        let bmcs =
            || BmcLookup::new(backends.bmcs.clone()).and_registry(backends.store.clone(), backends.registry.clone());
        let operator = Some(Operator::new(backends.store.clone(), backends.kube.clone()).with_bmcs(bmcs()));
        clients.send_replace(Some(Clients { store: backends.store.clone(), kube: backends.kube.clone(), operator }));
        keep(backends, (campaign, answer), &publish, resign_requests, modes).await
    });
    let mut engine = std::pin::pin!(engine);
    tokio::select! {
        ended = show(seen, clients_receiver, options) => {
            // the options are gone, and with them the sender, so the engine ends
            let ends = if let Ok(ends) = tokio::time::timeout(EXPLAIN_AFTER, engine.as_mut()).await {
                ends
            } else {
                let most = LONGEST_END.as_secs();
                Out.message(&format!("cketerm: finishing running actions, then releasing the lock (at most {most} s)"));
                engine.await
            };
            ends.context("the engine failed")??;
            ended
        }
        // Before the console: the servers cannot be used, or the engine is stuck. The terminal is restored.
        failed = &mut engine => failed.context("the engine failed")?,
    }
}

/// Runs the console on a screen or as lines.
async fn show(
    seen: watch::Receiver<Arc<Seen>>,
    clients: ClientsReceiver,
    options: ConsoleOptions,
) -> anyhow::Result<()> {
    if options.plain {
        console::terminal::plain::run(seen, options).await
    } else {
        console::run(seen, clients, options).await
    }
}

/// Creates the backends of a sandbox. The scenario runs beside the console until the program ends.
pub async fn stage(scenario: Scenario, how: cketerm_scenario::Options) -> anyhow::Result<Backends> {
    let stage = Stage::set(scenario, how, Clock::host()).await.map_err(anyhow::Error::msg)?;
    let backends = stage.backends(&host_name());
    tokio::spawn(async move {
        stage.play().await;
        // the simulated data centre goes on
        std::future::pending::<()>().await;
        drop(stage);
    });
    Ok(backends)
}

/// Forwards the engine's state to the console, lets the engine resign on request, and ends it when the console is gone.
/// Fails if the main loop is stuck, so that the program ends.
async fn keep(
    backends: Backends,
    (campaign, answer): (bool, Option<watch::Receiver<LeadAnswer>>),
    publish: &watch::Sender<Arc<Seen>>,
    mut resign_requests: mpsc::Receiver<oneshot::Sender<()>>,
    modes: Modes,
) -> anyhow::Result<()> {
    loop {
        let engine = match &answer {
            Some(answer) => backends.start_console(campaign, answer.clone()),
            None => backends.start(EngineMode::Console, campaign, None),
        };
        let heartbeat = engine.heartbeat();
        let exits = heartbeat.exit_message();
        heartbeat.guard(move || {
            leave(modes);
            Out.message(&format!("cketerm: {exits}"));
        })?;
        let stuck = heartbeat.stuck();
        tokio::pin!(stuck);
        let mut seen = engine.seen();
        let resign_request = loop {
            tokio::select! {
                Ok(()) = seen.changed() => {
                    publish.send_replace(Arc::clone(&seen.borrow_and_update()));
                }
                resign_request = resign_requests.recv() => break resign_request,
                why = &mut stuck => anyhow::bail!(why),
            }
        };
        tokio::select! {
            () = engine.stop() => {}
            why = stuck => anyhow::bail!(why),
        }
        let Some(answer) = resign_request else { return Ok(()) };
        let _ = answer.send(());
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

/// Starts logging to files, because a console's screen cannot show logs.
pub fn logs(settings: &Settings, sandbox: bool, ring: &Ring) -> anyhow::Result<Logs> {
    let log = &settings.log;
    let start = |target: Target<'_>| telemetry::start_with(target, &log.level, log.json, Some(ring.clone()));
    if sandbox {
        // the events of a sandbox need no log
        return start(Target::Nowhere);
    }
    let own = directories::ProjectDirs::from("", "", "cketerm");
    let own = own.as_ref().and_then(|d| d.state_dir().map(std::path::Path::to_owned));
    match (&log.directory, own) {
        (Some(named), _) => start(Target::Directory(named)),
        (None, Some(own)) => start(Target::Directory(&own)).or_else(|_| start(Target::Nowhere)),
        (None, None) => start(Target::Nowhere),
    }
}
