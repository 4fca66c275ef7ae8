//! The command driver: programs of the site, which the file of BMCs names, read and change a machine's power. For
//! machines whose BMCs have no Redfish.

#[cfg(test)]
mod tests;

use std::time::Duration;

use cketerm_model::{host::Mode, power_state::PowerState};
use cketerm_runtime::host::is_world_writable;
use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;

use super::{
    connector::Connector,
    driver::{Machine, PowerDriver, PowerError, PowerRequest, RequestNames, Target},
    fault::Key,
    program::{self, ADDRESS, Argv, CommandError, Place, run},
    registration::{Found, Need, Registration},
    settings::{Entry, InventoryError},
};

/// Registration of the driver.
pub(super) const REGISTRATION: Registration =
    Registration { name: "command", for_many: Some(for_many), check, needs, create };

/// Time limit of one program in seconds, if the file sets none.
const TIMEOUT_SECONDS: u64 = 30;
/// Longest time limit that the file may set, in seconds.
const MAX_TIMEOUT_SECONDS: u64 = 600;

const PROGRAM: &str = "write a list [/path/of/program, argument, …]";
/// Keys of the settings.
const KEYS: &[Key] = &[
    Key::new("state", PROGRAM),
    Key::new("on", PROGRAM),
    Key::new("off", PROGRAM),
    Key::new("soft-off", PROGRAM),
    Key::new("timeout-seconds", "write a number of seconds, 1 to 600"),
];

/// Settings in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    on: Vec<String>,
    off: Vec<String>,
    soft_off: Option<Vec<String>>,
    state: Vec<String>,
    timeout_seconds: Option<u64>,
}

/// A machine whose power programs read and change.
#[derive(Debug)]
struct CommandDriver {
    target: Target,
    /// Name of the machine: the node's address.
    address: String,
    on: Argv,
    off: Argv,
    soft_off: Option<Argv>,
    state: Argv,
    timeout: Duration,
}

impl CommandDriver {
    fn of(entry: &Entry<'_>) -> Result<Self, InventoryError> {
        let settings: Settings = entry.driver_settings(KEYS)?;
        if is_world_writable(&entry.file.path) {
            return Err(InventoryError::Writable { file: entry.file.path.clone(), name: entry.name.to_owned() });
        }
        let argv = |key: &'static str, words: &[String]| {
            let place = Place { file: entry.file.path.clone(), entry: entry.name.to_owned(), key };
            Argv::of(words, entry.name, place).map_err(|why| entry.wrong(format_args!("{key}: {why}")))
        };
        let seconds = settings.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
        if !(1..=MAX_TIMEOUT_SECONDS).contains(&seconds) {
            return Err(entry.wrong(format_args!("timeout-seconds must be 1 to {MAX_TIMEOUT_SECONDS}")));
        }
        let state = argv("state", &settings.state)?;
        Ok(Self {
            target: Target { kind: "power command", name: format!("{} ({})", state.program(), entry.name) },
            address: entry.name.to_owned(),
            on: argv("on", &settings.on)?,
            off: argv("off", &settings.off)?,
            soft_off: settings.soft_off.as_deref().map(|words| argv("soft-off", words)).transpose()?,
            state,
            timeout: Duration::from_secs(seconds),
        })
    }

    fn argv(&self, request: PowerRequest) -> Option<&Argv> {
        match request {
            PowerRequest::Off(Mode::Soft) => self.soft_off.as_ref(),
            PowerRequest::Off(Mode::Hard) => Some(&self.off),
            PowerRequest::On => Some(&self.on),
        }
    }

    fn no_program(&self, request: PowerRequest) -> PowerError {
        PowerError::NotOffered { target: self.target.clone(), request, offered: Vec::new() }
    }

    async fn machine(&self) -> Result<Machine, CommandError> {
        let output = run(&self.state, self.timeout).await?;
        let name = |request| self.argv(request).map(|_| self.usual_name(request));
        Ok(Machine {
            id: self.address.clone(),
            name: String::new(),
            power: power_state(&output),
            reset_age: None,
            requests: RequestNames {
                soft_off: name(PowerRequest::Off(Mode::Soft)),
                hard_off: name(PowerRequest::Off(Mode::Hard)),
                on: name(PowerRequest::On),
            },
            offered: Vec::new(),
        })
    }

    async fn send(&self, request: PowerRequest) -> Result<&'static str, PowerError> {
        let name = self.usual_name(request);
        let argv = self.argv(request).ok_or_else(|| self.no_program(request))?;
        tracing::info!(
            machine = self.address,
            program = argv.program(),
            request = name,
            "requesting a change of power"
        );
        match run(argv, self.timeout).await {
            Ok(_) => Ok(name),
            // It may have done its work before it was killed: the power state decides.
            Err(e @ CommandError::Late { .. }) => {
                tracing::warn!(machine = self.address, error = %e, "the power command was killed; it counts as sent");
                Ok(name)
            }
            Err(e) => Err(e.into()),
        }
    }
}

