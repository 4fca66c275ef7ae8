//! Conditions that an engine must meet before it campaigns (SAF-4, SAF-5).

use std::{collections::BTreeSet, sync::Arc};

use cketerm_clients::power::{BmcClients, BmcInventory};
use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::{EngineRegistration, Identity, SCHEMA},
    clock::Now,
    cluster::Cluster,
    entry::Stored,
    hook::{Hook, Hooks},
    kube::KubeView,
    policy::EngineChoice,
    stored::view::StoreView,
};
use cketerm_rules::{
    preflight_fault::PreflightFault,
    snapshot::{BmcAccess, Snapshot},
};

use super::command::Spawner;

/// Largest trusted difference between this host's clock and the API server's.
const CLOCK_LIMIT: Seconds = Seconds::new(5.0);

/// Returns a fault if the clock was set since it was compared with the API server's. It is not trusted until it has
/// been compared again. Otherwise an engine that wins right afterwards would evaluate windows, freezes and backoffs by
/// a wrong time (I8, I37).
pub(super) fn clock_was_set(kube: &KubeView, now: Now) -> Option<PreflightFault> {
    let seconds = now.offset() - kube.clock_offset;
    let ahead = kube.clock_ahead.filter(|ahead| ahead.abs() <= CLOCK_LIMIT)? - seconds;
    (ahead.abs() > CLOCK_LIMIT).then_some(PreflightFault::ClockWasSet { seconds })
}

/// Returns the faults for which this engine only observes; empty = fit to lead.
pub(super) fn faults(snap: &Snapshot, has_kubernetes: bool) -> Vec<PreflightFault> {
    let mut faults = Vec::new();
    let store = &snap.store;
    if !store.synced {
        return vec![PreflightFault::EtcdUnread { error: store.error.clone() }];
    }
    match store.schema.as_ref().map(|s| &s.value) {
        Some(Ok(number)) if **number > SCHEMA => {
            faults.push(PreflightFault::SchemaTooNew { found: **number, known: SCHEMA });
        }
        Some(Err(why)) => faults.push(PreflightFault::SchemaUnreadable { error: why.clone() }),
        Some(Ok(_)) | None => {}
    }
    match store.policy.as_ref().map(|s| &s.value) {
        Some(Err(why)) => faults.push(PreflightFault::PolicyUnreadable { error: why.clone() }),
        Some(Ok(policy)) if !policy.unknown_fields().is_empty() => {
            faults.push(PreflightFault::PolicyTooNew { fields: policy.unknown_fields() });
        }
        Some(Ok(_)) | None => {}
    }
    if !has_kubernetes {
        faults.push(PreflightFault::KubernetesNotConfigured);
        return faults;
    }
    faults.extend(identity(store, snap.kube.cluster_uid.as_deref()));
    if let Some(seconds) = snap.kube.clock_ahead.filter(|a| a.abs() > CLOCK_LIMIT) {
        faults.push(PreflightFault::ClockDiffers { seconds });
    }
    if !snap.kube.missing_rights.is_empty() {
        faults.push(PreflightFault::RightsMissing { rights: snap.kube.missing_rights.clone() });
    }
    if !snap.kube.rights_known {
        faults.push(PreflightFault::RightsUnknown);
    }
    faults
}

/// Whether etcd and Kubernetes belong together.
fn identity(store: &StoreView, uid: Option<&str>) -> Option<PreflightFault> {
    let identity: Option<&Identity> = match store.identity.as_ref().map(|s| &s.value) {
        Some(Err(why)) => return Some(PreflightFault::IdentityUnreadable { error: why.clone() }),
        Some(Ok(identity)) => Some(identity),
        None => None,
    };
    match (uid, identity) {
        (None, _) => Some(PreflightFault::IdentityUnknown),
        (Some(_), None) => Some(PreflightFault::IdentityNotProposed),
        (Some(uid), Some(identity)) if identity.uid != uid => {
            Some(PreflightFault::IdentityMismatch { recorded: identity.uid.clone(), found: uid.to_owned() })
        }
        (Some(uid), Some(identity)) if identity.confirmed_by.is_none() => {
            Some(PreflightFault::IdentityUnconfirmed { uid: uid.to_owned() })
        }
        (Some(_), Some(_)) => None,
    }
}

/// Returns the commands of the definition's reboot and repair sections.
fn commands(cluster: &Cluster) -> impl Iterator<Item = &Vec<String>> {
    let reboots = [&cluster.reboot.reboot_command, &cluster.reboot.boot_check_command];
    let procedures = cluster.repair.repair_procedures.iter().flatten();
    let repairs = procedures.flat_map(|p| p.repair_operations.iter().flatten()).flat_map(|operation| {
        let steps = operation.steps().iter().map(|step| &step.repair_command);
        steps.chain([&operation.health_check_command, &operation.success_command])
    });
    reboots.into_iter().chain(repairs).flatten()
}

