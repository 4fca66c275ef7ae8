//! The SSH driver: it logs in to the machine and lets its operating system reboot. It can neither turn a machine off nor
//! on. The host's key is always checked.

mod error;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, time::Duration};

use cketerm_model::power_state::PowerState;
use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;

use self::error::SshError;
use super::{
    connector::Connector,
    driver::{Machine, PowerDriver, PowerError, PowerRequest, Report, RequestNames, Restart, Target},
    fault::Key,
    program::{self, ADDRESS, Argv, CommandError, Ended, Place},
    registration::{Found, Need, Registration},
    settings::{Entry, InventoryError},
};

/// Registration of the driver.
pub(super) const REGISTRATION: Registration =
    Registration { name: "ssh", for_many: Some(for_many), check, needs, create };

/// Time limit of a connection attempt in seconds.
const CONNECT_SECONDS: u64 = 10;
/// Time limit of one run in seconds. Within it, `ssh` notices a machine that no longer answers.
const TIMEOUT_SECONDS: u64 = 60;
/// Longest time limit that the file may set, in seconds.
const MAX_TIMEOUT_SECONDS: u64 = 600;
/// Exit status of `ssh` if the connection failed or broke.
const CONNECTION_FAILED: i32 = 255;
/// Line that the machine prints a second before it reboots. After it, a broken connection is the reboot itself.
const MARK: &str = "cketerm-reboots";
/// Command that prints the boot id and the seconds since the boot.
const FACTS: &str = "cat /proc/sys/kernel/random/boot_id /proc/uptime";

/// Keys of the settings.
const KEYS: &[Key] = &[
    Key::new("host", "write a name or address; {address} is the node's address"),
    Key::new("user", "write a user name"),
    Key::new("port", "write a port, 1 to 65535"),
    Key::new("identity-file", "write a path"),
    Key::new("known-hosts-file", "write a path"),
    Key::new("config-file", "write a path"),
    Key::new("command", "write a list [program, argument, …]"),
    Key::new("program", "write the path of ssh"),
    Key::new("timeout-seconds", "write a number of seconds, 1 to 600"),
];

/// Settings in the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Settings {
    host: Option<String>,
    user: Option<String>,
    port: Option<u16>,
    identity_file: Option<PathBuf>,
    known_hosts_file: Option<PathBuf>,
    config_file: Option<PathBuf>,
    command: Option<Vec<String>>,
    program: Option<String>,
    timeout_seconds: Option<u64>,
}

/// A machine that is reached over SSH.
#[derive(Debug)]
struct SshDriver {
    target: Target,
    place: Place,
    program: String,
    /// Arguments before the remote command.
    connection: Vec<String>,
    /// Command that reboots the machine.
    command: Vec<String>,
    timeout: Duration,
}

impl SshDriver {
    fn of(entry: &Entry<'_>) -> Result<Self, InventoryError> {
        let settings: Settings = entry.optional_settings(KEYS)?;
        let host = settings.host.as_deref().unwrap_or(ADDRESS).replace(ADDRESS, entry.name);
        for (key, value) in [("host", Some(&host)), ("user", settings.user.as_ref())] {
            if value
                .is_some_and(|value| value.is_empty() || value.starts_with('-') || value.contains(char::is_whitespace))
            {
                return Err(entry.wrong(format_args!("{key}: write a name without blanks that does not begin with -")));
            }
        }
        if let Some(program) = settings.program.as_deref().filter(|program| !program.starts_with('/')) {
            return Err(entry.wrong(format_args!("program: {program:?} is no absolute path")));
        }
        let seconds = settings.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
        if !(1..=MAX_TIMEOUT_SECONDS).contains(&seconds) {
            return Err(entry.wrong(format_args!("timeout-seconds must be 1 to {MAX_TIMEOUT_SECONDS}")));
        }
        let command = settings.command.unwrap_or_else(|| vec!["systemctl".to_owned(), "reboot".to_owned()]);
        if command.first().is_none_or(String::is_empty) {
            return Err(entry.wrong("command: no program; write [program, argument, …]"));
        }
        let connect = format!("ConnectTimeout={CONNECT_SECONDS}");
        // No prompt, no unknown host, no shared connection; a machine that no longer answers ends the connection.
        let options = [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "ControlMaster=no",
            "ControlPath=none",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
            &connect,
        ];
        let mut connection = vec!["-T".to_owned()];
        let mut add = |option: &str, value: Option<String>| {
            connection.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        };
        let beside = |path: PathBuf| entry.file.beside(&path).display().to_string();
        add("-F", settings.config_file.map(beside));
        for option in options {
            add("-o", Some(option.to_owned()));
        }
        add("-o", settings.known_hosts_file.map(|path| format!("UserKnownHostsFile={}", beside(path))));
        if let Some(identity) = settings.identity_file {
            add("-o", Some("IdentitiesOnly=yes".to_owned()));
            add("-i", Some(beside(identity)));
        }
        add("-p", settings.port.map(|port| port.to_string()));
        add("-l", settings.user);
        connection.extend(["--".to_owned(), host.clone()]);
        Ok(Self {
            target: Target { kind: "SSH host", name: host },
            place: Place { file: entry.file.path.clone(), entry: entry.name.to_owned(), key: "program" },
            program: settings.program.unwrap_or_else(|| "ssh".to_owned()),
            connection,
            command,
            timeout: Duration::from_secs(seconds),
        })
    }

    fn argv(&self, remote: &str) -> Argv {
        let arguments = self.connection.iter().cloned().chain([remote.to_owned()]).collect();
        Argv::found(&self.program, arguments, self.place.clone())
    }

