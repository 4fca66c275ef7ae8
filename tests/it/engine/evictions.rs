//! Evictions that a webhook or a failing API server answers: an engine on the sandbox, on a paused clock, with
//! `evict_retries: 0`.

use std::{collections::BTreeSet, time::Duration};

use cketerm_model::{
    cketerm_records::{Audit, EngineMode},
    entry::{EntryId, Stored},
    names::Address,
};
use cketerm_sandbox::kubernetes::{
    api::{ApiRequest, Behaviour, Interceptor},
    resource::PODS,
};
use cketerm_scenario::{Options, Scenario, Stage};

const ENGINE: &str = "engine-host";

/// Result of one drain.
#[derive(Debug)]
struct Drained {
    /// Whether the entry left the queue within half an hour.
    ended: bool,
    /// Largest number of backoffs that was seen.
    backoffs: i64,
    /// Names of the reasons that were shown.
    reasons: BTreeSet<String>,
    /// The engine's requests for pods, without dry runs: `create 429`, `delete 200` …
    changes: Vec<String>,
    /// Number of tries in each audit record of evictions.
    tries: Vec<u32>,
}

async fn drained(protected: bool, behaviour: Behaviour) -> Drained {
    Box::pin(drain_with_behaviours(protected, behaviour, None)).await
}

/// Drains a machine on which one pod meets this behaviour before the other.
async fn drain_with_behaviours(protected: bool, behaviour: Behaviour, other: Option<Behaviour>) -> Drained {
    let namespaces = if protected { "null" } else { "{matchLabels: {kept: 'yes'}}" };
    let text = format!(
        "name: test\nabout: A test.\npopulation: {{nodes: 8, pods_per_node: 3, workloads: []}}\n\
         reboot: {{evict_retries: 0, eviction_timeout_seconds: 120, protected_namespaces: {namespaces}}}\n"
    );
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
    let stage = Stage::set(Scenario::parse(&text).unwrap(), Options::default(), clock).await.unwrap();
    let worker = stage.sandbox.machines.list().into_iter().find(|m| !m.control_plane).unwrap();
    let of = |name: &str, labels, behaviour| Interceptor {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        labels,
        behaviour,
    };
    let mut all = Vec::new();
    if let Some(other) = other {
        let objects = &stage.sandbox.objects;
        let (pods, _) = objects.list(&PODS, "default");
        let pod = pods.iter().find(|p| p["spec"]["nodeName"] == worker.name.as_str()).unwrap();
        let marked = |pod: &mut serde_json::Value| {
            pod["metadata"]["labels"]["other"] = "yes".into();
            Ok(())
        };
        objects.update(&PODS, "default", pod["metadata"]["name"].as_str().unwrap(), marked).unwrap();
        all.push(of("other.example.com", [("other".to_owned(), "yes".to_owned())].into(), other));
    }
    all.push(of("evictions.example.com", [].into(), behaviour));
    stage.sandbox.api.intercept(all);
    let engine = stage.backends(ENGINE).start(EngineMode::Daemon, true, None);
    stage.operator("ann").add_reboots(&[Address::new(worker.address)], None).await.unwrap();
    let mut drained =
        Drained { ended: false, backoffs: 0, reasons: BTreeSet::new(), changes: Vec::new(), tries: Vec::new() };
    let (mut seen, mut queued) = (engine.seen(), false);
    let follow = async {
        loop {
            let now = seen.borrow_and_update().clone();
            let entry = now.snapshot.store.reboots.entries.values().find_map(Stored::get).cloned();
            if let Some(entry) = &entry {
                queued = true;
                drained.backoffs = drained.backoffs.max(entry.drain_backoff_count);
            } else if queued {
                drained.ended = true;
                return;
            }
            drained.reasons.extend(now.reasons.get(&EntryId::reboot(0)).map(cketerm_model::reason::Reason::name));
            if drained.backoffs > 0 {
                return;
            }
            seen.changed().await.unwrap();
        }
    };
    let _ = tokio::time::timeout(Duration::from_mins(30), follow).await;
    let change = |request: &ApiRequest| {
        let pods = request.user == ENGINE && request.path.contains("/pods/") && request.verb != "get";
        let dry = String::from_utf8_lossy(&request.body).contains("dryRun");
        (pods && !dry).then(|| format!("{} {}", request.verb, request.code))
    };
    let store = stage.operator("ann").store;
    let records = store.newest::<Audit>(&store.keys().audit_prefix(), 1000).await.unwrap();
    drained.tries = records.iter().filter_map(Stored::get).filter(|a| a.what == "evict").map(Audit::count).collect();
    drained.changes = stage.sandbox.api.audit().iter().filter_map(change).collect();
    drained
}

