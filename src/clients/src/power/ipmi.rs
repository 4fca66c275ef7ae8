//! The IPMI driver: `ipmitool` reads and changes the power of a machine whose BMC has no Redfish. The password goes to
//! `ipmitool` in its environment, never in an argument.

mod error;
#[cfg(test)]
mod tests;

use std::{net::IpAddr, time::Duration};

use cketerm_model::{host::Mode, power_state::PowerState};
use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;

use self::error::IpmiError;
use super::{
    connector::Connector,
    driver::{Machine, PowerDriver, PowerError, PowerRequest, RequestNames, Target},
    fault::Key,
    login::{self, Login},
    program::{self, Argv, CommandError, Place, Variable},
    registration::{Found, Need, Registration},
    settings::{Entry, InventoryError},
};

/// Registration of the driver.
pub(super) const REGISTRATION: Registration = Registration { name: "ipmi", for_many: None, check, needs, create };

/// Time limit of one run in seconds, if the file sets none. `ipmitool` gives up on a silent BMC after 20 s.
const TIMEOUT_SECONDS: u64 = 30;
/// Longest time limit that the file may set, in seconds.
const MAX_TIMEOUT_SECONDS: u64 = 600;
/// Longest password of IPMI 2.0 in bytes. `ipmitool` refuses longer ones.
const MAX_PASSWORD_BYTES: usize = 20;

/// Keys of the entry beside `settings`, for the login.
const LOGIN_KEYS: &[&str] = &["username", "password", "password-file"];

/// Keys of the settings.
const KEYS: &[Key] = &[
    Key::new("host", "write the BMC's IP address"),
    Key::new("port", "write a UDP port, 1 to 65535"),
    Key::new("cipher-suite", "write a number, such as 17"),
    Key::new("privilege", "write operator or administrator"),
    Key::new("program", "write the path of ipmitool"),
    Key::new("timeout-seconds", "write a number of seconds, 1 to 600"),
];

/// Settings in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    host: IpAddr,
    port: Option<u16>,
    cipher_suite: Option<u8>,
    privilege: Option<Privilege>,
    program: Option<String>,
    timeout_seconds: Option<u64>,
}

/// Privilege level of the session. Without it `ipmitool` asks for `ADMINISTRATOR`.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Privilege {
    Operator,
    Administrator,
}

impl Privilege {
    fn argument(self) -> &'static str {
        match self {
            Self::Operator => "OPERATOR",
            Self::Administrator => "ADMINISTRATOR",
        }
    }
}

/// A machine behind an IPMI BMC. `Debug` shows no password.
#[derive(Debug)]
struct IpmiDriver {
    target: Target,
    place: Place,
    program: String,
    /// Arguments that name the BMC and the user, before the command.
    connection: Vec<String>,
    login: Option<Login>,
    timeout: Duration,
}

impl IpmiDriver {
    fn of(entry: &Entry<'_>) -> Result<Self, InventoryError> {
        let settings: Settings = entry.settings_beside(LOGIN_KEYS, KEYS)?;
        let bmc = Target { kind: "BMC", name: format!("ipmi://{}", shown(settings.host, settings.port)) };
        let networks = &entry.file.networks;
        // The file itself names the BMC, as for Redfish: the list applies if there is one.
        if !networks.is_empty() && !networks.allow(settings.host, false) {
            return Err(InventoryError::Outside { name: entry.name.to_owned(), bmc: bmc.name });
        }
        if let Some(program) = settings.program.as_deref().filter(|program| !program.starts_with('/')) {
            return Err(entry.wrong(format_args!("program: {program:?} is no absolute path")));
        }
        let seconds = settings.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
        if !(1..=MAX_TIMEOUT_SECONDS).contains(&seconds) {
            return Err(entry.wrong(format_args!("timeout-seconds must be 1 to {MAX_TIMEOUT_SECONDS}")));
        }
        let mut connection = words(&["-v", "-I", "lanplus", "-H", &settings.host.to_string()]);
        let mut add = |option: &str, value: Option<String>| {
            connection.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        };
        add("-p", settings.port.map(|port| port.to_string()));
        add("-C", settings.cipher_suite.map(|suite| suite.to_string()));
        add("-L", settings.privilege.map(|privilege| privilege.argument().to_owned()));
        let place = Place { file: entry.file.path.clone(), entry: entry.name.to_owned(), key: "program" };
        let program = settings.program.unwrap_or_else(|| "ipmitool".to_owned());
        Ok(Self { target: bmc, place, program, connection, login: None, timeout: Duration::from_secs(seconds) })
    }

