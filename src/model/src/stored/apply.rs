//! Mapping from keys and values to the typed view; only changed values are parsed.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{
    keys::Keys,
    kind::{KeyKind, SwitchName},
    row::{Row, insert_value, parse, read, set_value, store},
    view::{Candidate, Definition, Queue, StoreView, Switch},
};
use crate::{
    cketerm_records::SCHEMA,
    cluster::{Cluster, Members},
    entry::{QueueKind, Stored},
    maintenance::MaintenanceEntry,
    output::CommandOutput,
    reboot::RebootEntry,
    repair::RepairEntry,
    result::CommandResult,
};

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key was written.
    Put(Row),
    /// A key was deleted.
    Delete(Vec<u8>),
}

impl StoreView {
    /// Applies events in order; `revision` becomes that of the last written key.
    pub fn apply(&mut self, keys: &Keys, events: impl IntoIterator<Item = Event>) {
        for event in events {
            match event {
                Event::Put(row) => {
                    self.put(keys, &row);
                    self.revision = self.revision.max(row.mod_revision);
                }
                Event::Delete(key) => self.delete(keys, &key),
            }
        }
    }

    /// Applies a written key.
    pub fn put(&mut self, keys: &Keys, row: &Row) {
        let Some(kind) = keys.parse(&row.key) else { return };
        if matches!(kind, KeyKind::OnDemand(_) | KeyKind::Other) {
            return;
        }
        let key = String::from_utf8_lossy(&row.key).into_owned();
        let fault = self.take(kind, &key, row).err();
        match fault {
            Some(why) => self.broken.insert(key, why),
            None => self.broken.remove(&key),
        };
    }