/// While a webhook's or the server's answer is no refusal, the drain goes on until its deadline.
#[tokio::test(start_paused = true)]
async fn i18_i20_deferred_or_failed_evictions_are_retried_until_the_pods_are_deleted() {
    let seconds = Duration::from_secs;
    for (behaviour, shown) in [
        (Behaviour::Defer(2), "DeferredToWebhook"),
        (Behaviour::Migrate(seconds(25)), "DeferredToWebhook"),
        (Behaviour::TimeOut { times: 2, after: seconds(5) }, "EvictionFailing"),
        (Behaviour::Fail(4), "EvictionFailing"),
        (Behaviour::Overload(4), "EvictionFailing"),
        (Behaviour::LeaderChanged(4), "EvictionFailing"),
    ] {
        for protected in [true, false] {
            let drained = Box::pin(drained(protected, behaviour.clone())).await;
            let what = format!("{behaviour:?}, protected {protected}: {drained:?}");
            assert!(drained.ended && drained.backoffs == 0, "{what}");
            assert!(drained.reasons.contains(shown), "{what}");
            assert!(drained.changes.iter().all(|c| c.starts_with("create ")), "{what}");
            assert_eq!(drained.tries.len(), 1, "{what}");
        }
    }
}

/// The evictions that a webhook deferred form one audit record, whichever pods are due together. A record for each
/// subset of pods would displace the engine's other records.
#[tokio::test(start_paused = true)]
async fn i48_all_evictions_of_an_entry_share_one_audit_record() {
    let drained = Box::pin(drain_with_behaviours(true, Behaviour::Defer(2), Some(Behaviour::Defer(4)))).await;
    assert!(drained.ended && drained.backoffs == 0, "{drained:?}");
    assert_eq!(drained.tries.len(), 1, "{drained:?}");
    assert!(drained.tries[0] >= 4, "{drained:?}");
}

/// I15: the preview finds a denial, and nothing is evicted.
#[tokio::test(start_paused = true)]
async fn i15_a_webhook_that_denies_the_dry_run_backs_the_drain_off_without_an_eviction() {
    for protected in [true, false] {
        let drained = Box::pin(drained(protected, Behaviour::Deny(403))).await;
        assert_eq!((drained.backoffs, drained.ended), (1, false), "{drained:?}");
        assert_eq!(drained.changes, Vec::<String>::new(), "{drained:?}");
    }
}

/// The deadline ends a failure that never ends by itself, and the reason names the failure.
#[tokio::test(start_paused = true)]
async fn i20_a_lasting_eviction_failure_backs_the_drain_off_at_its_deadline() {
    for behaviour in [Behaviour::Fail(u32::MAX), Behaviour::Overload(u32::MAX), Behaviour::Defer(u32::MAX)] {
        let drained = Box::pin(drained(false, behaviour.clone())).await;
        assert_eq!((drained.backoffs, drained.ended), (1, false), "{behaviour:?}: {drained:?}");
        assert!(drained.changes.iter().all(|c| c.starts_with("create ")), "{behaviour:?}: {drained:?}");
    }
}
