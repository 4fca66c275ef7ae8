//! Another program on the same queue that behaves like neco-rebooter and `ckecli`. It knows only CKE's fields, and
//! writes back what it read some time ago without comparing anything. It moves one group of machines at a time. When
//! its own window ends it cancels entries that have not begun to reboot.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use etcd_client::{Client, Compare, CompareOp, GetOptions, Txn, TxnOp};
use serde_json::{Value, json};

use crate::world::{Options, World, cluster::machines, history::changes, in_both_worlds, wait_for};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    blind_adds_and_cancels_by_another_program_are_carried_out,
}

const PREFIX: &str = "/cke/reboots/data/";
const INDEX: &str = "/cke/reboots/write-index";

/// The other program.
struct Other {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Other {
    fn new(etcd: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(Client::connect([etcd], None)).expect("etcd is reachable");
        Self { runtime, client }
    }

    /// Adds an entry as `ckecli` writes one, numbered by comparing the write index.
    fn add(&mut self, address: &str) -> u64 {
        self.runtime.block_on(async {
            loop {
                let read = self.client.get(INDEX, None).await.expect("a read");
                let (index, revision) = read
                    .kvs()
                    .first()
                    .map_or((0, 0), |kv| (kv.value_str().expect("text").parse().expect("a number"), kv.mod_revision()));
                let entry = json!({"index": index.to_string(), "node": address, "status": "queued",
                    "last_transition_time": "0001-01-01T00:00:00Z", "drain_backoff_expire": "0001-01-01T00:00:00Z"});
                let txn = Txn::new().when([Compare::mod_revision(INDEX, CompareOp::Equal, revision)]).and_then([
                    TxnOp::put(key(index), entry.to_string(), None),
                    TxnOp::put(INDEX, (index + 1).to_string(), None),
                ]);
                if self.client.txn(txn).await.expect("a transaction").succeeded() {
                    return index;
                }
            }
        })
    }

    /// The queue now, by index, with CKE's fields only.
    fn list(&mut self) -> BTreeMap<u64, Value> {
        let read =
            self.runtime.block_on(self.client.get(PREFIX, Some(GetOptions::new().with_prefix()))).expect("a read");
        let known = ["index", "node", "status", "last_transition_time", "drain_backoff_count", "drain_backoff_expire"];
        let entry = |bytes: &[u8]| {
            let mut entry: Value = serde_json::from_slice(bytes).ok()?;
            entry.as_object_mut()?.retain(|field, _| known.contains(&field.as_str()));
            Some((entry["index"].as_str()?.parse().ok()?, entry))
        };
        read.kvs().iter().filter_map(|kv| entry(kv.value())).collect()
    }

    /// Writes back the entry that it read, as cancelled, without comparing anything.
    fn cancel(&mut self, index: u64, read: &Value) {
        let mut entry = read.clone();
        entry["status"] = json!("cancelled");
        self.runtime.block_on(self.client.put(key(index), entry.to_string(), None)).expect("a write");
    }
}

/// CKE's key of an index; keys sort like indexes.
fn key(index: u64) -> String {
    format!("{PREFIX}{index:016x}")
}

fn blind_adds_and_cancels_by_another_program_are_carried_out(world: &World) {
    let all = machines(1, 6);
    world.add_nodes(&all);
    world.set_command_seconds(1);
    world.set_up(&all, &json!({"max_concurrent_reboots": 2}));
    let daemon = world.daemon("engine");
    daemon.ready();
    let mut other = Other::new(&world.etcd);
    // an entry added by cketerm, unknown to the other program
    let by_hand = all[6].address.clone();
    world.queue(&[&all[6]]);

    let (mut cancelled, mut rounds) = (BTreeSet::new(), 0);
    for group in [&all[1..4], &all[4..6]] {
        let mut todo: BTreeMap<String, u64> =
            group.iter().map(|m| (m.address.clone(), other.add(&m.address))).collect();
        // the other program's window closes once for each group, while the group is in progress
        wait_for("a machine of the group is in progress", 60, || {
            let list = other.list();
            todo.values().any(|i| list.get(i).is_none_or(|e| e["status"] != "queued")).then_some(())
        });
        let read = other.list();
        std::thread::sleep(Duration::from_millis(150)); // the other program writes on the basis of old data
        for (index, entry) in read.iter().filter(|(i, e)| todo.values().any(|t| t == *i) && e["status"] != "rebooting")
        {
            other.cancel(*index, entry);
            cancelled.insert(*index);
        }
        wait_for("the cancelled entries are removed", 60, || {
            let list = other.list();
            cancelled.iter().all(|i| !list.contains_key(i)).then_some(())
        });
        // the window opens again: the other program adds the cancelled entries under new numbers
        for index in todo.values_mut().filter(|i| cancelled.contains(i)) {
            *index = other.add(read[index]["node"].as_str().expect("text"));
        }
        wait_for("the group is done", 180, || {
            let list = other.list();
            todo.values().all(|i| !list.contains_key(i)).then_some(())
        });
        rounds += 1;
    }
    world.wait_for_empty_queue(120);
    assert!(rounds == 2 && !cancelled.is_empty(), "the other program cancelled nothing, so this test checked nothing");

    let begun = |address: &str| world.power().iter().filter(|p| p.what == "begin" && p.address == address).count();
    assert_eq!(begun(&by_hand), 1, "cketerm's own entry must be rebooted once");
    // I27: a cancelled entry never has another status; I29: no number is used twice
    let mut last: BTreeMap<String, Value> = BTreeMap::new();
    let mut made = BTreeSet::new();
    for change in changes(&world.etcd, PREFIX) {
        let entry = change.json();
        if change.value.is_none() {
            last.remove(&change.key);
            continue;
        }
        match last.get(&change.key) {
            None => assert!(made.insert(change.key.clone()), "{} was used twice: {entry}", change.key),
            Some(was) if was["status"] == "cancelled" => {
                assert_eq!(
                    entry["status"], "cancelled",
                    "{} left the status cancelled at revision {}",
                    change.key, change.revision
                );
            }
            Some(_) => {}
        }
        last.insert(change.key, entry);
    }
    // exactly one command for each entry that was not cancelled, at most one for each cancelled entry
    for machine in &all[1..6] {
        let entries = changes(&world.etcd, PREFIX).into_iter().filter(|c| c.json()["node"] == *machine.address);
        let keys: BTreeSet<String> = entries.map(|c| c.key).collect();
        let dropped = keys.iter().filter(|k| cancelled.iter().any(|i| key(*i) == **k)).count();
        let commands = begun(&machine.address);
        assert!(
            (keys.len() - dropped..=keys.len()).contains(&commands),
            "{}: {commands} commands for {} entries, {dropped} of them cancelled",
            machine.address,
            keys.len()
        );
    }
    // a node cancelled during its reboot stays cordoned until its machine is back (I14), then it is uncordoned (I10)
    wait_for("all nodes are uncordoned", 90, || world.cordoned().is_empty().then_some(()));
}
