//! Automatic repair: machines that sabakan calls sick go into the repair queue, below a cap (spec/repair.md, Automatic
//! repair; I42).

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Effect, Guard, Pass, Registering};
use crate::{
    engine::registry::Good,
    model::{
        entry::Stored,
        kube::{HOSTS_SOURCE, KubeView},
    },
    sabakan::{Machine, RepairInput, RepairPlan, State, plan_repairs},
    store::view::StoreView,
};

/// Seconds for which an answer of sabakan may be added from: in an older one a machine may still be down that has long
/// come back from its reboot.
const YOUNG: f64 = 5.0;
/// Seconds after which the copy of BareMetalHosts is too old to add from.
const HOSTS_YOUNG: f64 = 10.0;
/// A place of its own among the effects.
const REPAIRS: &str = "automatic repair";

/// Where automatic repair stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AutoRepair {
    /// Why it adds nothing whatever the machines are.
    pub off: Option<String>,
    /// What it would add and why not the others.
    pub plan: RepairPlan,
    /// It would add, but from an answer that is no longer young: sabakan is asked again first.
    pub asks_again: bool,
}

impl Pass<'_> {
    /// Adds what the plan says, where it may.
    pub(super) fn tend_auto_repair(&mut self) {
        let store = &self.snap.store;
        self.out.auto_repair = self.auto_repair();
        let adds = self.out.auto_repair.off.is_none() && !self.out.auto_repair.plan.entries.is_empty();
        let fresh = self.boot() - store.heard <= 10.0;
        if !adds || !fresh || !self.leading() {
            return;
        }
        self.out.auto_repair.asks_again =
            self.snap.registry.broken.good.as_ref().is_none_or(|good| self.boot() - good.at > YOUNG);
        if !self.out.auto_repair.asks_again {
            self.plan(REPAIRS, None, Guard::default(), Effect::Registry(Registering::AddRepairs));
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
        if let Some(reason) = self.not_ours() {
            return off(reason.to_string());
        }
        let Some(good) = &asked.good else { return off("waits for sabakan's first answer".to_owned()) };
        #[allow(clippy::cast_precision_loss)] // seconds
        let most = 3.0 * self.policy.sabakan_poll_seconds as f64 + 60.0;
        let age = self.boot() - good.at;
        if age > most {
            return off(format!("waits for a newer answer of sabakan: the last one is {age:.0} s old"));
        }
        let kept = kept_by_hosts(&self.snap.kube, self.boot());
        match kept.and_then(|kept| plan_of(store, good, kept, &self.snap.kube)) {
            Ok(plan) => AutoRepair { plan, ..AutoRepair::default() },
            Err(why) => off(why),
        }
    }
}

/// What automatic repair makes of an answer in this state of the queues; the words ask the same.
/// `kept` are machines that their BareMetalHosts explain ([`kept_by_hosts`]); `kube` says which Nodes are Ready.
pub fn plan_of(
    store: &StoreView,
    good: &Good,
    mut kept: BTreeMap<String, String>,
    kube: &KubeView,
) -> Result<RepairPlan, String> {
    let with = |s: Option<&Stored<String>>| s.map_or(0, |s| s.mod_revision);
    if good.with != (with(store.registry.url.as_ref()), with(store.registry.repair_variables.as_ref())) {
        return Err("waits for an answer to the question that has just changed".to_owned());
    }
    if let Some(Err(why)) = store.cluster.as_ref().map(|c| &c.value) {
        return Err(format!("the definition cannot be read, so nobody can say who is a member: {why}"));
    }
    let next_index = store.repairs.write_index.clone()?;
    let broken = store.repairs.entries.values().filter(|s| s.get().is_none()).count();
    let repairs: Vec<_> = store.repairs.entries.values().filter_map(Stored::get).cloned().collect();
    let reboots: Vec<_> = store.reboots.entries.values().filter_map(Stored::get).cloned().collect();
    let mut constraints = crate::model::constraints::Constraints::clone(&store.constraints());
    // an entry that cannot be read takes its place below the cap too
    let cap = constraints.maximum_repair_queue_entries;
    constraints.maximum_repair_queue_entries = (cap - i64::try_from(broken).unwrap_or(cap)).max(0);
    // A machine that comes back from its reboot has left the queue before sabakan looks again: "young" is it there too.
    let wait = constraints.wait_seconds_to_repair_rebooting;
    for machine in &good.machines.list {
        if let Some(cause) = coming_back(machine, wait, kube) {
            let why = format!(
                "{cause}, and sabakan calls it unreachable for only {:.0} s of wait-seconds-to-repair-rebooting {wait}",
                machine.duration
            );
            kept.entry(machine.address.clone()).or_insert(why);
        }
    }
    Ok(plan_repairs(&RepairInput {
        machines: &good.machines.list,
        constraints: &constraints,
        repairs: &repairs,
        reboots: &reboots,
        current: store.definition().map(|d| &d.cluster),
        kept: &kept,
        next_index,
    }))
}

/// Why sabakan's word that a machine is unreachable is doubted while it is younger than the wait, in seconds.
fn coming_back(machine: &Machine, wait: i64, kube: &KubeView) -> Option<&'static str> {
    #[allow(clippy::cast_precision_loss)] // seconds
    let young = machine.state == State::Unreachable && machine.duration < wait as f64;
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

/// Machines whose BareMetalHost is held off, is to be off, or is being rebooted, by address: why; empty where the cluster
/// has no BareMetalHosts. `boot` = now, in boot-time seconds. Errors: a sentence, when the hosts are not known as they are
/// now: a machine that somebody holds off is never taken for one that is sick (I44).
pub fn kept_by_hosts(kube: &KubeView, boot: f64) -> Result<BTreeMap<String, String>, String> {
    let heard = kube.sources.get(HOSTS_SOURCE).map(|source| (source.synced, source.heard, source.error.as_ref()));
    match heard {
        Some((true, heard, _)) if boot - heard <= HOSTS_YOUNG => Ok(kept(kube)),
        Some((_, _, Some(why))) => Err(format!("waits for BareMetalHosts, which say who is held off: {why}")),
        Some((true, heard, None)) => {
            Err(format!("waits for BareMetalHosts, which say who is held off: last heard {:.0} s ago", boot - heard))
        }
        _ => Err("waits for BareMetalHosts, which say who is held off: not read yet".to_owned()),
    }
}

fn kept(kube: &KubeView) -> BTreeMap<String, String> {
    let mut kept = BTreeMap::new();
    for host in kube.hosts.values() {
        let keys: Vec<&str> = host.asked.keys.keys().map(String::as_str).collect();
        let why = if !keys.is_empty() {
            format!("its BareMetalHost {} is held off by {}", host.full_name(), keys.join(", "))
        } else if !host.asked.is_empty() || host.pending() {
            format!("its BareMetalHost {} is being rebooted", host.full_name())
        } else if host.provisioned() && !host.online {
            format!("its BareMetalHost {} is to be off (spec.online)", host.full_name())
        } else {
            continue;
        };
        let node = host.node_in(kube).map(|(node, _)| node.addresses.iter()).into_iter().flatten();
        kept.extend(host.addresses.iter().chain(node).map(|address| (address.clone(), why.clone())));
    }
    kept
}