    /// Stores the value in its field; the error says why it cannot be read.
    fn take(&mut self, kind: KeyKind, key: &str, row: &Row) -> Result<(), String> {
        match kind {
            KeyKind::Candidate(lease) => {
                let host = String::from_utf8_lossy(&row.value).into_owned();
                let create_revision = row.create_revision;
                // A key that was deleted and written again goes to the end of the candidates.
                self.forget_candidate(&row.key);
                let candidate = Candidate { key: key.to_owned(), lease, host, create_revision };
                self.candidates.insert(create_revision, candidate);
                if lease == 0 {
                    Err(format!("{key}: not a lease id in hex, yet it takes part in the election"))
                } else {
                    Ok(())
                }
            }
            KeyKind::Cluster => {
                let parsed = parse::<Cluster>(key, row).map(|cluster| {
                    let members = Members::of(&cluster);
                    Definition { cluster, members }
                });
                let (stored, fault) = store(key, row, parsed);
                self.cluster = Some(stored);
                fault
            }
            KeyKind::Constraints => set_value(&mut self.constraints, key, row),
            KeyKind::OurConstraints => set_value(&mut self.our_constraints, key, row),
            KeyKind::Policy => set_value(&mut self.policy, key, row),
            KeyKind::Stopped => set_value(&mut self.stopped, key, row),
            KeyKind::Daemon => set_value(&mut self.daemon, key, row),
            KeyKind::Identity => set_value(&mut self.identity, key, row),
            KeyKind::Status => set_value(&mut self.status, key, row),
            KeyKind::Migration => {
                self.migrating = true;
                Ok(())
            }
            KeyKind::Schema => {
                set_value(&mut self.schema, key, row)?;
                match self.schema.as_ref().and_then(Stored::get) {
                    Some(&number) if number > SCHEMA => Err(format!(
                        "{key}: schema {number} is newer than this program's ({SCHEMA}): it only observes; upgrade cketerm"
                    )),
                    _ => Ok(()),
                }
            }
            KeyKind::Running => {
                self.running = Some(String::from_utf8_lossy(&row.value).into_owned());
                Ok(())
            }
            KeyKind::Switch(name) => {
                *self.switch_mut(name) = switch(row);
                Ok(())
            }
            KeyKind::WriteIndex(queue) => {
                let text = String::from_utf8_lossy(&row.value);
                let index = text.trim().parse::<u64>().map_err(|_| {
                    format!(
                        "{key}: {text:?} is not a number, so nothing can be added; write the next free index there \
                         with etcdctl"
                    )
                });
                let fault = index.as_ref().map(|_| ()).map_err(Clone::clone);
                match queue {
                    QueueKind::Reboot => self.reboots.write_index = index,
                    QueueKind::Repair => self.repairs.write_index = index,
                    QueueKind::Maintenance => self.maintenance.write_index = index,
                }
                fault
            }
            KeyKind::Entry(_, Err(why)) => Err(format!("{key}: {why}; remove it with etcdctl")),
            KeyKind::Entry(QueueKind::Reboot, Ok(index)) => {
                entry(&mut self.reboots, index, key, row, |e: &RebootEntry| e.index)
            }
            KeyKind::Entry(QueueKind::Repair, Ok(index)) => {
                entry(&mut self.repairs, index, key, row, |e: &RepairEntry| e.index)
            }
            KeyKind::Entry(QueueKind::Maintenance, Ok(index)) => {
                entry(&mut self.maintenance, index, key, row, |e: &MaintenanceEntry| e.index)
            }
            KeyKind::Engine(id) => insert_value(&mut self.engines, id, key, row),
            KeyKind::Request(id) => insert_value(&mut self.requests, id, key, row),
            KeyKind::Attempt(id) => insert_value(&mut self.attempts, id, key, row),
            KeyKind::Result(id) => {
                let id = id.map_err(|why| format!("{key}: {why}; remove it with etcdctl"))?;
                // Untrusted input: a host wrote it from a file.
                let read = CommandResult::read(&row.value).map_err(|e| format!("{key}: {e}; the leader removes it"));
                let (stored, fault) = store(key, row, read);
                self.results.insert(id, stored);
                fault
            }
            KeyKind::Output(id) => {
                let id = id.map_err(|why| format!("{key}: {why}; remove it with etcdctl"))?;
                let read = CommandOutput::read(&row.value).map_err(|e| format!("{key}: {e}; it goes with its lease"));
                let (stored, fault) = store(key, row, read);
                self.output.insert(id, stored);
                fault
            }
            KeyKind::Progress(id) => insert_value(&mut self.progress, id, key, row),
            KeyKind::Order(id) => insert_value(&mut self.orders, id, key, row),
            KeyKind::Cancel(id) => insert_value(&mut self.cancels, id, key, row),
            KeyKind::Hooks(id) => insert_value(&mut self.hooks, id, key, row),
            KeyKind::Needed(node) => insert_value(&mut self.needed, Ok(node), key, row),
            KeyKind::NeededLog => set_value(&mut self.needed_log, key, row),
            KeyKind::MaintenanceRequest(uid) => insert_value(&mut self.maintenance_requests, Ok(uid), key, row),
            KeyKind::Outcome(index) => insert_value(&mut self.outcomes, index, key, row),
            KeyKind::BreakerReset => set_value(&mut self.breaker_reset, key, row),
            KeyKind::Batch(id) => insert_value(&mut self.batches, id, key, row),
            KeyKind::BatchEnd(id) => insert_value(&mut self.batch_ends, id, key, row),
            KeyKind::Registry(which) => self.registry.take(which, key, row),
            KeyKind::OnDemand(_) | KeyKind::Other => Ok(()),
        }
    }