    async fn run(&self, remote: &str) -> Result<Ended, SshError> {
        Ok(program::run_to_end(&self.argv(remote), &[], self.timeout).await?)
    }

    /// Runs a command that must succeed, and returns its standard output.
    async fn output(&self, remote: &str) -> Result<String, SshError> {
        let ended = self.run(remote).await?;
        if ended.status.success() {
            return Ok(ended.stdout);
        }
        Err(self.failure(&ended))
    }

    fn failure(&self, ended: &Ended) -> SshError {
        if ended.status.code() == Some(CONNECTION_FAILED) {
            return SshError::connection(&self.target, &ended.stderr);
        }
        SshError::remote(&self.target, &ended.status.to_string(), &ended.stderr)
    }

    fn quoted_command(&self) -> String {
        self.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    async fn machine(&self) -> Result<Machine, SshError> {
        let facts = self.output(FACTS).await?;
        let seconds = facts.lines().nth(1).and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        let reset_age = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if reset_age.is_none() {
            return Err(SshError::NoFacts { target: self.target.clone() });
        }
        Ok(Machine {
            id: facts.lines().next().unwrap_or_default().trim().to_owned(),
            name: String::new(),
            power: PowerState::On,
            reset_age,
            requests: RequestNames::default(),
            offered: vec!["reboot".to_owned()],
        })
    }

    /// Asks the machine whether this user may reboot it.
    async fn may_reboot(&self) -> Result<String, SshError> {
        let command = self.quoted_command();
        let shown = self.command.join(" ");
        if let Some(rest) = self.command.strip_prefix(&["sudo".to_owned()]) {
            let words = rest.iter().skip_while(|word| word.starts_with('-')).map(|word| quoted(word));
            let check = format!("sudo -n -l -- {}", words.collect::<Vec<_>>().join(" "));
            self.output(&check).await?;
            return Ok(format!("sudo allows `{shown}`"));
        }
        let program = command.split(' ').next().unwrap_or_default();
        let facts = self.output(&format!("id -u && command -v {program} >/dev/null")).await?;
        if facts.trim() == "0" {
            return Ok(format!("root can run `{shown}`"));
        }
        let answer = self.output(CAN_REBOOT).await?;
        if answer.trim() == "s \"yes\"" {
            return Ok(format!("logind allows `{shown}`"));
        }
        Err(SshError::NoRight { target: self.target.clone() })
    }

    async fn reboot(&self, report: Report<'_>) -> Result<(), PowerError> {
        tracing::info!(host = %self.target, "requesting a reboot");
        report(&format!("{}: running `{}`", self.target, self.command.join(" ")));
        let ended = match self.run(&format!("echo {MARK} && sleep 1 && {}", self.quoted_command())).await {
            // It may have been taken before the program was killed. A second order could meet the new boot.
            Err(SshError::Command(CommandError::Late { .. })) => {
                report(&format!("{}: no end of the command in time; the boot check decides", self.target));
                return Ok(());
            }
            ended => ended?,
        };
        let began = ended.stdout.lines().any(|line| line.trim() == MARK);
        match ended.status.code() {
            Some(0) => Ok(()),
            // The machine goes down and takes the connection with it.
            Some(CONNECTION_FAILED) if began => Ok(()),
            Some(_) | None => Err(self.failure(&ended).into()),
        }
    }
}

/// Command that asks logind whether the user may reboot. It reboots nothing.
const CAN_REBOOT: &str =
    "busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager CanReboot";

/// Quotes a word for the shell of the other host.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl PowerDriver for SshDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn usual_name(&self, _: PowerRequest) -> &'static str {
        "reboot"
    }

    fn read(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        async { Ok(self.machine().await?) }.boxed()
    }

    fn boot_id<'a>(&self, machine: &'a Machine) -> Option<&'a str> {
        Some(&machine.id)
    }

    fn ready_for(&self, request: PowerRequest) -> BoxFuture<'_, Result<(), PowerError>> {
        std::future::ready(Err(PowerError::only_restarts(&self.target, request))).boxed()
    }

    fn request(&self, request: PowerRequest) -> BoxFuture<'_, Result<&'static str, PowerError>> {
        async move { self.ready_for(request).await.map(|()| "reboot") }.boxed()
    }

    fn as_restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }
}

impl Restart for SshDriver {
    fn ready(&self) -> BoxFuture<'_, Result<String, PowerError>> {
        async { Ok(self.may_reboot().await?) }.boxed()
    }

    fn restart<'a>(&'a self, report: Report<'a>) -> BoxFuture<'a, Result<(), PowerError>> {
        self.reboot(report).boxed()
    }
}

/// Checks that the host of an entry for many machines is another one for each.
fn for_many(settings: Option<&serde_yaml::Value>) -> Result<(), String> {
    match settings.and_then(|settings| settings.get("host")?.as_str()) {
        Some(host) if !host.contains(ADDRESS) => {
            Err(format!("host: {host:?} would be the same machine for all: write {ADDRESS} into it, or leave it out"))
        }
        Some(_) | None => Ok(()),
    }
}

fn check(entry: &Entry<'_>) -> Result<Vec<String>, InventoryError> {
    SshDriver::of(entry).map(|_| Vec::new())
}

fn needs(entry: &Entry<'_>) -> Vec<Need> {
    let Ok(driver) = SshDriver::of(entry) else { return Vec::new() };
    vec![Need::Program { fault: program::fault(&driver.argv("")), essential: true }]
}

fn create(entry: &Entry<'_>, _: &Connector) -> Result<Found, InventoryError> {
    let driver = SshDriver::of(entry)?;
    Ok(Found { driver: Box::new(driver), timeouts: entry.timeouts(), warning: None })
}
