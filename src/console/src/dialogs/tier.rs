//! Tiers of confirmation in one table: verbs that need a press of the button, and verbs that need a typed phrase.

use crate::state::{App, dialog::LARGE_COUNT};

/// Confirmation that a verb needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The button.
    Button,
    /// The button; for more than [`LARGE_COUNT`] machines the cluster's name and the count.
    Large,
    /// As [`Self::Large`], and also if there is an API server among them.
    LargeOrApi,
    /// As [`Self::Large`], and also if there is an API server among several.
    LargeOrSomeApi,
    /// The button; for an API server the cluster's name and the count.
    Api,
    /// The button; if machines leave the definition, the cluster's name and their number.
    Removal,
    /// The cluster's name and the count.
    Typed,
}

/// Tier of each verb, by its name in the key table or its command. `reinstall` is a repair whose operation reinstalls.
pub const TIERS: &[(&str, Tier)] = &[
    ("cancel", Tier::Large),
    ("cancel-all", Tier::Large),
    ("reboot", Tier::LargeOrApi),
    ("repair", Tier::LargeOrApi),
    ("reinstall", Tier::Typed),
    ("reset-backoff", Tier::LargeOrSomeApi),
    ("hold", Tier::Button),
    ("unhold", Tier::Large),
    ("switch", Tier::Button),
    ("stop", Tier::Button),
    ("resume", Tier::Button),
    ("approve", Tier::Removal),
    ("constraint", Tier::Button),
    ("auto-repair", Tier::Button),
    ("retry", Tier::Api),
    ("done", Tier::Button),
    ("force", Tier::Api),
    ("delete-finished", Tier::Large),
    ("delete-unfinished", Tier::Large),
    ("keep-cordoned", Tier::Button),
    ("release", Tier::Button),
    ("host-power", Tier::Typed),
    ("fence", Tier::Typed),
    ("lead", Tier::Button),
    ("freeze", Tier::Button),
    ("unfreeze", Tier::Button),
    ("quit", Tier::Button),
];

/// Returns the text to type before this verb acts on `n` machines, `api` of them API servers. `None`: the button is
/// enough.
pub fn confirmation_text(app: &App, name: &str, n: usize, api: usize) -> Option<String> {
    let tier = TIERS.iter().find(|(of, _)| *of == name).map_or(Tier::Typed, |(_, tier)| *tier);
    let required = match tier {
        Tier::Button => false,
        Tier::Large => n > LARGE_COUNT,
        Tier::LargeOrApi => n > LARGE_COUNT || api > 0,
        Tier::LargeOrSomeApi => n > LARGE_COUNT || (n > 1 && api > 0),
        Tier::Api => api > 0,
        Tier::Removal => n > 0,
        Tier::Typed => true,
    };
    required.then(|| format!("{} {n}", app.cluster_label()))
}

impl Tier {
    /// Returns the description of the confirmation.
    pub fn description(self) -> String {
        let phrase = "the cluster's name and the count, typed";
        match self {
            Self::Button => "the button".to_owned(),
            Self::Large => format!("the button; for more than {LARGE_COUNT} machines: {phrase}"),
            Self::LargeOrApi => {
                format!("the button; for more than {LARGE_COUNT} machines, or with an API server among them: {phrase}")
            }
            Self::LargeOrSomeApi => format!(
                "the button; for more than {LARGE_COUNT} machines, or with an API server among several: {phrase}"
            ),
            Self::Api => format!("the button; for an API server: {phrase}"),
            Self::Removal => {
                "the button; if machines leave the definition: the cluster's name and their number, typed".to_owned()
            }
            Self::Typed => format!("always {phrase}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::TABLE;

    #[test]
    fn every_changing_command_has_exactly_one_tier() {
        for b in TABLE.iter().filter(|b| b.changes) {
            assert_eq!(TIERS.iter().filter(|(name, _)| *name == b.name).count(), 1, "{}", b.name);
        }
        let known = |name: &str| ["freeze", "unfreeze", "quit", "reinstall"].contains(&name);
        for (name, _) in TIERS {
            assert!(known(name) || TABLE.iter().any(|b| b.changes && b.name == *name), "{name}");
        }
    }
}
