//! `support-bundle`: an archive for a defect report. It holds only the parts of [`Part`]. Each part is built from typed
//! values whose texts are all masked ([`safe::Text`]), so nothing else can get in.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

mod archive;
mod cluster;
mod collect;
mod local;
mod past;
mod queues;
mod safe;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use cketerm_actions::ActionError;
use cketerm_model::clock::Clock;
use clap::Args;
use jiff::Timestamp;

use self::safe::Text;
use super::{
    Context, moment,
    output::{Lines, columns},
};

/// Arguments of `support-bundle`.
#[derive(Args, Debug)]
pub struct SupportBundleArgs {
    /// File to write; - = standard output [default: cketerm-support-TIME.tar.gz in this folder]
    file: Option<PathBuf>,
    /// Audit, history and log since TIME: 2026-11-21T10:00:00Z, 2026-11-21 (UTC), or 90m, 7d ago
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = moment::parse_past)]
    since: Timestamp,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print what a bundle holds and what it leaves out; writes nothing, contacts no server
    #[arg(long)]
    pub list: bool,
}

/// Parts of a bundle. There are no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// This list.
    Readme,
    /// Sources that did not answer.
    Errors,
    /// Output of `info`.
    About,
    /// Output of `doctor`.
    Doctor,
    /// Output of `config show`.
    Configuration,
    /// The policy.
    Policy,
    /// The constraints.
    Constraints,
    /// The definition.
    Definition,
    /// Leader, engines and switches.
    Leader,
    /// All queues.
    Entries,
    /// Audit records.
    Audit,
    /// Ended entries.
    History,
    /// Metrics of the daemon.
    Metrics,
    /// End of the log.
    Log,
}

impl Part {
    const ALL: [Self; 14] = [
        Self::Readme,
        Self::Errors,
        Self::About,
        Self::Doctor,
        Self::Configuration,
        Self::Policy,
        Self::Constraints,
        Self::Definition,
        Self::Leader,
        Self::Entries,
        Self::Audit,
        Self::History,
        Self::Metrics,
        Self::Log,
    ];

    /// Returns its file.
    fn file(self) -> &'static str {
        match self {
            Self::Readme => "README.txt",
            Self::Errors => "errors.txt",
            Self::About => "about.json",
            Self::Doctor => "doctor.json",
            Self::Configuration => "configuration.json",
            Self::Policy => "policy.json",
            Self::Constraints => "constraints.json",
            Self::Definition => "definition.json",
            Self::Leader => "leader.json",
            Self::Entries => "entries.json",
            Self::Audit => "audit.json",
            Self::History => "history.json",
            Self::Metrics => "metrics.txt",
            Self::Log => "log.txt",
        }
    }

    /// Returns its contents, and what is left out of them.
    fn about(self) -> &'static str {
        match self {
            Self::Readme => "time, version and this list",
            Self::Errors => "sources that could not be read, and why",
            Self::About => "versions, servers, leader, your rights, as `cketerm info` prints them",
            Self::Doctor => "checks of `cketerm doctor`, without logins to BMCs",
            Self::Configuration => "settings in force; no passwords or keys, no paths of receivers, no BMC logins",
            Self::Policy => "policy; hooks and gates without arguments, paths and headers",
            Self::Constraints => "constraints",
            Self::Definition => {
                "names, addresses and roles of the nodes, limits, programs; no arguments, labels or options"
            }
            Self::Leader => "candidates, engines, identity, switches, names of unreadable keys",
            Self::Entries => {
                "all queues: state, request, order, progress, attempts; no arguments or outputs of commands"
            }
            Self::Audit => "audit records of the chosen time",
            Self::History => "entries that ended in the chosen time; no arguments or outputs of commands",
            Self::Metrics => "cketerm's metrics from the daemon of this host, if it answers",
            Self::Log => "last lines of this host's log files in the chosen time",
        }
    }
}

/// Contents of a bundle.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    parts: BTreeMap<Part, String>,
    errors: Vec<Text>,
}

impl Bundle {
    /// Returns the names and texts of all files, in the order of the parts.
    fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parts.iter().map(|(part, text)| (part.file(), text.as_str()))
    }
}

/// Writes a bundle, or prints what it would hold.
pub async fn run(args: &SupportBundleArgs, context: &Context) -> Result<(), ActionError> {
    if args.list {
        let rows: Vec<Vec<String>> =
            Part::ALL.iter().map(|part| vec![part.file().to_owned(), part.about().to_owned()]).collect();
        return context.out.text(columns(&["File", "Contents"], &rows));
    }
    let now = Clock::host().wall();
    let is_stdout = args.file.as_deref() == Some(Path::new("-"));
    let file = args.file.clone().unwrap_or_else(|| default_name(now));
    if !is_stdout {
        archive::check_absent(&file, args.force)?;
    }
    let bundle = Box::pin(collect::bundle(args.since, now, context)).await;
    let packed = archive::pack(bundle.files(), now);
    let packed = packed.map_err(|e| ActionError::failed(format!("the archive: {e}; nothing was written")))?;
    if is_stdout {
        context.out.bytes(&packed)?;
    } else {
        archive::store(&file, &packed, args.force)?;
    }
    let name = if is_stdout { "standard output".to_owned() } else { file.display().to_string() };
    report(&name, packed.len(), &bundle, context);
    Ok(())
}

/// Returns the name of a bundle without one.
fn default_name(now: Timestamp) -> PathBuf {
    PathBuf::from(format!("cketerm-support-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ")))
}

/// Tells the operator the result, and to look into it.
fn report(name: &str, bytes: usize, bundle: &Bundle, context: &Context) {
    let kib = bytes.div_ceil(1024);
    context.print_message(&format!("written to {name}: {} files, {kib} KiB", bundle.parts.len()));
    for error in &bundle.errors {
        context.print_message(&format!("warning: incomplete: {}", error.as_str()));
    }
    context.print_message(
        "look into it before you send it: it names machines, addresses and users of your site, and free texts such as \
         reasons and log lines are masked by known forms of secrets only",
    );
}

/// Returns the text of the README.
fn readme(since: Timestamp, now: Timestamp) -> String {
    let mut lines = Lines::default();
    lines.line(format_args!("Support bundle of cketerm {}", env!("CARGO_PKG_VERSION")));
    lines.line(format_args!("made {}", now.strftime("%FT%TZ")));
    lines.line(format_args!("audit, history and log since {}", since.strftime("%FT%TZ")));
    lines.line("");
    for part in Part::ALL {
        lines.line(format_args!("{:<20}{}", part.file(), part.about()));
    }
    lines.line("");
    lines.line("URLs are reduced to scheme, host and port. Command lines are reduced to their program.");
    lines.line("Free texts (reasons, messages, log lines) are masked: *** stands for a secret.");
    lines.done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_own_file_and_a_description() {
        let files: std::collections::BTreeSet<&str> = Part::ALL.iter().map(|part| part.file()).collect();
        assert_eq!(files.len(), Part::ALL.len());
        assert!(Part::ALL.is_sorted());
        let readme = readme(Timestamp::MIN, Timestamp::MAX);
        assert!(Part::ALL.iter().all(|part| readme.contains(part.file()) && readme.contains(part.about())), "{readme}");
    }

    #[test]
    fn the_default_name_has_the_time() {
        let name = default_name("2026-11-21T10:00:05.7Z".parse().unwrap());
        assert_eq!(name, Path::new("cketerm-support-20261121T100005Z.tar.gz"));
    }
}
