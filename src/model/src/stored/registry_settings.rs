//! Settings of the machine registry's integration, as etcd holds them.

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use super::{
    kind::RegistryKey,
    row::{Row, set_value},
};
use crate::{
    cketerm_records::{Absences, Approval, Generated, Hold},
    entry::Stored,
};

/// Values of `sabakan/…`, `auto-repair/query-variables`, `cluster-revision`, `cketerm/approvals/…`, `cketerm/absent` and
/// `cketerm/generated`. Texts are kept as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegistrySettings {
    /// `sabakan/url`.
    pub url: Option<Stored<String>>,
    /// `sabakan/template`, JSON.
    pub template: Option<Stored<String>>,
    /// `sabakan/query-variables`, JSON.
    pub variables: Option<Stored<String>>,
    /// `auto-repair/query-variables`, JSON.
    pub repair_variables: Option<Stored<String>>,
    /// `cluster-revision`: `ModRevision` of the template that the definition was generated from.
    pub cluster_revision: Option<Stored<String>>,
    /// `cketerm/generated`.
    pub generated: Option<Stored<Generated>>,
    /// `cketerm/absent`.
    #[serde(default)]
    pub absent: Option<Stored<Absences>>,
    /// `cketerm/approvals/hold`.
    pub hold: Option<Stored<Hold>>,
    /// `cketerm/approvals/` by digest.
    pub approvals: OrdMap<String, Stored<Approval>>,
}

impl RegistrySettings {
    pub(super) fn take(&mut self, which: RegistryKey, key: &str, row: &Row) -> Result<(), String> {
        let text = || {
            let value = String::from_utf8_lossy(&row.value).into_owned();
            Some(Stored { key: key.to_owned(), mod_revision: row.mod_revision, value: Ok(Arc::new(value)) })
        };
        match which {
            RegistryKey::Url => self.url = text(),
            RegistryKey::Template => self.template = text(),
            RegistryKey::Variables => self.variables = text(),
            RegistryKey::RepairVariables => self.repair_variables = text(),
            RegistryKey::ClusterRevision => self.cluster_revision = text(),
            RegistryKey::Generated => return set_value(&mut self.generated, key, row),
            RegistryKey::Absent => return set_value(&mut self.absent, key, row),
            RegistryKey::Hold => return set_value(&mut self.hold, key, row),
            RegistryKey::Approval(digest) => {
                let mut slot = None;
                let read = set_value(&mut slot, key, row);
                self.approvals.extend(slot.map(|stored| (digest, stored)));
                return read;
            }
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, which: &RegistryKey) {
        match which {
            RegistryKey::Url => self.url = None,
            RegistryKey::Template => self.template = None,
            RegistryKey::Variables => self.variables = None,
            RegistryKey::RepairVariables => self.repair_variables = None,
            RegistryKey::ClusterRevision => self.cluster_revision = None,
            RegistryKey::Generated => self.generated = None,
            RegistryKey::Absent => self.absent = None,
            RegistryKey::Hold => self.hold = None,
            RegistryKey::Approval(digest) => drop(self.approvals.remove(digest)),
        }
    }

    /// Reports whether the template differs from the one that the definition was generated from: "newer" means unequal,
    /// and a missing revision counts as 0 (SAB-23).
    pub fn template_changed(&self) -> bool {
        let template = self.template.as_ref().map_or(0, |t| t.mod_revision);
        let of = self.cluster_revision.as_ref().and_then(Stored::get).and_then(|t| t.trim().parse().ok());
        of.unwrap_or(0) != template
    }
}
