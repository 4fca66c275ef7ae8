//! Logs: to standard error for a daemon, to rolling files where a directory is configured, never to a console's
//! screen (spec/cli.md; DESIGN.md).

use std::path::Path;

use tracing_appender::{non_blocking::WorkerGuard, rolling};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

/// Days of rolling logs that are kept.
const KEPT: usize = 14;

/// Keeps the log's writer alive; what is still buffered is written when it is dropped.
#[must_use]
pub struct Logs(#[allow(dead_code)] Option<WorkerGuard>);

/// Where logs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Standard error.
    Stderr,
    /// `cketerm.log.<date>` in this directory, one file a day.
    Directory(&'a Path),
    /// Nowhere: a console without a directory.
    Nowhere,
}

/// Sets logging up once. `level` is a level or a filter such as `info,kube=warn`; an invalid one is an error that
/// names it.
pub fn start(target: Target<'_>, level: &str, json: bool) -> anyhow::Result<Logs> {
    let filter = EnvFilter::try_new(level).map_err(|e| anyhow::anyhow!("log level {level:?} cannot be read: {e}"))?;
    match target {
        Target::Nowhere => Ok(Logs(None)),
        Target::Stderr => {
            init(filter, json, std::io::stderr);
            Ok(Logs(None))
        }
        Target::Directory(directory) => {
            std::fs::create_dir_all(directory)
                .map_err(|e| anyhow::anyhow!("log directory {}: {e}", directory.display()))?;
            let files = rolling::Builder::new()
                .rotation(rolling::Rotation::DAILY)
                .filename_prefix("cketerm.log")
                .max_log_files(KEPT)
                .build(directory)
                .map_err(|e| anyhow::anyhow!("log directory {}: {e}", directory.display()))?;
            let (writer, guard) = tracing_appender::non_blocking(files);
            init(filter, json, writer);
            Ok(Logs(Some(guard)))
        }
    }
}

fn init<W>(filter: EnvFilter, json: bool, writer: W)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    // A second call (in tests) changes nothing.
    let _ = if json { registry.with(layer.json()).try_init() } else { registry.with(layer).try_init() };
}
