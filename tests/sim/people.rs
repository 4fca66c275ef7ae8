//! The people of a simulation: consoles, writers like `ckecli`, administrators with kubectl. They act at the worst
//! moments, and remember the acknowledgements that they got.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_actions::{NewRepair, Operator};
use cketerm_clients::store::{Store, repairs::Which};
use cketerm_model::{
    cketerm_records::{Verb, Who},
    entry::{EntryId, QueueKind},
    names::Address,
    reboot::RebootStatus,
    stored::keys::SwitchName,
};
use cketerm_sandbox::{
    Sandbox,
    kubernetes::resource::{NODES, PODS},
    machines::State,
};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{
    observers::record::{Acknowledged, AcknowledgedCommand},
    plan::FAULT_PERIOD,
    selection::Selection,
};

/// A machine that is no member of the cluster.
pub const OUTSIDE: &str = "10.250.0.11";

/// A person who acts.
pub struct Person {
    pub name: String,
    pub operator: Operator,
    pub rng: Rng,
    pub acknowledged: Arc<Mutex<Vec<Acknowledged>>>,
    pub addresses: Vec<String>,
    pub clock: cketerm_model::clock::Clock,
    /// Selection of what happens, and the name of the next action.
    pub selection: Arc<Selection>,
    pub act: String,
}

impl Person {
    fn note(&self, requested: jiff::Timestamp, command: AcknowledgedCommand) {
        let acknowledged = Acknowledged { requested, at: self.clock.wall(), by: self.name.clone(), command };
        self.acknowledged.lock().unwrap().push(acknowledged);
    }

    /// Performs an action on one of the queues, as the console or a command of cketerm does.
    pub async fn act(&mut self, store: &Store) {
        if self.rng.u32(0..4) == 0 {
            self.repair(store).await;
        } else {
            self.reboot(store).await;
        }
    }

