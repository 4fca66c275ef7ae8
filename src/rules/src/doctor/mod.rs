//! Checks of a whole site: what an engine needs, what prevents a first reboot, and the remedy of each failure.
//!
//! The functions here judge what an observing engine has seen. The command `doctor` adds what only it can try: each
//! endpoint of etcd, the rights of its user, the login at each BMC.

mod members;
mod servers;

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::seen::Seen;

/// Subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The local settings.
    Configuration,
    /// The etcd that holds the queues.
    Etcd,
    /// The API server, and the rights of this account.
    Kubernetes,
    /// Whether both belong to the same cluster.
    Identity,
    /// This host's clock.
    Clock,
    /// The cluster definition and the constraints.
    Definition,
    /// Programs of the definition on this host.
    Programs,
    /// BMCs, and other ways to switch machines.
    Power,
    /// Members of the definition and Nodes.
    Membership,
    /// Health of the API servers.
    ControlPlanes,
    /// Members of the etcd of Kubernetes.
    EtcdMembers,
    /// The site's gates for new reboots (policy `start_gates`).
    StartGates,
    /// The program that processes the queues.
    Leader,
    /// Entries and other keys.
    Queues,
}

impl Subject {
    /// Returns its title on a screen.
    pub fn title(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Etcd => "etcd",
            Self::Kubernetes => "Kubernetes",
            Self::Identity => "identity",
            Self::Clock => "clock",
            Self::Definition => "definition",
            Self::Programs => "programs",
            Self::Power => "power",
            Self::Membership => "membership",
            Self::ControlPlanes => "control planes",
            Self::EtcdMembers => "etcd members",
            Self::StartGates => "start gates",
            Self::Leader => "leader",
            Self::Queues => "queues",
        }
    }
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// It could not be checked.
    Unknown,
    /// It prevents nothing, but somebody should know it.
    Warning,
    /// Something will not work.
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its subject.
    pub subject: Subject,
    /// Its result.
    pub outcome: Outcome,
    /// The fact.
    pub text: String,
    /// The remedy. Every warning and failure has one, here or in the fact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Checks, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks(pub Vec<Check>);

impl Checks {
    fn add(&mut self, subject: Subject, outcome: Outcome, text: impl Into<String>, remedy: Option<String>) {
        self.0.push(Check { subject, outcome, text: text.into(), remedy });
    }

    /// Adds a fact that is as it should be.
    pub fn good(&mut self, subject: Subject, text: impl Into<String>) {
        self.add(subject, Outcome::Ok, text, None);
    }

    /// Adds something that could not be checked, with the way to let it be checked.
    pub fn unknown(&mut self, subject: Subject, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(subject, Outcome::Unknown, text, Some(remedy.into()));
    }

    /// Adds a warning with its remedy.
    pub fn warning(&mut self, subject: Subject, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(subject, Outcome::Warning, text, Some(remedy.into()));
    }

    /// Adds a failure with its remedy.
    pub fn failed(&mut self, subject: Subject, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(subject, Outcome::Failed, text, Some(remedy.into()));
    }

    /// Adds a failure whose text names the remedy.
    pub fn failed_with_remedy_inside(&mut self, subject: Subject, text: impl Into<String>) {
        self.add(subject, Outcome::Failed, text, None);
    }

    /// Adds a warning whose text names the remedy.
    pub fn warning_with_remedy_inside(&mut self, subject: Subject, text: impl Into<String>) {
        self.add(subject, Outcome::Warning, text, None);
    }

    /// Returns the number of checks with this result.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.0.iter().filter(|check| check.outcome == outcome).count()
    }

    /// Sorts by subject, and keeps the order within each.
    pub fn sort(&mut self) {
        self.0.sort_by_key(|check| check.subject);
    }

    fn has(&self, subject: Subject) -> bool {
        self.0.iter().any(|check| check.subject == subject)
    }
}

/// Number of names in one line.
const MAX_NAMES: usize = 5;

/// Returns the first names, and how many more there are.
fn named<T: ToString>(all: &[T]) -> String {
    let text = all.iter().take(MAX_NAMES).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match all.len().checked_sub(MAX_NAMES) {
        None | Some(0) => text,
        Some(more) => format!("{text} and {more} more"),
    }
}

/// Returns all checks of what an observing engine has seen. `with_kubernetes`: whether Kubernetes is configured.
pub fn checks(seen: &Seen, with_kubernetes: bool) -> Checks {
    let mut checks = Checks::default();
    let snap = &seen.snapshot;
    servers::preflight(snap, with_kubernetes, &mut checks);
    if !snap.store.synced {
        return checks; // nothing else is known
    }
    members::definition(&snap.store, &mut checks);
    members::programs(snap, &mut checks);
    members::power(snap, &mut checks);
    if with_kubernetes {
        members::membership(seen, &mut checks);
        servers::control_planes(snap, seen.now.boot, &mut checks);
        servers::etcd_members(snap, &mut checks);
        servers::foreign_conditions(snap, &mut checks);
    }
    servers::leader(&snap.store, &mut checks);
    servers::queues(&snap.store, &mut checks);
    servers::cordons(seen, &mut checks);
    checks
}
