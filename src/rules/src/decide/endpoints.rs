//! Endpoints of API servers (SAF-32). The leader removes the address of a rebooting API server from the endpoints that
//! CKE manages, never as the last one. It puts the address back after the server has settled.

use std::collections::BTreeSet;

use cketerm_model::{
    cluster::Member, entry_ref::EntryRef, kube::EndpointsRow, names::Address, policy::ManageEndpoints, reason::Reason,
};

use super::{Effect, Guard, Pass};

impl Pass<'_> {
    fn manages_endpoints(&self) -> bool {
        match self.policy.manage_endpoints {
            ManageEndpoints::On => true,
            ManageEndpoints::Off => false,
            ManageEndpoints::Auto => {
                self.snap.kube.endpoints.iter().any(|r| r.namespace == "kube-system" && r.name.starts_with("cke-etcd"))
            }
        }
    }

    /// Plans the removal of this API server's address. `Ok` once no endpoints object lists it together with others. A
    /// last address is never removed.
    pub(super) fn leave_endpoints(&mut self, address: &Address) -> Result<(), Reason> {
        let source = self.snap.kube.sources.get("endpoints");
        if self.policy.manage_endpoints != ManageEndpoints::Off && !source.is_some_and(|s| s.synced) {
            let error = source.and_then(|s| s.error.clone());
            // Without the right to read the endpoints, `auto` means that they are not managed.
            let forbidden = source.is_some_and(|s| s.forbidden);
            if !(forbidden && self.policy.manage_endpoints == ManageEndpoints::Auto) {
                let why = error.unwrap_or_else(|| "not read yet".to_owned());
                return Err(Reason::EffectFailed { what: "reading the API server's endpoints".to_owned(), why });
            }
        }
        if !self.manages_endpoints() {
            return Ok(());
        }
        let rows: Vec<EndpointsRow> = self
            .snap
            .kube
            .endpoints
            .iter()
            .filter(|row| row.addresses.iter().any(|a| a == address) && row.addresses.len() > 1)
            .cloned()
            .collect();
        for row in &rows {
            let addresses = row.addresses.iter().filter(|a| *a != address).cloned().collect();
            self.plan_endpoints(row, addresses);
        }
        if rows.is_empty() {
            return Ok(());
        }
        Err(Reason::Working { phase: "leaving the API server's endpoints".to_owned() })
    }

    /// Puts settled API servers back, from the definition.
    pub(super) fn reconcile_endpoints(&mut self) {
        let Some(definition) = self.definition else { return };
        if !self.leading() || !self.manages_endpoints() {
            return;
        }
        let members: BTreeSet<&Address> =
            definition.members.control_planes(&definition.cluster).map(Member::address).collect();
        // An API server that is only draining may have left already. It returns when its drain backs off.
        let is_leaving = |address: &Address| {
            let in_work = self.claims.api_servers.get(address);
            in_work.is_some_and(|id| self.snap.store.entry(*id).is_none_or(EntryRef::claims_machine))
        };
        let mut changes = Vec::new();
        for row in &self.snap.kube.endpoints {
            if !row.addresses.iter().any(|a| members.contains(a)) {
                continue;
            }
            let current: BTreeSet<&Address> = row.addresses.iter().collect();
            // An address that is missing is put back only once the API server is Ready and its probe is good.
            let desired: BTreeSet<&Address> = members
                .iter()
                .copied()
                .filter(|a| current.contains(a) || (!is_leaving(a) && self.is_serving(a)))
                .collect();
            if desired != current && !desired.is_empty() {
                changes.push((row.clone(), desired.into_iter().cloned().collect::<Vec<_>>()));
            }
        }
        for (row, addresses) in changes {
            self.plan_endpoints(&row, addresses);
        }
    }

    fn is_serving(&self, address: &Address) -> bool {
        let ready = self.snap.node_of(address).is_some_and(|n| n.ready);
        let probed = self.snap.probes.get(address).is_some_and(|p| p.good_since.is_some());
        ready && (probed || self.control_planes_by_node())
    }

    fn plan_endpoints(&mut self, row: &EndpointsRow, addresses: Vec<Address>) {
        // The exclusion key is the object's name, not that of a machine.
        let machine = format!("{} {}/{}", row.kind, row.namespace, row.name);
        self.plan(&machine, None, Guard::default(), Effect::SetEndpoints { row: row.clone(), addresses });
    }
}
