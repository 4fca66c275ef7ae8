//! The views, their names and their order.

use cketerm_model::entry::QueueKind;

/// A view of the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Summary: progress, what is stuck and why, the leader, the remaining time.
    #[default]
    Overview,
    /// The reboot queue.
    Reboots,
    /// The cluster's nodes.
    Nodes,
    /// The repair queue.
    Repairs,
    /// sabakan's machines.
    Machines,
    /// The definition in force compared with the generated one.
    Diff,
    /// BareMetalHosts.
    Hosts,
    /// Ended entries, and CKE's records.
    History,
    /// Audit records.
    Audit,
    /// This process's own log lines.
    Logs,
}

impl View {
    /// All views, in the order of their keys.
    pub const ALL: [Self; 10] = [
        Self::Overview,
        Self::Reboots,
        Self::Nodes,
        Self::Repairs,
        Self::Machines,
        Self::Diff,
        Self::Hosts,
        Self::History,
        Self::Audit,
        Self::Logs,
    ];

    /// Returns its name, which is also its command and its name for `--view` and `:view`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Reboots => "reboots",
            Self::Nodes => "nodes",
            Self::Repairs => "repairs",
            Self::Machines => "machines",
            Self::Diff => "diff",
            Self::Hosts => "hosts",
            Self::History => "history",
            Self::Audit => "audit",
            Self::Logs => "logs",
        }
    }

    /// Returns its name in the tabs.
    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Reboots => "Reboots",
            Self::Nodes => "Nodes",
            Self::Repairs => "Repairs",
            Self::Machines => "Machines",
            Self::Diff => "Diff",
            Self::Hosts => "Hosts",
            Self::History => "History",
            Self::Audit => "Audit",
            Self::Logs => "Logs",
        }
    }

    /// Returns the next view.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|view| *view == self).unwrap_or(0);
        Self::ALL.get(at + 1).copied().unwrap_or_default()
    }

    /// Returns the previous view.
    #[must_use]
    pub fn previous(self) -> Self {
        let at = Self::ALL.iter().position(|view| *view == self).unwrap_or(0);
        Self::ALL[(at + Self::ALL.len() - 1) % Self::ALL.len()]
    }

    /// Returns the queue that a verb about a whole queue means here.
    pub fn queue(self) -> QueueKind {
        if self == Self::Repairs { QueueKind::Repair } else { QueueKind::Reboot }
    }

    /// Returns the view that lists a queue.
    pub fn of_queue(queue: QueueKind) -> Self {
        if queue == QueueKind::Repair { Self::Repairs } else { Self::Reboots }
    }

    /// Returns true for the views about sabakan and the plan.
    pub fn registry(self) -> bool {
        matches!(self, Self::Machines | Self::Diff)
    }
}

impl std::str::FromStr for View {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|view| view.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|view| view.name()).collect();
            let (last, rest) = names.split_last().unwrap_or((&"", &[]));
            format!("there is no view {text:?}: choose {} or {last}", rest.join(", "))
        })
    }
}
