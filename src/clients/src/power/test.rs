//! Checks of a machine's driver that change nothing: its program, its login, and the requests that a reboot needs.

use cketerm_model::{host::Mode, power_state::PowerState};

use super::driver::{PowerDriver, PowerError, PowerRequest};

/// One check, and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// Result: the fact that was found, or the failure with its remedy.
    pub result: Result<String, String>,
}

impl Check {
    /// Creates a check.
    pub fn new(name: &'static str, result: Result<String, String>) -> Self {
        Self { name, result }
    }
}

/// Checks that the driver can reboot its machine. It only reads: no request that changes the power is sent. The checks
/// end at the first failure that makes the others impossible.
///
/// Also returns the boot id of the machine, if the driver can see it.
pub async fn test(driver: &dyn PowerDriver) -> (Vec<Check>, Option<String>) {
    let machine = match driver.read().await {
        Ok(machine) => machine,
        Err(e) => return (vec![Check::new("login", Err(e.to_string()))], None),
    };
    let boot_id = driver.boot_id(&machine).map(str::to_owned);
    let target = driver.target();
    let mut checks = vec![Check::new("login", Ok(format!("{target} answers")))];
    let state = match &machine.power {
        PowerState::Unknown => Err(format!("{target} does not report whether the machine is on")),
        power => Ok(format!("the machine is {power}")),
    };
    checks.push(Check::new("power state", state));
    if let Some(restart) = driver.as_restart() {
        checks.push(Check::new("reboot", restart.ready().await.map_err(|e| e.to_string())));
        return (checks, boot_id);
    }
    for (name, request) in [("turn off", PowerRequest::Off(Mode::Hard)), ("turn on", PowerRequest::On)] {
        let offered = machine.requests.of(request).ok_or_else(|| PowerError::NotOffered {
            target: target.clone(),
            request,
            offered: machine.offered.clone(),
        });
        let result = match offered {
            Ok(name) => driver.ready_for(request).await.map(|()| format!("{name} can be requested")),
            Err(e) => Err(e),
        };
        checks.push(Check::new(name, result.map_err(|e| e.to_string())));
    }
    (checks, boot_id)
}
