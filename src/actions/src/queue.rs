//! Actions on the reboot queue's entries.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    acceptance::OperatorCommand,
    cketerm_records::{Request, Verb},
    cluster::{Cluster, Member, Members},
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    names::{Address, NodeName},
    reboot::{RebootEntry, RebootStatus},
    stored::{leadership::LeaderGuard, view::StoreView},
};

use super::{
    accept::{checked_again, refusal},
    added::Added,
    batches::without_batch,
    error::ActionError,
    operator::{Operator, TIMEOUT},
    repair,
};

/// Number of addresses above which one list of all Nodes costs less than one request per Node.
const SINGLE_NODE_READS: usize = 20;

impl Operator {
    /// Queues a reboot of each address. All addresses are checked before any entry is written.
    pub async fn add_reboots(&self, addresses: &[Address], reason: Option<&str>) -> Result<Added, ActionError> {
        self.add_checked_reboots(addresses, reason, None).await
    }

    /// Does the same with the UIDs of the Nodes, if they were read for the warnings before.
    pub async fn add_checked_reboots(
        &self,
        addresses: &[Address],
        reason: Option<&str>,
        uids: Option<&BTreeMap<NodeName, String>>,
    ) -> Result<Added, ActionError> {
        if addresses.is_empty() {
            return Ok(Added::default());
        }
        let (cluster, mut notes) = self.check_reboots(addresses).await?;
        let members = Members::of(&cluster);
        let uids = match uids {
            Some(known) => uids_by_address(addresses, &cluster, &members, known),
            None => self.node_uids(addresses, &cluster, &members).await,
        };
        let request = Request {
            who: self.who().clone(),
            at: self.store.clock().wall(),
            reason: reason.map(str::to_owned),
            node_uid: None,
            batch: None,
        };
        let added = self.store.add_reboots(&self.person, addresses, &request, &uids).await?;
        notes.extend(without_batch(&added));
        Ok(Added { indexes: added.indexes, batch: added.batch, notes })
    }

    /// Runs all checks of [`Self::add_reboots`] without a write. Returns the definition and notes for the operator.
    pub async fn check_reboots(&self, addresses: &[Address]) -> Result<(Cluster, Vec<String>), ActionError> {
        let (cluster, note) = self.check_members(addresses, "rebooted").await?;
        let mut notes = self.notes_on(addresses).await?;
        notes.extend(note);
        Ok((cluster, notes))
    }

    /// Checks that the addresses may be worked on. Returns the definition, and a note for the operator if API servers are
    /// among others: they are `worked_on` ("rebooted") one at a time.
    pub(crate) async fn check_members(
        &self,
        addresses: &[Address],
        worked_on: &str,
    ) -> Result<(Cluster, Option<String>), ActionError> {
        let cluster = self.definition().await?;
        let members = Members::of(&cluster);
        let unknown: BTreeSet<&Address> =
            addresses.iter().filter(|a| members.by_address(&cluster, a).is_none()).collect();
        if !unknown.is_empty() {
            let unknown: Vec<&Address> = unknown.into_iter().collect();
            return Err(ActionError::failed(not_members(&cluster, &members, &unknown)));
        }
        self.refuse_mismatch().await?;
        let control_planes =
            addresses.iter().filter_map(|a| members.by_address(&cluster, a)).filter(|m| m.control_plane);
        let control_planes: BTreeSet<&NodeName> = control_planes.map(Member::node_name).collect();
        let among_others = !control_planes.is_empty() && addresses.len() > control_planes.len();
        let note = among_others.then(|| {
            let named = control_planes.iter().take(5).map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            format!("{} API server(s) included, each {worked_on} alone: {named}", control_planes.len())
        });
        Ok((cluster, note))
    }

    /// Cancels one entry. `seen` is the `ModRevision` that the operator saw, if there was a screen. An unreadable entry
    /// is refused, and the message names the command that removes it.
    pub async fn cancel_reboot(&self, index: u64, seen: Option<i64>, reason: Option<&str>) -> Result<(), ActionError> {
        if let Some(refused) = self.unreadable(EntryId::reboot(index)).await? {
            return Err(refused);
        }
        Ok(self.store.cancel_reboot(index, seen, &self.person, reason).await?)
    }