/// Returns the machines whose power the definition's commands may change, by this host's file (SAF-38, SAF-39). If the
/// file names programs, it is returned too: those can appear and disappear without a change of the file.
pub(super) fn bmc_access(cluster: &Cluster, bmcs: &BmcClients) -> (BmcAccess, Option<Arc<BmcInventory>>) {
    if !commands(cluster).any(|argv| BmcAccess::concerns(argv)) {
        return (BmcAccess::Open, None);
    }
    match bmcs.inventory() {
        Ok(inventory) => {
            let access = bmc_access_by(cluster, &inventory);
            (access, Some(inventory).filter(|inventory| inventory.names_programs()))
        }
        Err(e) => (BmcAccess::Unreadable(e.to_string()), None),
    }
}

/// Returns the machines whose power the commands may change, by this file and the programs on this host.
pub(super) fn bmc_access_by(cluster: &Cluster, inventory: &BmcInventory) -> BmcAccess {
    let machines = || cluster.nodes.iter().map(|node| &node.address);
    let refused = inventory.refused_among(machines());
    BmcAccess::by_machine(machines(), inventory.confined(), refused, inventory.hosts())
        .with_agents(inventory.agents_among(machines()))
}

/// Returns the programs of the definition's reboot and repair sections, and of the hooks, that this host lacks.
pub(super) fn missing_programs(cluster: &Cluster, hooks: &Hooks, spawner: &Spawner) -> Vec<String> {
    let of_hooks = hooks.iter().filter_map(Hook::program);
    let programs: BTreeSet<&String> = commands(cluster).filter_map(|argv| argv.first()).chain(of_hooks).collect();
    programs.into_iter().filter(|program| !spawner.has(program)).cloned().collect()
}

/// Way to let cketerm lead in place of CKE.
const TAKE: &str = "`cketerm engine take` hands the queues over";

/// Reports whether the engine may campaign now, by policy and by the other candidates (SAF-5).
pub(super) fn may_campaign(store: &StoreView) -> Result<(), String> {
    match store.policy().engine {
        EngineChoice::Cke => Err(format!("policy engine is `cke`: CKE processes the queues; {TAKE}")),
        EngineChoice::Always => Ok(()),
        EngineChoice::Cketerm => match cke_candidate(store, None) {
            Some(host) => {
                Err(format!("CKE on {host} is a candidate (policy engine `cketerm` gives way to it); {TAKE}"))
            }
            None => Ok(()),
        },
    }
}

/// Returns the host of a CKE candidate other than `own_lease`, if there is one.
pub(super) fn cke_candidate(store: &StoreView, own_lease: Option<i64>) -> Option<String> {
    store.candidates.values().find(|c| Some(c.lease) != own_lease && store.is_cke(c)).map(|c| c.host.clone())
}

/// Reports whether another complete engine is registered. An incomplete one lets it lead first.
pub(super) fn has_complete_engine(store: &StoreView, own_lease: Option<i64>) -> bool {
    store.engines.iter().any(|(lease, stored)| {
        Some(*lease) != own_lease && Stored::get(stored).is_some_and(EngineRegistration::complete)
    })
}

/// Reports whether another engine is registered that does not stand back. A registration that cannot be read counts.
pub(super) fn has_other_engine(store: &StoreView, own_lease: i64) -> bool {
    let stands_by = |stored: &Stored<EngineRegistration>| stored.get().is_none_or(|e| e.standing_back.is_none());
    store.engines.iter().any(|(lease, stored)| *lease != own_lease && stands_by(stored))
}

#[cfg(test)]
mod tests {
    use cketerm_model::boot_time::BootTime;

    use super::*;
    use cketerm_clients::net::Http;
    use cketerm_model::cketerm_records::{MissingSetting, Who};
    use cketerm_model::names::Address;