    /// Applies a deleted key.
    pub fn delete(&mut self, keys: &Keys, key: &[u8]) {
        let Some(kind) = keys.parse(key) else { return };
        self.broken.remove(&*String::from_utf8_lossy(key));
        match kind {
            KeyKind::Candidate(_) => self.forget_candidate(key),
            KeyKind::Cluster => self.cluster = None,
            KeyKind::Constraints => self.constraints = None,
            KeyKind::OurConstraints => self.our_constraints = None,
            KeyKind::Policy => self.policy = None,
            KeyKind::Stopped => self.stopped = None,
            KeyKind::Daemon => self.daemon = None,
            KeyKind::Identity => self.identity = None,
            KeyKind::Status => self.status = None,
            KeyKind::Running => self.running = None,
            KeyKind::Schema => self.schema = None,
            KeyKind::Migration => self.migrating = false,
            KeyKind::Registry(which) => self.registry.delete(&which),
            KeyKind::Switch(name) => *self.switch_mut(name) = Switch::default(),
            KeyKind::WriteIndex(QueueKind::Reboot) => self.reboots.write_index = Ok(0),
            KeyKind::WriteIndex(QueueKind::Repair) => self.repairs.write_index = Ok(0),
            KeyKind::WriteIndex(QueueKind::Maintenance) => self.maintenance.write_index = Ok(0),
            KeyKind::Entry(QueueKind::Reboot, Ok(index)) => drop(self.reboots.entries.remove(&index)),
            KeyKind::Entry(QueueKind::Repair, Ok(index)) => drop(self.repairs.entries.remove(&index)),
            KeyKind::Entry(QueueKind::Maintenance, Ok(index)) => drop(self.maintenance.entries.remove(&index)),
            KeyKind::Engine(Ok(id)) => drop(self.engines.remove(&id)),
            KeyKind::Request(Ok(id)) => drop(self.requests.remove(&id)),
            KeyKind::Attempt(Ok(id)) => drop(self.attempts.remove(&id)),
            KeyKind::Result(Ok(id)) => drop(self.results.remove(&id)),
            KeyKind::Output(Ok(id)) => drop(self.output.remove(&id)),
            KeyKind::Progress(Ok(id)) => drop(self.progress.remove(&id)),
            KeyKind::Order(Ok(id)) => drop(self.orders.remove(&id)),
            KeyKind::Cancel(Ok(id)) => drop(self.cancels.remove(&id)),
            KeyKind::Hooks(Ok(id)) => drop(self.hooks.remove(&id)),
            KeyKind::Needed(node) => drop(self.needed.remove(&node)),
            KeyKind::NeededLog => self.needed_log = None,
            KeyKind::MaintenanceRequest(uid) => drop(self.maintenance_requests.remove(&uid)),
            KeyKind::Outcome(Ok(index)) => drop(self.outcomes.remove(&index)),
            KeyKind::BreakerReset => self.breaker_reset = None,
            KeyKind::Batch(Ok(id)) => drop(self.batches.remove(&id)),
            KeyKind::BatchEnd(Ok(id)) => drop(self.batch_ends.remove(&id)),
            _ => {}
        }
    }

    fn forget_candidate(&mut self, key: &[u8]) {
        let place = self.candidates.iter().find(|(_, c)| c.key.as_bytes() == key).map(|(revision, _)| *revision);
        if let Some(revision) = place {
            self.candidates.remove(&revision);
        }
    }

    fn switch_mut(&mut self, name: SwitchName) -> &mut Switch {
        match name {
            SwitchName::Reboots => &mut self.reboots.switch,
            SwitchName::Repairs => &mut self.repairs.switch,
            SwitchName::Sabakan => &mut self.sabakan,
            SwitchName::AutoRepair => &mut self.auto_repair,
        }
    }
}

fn switch(row: &Row) -> Switch {
    // Bytes that are not text are shown as such, and do not disable.
    Switch { raw: Some(String::from_utf8_lossy(&row.value).into_owned()), mod_revision: row.mod_revision }
}