    /// Cancels every entry and returns their indexes.
    pub async fn cancel_all_reboots(&self, reason: Option<&str>) -> Result<Vec<u64>, ActionError> {
        Ok(self.store.cancel_all_reboots(&self.person, reason).await?)
    }

    /// Ends the backoff of one entry or of all, and returns the indexes that had one.
    pub async fn reset_backoff(
        &self,
        queue: QueueKind,
        only: Option<u64>,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, ActionError> {
        Ok(self.store.reset_backoff(queue, only, &self.person, reason).await?)
    }

    /// Stores an order for the leader. Only `hold`, `unhold` and `uncordon` need no reason.
    pub async fn order(
        &self,
        entry: EntryId,
        verb: Verb,
        seen: Option<i64>,
        reason: Option<&str>,
    ) -> Result<(), ActionError> {
        if matches!(verb, Verb::Retry | Verb::Done | Verb::Force) {
            if reason.is_none_or(|r| r.trim().is_empty()) {
                // nobody thinks of a reason for an order that is refused
                self.check_order(entry, verb, seen).await?;
                return Err(ActionError::misused(format!("{verb} of {entry} needs a reason: give --reason TEXT")));
            }
            self.refuse_mismatch().await?;
        }
        checked_again(|| async {
            let (expect, under) = self.check_order(entry, verb, seen).await?;
            Ok(self.store.put_order(entry, verb, expect, &self.person, reason, under.as_ref()).await)
        })
        .await
    }

    /// Checks that an order makes sense and that the leader honours it. Returns the entry's revision and the leader
    /// that the order is tied to.
    async fn check_order(
        &self,
        entry: EntryId,
        verb: Verb,
        seen: Option<i64>,
    ) -> Result<(Option<i64>, Option<LeaderGuard>), ActionError> {
        let (seen, leadership, in_work) = if verb == Verb::Uncordon {
            (seen, self.store.leadership().await?, true)
        } else {
            let view = self.store.read_view().await?;
            let (found, revision) = readable(&view, entry)?;
            match found {
                EntryRef::Reboot(found) => fits(found, entry, verb)?,
                EntryRef::Repair(found) => repair::fits(found, view.success_unknown(entry), entry, verb)?,
                EntryRef::Maintenance(_) => {
                    return Err(ActionError::misused(format!("{entry} takes no orders: release it instead")));
                }
            }
            let in_work = found.in_work();
            if verb == Verb::Retry {
                refuse_running(&view, entry)?;
            }
            (seen.or(Some(revision)), view.leadership(), in_work)
        };
        let command = OperatorCommand::from(verb);
        if let Some(why) = refusal(command, &leadership, in_work, false) {
            return Err(ActionError::refused(format!("{verb} of {entry} is refused: {why}")));
        }
        Ok((seen, (!command.always()).then_some(leadership.under)))
    }

    /// Returns a warning for the order `done` if the Node of the entry's machine is not Ready, because cketerm does not
    /// uncordon it before. Returns `None` if it is Ready, or if Kubernetes does not answer in time.
    pub async fn not_ready(&self, entry: EntryId) -> Option<String> {
        let kube = self.kube.as_ref()?;
        let view = self.store.read_view().await.ok()?;
        let address = view.entry(entry)?.address();
        let definition = view.definition()?;
        let member = definition.members.by_address(&definition.cluster, address)?;
        let row = tokio::time::timeout(TIMEOUT, kube.node(member.node_name())).await.ok()?.ok()??;
        (!row.ready).then(|| {
            format!("note: Node {} is not Ready; {entry} ends, and the Node is uncordoned, once it is", row.name)
        })
    }

    /// Returns the stored definition, or an error that says how to set one.
    pub async fn definition(&self) -> Result<Cluster, ActionError> {
        let raw = self.store.cluster_text().await?;
        let raw = raw.ok_or_else(|| {
            ActionError::failed("no cluster definition is stored: set one with `cketerm cluster set FILE`")
        })?;
        serde_json::from_str(&raw.text).map_err(|e| {
            ActionError::failed(format!(
                "the cluster definition ({}) cannot be read: {e}; set it again with `cketerm cluster set FILE`",
                raw.key
            ))
        })
    }

    /// Returns notes for an operator who adds entries. Costs one read of the queue.
    async fn notes_on(&self, addresses: &[Address]) -> Result<Vec<String>, ActionError> {
        let view = self.store.read_view().await?;
        let mut notes = Vec::new();
        if !view.reboots.switch.enabled() {
            notes.push("the reboot queue is disabled; enable it with `cketerm rq enable`".to_owned());
        }
        let mut seen: BTreeMap<&Address, String> = BTreeMap::new();
        for (index, entry) in &view.reboots.entries {
            if let Some(entry) = entry.get().filter(|e| e.status != RebootStatus::Cancelled) {
                seen.entry(&entry.node).or_insert_with(|| format!("already has entry {index}"));
            }
        }
        for address in addresses {
            if let Some(before) = seen.insert(address, "is given twice".to_owned()) {
                notes.push(format!("{address} {before}; it is rebooted once for each entry"));
            }
        }
        Ok(notes)
    }

    /// Returns the UIDs of the Nodes by address, as far as Kubernetes answers in time. Without them, the drain's start
    /// records the UID.
    pub(super) async fn node_uids(
        &self,
        addresses: &[Address],
        cluster: &Cluster,
        members: &Members,
    ) -> BTreeMap<Address, String> {
        let Some(kube) = &self.kube else { return BTreeMap::new() };
        let request = async {
            if addresses.len() > SINGLE_NODE_READS {
                return kube.node_uids().await.unwrap_or_default();
            }
            let named: Vec<Member<'_>> = addresses.iter().filter_map(|a| members.by_address(cluster, a)).collect();
            let each = named.iter().map(|member| kube.node(member.node_name()));
            let rows = futures::future::join_all(each).await.into_iter().filter_map(|row| row.ok().flatten());
            rows.map(|row| (row.name, row.uid)).collect()
        };
        let by_name: BTreeMap<NodeName, String> = tokio::time::timeout(TIMEOUT, request).await.unwrap_or_default();
        uids_by_address(addresses, cluster, members, &by_name)
    }
}

/// Returns the UIDs of the machines' Nodes by address.
fn uids_by_address(
    addresses: &[Address],
    cluster: &Cluster,
    members: &Members,
    by_name: &BTreeMap<NodeName, String>,
) -> BTreeMap<Address, String> {
    let named = addresses.iter().filter_map(|address| members.by_address(cluster, address));
    let uid = |member: Member<'_>| Some((member.address.clone(), by_name.get(member.node_name())?.clone()));
    named.filter_map(uid).collect()
}

/// Returns an entry and its revision, or the reason why it cannot get an order.
fn readable(view: &StoreView, id: EntryId) -> Result<(EntryRef<'_>, i64), ActionError> {
    let stored = view.stored_entry(id).ok_or_else(|| {
        ActionError::failed(format!("entry {id} does not exist; see `cketerm {} list`", id.queue.command()))
    })?;
    let found = stored.value.map_err(|e| {
        let remove = id.queue.remove_command();
        ActionError::failed(format!("{id} cannot be read: {e}; remove it with `cketerm {remove} {}`", id.index))
    })?;
    Ok((found, stored.mod_revision))
}

/// Checks that an order makes sense for the current state of the entry.
fn fits(entry: &RebootEntry, id: EntryId, verb: Verb) -> Result<(), ActionError> {
    let (fits, when) = match verb {
        Verb::Retry | Verb::Done => (entry.status == RebootStatus::Rebooting, "after its reboot command (rebooting)"),
        // A budget that refuses at the first look puts the entry back at once, so it is forced while it is queued.
        Verb::Force => (
            matches!(entry.status, RebootStatus::Draining | RebootStatus::Queued),
            "before its reboot command (queued or draining)",
        ),
        Verb::Hold => (entry.status != RebootStatus::Rebooting, "before its reboot command (queued or draining)"),
        Verb::Unhold | Verb::Uncordon => (true, ""),
    };
    if fits {
        return Ok(());
    }
    Err(ActionError::refused(format!("{id} ({}) is {}; {verb} works only {when}", entry.node, entry.status)))
}

/// Refuses while a command is running. A second command beside it is what attempts have to prevent (I25).
fn refuse_running(view: &StoreView, id: EntryId) -> Result<(), ActionError> {
    let last = view.attempts_of(id).next_back().and_then(Stored::get);
    let running = last.filter(|a| a.open() && view.candidates.values().any(|c| c.lease == a.lease));
    running.map_or(Ok(()), |a| {
        Err(ActionError::refused(format!(
            "the command of {id} ({}) runs on {} since {} (limit {} s); wait for its end, or cancel the entry",
            a.address, a.host, a.start, a.bound_seconds
        )))
    })
}

/// Returns the message for addresses that belong to no member, with the names that were probably meant.
pub fn not_members(cluster: &Cluster, members: &Members, unknown: &[&Address]) -> String {
    let known = || cluster.nodes.iter().map(|n| n.address.as_str());
    let each = unknown.iter().take(5).map(|name| match members.by_text(cluster, name) {
        Some(node) => format!("{name} (a name; its address is {})", node.address),
        None => match cketerm_model::text::nearest(name, known()) {
            Some(near) => format!("{name} (did you mean {near}?)"),
            None if name.trim().is_empty() => format!("{name:?}"),
            None => name.to_string(),
        },
    });
    let shown = each.collect::<Vec<_>>().join(", ");
    let more = if unknown.len() > 5 { format!(" and {} more", unknown.len() - 5) } else { String::new() };
    format!("not in the cluster definition: {shown}{more}; nothing was written; see `cketerm cluster get`")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cketerm_model::{attempt::Attempt, stored::view::Candidate};
    use serde_json::json;

    use super::*;

    fn with_attempt(lease: i64, ended: bool) -> StoreView {
        let mut attempt = json!({"id": "reboots-9-1", "entry": "reboots/9", "number": 1, "address": "10.0.0.1",
            "node": "w1", "control_plane": false, "lease": lease, "host": "boot-0", "argv": ["reboot", "10.0.0.1"],
            "bound_seconds": 15, "start": "2026-08-01T12:00:00Z"});
        if ended {
            let outcome = json!({"end": {"exit": 0}, "at": "2026-08-01T12:00:05Z", "stdout": "", "stderr": ""});
            attempt["outcome"] = outcome;
        }
        let attempt: Attempt = serde_json::from_value(attempt).unwrap();
        let stored = Stored { key: String::new(), mod_revision: 5, value: Ok(Arc::new(attempt)) };
        let mut view = StoreView::default();
        view.attempts.insert((EntryId::reboot(9), 1), stored);
        let candidate = Candidate { key: String::new(), lease: 7, host: "boot-0".to_owned(), create_revision: 2 };
        view.candidates.insert(2, candidate);
        view
    }

    #[test]
    fn i25_an_order_is_refused_while_the_command_of_a_live_leader_runs() {
        let of = |lease, ended| refuse_running(&with_attempt(lease, ended), EntryId::reboot(9));
        let refused = of(7, false).unwrap_err().text;
        assert!(refused.contains("the command of reboots/9 (10.0.0.1) runs on boot-0 since 2026-08-01"), "{refused}");
        assert_eq!(of(8, false), Ok(()), "its leader is gone: the entry itself waits for the limit");
        assert_eq!(of(7, true), Ok(()));
        assert_eq!(refuse_running(&with_attempt(7, false), EntryId::reboot(8)), Ok(()));
    }
}