    /// Performs an action on the repair queue.
    async fn repair(&mut self, store: &Store) {
        let Ok(view) = store.read_view().await else { return };
        let entries: Vec<(u64, i64)> = view.repairs.entries.iter().map(|(i, s)| (*i, s.mod_revision)).collect();
        let any = (!entries.is_empty()).then(|| entries[self.rng.usize(..entries.len())]);
        match self.rng.u32(0..100) {
            0..50 => {
                // now and then a machine that is not a member
                let address = match self.rng.u32(0..6) {
                    0 => OUTSIDE.to_owned(),
                    _ => self.addresses[self.rng.usize(..self.addresses.len())].clone(),
                };
                let operation = ["restart", "drained"][self.rng.usize(..2)].to_owned();
                let wanted = NewRepair {
                    address: Address::new(address),
                    machine_type: "sim".to_owned(),
                    operation,
                    serial: None,
                };
                let _ = self.operator.add_repair(&wanted, Some("simulated")).await;
            }
            50..65 => {
                if let Some((index, revision)) = any {
                    let seen = self.rng.bool().then_some(revision);
                    let _ = self.operator.delete_repair(index, seen, None).await;
                }
            }
            65..70 => {
                let which = if self.rng.u32(0..4) == 0 { Which::Unfinished } else { Which::Finished };
                let _ = self.operator.delete_repairs(which, None).await;
            }
            70..80 => {
                let _ = self.operator.reset_backoff(QueueKind::Repair, None, None).await;
            }
            80..88 => {
                let _ = self.operator.set_switch(SwitchName::Repairs, false, None).await;
                tokio::time::sleep(Duration::from_secs(self.rng.u64(1..40))).await;
                while self.operator.set_switch(SwitchName::Repairs, true, None).await.is_err() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            _ => {
                let Some((index, _)) = any else { return };
                let verb = [Verb::Retry, Verb::Done, Verb::Force][self.rng.usize(..3)];
                let _ = self.operator.order(EntryId::repair(index), verb, None, Some("simulated")).await;
            }
        }
    }

    /// Performs an action on the reboot queue.
    async fn reboot(&mut self, store: &Store) {
        let requested = self.clock.wall();
        let view = store.read_view().await;
        let Ok(view) = view else { return };
        let entries: Vec<(u64, i64, RebootStatus)> = view
            .reboots
            .entries
            .iter()
            .filter_map(|(index, stored)| Some((*index, stored.mod_revision, stored.get()?.status)))
            .collect();
        let any = (!entries.is_empty()).then(|| entries[self.rng.usize(..entries.len())]);
        match self.rng.u32(0..100) {
            0..45 => {
                let count = self.rng.usize(1..4);
                let mut chosen = self.addresses.clone();
                self.rng.shuffle(&mut chosen);
                chosen.truncate(count);
                let mut suffixes = 'a'..;
                chosen.retain(|_| {
                    suffixes.next().is_some_and(|letter| self.selection.has(&format!("{}{letter}", self.act)))
                });
                if chosen.is_empty() {
                    return;
                }
                if let Ok(added) = self.operator.add_reboots(&addressed(&chosen), Some("simulated")).await {
                    self.note(requested, AcknowledgedCommand::Add(added.indexes.into_iter().zip(chosen).collect()));
                }
            }
            45..60 => {
                if let Some((index, revision, _)) = any {
                    let seen = self.rng.bool().then_some(revision);
                    if self.operator.cancel_reboot(index, seen, None).await.is_ok() {
                        self.note(requested, AcknowledgedCommand::Cancel(index));
                    }
                }
            }
            60..63 => {
                if let Ok(all) = self.operator.cancel_all_reboots(None).await {
                    self.note(requested, AcknowledgedCommand::CancelAll(all));
                }
            }
            63..75 => {
                if let Ok(all) = self.operator.reset_backoff(QueueKind::Reboot, None, None).await {
                    self.note(requested, AcknowledgedCommand::ResetBackoff(all));
                }
            }
            75..80 => {
                if self.operator.set_switch(SwitchName::Reboots, false, None).await.is_ok() {
                    self.note(requested, AcknowledgedCommand::Switch(false));
                }
                tokio::time::sleep(Duration::from_secs(self.rng.u64(1..40))).await;
                let requested = self.clock.wall();
                while self.operator.set_switch(SwitchName::Reboots, true, None).await.is_err() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                self.note(requested, AcknowledgedCommand::Switch(true));
            }
            _ => {
                let Some((index, ..)) = any else { return };
                let verb = [Verb::Hold, Verb::Unhold, Verb::Retry, Verb::Done, Verb::Force][self.rng.usize(..5)];
                let ordered = self.operator.order(EntryId::reboot(index), verb, None, Some("simulated")).await;
                if ordered.is_ok() {
                    self.note(requested, AcknowledgedCommand::Order(index, verb.to_string()));
                }
                if verb == Verb::Hold {
                    tokio::time::sleep(Duration::from_secs(self.rng.u64(1..30))).await;
                    // a permanent hold would block the entry, and the engine would not be at fault
                    for _ in 0..60 {
                        if self.operator.order(EntryId::reboot(index), Verb::Unhold, None, None).await.is_ok() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        }
    }

    /// Releases every machine that waits for a person, as an administrator does at the end of the day.
    pub async fn release_everything(&self, store: &Store) {
        let Ok(view) = store.read_view().await else { return };
        for (index, stored) in &view.reboots.entries {
            if stored.get().is_none() {
                let _ = store.client().delete(stored.key.clone(), None).await;
                continue;
            }
            let requested = self.clock.wall();
            if self.operator.order(EntryId::reboot(*index), Verb::Unhold, None, None).await.is_ok() {
                self.note(requested, AcknowledgedCommand::Order(*index, "unhold".to_owned()));
            }
        }
        let requested = self.clock.wall();
        if self.operator.set_switch(SwitchName::Reboots, true, None).await.is_ok() {
            self.note(requested, AcknowledgedCommand::Switch(true));
        }
        for (key, stored) in view.repairs.entries.values().map(|s| (&s.key, s)) {
            if stored.get().is_none() {
                let _ = store.client().delete(key.clone(), None).await;
            }
        }
        let _ = self.operator.set_switch(SwitchName::Repairs, true, None).await;
    }
}

/// Marks addresses of the sandbox as such.
pub fn addressed(texts: &[String]) -> Vec<Address> {
    texts.iter().map(Address::new).collect()
}

/// Queues two machines late in the day, when an engine leads and all faults have ended. When the first is in progress,
/// it cancels the second (I36).
pub async fn cancel_second_entry(person: &Person, store: &Store, ttl: u64) {
    tokio::time::sleep(Duration::from_secs(2 * ttl + 80)).await;
    let chosen = [person.addresses[6].clone(), person.addresses[7].clone()];
    let requested = person.clock.wall();
    let Ok(added) = person.operator.add_reboots(&addressed(&chosen), Some("simulated")).await else { return };
    person.note(requested, AcknowledgedCommand::Add(added.indexes.iter().copied().zip(chosen).collect()));
    let [first, second] = added.indexes[..] else { return };
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let Ok(view) = store.read_view().await else { continue };
        let entry = |index| view.reboots.entries.get(&index).and_then(|s| s.get());
        let (Some(ahead), Some(_)) = (entry(first), entry(second)) else { return };
        if matches!(ahead.status, RebootStatus::Draining | RebootStatus::Rebooting) {
            let requested = person.clock.wall();
            if person.operator.cancel_reboot(second, None, None).await.is_ok() {
                person.note(requested, AcknowledgedCommand::Cancel(second));
            }
            return;
        }
    }
}

/// Writes as `ckecli` does: puts without comparisons, and its own way to enqueue.
pub async fn ckecli(store: &Store, rng: &mut Rng, addresses: &[String]) {
    let mut client = store.client();
    let keys = store.keys();
    if rng.u32(0..5) == 0 {
        return ckecli_repair(store, rng, addresses).await;
    }
    if rng.bool() {
        let key = keys.write_index(QueueKind::Reboot);
        let Ok(got) = client.get(key.as_str(), None).await else { return };
        let (index, revision) = got
            .kvs()
            .first()
            .map_or((0, 0), |kv| (kv.value_str().ok().and_then(|v| v.parse().ok()).unwrap_or(0), kv.mod_revision()));
        // now and then a machine that is not a member
        let address = match rng.u32(0..8) {
            0 => OUTSIDE,
            _ => &addresses[rng.usize(..addresses.len())],
        };
        let entry = format!(
            "{{\"index\":\"{index}\",\"node\":\"{address}\",\"ticket\":\"T-{index}\",\"status\":\"queued\",\"last_transition_time\":\"0001-01-01T00:00:00Z\",\"drain_backoff_expire\":\"0001-01-01T00:00:00Z\"}}"
        );
        let txn = Txn::new().when([Compare::mod_revision(key.as_str(), CompareOp::Equal, revision)]).and_then([
            TxnOp::put(keys.entry(EntryId::reboot(index)), entry, None),
            TxnOp::put(key.as_str(), (index + 1).to_string(), None),
        ]);
        let _ = client.txn(txn).await;
        return;
    }
    // a cancel: read, set the status, put without comparing
    let Ok(got) =
        client.get(keys.entries_prefix(QueueKind::Reboot), Some(etcd_client::GetOptions::new().with_prefix())).await
    else {
        return;
    };
    if got.kvs().is_empty() {
        return;
    }
    let kv = &got.kvs()[rng.usize(..got.kvs().len())];
    let Ok(mut entry) = serde_json::from_slice::<Value>(kv.value()) else { return };
    tokio::time::sleep(Duration::from_millis(rng.u64(0..20))).await;
    entry["status"] = json!("cancelled");
    let _ = client.put(kv.key(), entry.to_string(), None).await;
}

/// The same for repairs: `add` takes any text, `delete` puts the whole entry back without comparing.
async fn ckecli_repair(store: &Store, rng: &mut Rng, addresses: &[String]) {
    let mut client = store.client();
    let keys = store.keys();
    if rng.bool() {
        let key = keys.write_index(QueueKind::Repair);
        let Ok(got) = client.get(key.as_str(), None).await else { return };
        let (index, revision) = got
            .kvs()
            .first()
            .map_or((0, 0), |kv| (kv.value_str().ok().and_then(|v| v.parse().ok()).unwrap_or(0), kv.mod_revision()));
        let address = match rng.u32(0..5) {
            0 => "not an address",
            _ => &addresses[rng.usize(..addresses.len())],
        };
        let operation = ["restart", "drained", "no such"][rng.usize(..3)];
        let entry = format!(
            "{{\"index\":\"{index}\",\"address\":\"{address}\",\"nodename\":\"\",\"machine_type\":\"sim\",\"operation\":\"{operation}\",\"status\":\"queued\",\"step\":0,\"step_status\":\"waiting\",\"deleted\":false,\"last_transition_time\":\"0001-01-01T00:00:00Z\",\"drain_backoff_expire\":\"0001-01-01T00:00:00Z\"}}"
        );
        let txn = Txn::new().when([Compare::mod_revision(key.as_str(), CompareOp::Equal, revision)]).and_then([
            TxnOp::put(keys.entry(EntryId::repair(index)), entry, None),
            TxnOp::put(key.as_str(), (index + 1).to_string(), None),
        ]);
        let _ = client.txn(txn).await;
        return;
    }
    let all = Some(etcd_client::GetOptions::new().with_prefix());
    let Ok(got) = client.get(keys.entries_prefix(QueueKind::Repair), all).await else { return };
    if got.kvs().is_empty() {
        return;
    }
    let kv = &got.kvs()[rng.usize(..got.kvs().len())];
    let Ok(mut entry) = serde_json::from_slice::<Value>(kv.value()) else { return };
    tokio::time::sleep(Duration::from_millis(rng.u64(0..20))).await;
    entry["deleted"] = json!(true);
    let _ = client.put(kv.key(), entry.to_string(), None).await;
}

/// Keeps volumes in use on a Node for a while, whatever its pods do.
pub async fn volumes(sandbox: &Sandbox, names: &[String], mut rng: Rng, began: Instant, selection: &Selection) {
    let (mut at, mut n) = (began, 0);
    loop {
        at += Duration::from_millis(rng.u64(10_000..120_000));
        if at >= began + FAULT_PERIOD {
            break;
        }
        sleep_until(at).await;
        let mut random = rng.fork();
        if selection.has(&format!("vo{n}")) {
            let node = &names[random.usize(..names.len())];
            set(sandbox, node, "status", "volumesInUse", Some(json!(["kubernetes.io/csi/disk"])));
            tokio::time::sleep(Duration::from_secs(random.u64(5..50))).await;
            set(sandbox, node, "status", "volumesInUse", None);
        }
        n += 1;
    }
    // a Node that was deleted and recreated still has them
    for node in names {
        set(sandbox, node, "status", "volumesInUse", None);
    }
}

/// Changes objects manually, as an administrator with kubectl would.
pub async fn administrator(sandbox: &Sandbox, rng: &mut Rng, names: &[String]) {
    let node = &names[rng.usize(..names.len())];
    let objects = &sandbox.objects;
    match rng.u32(0..10) {
        0..3 => {
            set(sandbox, node, "spec", "unschedulable", Some(json!(true)));
            tokio::time::sleep(Duration::from_secs(rng.u64(1..60))).await;
            set(sandbox, node, "spec", "unschedulable", None);
        }
        3..5 => {
            set(sandbox, node, "spec", "unschedulable", None);
        }
        5..7 => {
            set(sandbox, node, "annotations", "cketerm.io/keep-cordoned", Some(json!("true")));
            tokio::time::sleep(Duration::from_secs(rng.u64(1..60))).await;
            set(sandbox, node, "annotations", "cketerm.io/keep-cordoned", None);
            set(sandbox, node, "spec", "unschedulable", None);
        }
        7 => {
            delete_node(sandbox, rng, node).await;
        }
        _ => {
            let (pods, _) = objects.list(&PODS, "");
            if !pods.is_empty() {
                let pod = &pods[rng.usize(..pods.len())]["metadata"];
                let (namespace, name) = (pod["namespace"].as_str().unwrap(), pod["name"].as_str().unwrap());
                let _ = objects.remove(&PODS, namespace, name, |_| Ok(()));
            }
        }
    }
}

/// Deletes a Node. Its kubelet registers it anew, under another UID, after a while or when it boots.
async fn delete_node(sandbox: &Sandbox, rng: &mut Rng, name: &str) {
    let Some(before) = sandbox.objects.get(&NODES, "", name) else { return };
    let _ = sandbox.objects.remove(&NODES, "", name, |_| Ok(()));
    tokio::time::sleep(Duration::from_secs(rng.u64(1..40))).await;
    let seen = sandbox.machines.address_of(name).and_then(|address| sandbox.machines.machine_status(&address));
    let Some(seen) = seen.filter(|seen| seen.state == State::Up) else { return };
    let mut again = Value::clone(&before);
    if let Some(meta) = again["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "annotations"] {
            meta.remove(field);
        }
    }
    if let Some(spec) = again["spec"].as_object_mut() {
        spec.remove("unschedulable");
        spec.remove("taints");
    }
    again["status"]["nodeInfo"]["bootID"] = json!(seen.boot_id);
    // if the Node exists by then, it has booted meanwhile
    let _ = sandbox.objects.create(&NODES, "", again);
}

/// Sets or removes a field of a Node's `spec`, or one of its annotations, as `kubectl patch` would.
pub fn set(sandbox: &Sandbox, node: &str, place: &str, field: &str, value: Option<Value>) {
    let _ = sandbox.objects.update(&NODES, "", node, |node| {
        let at = if place == "annotations" { &mut node["metadata"] } else { node };
        match (value, at.get_mut(place)) {
            (Some(value), _) => at[place][field] = value,
            (None, Some(place)) => {
                place.as_object_mut().and_then(|place| place.remove(field));
            }
            (None, None) => {}
        }
        Ok(())
    });
}

/// Identity of a person with this name.
pub fn who(name: &str) -> Who {
    Who { user: name.to_owned(), host: "sim".to_owned(), ssh_client: None }
}
