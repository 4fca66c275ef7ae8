//! Records of Nodes that need a reboot: `cketerm/needed/<node>`.

use std::collections::BTreeSet;

use cketerm_model::{
    cketerm_records::{Needed, NeededEntry, NeededReboot, NeededSignal},
    entry::Stored,
    fault,
    kube::{KubeView, NodeRow},
    names::NodeName,
    stored::view::StoreView,
    time::{after, whole_seconds},
};
use jiff::Timestamp;
use serde::Serialize;

use super::signals::{Shown, ShownSignals};

/// Number of records that one transaction changes.
const CHANGES_AT_ONCE: usize = 50;
/// Seconds for which a record keeps the entry that the leader queued, whatever becomes of the Node and its signals. The
/// leader queues no second entry for the machine in this time: a signal that goes and comes back must not reboot it again
/// and again.
const ENTRY_SECONDS: i64 = 86_400;

/// Reports whether the leader queued this entry less than a day ago.
pub fn is_of_last_day(queued: &NeededEntry, now: Timestamp) -> bool {
    now < after(queued.at, ENTRY_SECONDS)
}

/// Change of one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordChange {
    /// The Node.
    pub node: NodeName,
    /// The new record; none = it is removed.
    pub record: Option<Needed>,
    /// `ModRevision` of the present record; 0 if there is none.
    pub revision: i64,
}

/// Returns the signals that ask for a reboot: those that were first seen in the present boot.
pub fn asking<'a>(record: &'a Needed, boot_id: &'a str) -> impl Iterator<Item = &'a NeededSignal> {
    record.signals.iter().filter(move |signal| {
        let is_of_this_boot = signal.boot_id == boot_id;
        fault!(StillSetAsks => is_of_this_boot = true);
        is_of_this_boot
    })
}

/// Returns the signals that are still set after a reboot. One that says when it was set always stays, and does not
/// count.
pub fn still_set<'a>(
    record: &'a Needed,
    shown: &'a [Shown],
    boot_id: &'a str,
) -> impl Iterator<Item = &'a NeededSignal> {
    record.signals.iter().filter(move |signal| {
        let is_lasting = shown.iter().any(|shown| is_same(signal, shown) && shown.set_at.is_none());
        signal.boot_id != boot_id && is_lasting
    })
}

fn is_same(signal: &NeededSignal, shown: &Shown) -> bool {
    (&signal.cause, &signal.value) == (&shown.cause, &shown.value)
}

/// Returns the record of a Node as it should be now; none = there should be none. A record outlives its signals for a day
/// after the enqueue of an entry, and while the boot lasts for which the entry was queued.
pub fn updated(record: Option<&Needed>, node: Option<&NodeRow>, shown: &[Shown], now: Timestamp) -> Option<Needed> {
    let now = whole_seconds(now);
    let Some(node) = node else {
        let keeps = |record: &&Needed| record.queued.as_ref().is_some_and(|queued| is_of_last_day(queued, now));
        return record.filter(keeps).cloned();
    };
    // the kubelet has not reported yet
    if node.boot_id.is_empty() {
        return record.cloned();
    }
    let known = |shown: &Shown| record?.signals.iter().find(|signal| is_same(signal, shown)).cloned();
    let new = |shown: &Shown| {
        // a time tells nothing about a machine that is just going down
        let is_new = !shown.past && (shown.set_at.is_none() || node.ready);
        is_new.then(|| NeededSignal {
            cause: shown.cause.clone(),
            value: shown.value.clone(),
            since: now,
            boot_id: node.boot_id.clone(),
        })
    };
    let signals: Vec<NeededSignal> = shown.iter().filter_map(|shown| known(shown).or_else(|| new(shown))).collect();
    let queued = record.and_then(|record| record.queued.clone());
    let keeps =
        |queued: &NeededEntry| queued.boot_id == node.boot_id || !signals.is_empty() || is_of_last_day(queued, now);
    let queued = queued.filter(keeps);
    if signals.is_empty() && queued.is_none() {
        return None;
    }
    let rebooted = signals.iter().any(|signal| signal.boot_id != node.boot_id).then(|| {
        let known = record.and_then(|record| record.rebooted.clone()).filter(|known| known.boot_id == node.boot_id);
        known.unwrap_or_else(|| NeededReboot { boot_id: node.boot_id.clone(), at: now })
    });
    Some(Needed { signals, queued, rebooted })
}

/// Returns the records to change, as many as one transaction takes. Nothing is known while the Nodes are not listed.
pub fn changes(store: &StoreView, kube: &KubeView, shown: &ShownSignals, now: Timestamp) -> Vec<RecordChange> {
    if !kube.synced() {
        return Vec::new();
    }
    let names: BTreeSet<&NodeName> = store.needed.keys().chain(shown.current.iter()).collect();
    let change = |name: &NodeName| {
        let stored = store.needed.get(name);
        // a record that cannot be read stays: it may say that its entry was queued
        let record = match stored.map(|stored| (stored, stored.get())) {
            Some((_, None)) => return None,
            Some((_, Some(record))) => Some(record),
            None => None,
        };
        let node = kube.by_name.get(name).map(AsRef::as_ref);
        let updated = updated(record, node, shown.of_node(name), now);
        let revision = stored.map_or(0, |stored: &Stored<Needed>| stored.mod_revision);
        (updated.as_ref() != record).then(|| RecordChange { node: name.clone(), record: updated, revision })
    };
    names.into_iter().filter_map(change).take(CHANGES_AT_ONCE).collect()
}