/// Stores an entry. One whose own index differs from its key's is unreadable: CKE would write its changes under the
/// other key.
fn entry<E: DeserializeOwned + Clone>(
    queue: &mut Queue<E>,
    index: u64,
    key: &str,
    row: &Row,
    index_of: impl Fn(&E) -> u64,
) -> Result<(), String> {
    let value = read::<E>(index, &row.value, index_of);
    let fault = value.as_ref().map(|_| ()).map_err(|why| format!("{key}: {why}; fix it with etcdctl, or remove it"));
    let stored = Stored { key: key.to_owned(), mod_revision: row.mod_revision, value: value.map(Arc::new) };
    queue.entries.insert(index, stored);
    fault
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::entry::EntryId;

    fn view(rows: &[(&str, &str)]) -> (StoreView, Keys) {
        let keys = Keys::new("/cke/");
        let mut view = StoreView::default();
        let events = rows.iter().zip(1..).map(|((k, v), r)| Event::Put(Row::new(&format!("/cke/{k}"), v, r, r)));
        view.apply(&keys, events);
        (view, keys)
    }

    const ENTRY: &str = r#"{"index":"0","node":"10.0.0.1","status":"queued"}"#;

    #[test]
    fn a_broken_entry_is_reported_with_its_key_and_others_are_kept() {
        let (view, _) = view(&[
            ("reboots/data/0000000000000000", ENTRY),
            ("reboots/data/0000000000000001", "{"),
            ("reboots/data/zz", "{}"),
            ("reboots/write-index", "two"),
        ]);
        assert!(view.reboots.entries[&0].get().is_some());
        let why = view.reboots.entries[&1].value.as_ref().unwrap_err();
        assert_eq!(why, "EOF while parsing an object at line 1 column 1; it begins with {", "the fault comes first");
        assert!(view.broken["/cke/reboots/data/0000000000000001"].contains("/cke/reboots/data/0000000000000001: EOF"));
        assert!(view.reboots.write_index.as_ref().unwrap_err().contains("\"two\""));
        assert_eq!(view.broken.len(), 3);
    }

    #[test]
    fn an_entry_whose_index_differs_from_its_key_is_broken() {
        let (view, _) = view(&[("reboots/data/0000000000000005", ENTRY)]);
        assert!(view.reboots.entries[&5].value.as_ref().unwrap_err().contains("has index 0, but its key has 5"));
    }

    #[test]
    fn only_the_exact_value_true_disables_and_other_values_are_reported() {
        for (value, enabled, odd) in
            [("true", false, None), ("false", true, None), ("1", true, Some("1")), ("true\n", true, Some("true\n"))]
        {
            let (view, _) = view(&[("reboots/disabled", value)]);
            assert_eq!((view.reboots.switch.enabled(), view.reboots.switch.odd()), (enabled, odd), "{value:?}");
        }
        let (view, keys) = view(&[("sabakan/disabled", "true")]);
        let mut view = view;
        assert!(!view.sabakan.enabled());
        view.delete(&keys, b"/cke/sabakan/disabled");
        assert!(view.sabakan.enabled());
    }

    #[test]
    fn a_fixed_or_deleted_key_is_no_longer_broken() {
        let (mut view, keys) = view(&[("reboots/data/0000000000000000", "{"), ("cluster", "[]")]);
        assert_eq!(view.broken.len(), 2);
        view.put(&keys, &Row::new("/cke/reboots/data/0000000000000000", ENTRY, 9, 1));
        view.delete(&keys, b"/cke/cluster");
        assert_eq!((view.broken.len(), view.cluster.is_none()), (0, true));
    }

    #[test]
    fn the_oldest_candidate_leads_and_one_without_registration_is_cke() {
        let (mut view, keys) = view(&[("leader//aa", "host-a"), ("leader//bb", "host-b")]);
        view.put(
            &keys,
            &Row::new("/cke/cketerm/engines/bb", r#"{"host":"h","pid":1,"version":"0","mode":"daemon"}"#, 7, 7),
        );
        assert_eq!(view.leader().map(|c| c.lease), Some(0xaa));
        assert!(view.leader().is_some_and(|c| view.is_cke(c)));
        view.delete(&keys, b"/cke/leader//aa");
        assert!(view.leader().is_some_and(|c| !view.is_cke(c) && c.host == "host-b"));
    }

    #[test]
    fn a_candidate_key_without_a_lease_id_takes_part_and_is_reported() {
        let (view, keys) = view(&[("leader//aa", "host-a"), ("leader//nobody", "host-b")]);
        assert_eq!(view.candidates.len(), 2);
        let broken: Vec<_> = view.broken.iter().collect();
        let key = format!("{}nobody", keys.leader_prefix());
        assert_eq!(broken, [(&key, &format!("{key}: not a lease id in hex, yet it takes part in the election"))]);
    }

    #[test]
    fn cketerms_worker_limits_apply_only_where_ckes_constraints_lack_them() {
        let (with, _) = view(&[
            ("constraints", r#"{"control-plane-count":3,"minimum-workers":7}"#),
            ("cketerm/constraints", r#"{"minimum-workers":5,"maximum-workers":9}"#),
        ]);
        let constraints = with.constraints();
        assert_eq!((constraints.minimum_workers, constraints.maximum_workers), (Some(7), Some(9)));
        assert_eq!(constraints.control_plane_count, 3);
        let (none, _) = view(&[]);
        assert_eq!(none.constraints().minimum_workers_rate, 80);
    }

    #[test]
    fn a_newer_schema_is_reported_and_foreign_keys_are_ignored() {
        let (view, _) = view(&[("cketerm/schema", "3"), ("cketerm/something", "?"), ("records/01", "{")]);
        assert!(view.broken.values().next().unwrap().contains("newer"));
        assert_eq!((view.broken.len(), view.schema.unwrap().get().copied()), (1, Some(3)));
        assert!(view.attempts.range((EntryId::reboot(0), 0)..).next().is_none());
    }

    /// Keys of every kind, few enough that they collide, with readable and unreadable values.
    fn events() -> impl Strategy<Value = Vec<(usize, Option<usize>)>> {
        prop::collection::vec((0..KEYS.len(), prop::option::of(0..VALUES.len())), 0..60)
    }

    const KEYS: [&str; 26] = [
        "leader//a",
        "leader//b",
        "leader//?",
        "cluster",
        "constraints",
        "status",
        "reboots/running",
        "reboots/disabled",
        "reboots/write-index",
        "reboots/data/0000000000000000",
        "reboots/data/0",
        "repairs/data/0000000000000000",
        "cketerm/engines/a",
        "cketerm/attempts/reboots/0/1",
        "cketerm/results/reboots-0-1",
        "cketerm/output/reboots-0-1",
        "cketerm/orders/reboots/0",
        "cketerm/cancels/reboots/0",
        "cketerm/hooks/reboots/0",
        "cketerm/needed/w1",
        "cketerm/needed-log",
        "cketerm/outcomes/0000000000000000",
        "cketerm/outcomes/0",
        "cketerm/breaker-reset",
        "cketerm/batches/00000000",
        "cketerm/batches/00000000/reboots/0",
    ];
    const VALUES: [&str; 6] = [ENTRY, "{", "true", "7", r#"{"name":"c"}"#, r#""booted""#];

    proptest! {
        /// A copy that followed every event equals a copy read from the remaining keys.
        #[test]
        fn applying_events_and_reading_the_result_give_the_same_view(events in events()) {
            let keys = Keys::new("/cke/");
            let (mut followed, mut left) = (StoreView::default(), BTreeMap::<String, Row>::new());
            for ((key, value), revision) in events.into_iter().zip(1..) {
                let key = format!("/cke/{}", KEYS[key]);
                if let Some(value) = value {
                    let created = left.get(&key).map_or(revision, |row| row.create_revision);
                    let row = Row::new(&key, VALUES[value], revision, created);
                    followed.put(&keys, &row);
                    left.insert(key, row);
                } else {
                    followed.delete(&keys, key.as_bytes());
                    left.remove(&key);
                }
            }
            let mut read = StoreView::default();
            for row in left.values() {
                read.put(&keys, row);
            }
            prop_assert_eq!(followed, read);
        }
    }
}