    /// The registration and every decision about a machine agree with `cketerm power` about its BMC.
    #[test]
    fn i50_engine_and_power_command_agree_on_bmc_access() {
        let text = "nodes: [{address: 10.0.0.1}, {address: 10.0.0.2}]\n\
                    reboot: {reboot_command: [cketerm, power, cycle], boot_check_command: [cketerm, power, booted]}\n";
        let cluster: Cluster = serde_yaml::from_str(text).unwrap();
        let both = |first: &str, second: &str| format!("bmcs: {{10.0.0.1: {first}, 10.0.0.2: {second}}}\n");
        let good = "{url: 'https://10.1.0.1'}";
        let name = "{url: 'https://bmc.example', insecure: true}";
        for (file, refused, message) in [
            (both(good, good), &[][..], ""),
            // A machine outside the definition does not make an engine incomplete.
            (
                format!(
                    "{}  10.0.0.9: {name}\n",
                    "bmcs:\n  10.0.0.1: {url: 'https://10.1.0.1'}\n  10.0.0.2: {url: 'https://10.1.0.2'}\n"
                ),
                &[],
                "",
            ),
            (format!("bmcs: {{10.0.0.1: {good}}}\n"), &["10.0.0.2"], ""),
            (both(good, name), &["10.0.0.2"], "needs `networks`"),
            (
                format!("defaults: {{insecure: true}}\n{}", both(good, "{url: 'https://bmc.example'}")),
                &["10.0.0.2"],
                "needs `networks`",
            ),
            (format!("networks: [10.1.0.0/16]\n{}", both(good, name)), &[], ""),
            (
                format!("networks: [10.1.0.0/16]\n{}", both(good, "{url: 'https://10.9.0.1'}")),
                &["10.0.0.2"],
                "outside the networks",
            ),
            (format!("networks: [10.1.0.0/16]\n{}", both(good, "{system: '1'}")), &["10.0.0.2"], "url is missing"),
            ("networks: [10.1.0.0/16]\n".to_owned(), &[], ""),
            ("defaults: {username: u}\n".to_owned(), &["10.0.0.1", "10.0.0.2"], ""),
        ] {
            let clients =
                BmcClients::in_process(Http::verified(std::time::Duration::from_secs(1), 1), &file, |_| Vec::new());
            let (access, _) = bmc_access(&cluster, &clients);
            for address in ["10.0.0.1", "10.0.0.2"] {
                let here = access.refusal(&Address::new(address));
                assert_eq!(here.is_some(), refused.contains(&address), "{address} by {file}: {access:?}");
                let by_entry = matches!(here, Some(cketerm_rules::snapshot::BmcRefusal::Fault(_)));
                let entries = access.missing_settings().into_iter().filter(|lack| *lack != MissingSetting::BmcNetworks);
                let named = entries.map(|lack| lack.to_string()).any(|text| text.contains(address));
                assert_eq!(named, by_entry, "the registration names the refused entry: {access:?}");
                if let Some(cketerm_rules::snapshot::BmcRefusal::Fault(why)) = here {
                    assert!(!message.is_empty() && why.contains(message), "{file}: {why}");
                    let power = clients
                        .inventory()
                        .unwrap()
                        .find(&Address::new(address), clients.connector())
                        .unwrap_err()
                        .to_string();
                    assert_eq!(why, power, "the power command gives the same reason");
                }
            }
            assert_eq!(access.missing_settings().is_empty(), refused.is_empty(), "{file}");
        }
    }

    fn stored<T>(value: Result<T, String>) -> Stored<T> {
        Stored { key: String::new(), mod_revision: 1, value: value.map(Arc::new) }
    }

    #[test]
    fn only_a_confirmed_identity_of_this_cluster_lets_an_engine_lead() {
        let with = |identity: Result<Identity, String>| {
            let store = StoreView { identity: Some(stored(identity)), ..StoreView::default() };
            super::identity(&store, Some("uid-1"))
        };
        let at = jiff::Timestamp::UNIX_EPOCH;
        let proposed = |uid: &str| Identity { uid: uid.to_owned(), confirmed_by: None, at };
        let confirmed = |uid: &str| Identity { confirmed_by: Some(Who::default()), ..proposed(uid) };
        assert_eq!(with(Ok(confirmed("uid-1"))), None);
        let unconfirmed = PreflightFault::IdentityUnconfirmed { uid: "uid-1".to_owned() };
        assert_eq!(with(Ok(proposed("uid-1"))), Some(unconfirmed));
        let mismatch = PreflightFault::IdentityMismatch { recorded: "uid-2".to_owned(), found: "uid-1".to_owned() };
        assert_eq!(with(Ok(confirmed("uid-2"))), Some(mismatch));
        let unreadable = PreflightFault::IdentityUnreadable { error: "no JSON".to_owned() };
        assert_eq!(with(Err("no JSON".to_owned())), Some(unreadable));
        let empty = StoreView::default();
        assert_eq!(super::identity(&empty, Some("uid-1")), Some(PreflightFault::IdentityNotProposed));
        assert_eq!(super::identity(&empty, None), Some(PreflightFault::IdentityUnknown));
    }

