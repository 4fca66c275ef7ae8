//! What a person may change, as etcd and Kubernetes answer when they are asked before he tries.

use std::{collections::BTreeMap, fmt};

/// What is changed together, and so is granted together (docs/etcd-roles.md, docs/rbac.yaml).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// The reboot queue and its switch.
    Reboots,
    /// The repair queue and its switch.
    Repairs,
    /// Orders for whoever leads: hold, retry, done, force.
    Orders,
    /// Policy and constraints: windows, freezes, limits.
    Settings,
    /// sabakan, automatic repair, approvals.
    Registry,
    /// Nodes by hand: cordons.
    Nodes,
    /// `BareMetalHosts`.
    Hosts,
}

impl Area {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Reboots, Self::Repairs, Self::Orders, Self::Settings, Self::Registry, Self::Nodes, Self::Hosts];

    /// The right lies in etcd; else in Kubernetes.
    pub const fn in_etcd(self) -> bool {
        !matches!(self, Self::Nodes | Self::Hosts)
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reboots => "the reboot queue",
            Self::Repairs => "the repair queue",
            Self::Orders => "orders for entries",
            Self::Settings => "policy and constraints",
            Self::Registry => "sabakan's settings and approvals",
            Self::Nodes => "Nodes",
            Self::Hosts => "BareMetalHosts",
        })
    }
}

/// What was refused when it was asked for. What nobody could answer counts as allowed: the servers say no themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    lacking: BTreeMap<Area, String>,
}

impl Rights {
    /// This one is missing: a sentence that says who refuses and what grants it.
    pub fn lack(&mut self, area: Area, why: String) {
        self.lacking.insert(area, why);
    }

    /// Why this may not be changed.
    pub fn refusal(&self, area: Area) -> Option<&str> {
        self.lacking.get(&area).map(String::as_str)
    }

    /// What may not be changed, with the reasons.
    pub fn lacking(&self) -> impl Iterator<Item = (Area, &str)> {
        self.lacking.iter().map(|(area, why)| (*area, why.as_str()))
    }

    /// Nothing in etcd may be written.
    pub fn only_looks(&self) -> bool {
        Area::ALL.into_iter().filter(|area| area.in_etcd()).all(|area| self.lacking.contains_key(&area))
    }
}
