//! Admission webhooks that answer evictions, and an API server that fails at them, in a third of the seeds with a
//! random generator of their own. In half of those seeds one webhook stays to the end: it migrates the pods, which is
//! no fault.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm::{
    sandbox::{
        Sandbox,
        kubernetes::{
            api::{Behaviour, Interceptor},
            resource::{BUDGETS, DEPLOYMENTS, PODS},
        },
    },
    scenario::Stage,
};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use crate::{keep::Keep, ticks::Ticks};

/// Offset of their random seed.
const DICE: u64 = 0x7765_6268_6f6f_6b73;
/// Count for "always".
const ALWAYS: u32 = u32::MAX;

/// Number of times that each behaviour was set up.
pub type Hits = Arc<Mutex<BTreeMap<String, u32>>>;

/// Starts the webhooks, if this seed has them.
pub fn start(seed: u64, stage: &Arc<Stage>, began: Instant, keep: &Arc<Keep>, hits: &Hits) -> Option<JoinHandle<()>> {
    let mut dice = Rng::with_seed(seed ^ DICE);
    if dice.u32(0..3) != 0 {
        return None;
    }
    let (stage, keep, hits) = (Arc::clone(stage), Arc::clone(keep), Arc::clone(hits));
    Some(tokio::spawn(async move { meddle(&stage.sandbox, dice, began, &keep, &hits).await }))
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
async fn meddle(sandbox: &Sandbox, mut rng: Rng, began: Instant, keep: &Keep, hits: &Hits) {
    settle_unprotected(sandbox);
    // the webhook that is no fault stays
    let stays = rng.bool().then(|| migrates(sandbox, &mut rng)).flatten();
    let mut ticks = Ticks::new(began, 5_000..60_000);
    sandbox.api.intercept(stays.iter().cloned().collect());
    while let Some(n) = ticks.next(&mut rng).await {
        let mut dice = rng.fork();
        let mut now: Vec<Interceptor> = stays.iter().cloned().collect();
        for i in 0..dice.usize(0..3) {
            let behaviour = behaviour(&mut dice);
            let Some(interceptor) = of_some_pod(sandbox, &mut dice, behaviour) else { continue };
            if keep.has(&format!("w{n}.{i}")) {
                *hits.lock().unwrap().entry(word(&interceptor.behaviour).to_owned()).or_default() += 1;
                now.push(interceptor);
            }
        }
        sandbox.api.intercept(now);
    }
    sandbox.api.intercept(stays.into_iter().collect());
}

fn behaviour(dice: &mut Rng) -> Behaviour {
    let times = dice.u32(1..6);
    match dice.u32(0..9) {
        0 | 1 => Behaviour::Deny([403, 400, 404, 409][dice.usize(..4)]),
        2 => Behaviour::Defer(dice.u32(1..4)),
        3 => Behaviour::Defer(ALWAYS),
        4 => Behaviour::Migrate(Duration::from_secs(dice.u64(1..40))),
        5 => Behaviour::TimeOut { times, after: Duration::from_secs(dice.u64(1..5)) },
        6 => Behaviour::Fail(times),
        7 => Behaviour::Overload(times),
        _ => Behaviour::LeaderChanged([times, ALWAYS][usize::from(dice.u32(0..4) == 0)]),
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
    of_some_pod(sandbox, rng, Behaviour::Migrate(after))
}

/// A webhook for the pods of one application.
fn of_some_pod(sandbox: &Sandbox, rng: &mut Rng, behaviour: Behaviour) -> Option<Interceptor> {
    let (pods, _) = sandbox.objects.list(&PODS, "");
    let of_daemons = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
    let pods: Vec<_> =
        pods.into_iter().filter(|p| !of_daemons(p) && p["metadata"]["labels"]["app"].is_string()).collect();
    let meta = &pods.get(rng.usize(..pods.len().max(1)))?["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = [("app".to_owned(), text(&meta["labels"]["app"]))].into();
    let name = format!("{}.webhooks.example.com", text(&meta["labels"]["app"]));
    Some(Interceptor { name, namespace: text(&meta["namespace"]), labels, behaviour })
}
