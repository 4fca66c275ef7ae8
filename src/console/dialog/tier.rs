//! Tiers of confirmation in one table: verbs without a question, verbs that need `y`, and verbs that need the cluster's
//! name.

use super::LARGE;
use crate::console::app::App;

/// Confirmation that a verb needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// None: the same key reverts it.
    Nothing,
    /// Yes or no.
    Ask,
    /// Yes or no; from [`LARGE`] on the cluster's name and the count.
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
    ("hold", Tier::Ask),
    ("unhold", Tier::Large),
    ("switch", Tier::Ask),
    ("stop", Tier::Ask),
    ("resume", Tier::Ask),
    ("approve", Tier::Name),
    ("constraint", Tier::Ask),
    ("auto-repair", Tier::Ask),
    ("retry", Tier::Api),
    ("done", Tier::Ask),
    ("force", Tier::Api),
    ("delete-finished", Tier::Large),
    ("delete-unfinished", Tier::NameAndCount),
    ("keep-cordoned", Tier::Nothing),
    ("release", Tier::Ask),
    ("host-power", Tier::NameAndCount),
    ("fence", Tier::NameAndCount),
    ("freeze", Tier::Ask),
    ("unfreeze", Tier::Ask),
    ("quit", Tier::Ask),
];

/// Returns the text to type before this verb acts on `n` objects, `api` of them API servers. `None`: `y` is enough.
pub fn typed(app: &App, name: &str, n: usize, api: usize) -> Option<String> {
    let tier = TIERS.iter().find(|(of, _)| *of == name).map_or(Tier::NameAndCount, |(_, tier)| *tier);
    let word = app.cluster_word();
    let wanted = match tier {
        Tier::Nothing | Tier::Ask => false,
        Tier::Large => n >= LARGE,
        Tier::LargeOrApi => n >= LARGE || api > 0,
        Tier::LargeOrSomeApi => n >= LARGE || (n > 1 && api > 0),
        Tier::Api => api > 0,
        Tier::Name => return Some(word),
        Tier::NameAndCount => true,
    };
    wanted.then(|| format!("{word} {n}"))
}

impl Tier {
    /// Returns the description of the confirmation.
    pub fn told(self) -> String {
        let typed = "the cluster's name and the count, typed";
        match self {
            Self::Nothing => "none: the same key undoes it".to_owned(),
            Self::Ask => "yes or no".to_owned(),
            Self::Large => format!("yes or no; for {LARGE} or more: {typed}"),
            Self::LargeOrApi => format!("yes or no; for {LARGE} or more, or with an API server among them: {typed}"),
            Self::LargeOrSomeApi => {
                format!("yes or no; for {LARGE} or more, or with an API server among several: {typed}")
            }
            Self::Api => format!("yes or no; for an API server: {typed}"),
            Self::Name => "the cluster's name, typed".to_owned(),
            Self::NameAndCount => format!("always {typed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::keys::TABLE;

    #[test]
    fn every_verb_has_one_tier() {
        for b in TABLE.iter().filter(|b| b.changes) {
            assert_eq!(TIERS.iter().filter(|(name, _)| *name == b.name).count(), 1, "{}", b.name);
        }
        let known = |name: &str| ["freeze", "unfreeze", "quit"].contains(&name);
        for (name, _) in TIERS {
            assert!(known(name) || TABLE.iter().any(|b| b.changes && b.name == *name), "{name}");
        }
    }
}
