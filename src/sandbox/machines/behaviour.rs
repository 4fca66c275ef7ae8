//! What is wrong with a machine, as data; everything is well by default.

use serde::{Deserialize, Serialize};

/// How a machine answers commands and comes back from a boot. It can be changed while the sandbox runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// What its power commands do.
    pub command: OnCommand,
    /// Seconds that they take, where that is not the pace's.
    pub command_seconds: Option<f64>,
    /// The next so many power commands fail with `exit_code` and do nothing else.
    pub fails: u32,
    /// What a failing command ends with; 0 is taken as 1.
    pub exit_code: i32,
    /// What its boots come to.
    pub boot: OnBoot,
    /// Seconds that its boots take longer.
    pub late_seconds: f64,
    /// Seconds for which its Node is not Ready after a boot, for trouble with a disk.
    pub disk_trouble_seconds: f64,
    /// What its checks say.
    pub check: OnCheck,
    /// What its BMC does when it is asked by Redfish; `fails` makes it answer 503.
    pub bmc: OnBmc,
    /// Seconds that the power changes later than the BMC has taken the request.
    pub bmc_seconds: f64,
    /// Its health check says no until so many repair commands were run.
    pub ill: u32,
    /// The only command that counts as one: `repair` where nothing else is said. It also mends a machine that does
    /// not come back from its boots.
    pub cure: Option<String>,
    /// What its health check prints instead of `true`: a check that was written wrongly.
    pub says: Option<String>,
}

/// What power commands do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCommand {
    /// What they should.
    #[default]
    Obeys,
    /// They never end by themselves, and nothing happens.
    Hangs,
    /// They succeed, and nothing happens.
    Ignores,
}

/// What a BMC does with a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBmc {
    /// What it is asked, a little later.
    #[default]
    Obeys,
    /// It takes a soft shutdown, and the operating system ignores it.
    Deaf,
    /// It refuses soft shutdowns.
    Refuses,
    /// It takes every reset, and nothing happens.
    Lies,
    /// It says that the machine is off, whatever it is, and takes every reset in vain.
    SaysOff,
    /// It does not answer at all.
    Mute,
}

/// What a boot comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBoot {
    /// The machine is back, with a new boot id.
    #[default]
    Back,
    /// It never is, until it is switched off and on with another behaviour.
    Never,
    /// It is back with the boot id it had.
    SameId,
}

/// What checks say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCheck {
    /// The truth.
    #[default]
    Honest,
    /// Always `true`.
    Yes,
    /// Always `false`.
    No,
    /// Nothing: they hang.
    Silent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_names_only_what_is_wrong() {
        let of = |text: &str| serde_yaml::from_str::<Behaviour>(text);
        assert_eq!(of("{}").unwrap(), Behaviour::default());
        let late = of("{fails: 2, exit_code: 7, boot: same_id, late_seconds: 60, check: silent}").unwrap();
        assert_eq!((late.fails, late.exit_code, late.boot, late.check), (2, 7, OnBoot::SameId, OnCheck::Silent));
        assert!(of("{hangs: true}").is_err());
    }
}
