//! Actions on the repair queue's entries (REP-7 to REP-10).

use std::net::IpAddr;

use cketerm_clients::store::repairs::Which;
use cketerm_model::{
    batch::BatchId,
    cketerm_records::{Request, Verb},
    cluster::{Cluster, Members},
    entry::EntryId,
    names::Address,
    reboot::RebootStatus,
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::view::StoreView,
};

use super::{
    added::Added,
    batches::without_batch,
    error::ActionError,
    operator::{Operator, TIMEOUT},
};

/// A requested repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRepair {
    /// Name of the operation.
    pub operation: String,
    /// Type of the machine, which selects the procedure.
    pub machine_type: String,
    /// IP address of the machine; it need not be a member of the cluster.
    pub address: Address,
    /// Serial number of the machine.
    pub serial: Option<String>,
}

impl Operator {
    /// Queues one repair. If the definition has no such operation for the machine type, it is refused and the message
    /// names the known ones.
    pub async fn add_repair(&self, new_repair: &NewRepair, reason: Option<&str>) -> Result<Added, ActionError> {
        self.add_repair_to(None, new_repair, reason).await
    }

    /// Queues one repair as [`Self::add_repair`] does; with `batch`, as a further entry of that batch.
    pub async fn add_repair_to(
        &self,
        batch: Option<BatchId>,
        new_repair: &NewRepair,
        reason: Option<&str>,
    ) -> Result<Added, ActionError> {
        let Ok(address) = new_repair.address.parse::<IpAddr>() else {
            return Err(ActionError::misused(format!(
                "{:?} is not an IP address; no entry was written",
                new_repair.address
            )));
        };
        let cluster = self.definition().await?;
        cluster
            .repair
            .operation(&new_repair.machine_type, &new_repair.operation)
            .map_err(|why| ActionError::refused(format!("{why}; no entry was written; see `cketerm cluster get`")))?;
        self.refuse_mismatch().await?;
        let members = Members::of(&cluster);
        // use the definition's spelling, so that both queues name the machine alike
        let known_address = cluster.nodes.iter().find(|n| n.address.parse() == Ok(address)).map(|n| n.address.clone());
        let address = known_address.unwrap_or_else(|| Address::new(address.to_string()));
        let view = self.store.read_view().await?;
        let mut notes = notes(&view, &cluster, &members, &address);
        let request = Request {
            who: self.who().clone(),
            at: self.store.clock().wall(),
            reason: reason.map(str::to_owned),
            node_uid: self.uid_of(&cluster, &members, &address).await,
            batch,
        };
        let serial = new_repair.serial.as_deref().filter(|s| !s.is_empty());
        let entry = RepairEntry::queued(0, &address, &new_repair.machine_type, &new_repair.operation, serial);
        let added = self.store.add_repair(&self.person, &entry, &request).await?;
        notes.extend(without_batch(&added));
        Ok(Added { indexes: added.indexes, batch: added.batch, notes })
    }

    /// Marks one repair as deleted, in any state; the leader removes it. `seen` is the `ModRevision` that the operator
    /// saw, if there was a screen. An unreadable entry is refused, and the message names the command that removes it.
    pub async fn delete_repair(&self, index: u64, seen: Option<i64>, reason: Option<&str>) -> Result<(), ActionError> {
        if let Some(refused) = self.unreadable(EntryId::repair(index)).await? {
            return Err(refused);
        }
        Ok(self.store.delete_repair(index, seen, &self.person, reason).await?)
    }

    /// Marks all finished or all unfinished repairs as deleted, and returns their indexes.
    pub async fn delete_repairs(&self, which: Which, reason: Option<&str>) -> Result<Vec<u64>, ActionError> {
        Ok(self.store.delete_repairs(which, &self.person, reason).await?)
    }

    /// Returns the UID of the machine's Node, if Kubernetes answers in time.
    async fn uid_of(&self, cluster: &Cluster, members: &Members, address: &Address) -> Option<String> {
        let (kube, member) = (self.kube.as_ref()?, members.by_address(cluster, address)?);
        let answer = tokio::time::timeout(TIMEOUT, kube.node(member.node_name())).await;
        Some(answer.ok()?.ok()??.uid)
    }
}

/// Returns notes for an operator who adds an entry.
fn notes(view: &StoreView, cluster: &Cluster, members: &Members, address: &Address) -> Vec<String> {
    let mut notes = Vec::new();
    if !view.repairs.switch.enabled() {
        notes.push("the repair queue is disabled; enable it with `cketerm repair-queue enable`".to_owned());
    }
    if members.by_address(cluster, address).is_none() {
        notes.push(format!("{address} is not in the cluster definition; it is not drained"));
    }
    let same = |e: &&RepairEntry| e.address == *address && !e.deleted;
    let others: Vec<&RepairEntry> = view.repairs.entries.values().filter_map(|s| s.get()).filter(same).collect();
    if let Some(other) = others.iter().find(|e| e.unfinished()) {
        notes.push(format!("{address} already has repair entry {}; the new entry waits for it", other.index));
    } else if let Some(other) = others.first() {
        notes.push(format!("{address} still has repair entry {} ({}); delete it", other.index, other.status));
    }
    let reboot = |e: &cketerm_model::reboot::RebootEntry| e.node == *address && e.status != RebootStatus::Cancelled;
    if let Some((index, _)) = view.reboots.entries.iter().find(|(_, s)| s.get().is_some_and(reboot)) {
        notes.push(format!("{address} also has reboot entry {index}; they run in turn"));
    }
    notes
}

/// Checks that an order makes sense for the current state of the entry. `success_unknown`: the outcome of its success
/// command is unknown.
pub(super) fn fits(entry: &RepairEntry, success_unknown: bool, id: EntryId, verb: Verb) -> Result<(), ActionError> {
    let processing = entry.status == RepairStatus::Processing && !entry.deleted;
    let watching = processing && entry.step_status == StepStatus::Watching;
    let (fits, when) = match verb {
        Verb::Retry | Verb::Done => (
            watching || (entry.unfinished() && success_unknown),
            "after a repair command (watching), or after a success command of unknown outcome",
        ),
        Verb::Force | Verb::Hold => {
            (entry.unfinished() && !watching, "before a repair command (queued, waiting or draining)")
        }
        Verb::Unhold | Verb::Uncordon => (true, ""),
    };
    if fits {
        return Ok(());
    }
    let state = state(entry);
    let remedy = match entry.status {
        RepairStatus::Failed => "; a failed repair is final: delete it and add it again",
        RepairStatus::Succeeded => "; delete is the only option",
        _ => "",
    };
    Err(ActionError::refused(format!("{id} ({}) is {state}; {verb} works only {when}{remedy}", entry.address)))
}

/// Returns the state of an entry: `processing, step 1 watching`.
pub fn state(entry: &RepairEntry) -> String {
    let mark = if entry.deleted { ", marked as deleted" } else { "" };
    match entry.status {
        RepairStatus::Processing => {
            format!("{}, step {} {}{mark}", entry.status, entry.step.saturating_add(1), entry.step_status)
        }
        _ => format!("{}{mark}", entry.status),
    }
}
