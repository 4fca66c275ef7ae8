//! Entry point: selects the mode of operation.

#[path = "main/console.rs"]
mod console;

use std::{io::IsTerminal, net::SocketAddr, process::ExitCode, time::Duration};

use cketerm::{
    backends::connect,
    cli::{Cli, Context, Out, parse, run},
    config::Settings,
    daemon,
};
use cketerm_engine::command::{SUBCOMMAND, helper_main, init_main, is_init};
use cketerm_model::text::visible;
use cketerm_runtime::{descriptors, telemetry::Ring};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// The watches allocate and free on several threads, which fragments glibc's arenas: an engine of 5,000 nodes took
/// three times as much memory with it. musl's allocator is also many times slower. Debug builds do without, because
/// jemalloc itself takes minutes to build. `.cargo/config.toml` configures it.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).map(|command| command.to_string_lossy().into_owned());
    if words.next().as_deref() == Some(SUBCOMMAND) {
        // this process is the engine's helper: no settings, no runtime
        return helper_main(&words.collect::<Vec<_>>());
    }
    if is_init() {
        // in a container: commands in progress would be killed together with PID 1
        return init_main(&std::env::args_os().collect::<Vec<_>>());
    }
    no_dump();
    descriptors::raise();
    let cli = match parse(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let settings = match Settings::load(&cli.overrides()) {
        Ok(settings) => settings,
        Err(e) => return fail(2, &e.to_string()),
    };
    match cli.command {
        Some(_) if cli.run.any() => {
            fail(2, "options such as --daemon, --observe and --sandbox take no subcommand: leave them out")
        }
        Some(command) => {
            warn(&settings);
            let context = Context::new(settings, &cli.globals);
            with_runtime(Threads::One, async {
                Box::pin(run(command, &context)).await.map_err(|e| (e.kind.status(), e.text))
            })
        }
        None if cli.run.daemon => match listen(&settings) {
            Ok(http) => with_runtime(Threads::All, async {
                Box::pin(daemon::run(settings.for_daemon(), http)).await.map_err(|e| (1, format!("{e:#}")))
            }),
            Err(text) => fail(2, &text),
        },
        None if cli.run.choice.any() && !cli.run.sandbox => {
            fail(2, "--nodes, --scenario, --seed and --speed require --sandbox")
        }
        None => attended(settings.for_console(), &cli),
    }
}

/// Prints the help, or a usage error. An argument within it may come from outside.
fn usage(e: &clap::Error) -> ExitCode {
    let text = e.render().to_string();
    let safe = visible(&text, true);
    if e.use_stderr() && safe != text {
        Out.message(safe.trim_end());
        return ExitCode::from(2);
    }
    e.exit()
}

/// Disables core dumps and tracing by other processes of the same user, because memory holds secrets of etcd,
/// Kubernetes and BMCs.
fn no_dump() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let maximum = getrlimit(Resource::Core).maximum;
    // cketerm also works if the limit cannot be set
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
}

fn attended(settings: Settings, cli: &Cli) -> ExitCode {
    if !settings.configured() && !cli.run.sandbox {
        return fail(2, &unconfigured(&settings));
    }
    let scenario_options = match cli.run.sandbox.then(|| cli.run.choice.build()).transpose() {
        Ok(scenario_options) => scenario_options,
        Err(text) => return fail(2, &text),
    };
    if !cli.run.plain && (!std::io::stdout().is_terminal() || !std::io::stdin().is_terminal()) {
        return fail(2, "the console needs a terminal: use --plain, --daemon or a subcommand (`cketerm --help`)");
    }
    warn(&settings);
    match console::options(&settings, &cli.run, cli.globals.color) {
        Ok(mut options) => with_runtime(Threads::All, async {
            let ring = Ring::default();
            options.logs = Some(ring.clone());
            let _logs = console::logs(&settings, cli.run.sandbox, &ring).map_err(|e| (1, format!("{e:#}")))?;
            let attended = !cli.run.observe && !cli.run.read_only;
            if let Some((scenario, how)) = scenario_options {
                let backends = console::stage(scenario, how);
                return Box::pin(console::run(backends, attended, options)).await.map_err(|e| (1, format!("{e:#}")));
            }
            let sources = settings.check_engine_sources();
            if let Err(why) = &sources {
                tracing::warn!("the engine only observes: {why}");
            }
            let campaign = attended && sources.is_ok();
            let backends = async move { connect(&settings).await };
            Box::pin(console::run(backends, campaign, options)).await.map_err(|e| (1, format!("{e:#}")))
        }),
        Err(text) => fail(2, &text),
    }
}

/// Returns the daemon's listen address; `None` with `off`.
fn listen(settings: &Settings) -> Result<Option<SocketAddr>, String> {
    let parsed = settings.http.as_deref().map(|text| {
        text.parse().map_err(|_| format!("engine.http: {text:?} is not an address such as 127.0.0.1:10181, or off"))
    });
    parsed.transpose()
}

fn unconfigured(settings: &Settings) -> String {
    let files: Vec<String> = settings.searched_files.iter().map(|f| format!("  {}\n", f.display())).collect();
    format!(
        "no etcd is configured, so there is nothing to show. Looked for:\n{}\
         \x20 CKETERM_ETCD_ENDPOINTS in the environment, --etcd-endpoints\n\
         Write a configuration file with `cketerm config default`, or pass the servers as options:\n\
         \x20 cketerm --etcd-endpoints URL --kubeconfig FILE\n\
         Or try it without any server: cketerm --sandbox",
        files.concat()
    )
}

/// Time that the end waits for what still runs, such as files being written.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of worker threads.
#[derive(Clone, Copy)]
enum Threads {
    /// One, for a subcommand, which must start within milliseconds.
    One,
    /// All, for a daemon or a console.
    All,
}

fn with_runtime(threads: Threads, work: impl Future<Output = Result<(), (u8, String)>>) -> ExitCode {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::All => tokio::runtime::Builder::new_multi_thread(),
    };
    let worked = builder.enable_all().build().map(|runtime| {
        let worked = runtime.block_on(work);
        // a task that never ends, such as a stuck engine, must not keep the process
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        worked
    });
    match worked {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err((status, text))) => fail(status, &text),
        Err(e) => fail(1, &format!("cannot start the async runtime: {e}")),
    }
}

fn warn(settings: &Settings) {
    for warning in &settings.warnings {
        Out.message(&format!("cketerm: warning: {warning}"));
    }
}

fn fail(status: u8, text: &str) -> ExitCode {
    Out.message(&format!("cketerm: {text}"));
    ExitCode::from(status)
}
