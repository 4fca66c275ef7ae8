//! The leader as operators' commands see it (STO-43, SAF-40).

use super::view::{Candidate, StoreView};
use crate::{acceptance::LeaderKind, policy::EngineChoice};

/// The leader at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The program that processes the queues, for the table of commands.
    pub lead: LeaderKind,
    /// The same as text that begins a sentence: `CKE on boot-0 leads`.
    pub message: String,
    /// The state of `leader/`.
    pub under: LeaderGuard,
}

/// Comparison that lets a write succeed only while the same leader leads. The candidate with the smallest create
/// revision leads as long as its key exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderGuard {
    /// The leader's key and its create revision.
    Candidate(String, i64),
    /// There is no candidate.
    Nobody,
}

impl StoreView {
    /// Returns the leader, and the effect of the policy.
    pub fn leadership(&self) -> Leadership {
        let engine = match self.policy.as_ref().map(|stored| &stored.value) {
            Some(Ok(policy)) => Ok(Some(policy.engine)),
            Some(Err(why)) => Err(format!("cketerm/policy cannot be read ({why}), so no cketerm engine leads")),
            None => Ok(None),
        };
        let Some(leader) = self.leader() else {
            let (lead, message) = match engine {
                Err(why) => (LeaderKind::Unknown, why),
                Ok(Some(EngineChoice::Cke)) => {
                    (LeaderKind::Cke, "nobody leads, and policy engine `cke` allows only CKE".to_owned())
                }
                Ok(Some(EngineChoice::Cketerm | EngineChoice::Always) | None) => {
                    (LeaderKind::Nobody, "nobody leads".to_owned())
                }
            };
            return Leadership { lead, message, under: LeaderGuard::Nobody };
        };
        let (lead, message) = self.lead_of(leader, engine.ok().flatten());
        Leadership { lead, message, under: LeaderGuard::Candidate(leader.key.clone(), leader.create_revision) }
    }

    fn lead_of(&self, leader: &Candidate, engine: Option<EngineChoice>) -> (LeaderKind, String) {
        let host = &leader.host;
        if leader.lease == 0 {
            let key = &leader.key;
            return (
                LeaderKind::Unknown,
                format!("{key} leads, a key of neither CKE nor cketerm: its rules are unknown"),
            );
        }
        if self.is_cke(leader) {
            return (LeaderKind::Cke, format!("CKE on {host} leads"));
        }
        let waiting_cke = || self.candidates.values().find(|c| c.lease != leader.lease && self.is_cke(c));
        match engine {
            Some(EngineChoice::Always) => (LeaderKind::Cketerm, format!("cketerm on {host} leads")),
            Some(EngineChoice::Cke) => (
                LeaderKind::Yielding,
                format!("cketerm on {host} finishes its work and resigns (policy engine is `cke`)"),
            ),
            Some(EngineChoice::Cketerm) | None => match waiting_cke() {
                None => (LeaderKind::Cketerm, format!("cketerm on {host} leads")),
                Some(cke) => (
                    LeaderKind::Yielding,
                    format!("cketerm on {host} finishes its work and resigns for CKE on {}", cke.host),
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{keys::Keys, row::Row};

    const CKE: &str = "leader//10";
    const CKETERM_KEY: &str = "leader//20";

    /// Returns a view of these keys below `/cke/`, each created at its place in the list.
    fn view(rows: &[(&str, &str)]) -> StoreView {
        let keys = Keys::new("/cke/");
        let mut view = StoreView::default();
        for (at, (key, value)) in (1..).zip(rows) {
            view.put(&keys, &Row::new(&format!("/cke/{key}"), value, at, at));
        }
        view
    }

    fn lead(rows: &[(&str, &str)]) -> LeaderKind {
        view(rows).leadership().lead
    }

    const ENGINE: (&str, &str) = ("cketerm/engines/20", r#"{"host": "b", "pid": 1, "version": "0", "mode": "daemon"}"#);

    #[test]
    fn leadership_follows_from_candidates_registrations_and_policy() {
        let policy = |engine: &'static str| match engine {
            "cke" => ("cketerm/policy", r#"{"engine": "cke"}"#),
            "always" => ("cketerm/policy", r#"{"engine": "always"}"#),
            _ => ("cketerm/policy", r#"{"engine": "cketerm"}"#),
        };
        assert_eq!(lead(&[(CKE, "a")]), LeaderKind::Cke);
        assert_eq!(
            lead(&[(CKE, "a"), ENGINE, (CKETERM_KEY, "b"), policy("always")]),
            LeaderKind::Cke,
            "the first candidate leads"
        );
        assert_eq!(lead(&[ENGINE, (CKETERM_KEY, "b")]), LeaderKind::Cketerm);
        assert_eq!(lead(&[ENGINE, (CKETERM_KEY, "b"), (CKE, "a")]), LeaderKind::Yielding, "cketerm yields by default");
        assert_eq!(lead(&[ENGINE, (CKETERM_KEY, "b"), (CKE, "a"), policy("cketerm")]), LeaderKind::Yielding);
        assert_eq!(lead(&[ENGINE, (CKETERM_KEY, "b"), (CKE, "a"), policy("always")]), LeaderKind::Cketerm, "it leads");
        assert_eq!(lead(&[ENGINE, (CKETERM_KEY, "b"), policy("cke")]), LeaderKind::Yielding, "cketerm resigns");
        assert_eq!(lead(&[]), LeaderKind::Nobody);
        assert_eq!(lead(&[policy("cketerm")]), LeaderKind::Nobody);
        assert_eq!(lead(&[policy("cke")]), LeaderKind::Cke, "no cketerm engine campaigns");
        assert_eq!(lead(&[("cketerm/policy", "{")]), LeaderKind::Unknown);
        assert_eq!(lead(&[("leader//not-hex", "x"), ENGINE, (CKETERM_KEY, "b")]), LeaderKind::Unknown);
    }

    #[test]
    fn a_write_is_guarded_by_the_leading_candidate() {
        let under = |rows: &[(&str, &str)]| view(rows).leadership().under;
        assert_eq!(
            under(&[ENGINE, (CKETERM_KEY, "b"), (CKE, "a")]),
            LeaderGuard::Candidate("/cke/leader//20".to_owned(), 2)
        );
        assert_eq!(under(&[]), LeaderGuard::Nobody);
    }
}
