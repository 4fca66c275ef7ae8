//! Automatic repair: adds machines that sabakan reports as unhealthy or unreachable to the repair queue, below a cap
//! (REP-44 to REP-55, I42).

use std::collections::BTreeMap;

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    entry::{EntryId, Stored},
    kube::{HOSTS_SOURCE, KubeView},
    names::Address,
    stored::view::StoreView,
};
use cketerm_sabakan::{Machine, RepairInput, RepairPlan, State, plan_repairs};
use serde::Serialize;

use super::{Effect, Guard, Pass, RegistryEffect};
use crate::registry::GoodAnswer;

/// Maximum age of sabakan's answer. An older answer may still show a machine as down that has recovered from
/// its reboot.
const MAX_ANSWER_AGE: Seconds = Seconds::new(5.0);
/// Maximum age of the copy of BareMetalHosts.
const MAX_HOSTS_AGE: Seconds = Seconds::new(10.0);
/// Key of automatic repair among the effects.
const REPAIRS: &str = "automatic repair";

/// State of automatic repair.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AutoRepair {
    /// Reason why it adds nothing at all.
    pub off: Option<String>,
    /// Entries to add, and the reasons for the machines that are skipped.
    pub plan: RepairPlan,
    /// Whether sabakan must be queried again before entries are added, because its answer is too old.
    pub asks_again: bool,
}

impl Pass<'_> {
    /// Adds the entries of the plan if the conditions of REP-45 hold.
    pub(super) fn plan_auto_repair(&mut self) {
        self.out.auto_repair = self.auto_repair();
        let has_repairs = self.out.auto_repair.off.is_none() && !self.out.auto_repair.plan.entries.is_empty();
        if !has_repairs || !self.etcd_copy_is_fresh() || !self.leading() {
            return;
        }
        // `broken.good`: the last good answer of sabakan about broken machines.
        self.out.auto_repair.asks_again =
            self.snap.registry.broken.good.as_ref().is_none_or(|good| self.monotonic_now() - good.at > MAX_ANSWER_AGE);
        if !self.out.auto_repair.asks_again {
            self.plan(REPAIRS, None, Guard::default(), Effect::Registry(RegistryEffect::AddRepairs));
        }
    }

    fn auto_repair(&self) -> AutoRepair {
        let (store, asked) = (&self.snap.store, &self.snap.registry.broken);
        let off = |why: String| AutoRepair { off: Some(why), ..AutoRepair::default() };
        if !store.auto_repair.enabled() {
            return off("disabled: `cketerm auto-repair enable`".to_owned());
        }
        if store.registry.url.is_none() {
            return off("not set up: `cketerm sabakan set-url URL`".to_owned());
        }
        if store.constraints().maximum_repair_queue_entries <= 0 {
            return off("maximum-repair-queue-entries is 0: `cketerm constraints set maximum-repair-queue-entries N`"
                .to_owned());
        }
        if let Some(why) = &asked.error {
            return off(why.clone());
        }
        if let Some(reason) = self.leadership_blocker() {
            return off(reason.to_string());
        }
        let Some(good) = &asked.good else { return off("sabakan has not answered yet".to_owned()) };
        let max_age = Seconds::from(self.policy.sabakan_poll_seconds) * 3.0 + Seconds::new(60.0);
        let age = self.monotonic_now() - good.at;
        if age > max_age {
            return off(format!("sabakan's last answer is {age:.0} old"));
        }
        let excluded = machines_held_by_hosts(&self.snap.kube, self.monotonic_now());
        match excluded.and_then(|excluded| auto_repair_plan(store, good, excluded, &self.snap.kube)) {
            Ok(plan) => AutoRepair { plan, ..AutoRepair::default() },
            Err(why) => off(why),
        }
    }
}

