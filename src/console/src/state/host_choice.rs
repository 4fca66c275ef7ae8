//! Choices in the dialogs of a host, and their actions.

use cketerm_actions::HostAction;
use cketerm_model::host::Mode;

/// Prefix of cketerm's keys.
pub const CKETERM_KEY: &str = "cketerm";

/// Reboots the host.
pub const REBOOT: &str = "reboot";

/// Holds the host off until it is released.
pub const HOLD: &str = "hold off";

/// Turns the host off.
pub const OFF: &str = "turn off";

/// Turns the host on.
pub const ON: &str = "turn on";

/// Returns the action of a choice.
pub fn action(what: &str, how: &str) -> Option<HostAction> {
    let mode = if how == Mode::Hard.as_str() { Mode::Hard } else { Mode::Soft };
    Some(match what {
        REBOOT => HostAction::Reboot(mode),
        HOLD => HostAction::Hold(mode),
        OFF => HostAction::Online(false),
        ON => HostAction::Online(true),
        // when releasing a host, the choice is a key
        key => HostAction::Release(key.to_owned()),
    })
}