/// Returns the power state that a program printed: one word, `on` or `off`. Nothing printed is no state.
fn power_state(output: &str) -> PowerState {
    match output.trim() {
        "" => PowerState::Unknown,
        "on" => PowerState::On,
        "off" => PowerState::Off,
        other => PowerState::read(Some(other)),
    }
}

impl PowerDriver for CommandDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn usual_name(&self, request: PowerRequest) -> &'static str {
        match request {
            PowerRequest::Off(Mode::Soft) => "soft-off",
            PowerRequest::Off(Mode::Hard) => "off",
            PowerRequest::On => "on",
        }
    }

    fn read(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        async { Ok(self.machine().await?) }.boxed()
    }

    fn ready_for(&self, request: PowerRequest) -> BoxFuture<'_, Result<(), PowerError>> {
        let ready = match self.argv(request) {
            Some(argv) => program::fault(argv).map_or(Ok(()), |why| Err(PowerError::Refused(why.into()))),
            None => Err(self.no_program(request)),
        };
        std::future::ready(ready).boxed()
    }

    fn request(&self, request: PowerRequest) -> BoxFuture<'_, Result<&'static str, PowerError>> {
        self.send(request).boxed()
    }
}

/// Checks that the programs of an entry for many machines know which machine is meant.
fn for_many(settings: Option<&serde_yaml::Value>) -> Result<(), String> {
    let programs = settings.and_then(serde_yaml::Value::as_mapping).into_iter().flatten();
    let names = |value: &serde_yaml::Value| value.as_str().is_some_and(|word| word.contains(ADDRESS));
    let lacks = programs.filter_map(|(key, value)| Some((key.as_str()?, value.as_sequence()?)));
    match lacks.into_iter().find(|(_, words)| !words.iter().any(names)) {
        Some((key, _)) => {
            Err(format!("{key}: no argument has {ADDRESS}, so it would be the same machine for all: add it"))
        }
        None => Ok(()),
    }
}

fn check(entry: &Entry<'_>) -> Result<Vec<String>, InventoryError> {
    CommandDriver::of(entry).map(|_| Vec::new())
}

fn needs(entry: &Entry<'_>) -> Vec<Need> {
    let Ok(driver) = CommandDriver::of(entry) else { return Vec::new() };
    // Without a soft power-off, the power is cut.
    let essential = [(&driver.state, true), (&driver.on, true), (&driver.off, true)];
    let programs = essential.into_iter().chain(driver.soft_off.as_ref().map(|argv| (argv, false)));
    let need = |(argv, essential): (&Argv, bool)| Need::Program { fault: program::fault(argv), essential };
    programs.map(need).collect()
}

fn create(entry: &Entry<'_>, _: &Connector) -> Result<Found, InventoryError> {
    let driver = CommandDriver::of(entry)?;
    Ok(Found { driver: Box::new(driver), timeouts: entry.timeouts(), warning: None })
}