/// Returns the plan of automatic repair for an answer and the present queues. The subcommands use the same function.
///
/// `excluded` holds machines that must be left alone because of their BareMetalHosts ([`machines_held_by_hosts`]);
/// `kube` shows which Nodes are Ready.
pub fn auto_repair_plan(
    store: &StoreView,
    good: &GoodAnswer,
    mut excluded: BTreeMap<Address, String>,
    kube: &KubeView,
) -> Result<RepairPlan, String> {
    // `with`: revisions of the keys that the query was made from.
    let with = |s: Option<&Stored<String>>| s.map_or(0, |s| s.mod_revision);
    if good.with != (with(store.registry.url.as_ref()), with(store.registry.repair_variables.as_ref())) {
        return Err("waits for an answer to the changed query".to_owned());
    }
    if let Some(Err(why)) = store.cluster.as_ref().map(|c| &c.value) {
        return Err(format!("the definition cannot be read, so its members are unknown: {why}"));
    }
    // An index is never used again, also if `write-index` was restored or lost (STO-9).
    let after_last = store.repairs.entries.get_max().map_or(0, |(last, _)| last.saturating_add(1));
    let next_index = store.repairs.write_index.clone()?.max(after_last);
    let broken = store.repairs.entries.values().filter(|s| s.get().is_none()).count();
    let repairs: Vec<_> = store.repairs.entries.values().filter_map(Stored::get).cloned().collect();
    let reboots: Vec<_> = store.reboots.entries.values().filter_map(Stored::get).cloned().collect();
    for (index, entry) in store.maintenance.entries.iter().filter_map(|(index, stored)| Some((index, stored.get()?))) {
        let why = format!("it is in maintenance ({})", EntryId::maintenance(*index));
        excluded.entry(entry.node.clone()).or_insert(why);
    }
    let mut constraints = cketerm_model::constraints::Constraints::clone(&store.constraints());
    // An entry that cannot be read counts toward the cap.
    let cap = constraints.maximum_repair_queue_entries;
    constraints.maximum_repair_queue_entries = (cap - i64::try_from(broken).unwrap_or(cap)).max(0);
    // A rebooted machine may have left the queue before sabakan looks again, so the waiting time applies to it too.
    let wait = constraints.wait_seconds_to_repair_rebooting;
    for machine in &good.machines.list {
        if let Some(cause) = recovery_cause(machine, wait, kube) {
            let why = format!(
                "{cause}, and unreachable in sabakan for only {:.0} of wait-seconds-to-repair-rebooting {wait}",
                machine.duration
            );
            excluded.entry(machine.address.clone()).or_insert(why);
        }
    }
    Ok(plan_repairs(&RepairInput {
        machines: &good.machines.list,
        constraints: &constraints,
        repairs: &repairs,
        reboots: &reboots,
        current: store.definition().map(|d| &d.cluster),
        excluded: &excluded,
        next_index,
    }))
}

/// Returns why sabakan's `UNREACHABLE` does not count yet, if the state is younger than `wait` seconds.
fn recovery_cause(machine: &Machine, wait: i64, kube: &KubeView) -> Option<&'static str> {
    let young = machine.state == State::Unreachable && machine.duration < Seconds::from(wait);
    if !young {
        return None;
    }
    let node = kube.by_name.get(kube.by_address.get(&machine.address)?)?;
    if node.ready {
        Some("its Node is Ready")
    } else {
        kube.marked.contains(&node.name).then_some("it was rebooted or repaired, and its Node is not back yet")
    }
}

/// Returns the machines whose BareMetalHost is held off, should be off or is being rebooted, by address, each with the
/// reason. The map is empty if the cluster has no BareMetalHosts. `boot` is the present boot time.
///
/// # Errors
///
/// A message if the copy of the hosts is not fresh. A machine that is held off must never count as broken (REP-47,
/// I44).
pub fn machines_held_by_hosts(kube: &KubeView, boot: BootTime) -> Result<BTreeMap<Address, String>, String> {
    // Whether the hosts were listed, the boot time of the last sign of life (`hosts_source` below), and the error.
    let hosts_source =
        kube.sources.get(HOSTS_SOURCE).map(|source| (source.synced, source.last_seen, source.error.as_ref()));
    match hosts_source {
        Some((true, hosts_source, _)) if boot - hosts_source <= MAX_HOSTS_AGE => Ok(excluded(kube)),
        Some((_, _, Some(why))) => Err(format!("waits for BareMetalHosts, to know which are held off: {why}")),
        Some((true, hosts_source, None)) => Err(format!(
            "waits for BareMetalHosts, to know which are held off: last read {:.0} ago",
            boot - hosts_source
        )),
        _ => Err("waits for BareMetalHosts, to know which are held off: not read yet".to_owned()),
    }
}

fn excluded(kube: &KubeView) -> BTreeMap<Address, String> {
    let mut excluded = BTreeMap::new();
    for host in kube.hosts.values() {
        let keys: Vec<&str> = host.asked.keys.keys().map(String::as_str).collect();
        let why = if !keys.is_empty() {
            format!("its BareMetalHost {} is held off by {}", host.full_name(), keys.join(", "))
        } else if !host.asked.is_empty() || host.pending() {
            format!("its BareMetalHost {} is being rebooted", host.full_name())
        } else if host.provisioned() && !host.online {
            format!("its BareMetalHost {} must be off (spec.online)", host.full_name())
        } else {
            continue;
        };
        let node = kube.node_of_host(host).map(|(node, _)| node.addresses.iter()).into_iter().flatten();
        excluded.extend(host.addresses.iter().chain(node).map(|address| (address.clone(), why.clone())));
    }
    excluded
}
