//! Tiers of confirmation in one table: verbs without a question, verbs that need `y`, and verbs that need the cluster's
//! name.

use crate::state::{App, dialog::LARGE_COUNT};

/// Confirmation that a verb needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// None: the same key reverts it.
    NoConfirmation,
    /// Yes or no.
    YesNo,
    /// Yes or no; from [`LARGE_COUNT`] on the cluster's name and the count.
    Large,
    /// As [`Self::Large`], and also if there is an API server among them.
    LargeOrApi,
    /// As [`Self::Large`], and also if there is an API server among several.
    LargeOrSomeApi,
    /// Yes or no; for an API server the cluster's name and the count.
    Api,
    /// The cluster's name.
    Name,
    /// The cluster's name and the count.
    NameAndCount,
}

/// Tier of each verb, by its name in the key table or its command.
pub const TIERS: &[(&str, Tier)] = &[
    ("cancel", Tier::Large),
    ("cancel-all", Tier::NameAndCount),
    ("reboot", Tier::LargeOrApi),
    ("repair", Tier::LargeOrApi),
    ("reset-backoff", Tier::LargeOrSomeApi),
    ("hold", Tier::YesNo),
    ("unhold", Tier::Large),
    ("switch", Tier::YesNo),
    ("stop", Tier::YesNo),
    ("resume", Tier::YesNo),
    ("approve", Tier::Name),
    ("constraint", Tier::YesNo),
    ("auto-repair", Tier::YesNo),
    ("retry", Tier::Api),
    ("done", Tier::YesNo),
    ("force", Tier::Api),
    ("delete-finished", Tier::Large),
    ("delete-unfinished", Tier::NameAndCount),
    ("keep-cordoned", Tier::NoConfirmation),
    ("release", Tier::YesNo),
    ("host-power", Tier::NameAndCount),
    ("fence", Tier::NameAndCount),
    ("lead", Tier::YesNo),
    ("freeze", Tier::YesNo),
    ("unfreeze", Tier::YesNo),
    ("quit", Tier::YesNo),
];

/// Returns the text to type before this verb acts on `n` objects, `api` of them API servers. `None`: `y` is enough.
pub fn confirmation_text(app: &App, name: &str, n: usize, api: usize) -> Option<String> {
    let tier = TIERS.iter().find(|(of, _)| *of == name).map_or(Tier::NameAndCount, |(_, tier)| *tier);
    let word = app.cluster_label();
    let required = match tier {
        Tier::NoConfirmation | Tier::YesNo => false,
        Tier::Large => n >= LARGE_COUNT,
        Tier::LargeOrApi => n >= LARGE_COUNT || api > 0,
        Tier::LargeOrSomeApi => n >= LARGE_COUNT || (n > 1 && api > 0),
        Tier::Api => api > 0,
        Tier::Name => return Some(word),
        Tier::NameAndCount => true,
    };
    required.then(|| format!("{word} {n}"))
}

impl Tier {
    /// Returns the description of the confirmation.
    pub fn description(self) -> String {
        let confirmation_text = "the cluster's name and the count, typed";
        match self {
            Self::NoConfirmation => "none: the same key undoes it".to_owned(),
            Self::YesNo => "yes or no".to_owned(),
            Self::Large => format!("yes or no; for {LARGE_COUNT} or more: {confirmation_text}"),
            Self::LargeOrApi => {
                format!("yes or no; for {LARGE_COUNT} or more, or with an API server among them: {confirmation_text}")
            }
            Self::LargeOrSomeApi => {
                format!(
                    "yes or no; for {LARGE_COUNT} or more, or with an API server among several: {confirmation_text}"
                )
            }
            Self::Api => format!("yes or no; for an API server: {confirmation_text}"),
            Self::Name => "the cluster's name, typed".to_owned(),
            Self::NameAndCount => format!("always {confirmation_text}"),
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
        let known = |name: &str| ["freeze", "unfreeze", "quit"].contains(&name);
        for (name, _) in TIERS {
            assert!(known(name) || TABLE.iter().any(|b| b.changes && b.name == *name), "{name}");
        }
    }
}
