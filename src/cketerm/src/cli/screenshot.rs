//! `screenshot`: one frame of the console for scripts, bug reports and the docs' pictures. Never writes.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::{sync::Arc, time::Duration};

use cketerm_actions::ActionError;
use cketerm_console::{
    ConsoleOptions, View,
    terminal::{screen, screenshot},
    theme::{charset::Charset, display::Switch},
};
use cketerm_engine::backends::Backends;
use cketerm_model::{cketerm_records::EngineMode, clock::Clock};
use cketerm_rules::seen::Seen;
use cketerm_runtime::{
    host::host_name,
    telemetry::{self, Ring, Target},
};
use cketerm_scenario::Stage;
use clap::{Args, ValueEnum};
use crossterm::event::KeyEvent;
use ratatui::layout::Size;

use super::{Context, observe::read_complete, sandbox_options::Choice};
use crate::backends::connect;

/// The frame.
#[derive(Args, Debug)]
pub struct ScreenshotArgs {
    /// First view [default: overview]
    #[arg(long, value_name = "NAME", value_parser = view)]
    pub view: Option<View>,
    /// Columns and rows
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "80x24", value_parser = size)]
    pub size: Size,
    /// Keys to press first, with the names in docs/keys.md: 'j j enter', '/ "rack 3" enter'
    #[arg(long, value_name = "KEYS", default_value = "", hide_default_value = true, value_parser = parse_keys)]
    pub keys: KeyPresses,
    /// Output format
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub format: Format,
    /// Use a simulated data centre in this process
    #[arg(long)]
    pub sandbox: bool,
    /// Seconds to play the sandbox's scenario first
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, requires = "sandbox")]
    pub after: f64,
    /// Options of the sandbox.
    #[command(flatten)]
    pub choice: Choice,
}

/// The forms of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Plain text
    Text,
    /// Text with escape sequences for colours
    Ansi,
    /// SVG picture
    Svg,
}

/// Keys to press.
#[derive(Clone, Debug, Default)]
pub struct KeyPresses(Vec<KeyEvent>);

fn parse_keys(text: &str) -> Result<KeyPresses, String> {
    screenshot::presses(text).map(KeyPresses)
}

fn view(text: &str) -> Result<View, String> {
    text.parse()
}

fn size(text: &str) -> Result<Size, String> {
    let parts = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    match parts {
        Some((columns @ 60..=500, rows @ 15..=200)) => Ok(Size::new(columns, rows)),
        _ => Err("expected COLUMNSxROWS such as 80x24, from 60x15 to 500x200".to_owned()),
    }
}

/// Prints the frame.
pub async fn run(args: &ScreenshotArgs, context: &Context) -> Result<(), ActionError> {
    if args.choice.any() && !args.sandbox {
        return Err(ActionError::misused("--nodes, --scenario, --seed and --speed require --sandbox"));
    }
    let ring = Ring::default();
    // the engine of the sandbox runs in this process, and the view shows its log
    let _logs = args.sandbox.then(|| telemetry::start_with(Target::Nowhere, "info", false, Some(ring.clone())));
    let (backends, seen, _stage) =
        if args.sandbox { Box::pin(capture_sandbox(args)).await? } else { capture_real(context).await? };
    let settings = &context.settings;
    let charset = charset(args.format, settings.console.ascii);
    let options = ConsoleOptions {
        charset,
        blocks: charset == Charset::All,
        view: args.view.unwrap_or_default(),
        cluster_badge: args.sandbox.then(|| "SANDBOX".to_owned()),
        theme: settings.console.theme.clone(),
        keys: settings.console.keys.clone(),
        sandbox: args.sandbox,
        endpoints: if args.sandbox { vec!["the sandbox".to_owned()] } else { settings.etcd.masked_endpoints() },
        logs: Some(ring),
        ..ConsoleOptions::default()
    };
    let now = seen.now;
    let app =
        screenshot::after(&options, args.size, seen, now, &args.keys.0, (&backends.store, backends.kube.as_ref()));
    let app = Box::pin(app).await.map_err(|e| ActionError::misused(format!("--keys: {e}")))?;
    match args.format {
        Format::Text => context.out.text(screen::text(&app)),
        Format::Ansi => context.out.picture(&screenshot::picture(&app)),
        Format::Svg => context.out.text(screenshot::svg(&app)),
    }
}

/// Returns the charset of a frame. A picture has a font of its own, so only text follows the locale.
fn charset(format: Format, ascii: Switch) -> Charset {
    let locale = |name: &str| std::env::var(name).ok();
    match format {
        Format::Svg => Charset::of(ascii, |_| None),
        Format::Text | Format::Ansi => Charset::of(ascii, locale),
    }
}

/// Input of a frame: the backends, the state to show, and the data centre if it is simulated.
type Capture = (Backends, Arc<Seen>, Option<Box<Stage>>);

/// Connects to the configured servers and reads them with an engine that only observes.
async fn capture_real(context: &Context) -> Result<Capture, ActionError> {
    // one read reports connection errors at once
    context.store().await?.leader().await?;
    let backends = connect(&context.settings).await.map_err(|e| ActionError::failed(format!("{e:#}")))?;
    let seen = read_complete(&backends, context).await;
    Ok((backends, seen, None))
}

/// Starts a sandbox and plays a scenario in it for a while.
async fn capture_sandbox(args: &ScreenshotArgs) -> Result<Capture, ActionError> {
    let (scenario, options) = args.choice.build().map_err(ActionError::misused)?;
    let stage = Stage::set(scenario, options, Clock::host()).await.map_err(ActionError::failed)?;
    let backends = stage.backends(&host_name());
    let engine = backends.start(EngineMode::Console, true, None);
    let seconds = Duration::try_from_secs_f64(args.after).map_err(|e| ActionError::misused(format!("--after: {e}")))?;
    let mut seen = engine.seen();
    let leads = seen.wait_for(|seen| seen.snapshot.engine.leading.is_some() || seen.snapshot.store.leader().is_some());
    let _ = tokio::time::timeout(Duration::from_secs(10), leads).await;
    tokio::select! {
        () = async { stage.play().await; std::future::pending::<()>().await } => {}
        () = tokio::time::sleep(seconds) => {}
    }
    let last = Arc::clone(&seen.borrow());
    drop(engine);
    Ok((backends, last, Some(Box::new(stage))))
}
