//! Chooses one of the ways to run.

use std::{io::IsTerminal, process::ExitCode};

use cketerm::{
    cli::{Cli, Context, run},
    config::Settings,
    engine::command::helper_main,
};
use clap::Parser;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    if words.next().as_deref() == Some("run-command") {
        // this program as the engine's helper: no settings, no runtime
        return helper_main(&words.collect::<Vec<_>>());
    }
    let cli = Cli::parse();
    let settings = match Settings::load(&cli.overrides()) {
        Ok(settings) => settings,
        Err(e) => return fail(2, &e.to_string()),
    };
    for warning in &settings.warnings {
        eprintln!("cketerm: warning: {warning}");
    }
    match cli.command {
        Some(command) => {
            let context = Context::new(settings, &cli.globals);
            match runtime(false).map(|runtime| runtime.block_on(run(command, &context))) {
                Ok(Ok(())) => ExitCode::SUCCESS,
                Ok(Err(e)) => fail(e.kind.status(), &e.text),
                Err(e) => fail(1, &format!("the runtime could not be started: {e}")),
            }
        }
        None if cli.run.sandbox => fail(2, "--sandbox comes in a later version"),
        None if cli.run.daemon => daemon(settings, cli.run.http),
        None if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() => {
            fail(2, "the console needs a terminal; without one use a word (`cketerm --help`) or --daemon")
        }
        None => fail(1, "the console"),
    }
}

/// The engine alone.
fn daemon(settings: Settings, http: Option<std::net::SocketAddr>) -> ExitCode {
    let address = http.map_or_else(|| settings.http.clone().unwrap_or_default(), |a| a.to_string());
    let Ok(address) = address.parse() else {
        return fail(2, &format!("http: {address:?} is not an address with a port, such as 127.0.0.1:10181"));
    };
    match runtime(true).map(|runtime| runtime.block_on(cketerm::daemon::run(settings, address))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(e)) => fail(1, &e.to_string()),
        Err(e) => fail(1, &format!("the runtime could not be started: {e}")),
    }
}

/// One thread for a word that starts within milliseconds, all of them for a daemon or a console.
fn runtime(threads: bool) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = if threads {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    builder.enable_all().build()
}

fn fail(status: u8, text: &str) -> ExitCode {
    eprintln!("cketerm: {}", cketerm::model::text::visible(text, true));
    ExitCode::from(status)
}
