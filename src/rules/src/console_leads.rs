//! Decision whether a console's engine campaigns: the policy `console_leads`, the daemons of the cluster, and the answer
//! of an operator (SAF-5). Engines of daemons are not asked.

use std::fmt;

use cketerm_model::{policy::ConsoleLeads, stored::view::StoreView};
use serde::{Deserialize, Serialize};

/// Answer of this host's operator to whether its consoles may lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeadAnswer {
    /// Nobody has been asked yet.
    #[default]
    Unasked,
    /// No.
    No,
    /// Yes.
    Yes,
    /// This console leads now, whatever was answered and whichever daemons there were.
    ThisSession,
}

/// Reason why a console's engine does not campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "PascalCase")]
pub enum NotCampaigning {
    /// The policy lets no console lead.
    Policy,
    /// A daemon has registered for this cluster.
    Daemon {
        /// Its host.
        host: String,
    },
    /// No operator of this host has been asked yet.
    Unasked,
    /// An operator of this host has answered no.
    Declined,
}

impl NotCampaigning {
    /// Returns the reason why a console's engine does not campaign; `None` = it may.
    pub fn of(store: &StoreView, answer: LeadAnswer) -> Option<Self> {
        match (store.policy().console_leads, answer) {
            (ConsoleLeads::Never, _) => Some(Self::Policy),
            (ConsoleLeads::Always, _) | (ConsoleLeads::Auto, LeadAnswer::ThisSession) => None,
            (ConsoleLeads::Auto, answer) => match (store.daemon_seen(), answer) {
                (Some(host), _) => Some(Self::Daemon { host: host.to_owned() }),
                (None, LeadAnswer::Unasked) => Some(Self::Unasked),
                (None, LeadAnswer::No) => Some(Self::Declined),
                (None, LeadAnswer::Yes | LeadAnswer::ThisSession) => None,
            },
        }
    }

    /// Reports whether an operator of the console can let it lead for this session.
    pub fn can_lead_now(&self) -> bool {
        match self {
            Self::Policy => false,
            Self::Daemon { .. } | Self::Unasked | Self::Declined => true,
        }
    }
}

impl fmt::Display for NotCampaigning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("this console only observes: policy console_leads is `never`"),
            Self::Daemon { host } => {
                write!(f, "this console only observes: a daemon has registered (on {host}); start it, or `:lead` here")
            }
            Self::Unasked => f.write_str("this console only observes: nobody has let it lead yet (`:lead`)"),
            Self::Declined => {
                f.write_str("this console only observes, as answered on this host (`:lead` lets it lead)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cketerm_model::{cketerm_records::FirstDaemon, entry::Stored, policy::Policy};

    use super::*;

    fn store(console_leads: ConsoleLeads, daemon: bool) -> StoreView {
        let stored = |key: &str| (key.to_owned(), 1);
        let (key, mod_revision) = stored("p");
        let policy = Policy { console_leads, ..Policy::default() };
        let first = FirstDaemon { host: "boot-1".into(), version: "0.2.0".into(), at: jiff::Timestamp::UNIX_EPOCH };
        StoreView {
            policy: Some(Stored { key, mod_revision, value: Ok(Arc::new(policy)) }),
            daemon: daemon.then(|| Stored { key: "d".into(), mod_revision: 2, value: Ok(Arc::new(first)) }),
            ..StoreView::default()
        }
    }

    #[test]
    fn a_console_campaigns_only_by_policy_and_answer() {
        use ConsoleLeads::{Always, Auto, Never};
        use LeadAnswer::{No, ThisSession, Unasked, Yes};
        let daemon = || Some(NotCampaigning::Daemon { host: "boot-1".into() });
        for (policy, daemon_seen, answer, expected) in [
            (Auto, false, Unasked, Some(NotCampaigning::Unasked)),
            (Auto, false, No, Some(NotCampaigning::Declined)),
            (Auto, false, Yes, None),
            (Auto, false, ThisSession, None),
            (Auto, true, Unasked, daemon()),
            (Auto, true, No, daemon()),
            (Auto, true, Yes, daemon()),
            (Auto, true, ThisSession, None),
            (Always, true, Unasked, None),
            (Always, false, No, None),
            (Never, false, Yes, Some(NotCampaigning::Policy)),
            (Never, true, ThisSession, Some(NotCampaigning::Policy)),
        ] {
            let found = NotCampaigning::of(&store(policy, daemon_seen), answer);
            assert_eq!(found, expected, "{policy:?} {daemon_seen} {answer:?}");
        }
        let mut unreadable = store(Auto, true);
        unreadable.daemon = Some(Stored { key: "d".into(), mod_revision: 2, value: Err("not JSON".into()) });
        assert_eq!(
            NotCampaigning::of(&unreadable, Yes),
            Some(NotCampaigning::Daemon { host: "an unknown host".into() }),
            "an unreadable record is no permission"
        );
    }
}
