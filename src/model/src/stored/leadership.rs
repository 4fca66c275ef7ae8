//! The leader as operators' commands see it (STO-43, SAF-40).

use super::view::{Candidate, StoreView};
use crate::{
    acceptance::{LeaderKind, OperatorCommand},
    entry::Stored,
    policy::EngineChoice,
};

/// The leader at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The program that processes the queues, for the table of commands.
    pub lead: LeaderKind,
    /// The same as text that begins a sentence: `CKE on boot-0 leads`.
    pub message: String,
    /// The state of `leader/`.
    pub under: LeaderGuard,
    /// Version of the leading cketerm engine, as it registered it; none if another program leads, or nobody.
    pub version: Option<String>,
}

impl Leadership {
    /// Reports whether the leader's version knows the command. A version that cannot be read does not. Programs other
    /// than cketerm are judged by [`LeaderKind`] alone.
    pub fn knows(&self, command: OperatorCommand) -> bool {
        match (self.lead, command.since()) {
            (LeaderKind::Cketerm | LeaderKind::Yielding, Some(since)) => {
                self.version.as_deref().and_then(minor_version).is_some_and(|version| version >= since)
            }
            (LeaderKind::Cketerm | LeaderKind::Yielding, None)
            | (LeaderKind::Cke | LeaderKind::Nobody | LeaderKind::Unknown, _) => true,
        }
    }
}

/// Returns major and minor number of a version.
fn minor_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
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
            return Leadership { lead, message, under: LeaderGuard::Nobody, version: None };
        };
        let (lead, message) = self.lead_of(leader, engine.ok().flatten());
        let under = LeaderGuard::Candidate(leader.key.clone(), leader.create_revision);
        let registration = self.engines.get(&leader.lease).and_then(Stored::get);
        Leadership { lead, message, under, version: registration.map(|engine| engine.version.clone()) }
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
    fn an_older_leader_does_not_know_the_pause_of_a_batch() {
        let knows = |version: &str, command| {
            let engine = format!(r#"{{"host": "b", "pid": 1, "version": "{version}", "mode": "daemon"}}"#);
            view(&[("cketerm/engines/20", &engine), (CKETERM_KEY, "b")]).leadership().knows(command)
        };
        for (version, known) in
            [("0.1.0", false), ("0.1.9", false), ("0.2.0", true), ("0.2.0-rc1", true), ("1.0.0", true), ("?", false)]
        {
            assert_eq!(knows(version, OperatorCommand::PauseBatch), known, "{version}");
            assert!(knows(version, OperatorCommand::Hold), "{version}");
        }
        let cke = view(&[(CKE, "a")]).leadership();
        assert_eq!((cke.version.clone(), cke.knows(OperatorCommand::PauseBatch)), (None, true), "the table decides");
        assert!(view(&[]).leadership().knows(OperatorCommand::PauseBatch));
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
