//! The console with an engine beside it, in one process: what ends when, and who is told.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use cketerm::{
    actions::Operator,
    cli::{Color, RunOptions},
    config::Settings,
    console::{self, ConsoleOptions, View},
    daemon::{self, Running},
    engine::snapshot::Seen,
    telemetry::{self, Logs, Target},
};
use tokio::sync::{mpsc, oneshot, watch};

/// After the engine has resigned for a stop (Ctrl-Z), the process stops; when it goes on, so does this.
const AFTER_A_STOP: Duration = Duration::from_secs(2);

/// What the options ask for, or why they cannot be taken.
pub fn options(settings: &Settings, run: &RunOptions, when: Color) -> Result<ConsoleOptions, String> {
    let view: View = run.view.as_deref().unwrap_or(&settings.console.view).parse()?;
    let colour = match when {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    };
    let options = ConsoleOptions {
        view,
        theme: settings.console.theme.clone(),
        colour,
        read_only: run.read_only,
        endpoints: settings.etcd.endpoints.clone(),
        ..ConsoleOptions::default()
    };
    options.looks()?;
    Ok(options)
}

/// Runs both until the console is left; the engine then ends what runs and resigns.
pub async fn run(settings: Settings, run: &RunOptions, mut options: ConsoleOptions) -> anyhow::Result<()> {
    let _logs = logs(&settings)?;
    let sources = settings.engine_sources();
    if let Err(why) = &sources {
        tracing::warn!("the engine only observes: {why}");
    }
    let campaign = !run.observe && !run.read_only && sources.is_ok();
    let running = daemon::start(&settings, "console", campaign, None).await?;
    let operator = (!run.read_only).then(|| Operator::new(running.store.clone(), running.kube.clone()));
    let (tell, seen) = watch::channel(Arc::clone(&running.engine.seen().borrow()));
    let (ask, asked) = mpsc::channel(1);
    options.resign = Some(ask);
    let engine = tokio::spawn(keep(settings, campaign, running, tell, asked));
    let ended = console::run(seen, operator, options).await;
    // the options are gone, and with them the sender: the engine ends
    engine.await.context("the engine ended badly")?;
    ended
}

/// Hands on what the engine sees, lets it resign when asked, and ends it when nobody can ask any more.
async fn keep(
    settings: Settings,
    campaign: bool,
    mut running: Running,
    tell: watch::Sender<Arc<Seen>>,
    mut asked: mpsc::Receiver<oneshot::Sender<()>>,
) {
    let mut seen = running.engine.seen();
    loop {
        tokio::select! {
            Ok(()) = seen.changed() => {
                tell.send_replace(Arc::clone(&seen.borrow_and_update()));
            }
            question = asked.recv() => {
                running.engine.stop().await;
                let Some(answer) = question else { return };
                let _ = answer.send(());
                tokio::time::sleep(AFTER_A_STOP).await;
                match daemon::start(&settings, "console", campaign, None).await {
                    Ok(again) => running = again,
                    Err(e) => {
                        // what is shown grows old, and the console says so
                        tracing::error!("the engine could not be started again: {e:#}");
                        return;
                    }
                }
                seen = running.engine.seen();
            }
        }
    }
}

/// To files: a console's screen is no place for logs.
fn logs(settings: &Settings) -> anyhow::Result<Logs> {
    let log = &settings.log;
    let own = directories::ProjectDirs::from("", "", "cketerm");
    let own = own.as_ref().and_then(|d| d.state_dir().map(std::path::Path::to_owned));
    match (&log.directory, own) {
        (Some(named), _) => telemetry::start(Target::Directory(named), &log.level, log.json),
        (None, Some(own)) => telemetry::start(Target::Directory(&own), &log.level, log.json)
            .or_else(|_| telemetry::start(Target::Nowhere, &log.level, log.json)),
        (None, None) => telemetry::start(Target::Nowhere, &log.level, log.json),
    }
}
