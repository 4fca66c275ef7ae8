//! Faults of a machine as data. By default there are none.

use cketerm_model::boot_time::Seconds;
use serde::{Deserialize, Serialize};

/// Behaviour of a machine for commands, boots, checks and BMC requests. It can be changed while the sandbox runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Effect of its power commands.
    pub command: OnCommand,
    /// Duration of its power commands, if it differs from the pace's.
    pub command_seconds: Option<Seconds>,
    /// Number of the next power commands that fail with `exit_code` and do nothing else.
    pub fails: u32,
    /// Exit code of a failing command; 0 is taken as 1.
    pub exit_code: i32,
    /// Result of its boots.
    pub boot: OnBoot,
    /// Additional time of its boots.
    pub late_seconds: Seconds,
    /// Time after a boot for which its Node is not Ready because of a disk problem.
    pub disk_trouble_seconds: Seconds,
    /// Results of its checks.
    pub check: OnCheck,
    /// Results of the site's hooks for it.
    pub hook: OnHook,
    /// Reaction of its BMC to Redfish requests. `fails` makes it answer 503.
    pub bmc: OnBmc,
    /// Time between the BMC's acceptance of a request and the power change, in addition to the pace's.
    pub bmc_seconds: Seconds,
    /// Number of repair commands that must run before the health check succeeds.
    pub ill: u32,
    /// The only verb that counts as a repair command; `repair` by default. If it is set, it also fixes a machine that
    /// does not come back from its boots.
    pub cure: Option<String>,
    /// Output of its health check instead of `true`, as of a badly written check.
    pub says: Option<String>,
}

/// Effect of power commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCommand {
    /// They work.
    #[default]
    Obeys,
    /// They never end by themselves and have no effect.
    Hangs,
    /// They succeed and have no effect.
    Ignores,
}

/// Results of hooks (`hook` as the verb).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnHook {
    /// They succeed.
    #[default]
    Succeeds,
    /// They fail.
    Fails,
    /// They never end by themselves.
    Hangs,
}

/// Reaction of a BMC to a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBmc {
    /// It performs the reset a little later.
    #[default]
    Obeys,
    /// It accepts a soft shutdown, but the operating system ignores it.
    Deaf,
    /// It refuses soft shutdowns.
    Refuses,
    /// It accepts every reset and does nothing.
    Lies,
    /// It always reports that the machine is off, and accepts every reset without effect.
    SaysOff,
    /// It does not answer at all.
    Mute,
}

/// Result of a boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBoot {
    /// The machine comes back with a new boot id.
    #[default]
    Back,
    /// The machine does not come back until it is switched off and on with another behaviour.
    Never,
    /// The machine comes back with its previous boot id.
    SameId,
}

/// Results of checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCheck {
    /// The real state.
    #[default]
    Honest,
    /// Always `true`.
    Yes,
    /// Always `false`.
    No,
    /// None: checks hang.
    Silent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_behaviour_fields_are_healthy_and_unknown_ones_are_rejected() {
        let of = |text: &str| serde_yaml::from_str::<Behaviour>(text);
        assert_eq!(of("{}").unwrap(), Behaviour::default());
        let late = of("{fails: 2, exit_code: 7, boot: same_id, late_seconds: 60, check: silent}").unwrap();
        assert_eq!((late.fails, late.exit_code, late.boot, late.check), (2, 7, OnBoot::SameId, OnCheck::Silent));
        assert!(of("{hangs: true}").is_err());
    }
}
