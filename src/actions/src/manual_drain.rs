//! Requests of a manual drain, sent with the operator's rights (SAF-36). The rules decide what is sent and when:
//! `src/rules/src/manual_drain.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cketerm_clients::{
    kubernetes::{Kube, Live as KubeLive},
    store::live::Live,
};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    clock::{Now, Steady},
    cluster::Cluster,
    drain::{Answer, EvictionAdmission, Verdict},
    fence::Person,
    kube::{BudgetRow, NodeRow, PodRow},
    stored::view::StoreView,
};
use cketerm_rules::{
    decide::{Budgeted, dry_runs},
    manual_drain::{ManualDrain, Next, Progress, Requests, Stopped},
};
use futures::{StreamExt, stream};

/// Longest interval between two decisions.
const TICK: Duration = Duration::from_secs(1);

/// Clients and live copies that a manual drain needs.
pub(super) struct DrainContext<'a> {
    /// Client of Kubernetes.
    pub kube: &'a Kube,
    /// Live copy of Kubernetes.
    pub live: &'a KubeLive,
    /// Live copy of etcd. The drain does nothing before it is complete or while it is older than 10 s, because an entry
    /// may have begun in the meantime.
    pub entries: &'a Live,
    /// Definition, for its drain rules.
    pub definition: Option<&'a Cluster>,
    /// Operator whose rights are used.
    pub person: Person,
}

/// Drains a cordoned node. `claimed` returns the entry that works on the node now. `on_progress` is called on every
/// change.
pub(super) async fn drain(
    context: &DrainContext<'_>,
    node: &NodeRow,
    claimed: impl Fn(&StoreView) -> Option<String>,
    mut on_progress: impl FnMut(&Progress),
) -> Result<Progress, Stopped> {
    let (kube, live) = (context.kube, context.live);
    live.watch_pods(BTreeSet::from([node.name.clone()]));
    let steady = Steady::new(kube.clock());
    let mut changed = live.subscribe();
    let mut drain = ManualDrain::new(context.definition, node, steady.now());
    let mut last = Progress::default();
    loop {
        live.require_fresh_proof();
        let etcd = context.entries.borrow();
        if let Some(entry) = claimed(&etcd) {
            return Err(Stopped::Claimed(entry));
        }
        let now = steady.now();
        let step = drain.step(&live.borrow(), &etcd, now);
        if step.progress != last {
            if step.is_shown {
                on_progress(&step.progress);
            }
            last = step.progress;
        }
        match step.next {
            Next::Drained => return Ok(last),
            Next::Stop(stopped) => return Err(stopped),
            // the answers may be all that the next step needs
            Next::Send(requests) => {
                let answers = send(context, &requests, now).await;
                drain.record(requests, answers, steady.now());
                continue;
            }
            Next::Wait => {}
        }
        let until = |at: BootTime| Duration::from((at - now.boot).max(Seconds::new(0.01)));
        let _ = tokio::time::timeout(step.wake.map_or(TICK, until).min(TICK), changed.changed()).await;
    }
}

async fn send(context: &DrainContext<'_>, requests: &Requests, now: Now) -> BTreeMap<String, Answer> {
    match requests {
        Requests::Preview { pods, unprotected } => {
            let asked = dry_runs(pods, unprotected, EvictionAdmission::EachPod);
            evict_all(context, &asked, true, now).await
        }
        Requests::Evict { evict, delete, .. } => {
            let (mut answers, deleted) =
                futures::join!(evict_all(context, evict, false, now), delete_all(context, delete, now));
            answers.extend(deleted);
            answers
        }
    }
}

/// Requests at once.
const AT_ONCE: usize = 16;

/// Sends some requests at once. Each answer is judged with the budgets as they were when it was requested.
async fn evict_all(context: &DrainContext<'_>, pods: &[Budgeted], dry_run: bool, now: Now) -> BTreeMap<String, Answer> {
    let requests = pods.iter().map(|(pod, budgets)| async move {
        let named: Vec<&BudgetRow> = budgets.iter().map(AsRef::as_ref).collect();
        let verdict = context.kube.evict_manually(&context.person, pod, &named, dry_run).await;
        (pod.uid.clone(), answer(verdict, budgets, now))
    });
    stream::iter(requests).buffer_unordered(AT_ONCE).collect().await
}

async fn delete_all(context: &DrainContext<'_>, pods: &[Arc<PodRow>], now: Now) -> Vec<(String, Answer)> {
    let requests = pods.iter().map(|pod| async move {
        (pod.uid.clone(), answer(context.kube.delete_pod_manually(&context.person, pod).await, &[], now))
    });
    futures::future::join_all(requests).await
}

fn answer(verdict: Verdict, budgets: &[Arc<BudgetRow>], now: Now) -> Answer {
    let budgets = budgets.iter().map(|b| (b.full_name(), b.resource_version.clone())).collect();
    Answer { verdict, at: now.boot, budgets, undecided: 0 }
}
