//! Cost of an observer beside CKE, in requests: it reads the pods of nodes in work, and while nothing happens it costs
//! what any observer costs.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cketerm_model::{cketerm_records::EngineMode, reboot::RebootStatus};
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::kubernetes::api::ApiRequest;
use cketerm_scenario::{Options, Scenario, Stage};
use tokio::time::{Instant, sleep};

/// Number of machines: many more than CKE has in work.
const NODES: usize = 60;
/// Number of queued workers.
const QUEUED: usize = 6;
/// Nodes that a process watches besides those in work: the two that start next.
const AHEAD: usize = 2;
/// Longest time of the whole queue.
const LONGEST: Duration = Duration::from_mins(40);

async fn site() -> Arc<Stage> {
    let text = format!(
        "name: test\nabout: A test.\npopulation: {{nodes: {NODES}, workloads: []}}\ncke: {{host: boot-0, interval: 2}}\n\
         reboot: {{max_concurrent_reboots: 3, eviction_timeout_seconds: 60}}\n\
         script: [{{after: 60, by: alice, queue: {{nodes: {{workers: {QUEUED}}}}}}}]\n"
    );
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
    let mut options = Options::default();
    options.api.audit = usize::MAX;
    Arc::new(Stage::set(Scenario::parse(&text).unwrap(), options, clock).await.unwrap())
}

/// Requests of the observer so far.
fn requests(stage: &Stage) -> Vec<ApiRequest> {
    stage.sandbox.api.audit().into_iter().filter(|request| request.user == "observer").collect()
}

/// Node whose pods a request reads; `None` if it reads the pods of all.
fn node_of(request: &ApiRequest) -> Option<String> {
    let query = request.path.split_once('?')?.1.replace("%3D", "=");
    let (_, node) = query.split_once("fieldSelector=spec.nodeName=")?;
    Some(node.split('&').next().unwrap_or_default().to_owned())
}

fn reads_pods(request: &ApiRequest) -> bool {
    request.path.split('?').next().is_some_and(|path| path.ends_with("/pods"))
}

#[tokio::test(start_paused = true)]
async fn an_observer_beside_cke_reads_only_the_pods_of_nodes_in_work_and_nothing_more_while_idle() {
    let stage = site().await;
    let (gate, observer) = (Gate::default(), stage.backends("observer"));
    let handle = gate.hold(async move { observer.start(EngineMode::Console, false, None) }).await;
    let mut seen = handle.seen();
    seen.wait_for(|seen| seen.snapshot.store.synced && seen.snapshot.kube.synced()).await.unwrap();
    assert!(!requests(&stage).iter().any(reads_pods), "without work no pod is read");
    let player = Arc::clone(&stage);
    let script = tokio::spawn(async move { player.play().await });
    // every node whose entry is in the queue, and the most that are in work at once
    let (mut queued, mut most, mut watched, began) = (BTreeSet::new(), 0, 0, Instant::now());
    loop {
        let view = Arc::clone(&seen.borrow_and_update());
        let entries = view.snapshot.store.reboots.entries.values().filter_map(|stored| stored.get());
        let waiting: Vec<_> = entries.map(|entry| (entry.node.clone(), entry.status)).collect();
        queued.extend(waiting.iter().map(|(address, _)| view.snapshot.machine(address)));
        most = most.max(waiting.iter().filter(|(_, status)| *status != RebootStatus::Queued).count());
        watched = watched.max(view.snapshot.kube.pods.len());
        if queued.len() == QUEUED && waiting.is_empty() {
            break;
        }
        assert!(began.elapsed() < LONGEST, "{waiting:?}");
        let _ = tokio::time::timeout(Duration::from_secs(1), seen.changed()).await;
    }
    script.await.unwrap();
    let read: Vec<ApiRequest> = requests(&stage).into_iter().filter(reads_pods).collect();
    let nodes: BTreeSet<Option<String>> = read.iter().map(node_of).collect();
    assert!(!nodes.contains(&None), "all pods were listed: {read:?}");
    assert!(nodes.iter().flatten().all(|node| queued.contains(node)) && nodes.len() == QUEUED, "{nodes:?} {queued:?}");
    assert!((2..=3).contains(&most) && watched <= most + AHEAD, "{watched} nodes were watched, {most} were in work");
    // a list and a watch, and few more watches while a drain lasts
    assert!(read.len() <= 6 * QUEUED, "{} requests: {read:?}", read.len());
    // nothing happens any more
    sleep(Duration::from_secs(30)).await;
    let (before, revision) = (requests(&stage).len(), own_writes(&stage).await);
    sleep(Duration::from_mins(5)).await;
    let idle: Vec<ApiRequest> = requests(&stage).split_off(before);
    // as any observer: the API server's health, the cluster's identity, and now and then a watch again
    let of_any = |request: &&ApiRequest| ["/readyz", "/api/v1/namespaces/kube-system"].contains(&&*request.path);
    let (again, others): (Vec<&ApiRequest>, Vec<&ApiRequest>) =
        idle.iter().filter(|request| !of_any(request)).partition(|request| request.verb == "watch");
    assert!(!idle.iter().any(reads_pods), "{idle:?}");
    assert!(others.is_empty() && again.len() <= 20, "{others:?} {again:?}");
    assert_eq!(own_writes(&stage).await, revision, "an idle observer writes nothing");
    gate.kill();
}

/// Values below `cketerm/`, and their revisions.
async fn own_writes(stage: &Stage) -> Vec<(String, i64)> {
    let all = Some(etcd_client::GetOptions::new().with_prefix());
    let found = stage.sandbox.etcd.client().get("/cke/cketerm/", all).await.unwrap();
    found.kvs().iter().map(|kv| (kv.key_str().unwrap().to_owned(), kv.mod_revision())).collect()
}
