//! Cancels of batches while their enqueue still adds entries. No seed has an enqueue of several transactions.

use std::time::Duration;

use cketerm_actions::Operator;
use cketerm_model::{batch::Batch, entry::QueueKind, stored::keys::SwitchName};
use cketerm_runtime::tasks::Gate;
use cketerm_scenario::{Links, backends};
use tokio::time::{sleep, timeout};

use crate::{
    gather,
    long_runs::{ScenarioResult, scenario_runtime, set},
    observers,
    people::addressed,
};

const SITE: &str = r"
name: enqueues
about: Nine machines, and enqueues of five hundred entries.
population: {nodes: 9, pods_per_node: 0, workloads: []}
";

/// Number of entries of each enqueue, in nine transactions.
const ENTRIES: usize = 500;
/// Time that each of its requests takes.
const REQUEST_TIME: Duration = Duration::from_millis(200);
/// Numbers of entries after which the batch is cancelled.
const CANCELLED_AFTER: [u64; 6] = [1, 60, 130, 200, 300, 430];

/// One enqueue after another, each cancelled before it ends.
pub fn cancelled() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let (stage, _engines, mut alice) = set(SITE, 1, false, 0).await;
        // each request of hers takes long enough for a cancel in between
        let links = Links::new("slow", &Gate::default(), 11);
        alice.store = backends(&stage.sandbox, "slow", alice.store.clock().clone(), &links).store;
        alice.set_switch(SwitchName::Reboots, false, None).await.unwrap();
        links.etcd.slow(Some((REQUEST_TIME, REQUEST_TIME)), 11);
        let (mut stopped, mut wrong) = (0, Vec::new());
        for after in CANCELLED_AFTER {
            let bob = stage.operator("bob");
            let worker = stage.sandbox.machines.list().into_iter().find(|m| !m.control_plane).unwrap().address;
            let addresses = addressed(&vec![worker; ENTRIES]);
            let both = async { tokio::join!(alice.add_reboots(&addresses, Some("all")), cancel_after(&bob, after)) };
            let Ok((added, ())) = timeout(Duration::from_mins(10), Box::pin(both)).await else {
                wrong.push(format!("the enqueue cancelled after {after} entries does not end"));
                continue;
            };
            stopped += usize::from(added.is_err());
        }
        // the leader removes what was cancelled
        sleep(Duration::from_mins(5)).await;
        let left = alice.store.read_view().await.unwrap().reboots.entries.len();
        if left != 0 {
            wrong.push(format!("{left} entries of cancelled batches remain"));
        }
        if stopped == 0 {
            wrong.push("every enqueue ended before it was cancelled".to_owned());
        }
        let mut record = gather::record(&stage.sandbox);
        record.ttl_seconds = 10;
        let breaches = observers::observe(&record).into_iter().filter(|b| b.code == "I54").collect();
        let summary = format!("{stopped} of {} enqueues stopped by a cancel", CANCELLED_AFTER.len());
        ScenarioResult { breaches, wrong, summary }
    })
}

/// Cancels the open batch once it has this number of entries.
async fn cancel_after(operator: &Operator, entries: u64) {
    loop {
        let view = operator.store.read_view().await.unwrap();
        let is_due = |batch: &Batch| batch.cancelled.is_none() && batch.added >= entries;
        let due = view.batches.iter().find(|(_, stored)| stored.get().is_some_and(is_due));
        if let Some((id, _)) = due {
            operator.cancel_batch(QueueKind::Reboot, *id, None, Some("a mistake")).await.unwrap();
            return;
        }
        sleep(REQUEST_TIME / 8).await;
    }
}