    /// A leader that ends alone finishes power cycles first. Otherwise the next leader does it.
    #[test]
    fn another_engine_counts_unless_it_stands_back_even_if_its_registration_cannot_be_read() {
        let others = |engines: &[(i64, Result<EngineRegistration, String>)]| {
            let engines = engines.iter().map(|(lease, engine)| (*lease, stored(engine.clone()))).collect();
            has_other_engine(&StoreView { engines, ..StoreView::default() }, 7)
        };
        let active: EngineRegistration =
            serde_json::from_str(r#"{"host": "boot-1", "pid": 1, "version": "0.2.0", "mode": "daemon"}"#).unwrap();
        let standing_back = EngineRegistration { standing_back: Some("no probe".to_owned()), ..active.clone() };
        assert!(!others(&[]));
        assert!(!others(&[(7, Ok(active.clone()))]), "its own registration is not another engine");
        assert!(!others(&[(7, Ok(active.clone())), (8, Ok(standing_back.clone()))]));
        assert!(others(&[(7, Ok(active.clone())), (8, Ok(standing_back)), (9, Ok(active))]));
        assert!(others(&[(8, Err("no JSON".to_owned()))]));
    }

    #[test]
    fn an_engine_lets_another_lead_first_if_any_other_is_complete() {
        let complete = |engines: &[(i64, Result<EngineRegistration, String>)], own| {
            let engines = engines.iter().map(|(lease, engine)| (*lease, stored(engine.clone()))).collect();
            has_complete_engine(&StoreView { engines, ..StoreView::default() }, own)
        };
        let new: EngineRegistration =
            serde_json::from_str(r#"{"host": "boot-1", "pid": 1, "version": "0.2.0", "mode": "daemon"}"#).unwrap();
        assert!(!new.complete(), "it has seen no probe yet");
        let whole = EngineRegistration { probes_seen: true, etcd_members_seen: true, ..new };
        let missing_programs = vec!["ipmi".to_owned()];
        let lacking = EngineRegistration { missing_programs, ..whole.clone() };
        assert!(whole.complete() && !lacking.complete());
        assert!(!complete(&[], None));
        assert!(!complete(&[(7, Ok(whole.clone()))], Some(7)), "its own registration is not another engine");
        assert!(complete(&[(7, Ok(lacking.clone())), (8, Ok(lacking.clone())), (9, Ok(whole.clone()))], Some(7)));
        assert!(complete(&[(8, Ok(lacking.clone())), (9, Ok(whole.clone()))], None));
        assert!(!complete(&[(8, Ok(lacking)), (9, Err("no JSON".to_owned()))], None));
    }

    #[test]
    fn only_a_read_etcd_and_a_clock_within_five_seconds_let_an_engine_lead() {
        let of = |synced, ahead: Option<f64>| {
            let (cluster_uid, clock_ahead) = (Some("uid-1".to_owned()), ahead.map(Seconds::new));
            let kube = Arc::new(KubeView { cluster_uid, clock_ahead, ..KubeView::default() });
            let store = Arc::new(StoreView { synced, ..StoreView::default() });
            faults(&Snapshot { store, kube, ..Snapshot::default() }, true)
        };
        assert_eq!(of(false, None), [PreflightFault::EtcdUnread { error: None }]);
        let others = of(true, None);
        assert!(others.contains(&PreflightFault::IdentityNotProposed), "{others:?}");
        for near in [0.0, 5.0, -5.0] {
            assert_eq!(of(true, Some(near)), others, "{near}");
        }
        for far in [5.1, -5.1] {
            let differs = PreflightFault::ClockDiffers { seconds: Seconds::new(far) };
            let found = of(true, Some(far));
            assert!(found.contains(&differs) && found.len() == others.len() + 1, "{found:?}");
        }
    }

    /// A clock set half an hour ahead right before the win must not end a drain as if its window had ended.
    #[test]
    fn i37_a_clock_that_was_set_is_a_fault_until_compared_again() {
        let at = |boot: f64, wall: &str| Now { boot: BootTime::new(boot), wall: wall.parse().unwrap() };
        let (then, later) = (at(100.0, "2026-01-01T00:10:00Z"), at(103.0, "2026-01-01T00:10:03Z"));
        let kube = |ahead: f64| KubeView {
            clock_ahead: Some(Seconds::new(ahead)),
            clock_offset: then.offset(),
            clock_measured: then.boot,
            ..KubeView::default()
        };
        assert_eq!(clock_was_set(&kube(0.3), later), None);
        let set = at(103.0, "2026-01-01T00:40:08Z");
        let fault = clock_was_set(&kube(0.3), set).unwrap();
        assert!(fault.to_string().contains("jumped by 1805 s"), "{fault}");
        assert_eq!(clock_was_set(&kube(-1805.0), set), None, "preflight reports a known offset");
        assert_eq!(clock_was_set(&KubeView::default(), set), None, "there is no offset to compare with");
        // The clock was corrected by less than the allowed difference, in the right direction.
        assert_eq!(clock_was_set(&kube(4.5), at(103.0, "2026-01-01T00:10:07Z")), None);
    }
}
