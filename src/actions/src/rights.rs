//! Check of an operator's rights before anything is tried. It writes nothing.

use cketerm_clients::{kubernetes::Kube, store::Store};
use cketerm_model::{
    entry::EntryId,
    rights::{Area, Rights},
    stored::keys::{Keys, SwitchName},
};
use futures::future::join_all;

use super::operator::TIMEOUT;

/// Checks, in etcd and (if configured) in Kubernetes, everything that an operator may change.
pub async fn rights(store: &Store, kube: Option<&Kube>) -> Rights {
    let checks = Area::ALL.into_iter().map(async |area| {
        let answer = tokio::time::timeout(TIMEOUT, missing_right(store, kube, area)).await;
        (area, answer.ok().flatten())
    });
    let mut rights = Rights::default();
    for (area, why) in join_all(checks).await {
        if let Some(why) = why {
            rights.set_missing(area, why);
        }
    }
    rights
}

async fn missing_right(store: &Store, kube: Option<&Kube>, area: Area) -> Option<String> {
    let (verb, group, resource) = match area {
        Area::Nodes => ("patch", "", "nodes"),
        Area::Hosts => ("patch", "metal3.io", "baremetalhosts"),
        _ => {
            let cause = store.may_write(&keys(store.keys(), area)).await.ok()?.err()?;
            return Some(format!(
                "etcd does not let this user write {area} ({cause}); grant etcd.username the role (docs/etcd-roles.md)"
            ));
        }
    };
    let may = kube?.may(verb, group, resource).await.ok()?;
    (!may).then(|| {
        format!(
            "Kubernetes does not let this account {verb} {area}; grant the kubeconfig's user the right (docs/rbac.yaml)"
        )
    })
}

/// Returns keys of all kinds that a command of this area writes in one transaction.
fn keys(keys: &Keys, area: Area) -> Vec<String> {
    // the index of an entry that never exists
    let (reboot, repair) = (EntryId::reboot(u64::MAX), EntryId::repair(u64::MAX));
    let mut all = match area {
        Area::Reboots => vec![keys.entry(reboot), keys.request(reboot), keys.switch(SwitchName::Reboots)],
        Area::Repairs => vec![keys.entry(repair), keys.request(repair), keys.switch(SwitchName::Repairs)],
        Area::Orders => vec![keys.order(reboot), keys.order(repair)],
        Area::Maintenance => {
            let maintenance = EntryId::maintenance(u64::MAX);
            vec![keys.entry(maintenance), keys.request(maintenance)]
        }
        Area::Settings => vec![keys.policy(), keys.constraints()],
        Area::Registry => {
            vec![keys.switch(SwitchName::Sabakan), keys.switch(SwitchName::AutoRepair), keys.approval("x")]
        }
        Area::Nodes | Area::Hosts => Vec::new(),
    };
    all.push(keys.audit("x"));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_writes_to_etcd_needs_its_own_keys_and_the_audit() {
        let all = Keys::new("/cke/");
        let audit = all.audit("x");
        for area in Area::ALL {
            let keys = keys(&all, area);
            assert_eq!(keys.last(), Some(&audit), "{area:?}");
            assert_eq!(keys.len() > 1, area.is_in_etcd(), "{area:?}");
        }
    }
}
