//! Rights of a user in etcd and Kubernetes, queried before the user tries an action.

use std::{collections::BTreeMap, fmt};

/// Objects that are changed together, and so granted together (docs/etcd-roles.md, docs/rbac.yaml).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// The reboot queue and its switch.
    Reboots,
    /// The repair queue and its switch.
    Repairs,
    /// Orders for the leader: hold, retry, done, force.
    Orders,
    /// Maintenance of machines.
    Maintenance,
    /// Policy and constraints: windows, freezes, limits.
    Settings,
    /// sabakan, automatic repair, approvals.
    Registry,
    /// Nodes: manual cordons.
    Nodes,
    /// `BareMetalHosts`.
    Hosts,
}

impl Area {
    /// All areas.
    pub const ALL: [Self; 8] = [
        Self::Reboots,
        Self::Repairs,
        Self::Orders,
        Self::Maintenance,
        Self::Settings,
        Self::Registry,
        Self::Nodes,
        Self::Hosts,
    ];

    /// Returns true if etcd grants the right, false if Kubernetes does.
    pub const fn is_in_etcd(self) -> bool {
        !matches!(self, Self::Nodes | Self::Hosts)
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reboots => "the reboot queue",
            Self::Repairs => "the repair queue",
            Self::Orders => "orders for entries",
            Self::Maintenance => "maintenance",
            Self::Settings => "policy and constraints",
            Self::Registry => "sabakan's settings and approvals",
            Self::Nodes => "Nodes",
            Self::Hosts => "BareMetalHosts",
        })
    }
}

/// Rights that a server denied when queried. A right that no server could answer for counts as granted; the server
/// itself will refuse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    lacking: BTreeMap<Area, String>,
}

impl Rights {
    /// Records a missing right, with a message about who refuses and what grants it.
    pub fn set_missing(&mut self, area: Area, why: String) {
        self.lacking.insert(area, why);
    }

    /// Returns the reason why this area may not be changed.
    pub fn refusal(&self, area: Area) -> Option<&str> {
        self.lacking.get(&area).map(String::as_str)
    }

    /// Returns the areas that may not be changed, with the reasons.
    pub fn lacking(&self) -> impl Iterator<Item = (Area, &str)> {
        self.lacking.iter().map(|(area, why)| (*area, why.as_str()))
    }

    /// Returns true if nothing in etcd may be written.
    pub fn is_read_only(&self) -> bool {
        Area::ALL.into_iter().filter(|area| area.is_in_etcd()).all(|area| self.lacking.contains_key(&area))
    }
}
