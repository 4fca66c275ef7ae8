//! Admission webhooks that answer evictions, and an API server that fails at them, in a third of the seeds with a
//! random generator of their own. In half of those seeds one webhook stays to the end: it migrates the pods, which is
//! no fault.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_sandbox::{
    Sandbox,
    kubernetes::{
        api::{Behaviour, Interceptor},
        resource::{BUDGETS, DEPLOYMENTS, PODS},
    },
};
use cketerm_scenario::Stage;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use crate::{selection::Selection, ticks::Ticks};

/// Offset of their random seed.
const SEED_OFFSET: u64 = 0x7765_6268_6f6f_6b73;
/// Count for "always".
const ALWAYS: u32 = u32::MAX;

/// Number of times that each behaviour was set up.
pub type Hits = Arc<Mutex<BTreeMap<String, u32>>>;

/// Starts the webhooks, if this seed has them.
pub fn start(
    seed: u64,
    stage: &Arc<Stage>,
    began: Instant,
    selection: &Arc<Selection>,
    hits: &Hits,
) -> Option<JoinHandle<()>> {
    let mut random = Rng::with_seed(seed ^ SEED_OFFSET);
    if random.u32(0..3) != 0 {
        return None;
    }
    let (stage, selection, hits) = (Arc::clone(stage), Arc::clone(selection), Arc::clone(hits));
    Some(tokio::spawn(async move { run_webhooks(&stage.sandbox, random, began, &selection, &hits).await }))
}

/// Adds applications to a namespace that no definition protects, because the population has none there: one without a
/// budget, and one under two.
fn settle_unprotected(sandbox: &Sandbox) {
    for (name, replicas, budgets) in [("guest", 4, &[][..]), ("twofold", 2, &["one", "two"])] {
        let labels = json!({"app": name});
        let pod = json!({"containers": [{"name": name, "image": format!("registry.example/{name}:1.0")}],
            "terminationGracePeriodSeconds": 30, "restartPolicy": "Always"});
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod}});
        let deployment = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        sandbox.objects.create(&DEPLOYMENTS, "default", deployment).map_err(|e| e.message).unwrap();
        for budget in budgets {
            let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": labels}});
            let budget = json!({"metadata": {"name": format!("{name}-{budget}")}, "spec": spec});
            sandbox.objects.create(&BUDGETS, "default", budget).map_err(|e| e.message).unwrap();
        }
    }
}

/// Sets webhooks up and removes them again until the end of the day.
async fn run_webhooks(sandbox: &Sandbox, mut rng: Rng, began: Instant, selection: &Selection, hits: &Hits) {
    settle_unprotected(sandbox);
    // the webhook that is not a fault stays
    let permanent = rng.bool().then(|| migrates(sandbox, &mut rng)).flatten();
    let mut ticks = Ticks::new(began, 5_000..60_000);
    sandbox.api.intercept(permanent.iter().cloned().collect());
    while let Some(n) = ticks.next(&mut rng).await {
        let mut random = rng.fork();
        let mut now: Vec<Interceptor> = permanent.iter().cloned().collect();
        for i in 0..random.usize(0..3) {
            let behaviour = behaviour(&mut random);
            let Some(interceptor) = interceptor_for_random_pod(sandbox, &mut random, behaviour) else { continue };
            if selection.has(&format!("w{n}.{i}")) {
                *hits.lock().unwrap().entry(word(&interceptor.behaviour).to_owned()).or_default() += 1;
                now.push(interceptor);
            }
        }
        sandbox.api.intercept(now);
    }
    sandbox.api.intercept(permanent.into_iter().collect());
}

fn behaviour(random: &mut Rng) -> Behaviour {
    let times = random.u32(1..6);
    match random.u32(0..9) {
        0 | 1 => Behaviour::Deny([403, 400, 404, 409][random.usize(..4)]),
        2 => Behaviour::Defer(random.u32(1..4)),
        3 => Behaviour::Defer(ALWAYS),
        4 => Behaviour::Migrate(Duration::from_secs(random.u64(1..40))),
        5 => Behaviour::TimeOut { times, after: Duration::from_secs(random.u64(1..5)) },
        6 => Behaviour::Fail(times),
        7 => Behaviour::Overload(times),
        _ => Behaviour::LeaderChanged([times, ALWAYS][usize::from(random.u32(0..4) == 0)]),
    }
}

fn word(behaviour: &Behaviour) -> &'static str {
    match behaviour {
        Behaviour::Deny(_) => "webhook-denies",
        Behaviour::Defer(_) => "webhook-defers",
        Behaviour::Migrate(_) => "webhook-migrates",
        Behaviour::TimeOut { .. } => "webhook-late",
        Behaviour::Fail(_) => "webhook-fails",
        Behaviour::Overload(_) => "evictions-overload",
        Behaviour::LeaderChanged(_) => "evictions-fail",
    }
}

fn migrates(sandbox: &Sandbox, rng: &mut Rng) -> Option<Interceptor> {
    let after = Duration::from_secs(rng.u64(1..15));
    interceptor_for_random_pod(sandbox, rng, Behaviour::Migrate(after))
}

/// A webhook for the pods of one application.
fn interceptor_for_random_pod(sandbox: &Sandbox, rng: &mut Rng, behaviour: Behaviour) -> Option<Interceptor> {
    let (pods, _) = sandbox.objects.list(&PODS, "");
    let is_daemon_set_pod = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
    let pods: Vec<_> =
        pods.into_iter().filter(|p| !is_daemon_set_pod(p) && p["metadata"]["labels"]["app"].is_string()).collect();
    let meta = &pods.get(rng.usize(..pods.len().max(1)))?["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = [("app".to_owned(), text(&meta["labels"]["app"]))].into();
    let name = format!("{}.webhooks.example.com", text(&meta["labels"]["app"]));
    Some(Interceptor { name, namespace: text(&meta["namespace"]), labels, behaviour })
}
