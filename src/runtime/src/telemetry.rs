//! Logs: to standard error for a daemon, to rolling files where a directory is configured, never to a console's screen.
//! A console's Logs view reads the last lines from a ring.

use std::{
    collections::VecDeque,
    fmt::{self, Write as _},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cketerm_model::clock::Clock;
use jiff::Timestamp;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_appender::{
    non_blocking::{NonBlockingBuilder, WorkerGuard},
    rolling,
};
use tracing_subscriber::{
    EnvFilter, Layer,
    fmt::MakeWriter,
    layer::{Context, SubscriberExt},
    util::SubscriberInitExt,
};

/// Number of days that rolling logs are kept.
const KEPT_DAYS: usize = 14;
/// Number of lines in a ring.
pub const LINES: usize = 2000;
/// Number of lines that may wait for the disk; further ones are dropped. The library's default of 128,000 takes 4 MiB,
/// all of which it writes at the start, before the console's first bytes.
const WAITING: usize = 4096;
/// Number of characters kept of each line.
const LONGEST: usize = 2000;

/// Guard of the log's writer. Dropping it writes the buffered lines.
#[must_use]
pub struct Logs(#[allow(dead_code)] Option<WorkerGuard>);

/// Destination of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Standard error.
    Stderr,
    /// `cketerm.log.<date>` in this directory, one file a day.
    Directory(&'a Path),
    /// Nowhere, for a console without a directory.
    Nowhere,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Counted from 1.
    pub number: u64,
    /// Time of the line.
    pub at: Timestamp,
    /// Severity.
    pub level: Level,
    /// The entry that it is about, if it names one: `reboots/3`.
    pub entry: Option<String>,
    /// The message, then the other fields.
    pub text: String,
}

/// Bounded ring of the log's last lines, for the Logs view. Cheap to clone; all clones are one ring.
#[derive(Clone, Debug, Default)]
pub struct Ring(Arc<Mutex<VecDeque<Arc<LogLine>>>>);

impl Ring {
    /// Returns the lines after this number, oldest first.
    pub fn after(&self, number: u64) -> Vec<Arc<LogLine>> {
        let lines = self.lines();
        let from = lines.partition_point(|line| line.number <= number);
        lines.range(from..).cloned().collect()
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<Arc<LogLine>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, at: Timestamp, level: Level, event_text: EventText) {
        let mut text = event_text.message;
        text.push_str(&event_text.fields);
        if let Some((end, _)) = text.char_indices().nth(LONGEST) {
            text.truncate(end);
        }
        let mut lines = self.lines();
        let number = lines.back().map_or(1, |last| last.number + 1);
        lines.push_back(Arc::new(LogLine { number, at, level, entry: event_text.entry, text }));
        while lines.len() > LINES {
            lines.pop_front();
        }
    }
}

impl<S: Subscriber> Layer<S> for Ring {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut event_text = EventText::default();
        event.record(&mut event_text);
        self.push(Clock::host().wall(), *event.metadata().level(), event_text);
    }
}

/// Fields of an event as text.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
    entry: Option<String>,
}

impl Visit for EventText {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), &format!("{value:?}"));
    }
}

impl EventText {
    fn put(&mut self, name: &str, value: &str) {
        match name {
            "message" => value.clone_into(&mut self.message),
            "entry" => self.entry = Some(value.trim_start_matches("Some(\"").trim_end_matches("\")").to_owned()),
            _ => {
                let _ = write!(self.fields, " {name}={value}");
            }
        }
    }
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|e| format!("log level {level:?} cannot be read: {e}"))
}

/// Checks that this is a level or a filter. The error names the problem.
pub fn level(level: &str) -> Result<(), String> {
    filter(level).map(drop)
}

/// Sets up logging once. `level` is a level or a filter such as `info,kube=warn`. An invalid one is an error that names
/// it.
pub fn start(target: Target<'_>, level: &str, json: bool) -> anyhow::Result<Logs> {
    start_with(target, level, json, None)
}

/// Sets up logging as [`start`] does, and also writes the last lines to a ring.
pub fn start_with(target: Target<'_>, level: &str, json: bool, ring: Option<Ring>) -> anyhow::Result<Logs> {
    let filter = filter(level).map_err(anyhow::Error::msg)?;
    match target {
        Target::Nowhere => {
            if ring.is_some() {
                // a second call (in tests) changes nothing
                let _ = tracing_subscriber::registry().with(filter).with(ring).try_init();
            }
            Ok(Logs(None))
        }
        Target::Stderr => {
            init(filter, json, ring, std::io::stderr);
            Ok(Logs(None))
        }
        Target::Directory(directory) => {
            std::fs::create_dir_all(directory)
                .map_err(|e| anyhow::anyhow!("log directory {}: {e}", directory.display()))?;
            let files = rolling::Builder::new()
                .rotation(rolling::Rotation::DAILY)
                .filename_prefix("cketerm.log")
                .max_log_files(KEPT_DAYS)
                .build(directory)
                .map_err(|e| anyhow::anyhow!("log directory {}: {e}", directory.display()))?;
            let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(WAITING).finish(files);
            init(filter, json, ring, writer);
            Ok(Logs(Some(guard)))
        }
    }
}

fn init<W>(filter: EnvFilter, json: bool, ring: Option<Ring>, writer: W)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).with_target(false);
    let registry = tracing_subscriber::registry().with(filter).with(ring);
    // A second call (in tests) changes nothing.
    let _ = if json { registry.with(layer.json()).try_init() } else { registry.with(layer).try_init() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_last_lines_and_returns_those_after_a_number() {
        let ring = Ring::default();
        let subscriber = tracing_subscriber::registry().with(ring.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(entry = %"reboots/3", node = "w1", "drain starts");
            for n in 0..LINES {
                tracing::warn!(n, "again");
            }
        });
        let lines = ring.after(0);
        assert_eq!((lines.len(), lines[0].number), (LINES, 2), "the oldest line was dropped");
        assert_eq!(ring.after(u64::try_from(LINES).unwrap()).len(), 1);
        assert_eq!(lines.last().map(|l| l.text.clone()), Some(format!("again n={}", LINES - 1)));
    }

    #[test]
    fn a_log_line_has_its_entry_as_a_separate_field() {
        let ring = Ring::default();
        let subscriber = tracing_subscriber::registry().with(ring.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(entry = %"reboots/3", node = "w1", "drain starts");
        });
        let lines = ring.after(0);
        assert_eq!((lines[0].entry.as_deref(), lines[0].text.as_str()), (Some("reboots/3"), "drain starts node=w1"));
    }
}