    /// Adds the login, which may be in a file of its own.
    fn sign_in(mut self, entry: &Entry<'_>) -> Result<Self, InventoryError> {
        let login = login::login(entry).map_err(|why| entry.wrong(why))?;
        if let Some(login) = &login {
            if login.password.len() > MAX_PASSWORD_BYTES {
                let most = MAX_PASSWORD_BYTES;
                return Err(
                    entry.wrong(format_args!("the password is longer than {most} bytes, the most that IPMI takes"))
                );
            }
            self.connection.extend(words(&["-U", &login.username, "-E"]));
        }
        self.login = login;
        Ok(self)
    }

    fn argv(&self, command: &[&str]) -> Argv {
        let arguments = self.connection.iter().cloned().chain(words(command)).collect();
        Argv::found(&self.program, arguments, self.place.clone())
    }

    /// Runs `ipmitool` with this command and returns its standard output.
    async fn run(&self, command: &[&str]) -> Result<String, IpmiError> {
        let argv = self.argv(command);
        let password = self.login.as_ref().map(|login| login.password.as_str());
        // The second name is that of old versions.
        let names = ["IPMITOOL_PASSWORD", "IPMI_PASSWORD"];
        let variables: Vec<Variable<'_>> =
            password.into_iter().flat_map(|value| names.map(|name| Variable { name, value })).collect();
        let ended = program::run_to_end(&argv, &variables, self.timeout).await?;
        if ended.status.success() {
            return Ok(ended.output(&argv)?);
        }
        Err(IpmiError::of(&self.target, &ended.status.to_string(), &ended.stderr))
    }

    async fn machine(&self) -> Result<Machine, PowerError> {
        let power = power_state(&self.run(&["chassis", "power", "status"]).await?);
        let name = |request| Some(self.usual_name(request));
        Ok(Machine {
            id: self.target.name.clone(),
            name: String::new(),
            power,
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
        tracing::info!(bmc = %self.target, request = name, "requesting a change of power");
        let word = match request {
            PowerRequest::Off(Mode::Soft) => "soft",
            PowerRequest::Off(Mode::Hard) => "off",
            PowerRequest::On => "on",
        };
        match self.run(&["chassis", "power", word]).await {
            // It may have been taken before the program was killed: the power state decides.
            Ok(_) | Err(IpmiError::Command(CommandError::Late { .. })) => Ok(name),
            Err(e) => Err(e.into()),
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn shown(host: IpAddr, port: Option<u16>) -> String {
    let host = if host.is_ipv6() { format!("[{host}]") } else { host.to_string() };
    port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
}

/// Returns the power state that `ipmitool chassis power status` printed.
fn power_state(output: &str) -> PowerState {
    match output.lines().find_map(|line| line.trim().strip_prefix("Chassis Power is ")) {
        Some("on") => PowerState::On,
        Some("off") => PowerState::Off,
        other => PowerState::read(other),
    }
}

impl PowerDriver for IpmiDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn usual_name(&self, request: PowerRequest) -> &'static str {
        match request {
            PowerRequest::Off(Mode::Soft) => "power soft",
            PowerRequest::Off(Mode::Hard) => "power off",
            PowerRequest::On => "power on",
        }
    }

    fn read(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        self.machine().boxed()
    }

    fn ready_for(&self, _: PowerRequest) -> BoxFuture<'_, Result<(), PowerError>> {
        let fault = program::fault(&self.argv(&[]));
        std::future::ready(fault.map_or(Ok(()), |why| Err(PowerError::Refused(why.into())))).boxed()
    }

    fn request(&self, request: PowerRequest) -> BoxFuture<'_, Result<&'static str, PowerError>> {
        self.send(request).boxed()
    }
}

fn check(entry: &Entry<'_>) -> Result<Vec<String>, InventoryError> {
    IpmiDriver::of(entry).map(|_| Vec::new())
}

fn needs(entry: &Entry<'_>) -> Vec<Need> {
    let Ok(driver) = IpmiDriver::of(entry) else { return Vec::new() };
    vec![Need::Program { fault: program::fault(&driver.argv(&[])), essential: true }]
}

fn create(entry: &Entry<'_>, _: &Connector) -> Result<Found, InventoryError> {
    let driver = IpmiDriver::of(entry)?.sign_in(entry)?;
    Ok(Found { driver: Box::new(driver), timeouts: entry.timeouts(), warning: None })
}
