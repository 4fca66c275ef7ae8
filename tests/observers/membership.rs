//! The definition that follows the Nodes of Kubernetes (I55, I56).

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::Generated,
    cluster::{Cluster, Node as Member},
    policy::Membership,
    repair::RepairStatus,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    record::Breach,
    view::{Node, View, in_progress, member, shift},
};

/// Time by which a grace period may seem shorter: records have whole seconds.
const ROUNDING: f64 = 1.0;

/// A change of the definition by an engine while it follows the Nodes.
struct Step<'v> {
    at: Timestamp,
    revision: i64,
    before: &'v Cluster,
    after: &'v Cluster,
}

fn changes<'v>(view: &'v View<'_>) -> Vec<Step<'v>> {
    let mut found = Vec::new();
    let mut before = None;
    for step in view.clusters.steps() {
        let (at, revision, after) = (step.at, step.revision, step.value.as_ref());
        if let (Some(before), Some(after)) = (before, after)
            && view.written_by_engine(revision)
            && view.policy(revision).membership == Membership::Nodes
        {
            found.push(Step { at, revision, before, after });
        }
        before = after;
    }
    found
}

/// Time for which a Node may be there unseen: while no engine leads, and a live copy lags.
const UNSEEN: SignedDuration = SignedDuration::from_secs(30);

/// Reports whether a member had its Node in this time, without a break for longer than nobody may have seen it.
fn had_node(view: &View<'_>, member: &Member, from: Timestamp, to: Timestamp) -> bool {
    let Some(line) = view.nodes.get(member.node_name().as_str()) else { return false };
    let is_there = |node: Option<&Node>| node.is_some_and(|n| n.addresses.iter().any(|a| member.address.as_str() == a));
    let steps = line.steps();
    let mut since = None;
    for (i, step) in steps.iter().enumerate() {
        let until = steps.get(i + 1).map_or(Timestamp::MAX, |next| next.at);
        if !is_there(step.value.as_ref()) {
            since = None;
            continue;
        }
        let began = *since.get_or_insert(step.at);
        if began < to && until > from && until.min(to).duration_since(began) > UNSEEN {
            return true;
        }
    }
    false
}

/// I55, at each change by an engine: a member that leaves had no Node during the grace period of that revision, except
/// for a moment that no leader may have seen, and no entry of either queue was in work on its machine in the revision before.
pub fn i55(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for Step { at, revision, before, after } in changes(view) {
        for left in before.nodes.iter().filter(|old| member(after, old.address.as_str()).is_none()) {
            let grace = Seconds::from(view.policy(revision).node_grace_seconds).get();
            let from = shift(at, ROUNDING + view.max_kube_delay() - grace);
            if from < at && had_node(view, left, from, shift(at, -view.max_kube_delay())) {
                let what = format!("{} leaves the definition less than {grace} s after its Node", left.address);
                found.push(Breach { code: "I55", at, what });
            }
            let reboot = view.entries.iter().find(|(_, line)| {
                let before = line.before(revision);
                in_progress(before) && matches!(before, Some(Ok(entry)) if entry.node == left.address)
            });
            let repair = view.repairs.iter().find(|(_, line)| {
                matches!(line.before(revision), Some(Ok(entry))
                    if entry.address == left.address && entry.status == RepairStatus::Processing)
            });
            let busy = reboot.map(|(index, _)| format!("reboots/{index}"));
            if let Some(entry) = busy.or_else(|| repair.map(|(index, _)| format!("repairs/{index}"))) {
                let what = format!("{} leaves the definition while {entry} works on it", left.address);
                found.push(Breach { code: "I55", at, what });
            }
        }
    }
    found
}

/// I56, at each change by an engine: if a control plane leaves or becomes a worker, the record of the change names who
/// approved it.
pub fn i56(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for Step { at, revision, before, after } in changes(view) {
        let mut planes = before.nodes.iter().filter(|old| old.control_plane);
        let stays = |old: &&Member| member(after, old.address.as_str()).is_some_and(|new| new.control_plane);
        let Some(gone) = planes.find(|old| !stays(old)) else { continue };
        let record = view.changed(revision).iter().find(|change| change.key == "cketerm/generated");
        let record = record.and_then(|change| serde_json::from_slice::<Generated>(change.value.as_ref()?).ok());
        if record.is_none_or(|record| record.approved_by.is_none()) {
            let what = format!("control plane {} leaves the definition, and nobody approved it", gone.address);
            found.push(Breach { code: "I56", at, what });
        }
    }
    found
}
