//! Drains under an admission webhook that answers evictions itself, under two budgets on one pod, and of pods with a
//! long grace period.

use serde_json::{Value, json};

use crate::world::{
    Options, World,
    cluster::machines,
    history::put,
    in_both_worlds, wait_for,
    webhook::{Behaviour, NAME, Webhook},
};

const OPTIONS: Options = Options { kcm: true, kwok: true, audit: true, etcd34: false, scheduler: false };

in_both_worlds! {
    OPTIONS;
    i18_a_pod_with_two_budgets_is_deleted_unless_its_namespace_is_protected,
}

fn why(world: &World, index: u64) -> String {
    world.run(&["rq", "why", &index.to_string(), "-o", "json"])
}

/// Pod requests of the engine's user that changed something, as `verb subresource name`.
fn changes(world: &World) -> Vec<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let changes = |e: &Value| {
        let object = &e["objectRef"];
        let dry = !e["requestObject"]["deleteOptions"]["dryRun"].is_null();
        let by_engine = e["user"]["username"] == "bench" && object["resource"] == "pods" && !dry;
        let verb = text(&e["verb"]);
        (by_engine && matches!(verb.as_str(), "create" | "delete"))
            .then(|| format!("{verb} {} {}", text(&object["subresource"]), text(&object["name"])))
    };
    world.audit().iter().filter_map(changes).collect()
}

/// Every behaviour of a webhook at once, a worker and a pod for each; `evict_retries` has its default, 0.
#[test]
fn i15_i18_i20_a_webhook_may_deny_defer_migrate_delay_or_fail_on_real_servers() {
    let Some(world) = World::start(OPTIONS) else { return };
    let pods = ["denied", "deferred", "migrates", "late", "broken"];
    let machines = machines(1, pods.len());
    world.add_nodes(&machines);
    for (pod, machine) in pods.iter().zip(&machines[1..]) {
        world.add_pod("default", pod, &machine.name, pod, None);
    }
    // on the same node, a pod that no webhook denies
    world.add_pod("default", "beside", &machines[1].name, "beside", None);
    world.wait_for_running_pods("default");
    world.set_up(&machines, &json!({"max_concurrent_reboots": pods.len()}));
    let webhook = Webhook::register(
        &world,
        &[
            ("denied", Behaviour::Deny(403)),
            ("deferred", Behaviour::DenyTimes(2)),
            ("migrates", Behaviour::Deny(429)),
            ("late", Behaviour::Late(2)),
            ("broken", Behaviour::Fail(3)),
        ],
        "beside",
    );
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&machines[1..].iter().collect::<Vec<_>>());

    // the preview finds a denial other than 429 before anything on that node is evicted
    world.wait_or_explain(0, "the drain backs off because of the denial", 40, || {
        let count = world.entries().get(&0)?["drain_backoff_count"].as_i64()?;
        let why = why(&world, 0);
        (count == 1 && why.contains(NAME) && why.contains("denied stays")).then_some(())
    });
    assert_eq!((webhook.evictions("denied"), webhook.evictions("beside")), (0, 0), "{:?}", webhook.asked());

    // 429 means that the webhook migrates the pod itself: the reason names it, and the eviction is repeated
    world.wait_or_explain(2, "the reason names the migration", 40, || {
        let why = why(&world, 2);
        (why.contains("DeferredToWebhook") && why.contains(NAME) && why.contains("migrates stays")).then_some(())
    });
    assert!(webhook.evictions("migrates") >= 1);
    // the migration ends: the webhook's controller deletes the pod, not cketerm
    world.ok("DELETE", "/api/v1/namespaces/default/pods/migrates", Some(&json!({"gracePeriodSeconds": 0})));

    for (index, pod) in [(1, "deferred"), (2, "migrates"), (3, "late"), (4, "broken")] {
        world.wait_or_explain(index, &format!("{pod} is drained and its machine rebooted"), 60, || {
            let entry = world.entries().get(&index).cloned();
            if let Some(entry) = &entry {
                assert_eq!(entry["drain_backoff_count"].as_i64().unwrap_or(0), 0, "{pod}: {}", why(&world, index));
            }
            entry.is_none().then_some(())
        });
    }
    assert_eq!(webhook.evictions("deferred"), 3, "expected two denials and one acceptance: {:?}", webhook.asked());
    let changes = changes(&world);
    assert!(changes.iter().all(|c| c.starts_with("create eviction ")), "{changes:?}");
    assert!(!changes.iter().any(|c| c.ends_with(" denied") || c.ends_with(" beside")), "{changes:?}");

    webhook.behave("denied", Behaviour::Allow);
    world.run(&["rq", "reset-backoff"]);
    world.wait_for_empty_queue(40);
    wait_for("the nodes are uncordoned", 10, || world.cordoned().is_empty().then_some(()));
}

/// A registration from before `v1` may declare side effects. The server then refuses every dry run of an eviction, and
/// calls the webhook for the eviction itself.
#[test]
fn i15_a_webhook_with_side_effects_does_not_block_evictions_on_a_real_server() {
    let Some(world) = World::start(OPTIONS) else { return };
    let machines = machines(1, 1);
    world.add_nodes(&machines);
    world.add_pod("default", "pod", &machines[1].name, "pod", None);
    world.wait_for_running_pods("default");
    world.set_up(&machines, &json!({}));
    let webhook = Webhook::register(&world, &[], "pod");
    let name = "validatingwebhookconfigurations/evictions";
    let mut stored = world.ok("GET", &format!("/apis/admissionregistration.k8s.io/v1/{name}"), None);
    stored["webhooks"][0]["sideEffects"] = json!("Some");
    put(&world.etcd, &format!("/registry/{name}"), &stored.to_string());
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "pod"}});
    let path = "/api/v1/namespaces/default/pods/pod/eviction?dryRun=All";
    let refusal = wait_for("the server refuses dry runs", 30, || {
        let (status, answer) = world.call("POST", path, Some(&eviction));
        (status == 400).then_some(answer)
    });
    assert_eq!(refusal["reason"], "BadRequest", "{refusal}");
    assert_eq!(refusal["message"], format!("admission webhook \"{NAME}\" does not support dry run"), "{refusal}");
    let before = webhook.asked().len();

    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&machines[1]]);
    world.wait_or_explain(0, "the node is drained and its machine rebooted", 60, || {
        (!world.entries().contains_key(&0)).then_some(())
    });
    assert!(webhook.evictions("pod") >= 1, "{:?}", webhook.asked());
    assert!(webhook.asked().iter().skip(before).all(|asked| !asked.dry_run), "{:?}", webhook.asked());
}

/// Names of the pods whose eviction was asked about by a dry run, sorted.
fn dry_runs(world: &World) -> Vec<String> {
    let name = |e: &Value| {
        let dry = !e["requestObject"]["deleteOptions"]["dryRun"].is_null();
        (dry && e["user"]["username"] == "bench")
            .then(|| e["objectRef"]["name"].as_str().unwrap_or_default().to_owned())
    };
    let mut names: Vec<String> = world.audit().iter().filter_map(name).collect();
    names.sort_unstable();
    names
}

/// Without a webhook, one pod of each budget that allows too little gets a dry run. With a policy for evictions, each pod
/// gets one.
#[test]
fn i15_dry_runs_are_as_many_as_admission_requires_on_a_real_server() {
    let Some(world) = World::start(OPTIONS) else { return };
    let machines = machines(1, 2);
    world.add_nodes(&machines);
    for machine in &machines[1..] {
        for (app, pod) in [("web", "web-0"), ("web", "web-1"), ("free", "free-0"), ("free", "free-1")] {
            world.add_pod("default", &format!("{pod}-{}", machine.name), &machine.name, app, None);
        }
    }
    world.wait_for_running_pods("default");
    world.add_budget("default", "web", "web", 0);
    world.set_up(&machines, &json!({}));
    let daemon = world.daemon("allowed");
    daemon.ready();
    world.queue(&[&machines[1]]);
    world.wait_for_empty_queue(60);
    assert_eq!(dry_runs(&world), [""; 0]);

    world.add_budget("default", "free", "free", 2);
    world.queue(&[&machines[2]]);
    let asked = wait_for("a dry run", 60, || Some(dry_runs(&world)).filter(|asked| !asked.is_empty()));
    assert!(asked.len() == 1 && asked[0].starts_with("free-"), "{asked:?}");
    daemon.kill();
    world.ok("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/free", None);

    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/*"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "evictions"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}});
    world.ok("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", Some(&policy));
    let daemon = world.daemon("policy");
    daemon.ready();
    world.run(&["rq", "reset-backoff"]);
    world.wait_for_empty_queue(60);
    let mut all: Vec<String> = ["free-0", "free-1", "web-0", "web-1"].map(|pod| format!("{pod}-w2")).to_vec();
    all.extend(asked);
    all.sort_unstable();
    assert_eq!(dry_runs(&world), all);
}

fn i18_a_pod_with_two_budgets_is_deleted_unless_its_namespace_is_protected(world: &World) {
    let machines = machines(1, 2);
    world.add_nodes(&machines);
    for (namespace, team, node) in [("free", "other", "w1"), ("safe", "kept", "w2")] {
        let labels = json!({"metadata": {"name": namespace, "labels": {"team": team}}});
        world.ok("POST", "/api/v1/namespaces", Some(&labels));
        world.add_pod(namespace, "db-0", node, "db", None);
        world.wait_for_running_pods(namespace);
        for budget in ["one", "two"] {
            world.add_budget(namespace, budget, "db", 0);
        }
    }
    let protected = json!({"matchLabels": {"team": "kept"}});
    world.set_up(&machines, &json!({"max_concurrent_reboots": 2, "protected_namespaces": protected}));
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&machines[1], &machines[2]]);
    world.wait_or_explain(0, "the unprotected pod is deleted and its machine rebooted", 40, || {
        (!world.entries().contains_key(&0)).then_some(())
    });
    world.wait_or_explain(1, "the reason names the protected pod and both budgets", 30, || {
        let count = world.entries().get(&1)?["drain_backoff_count"].as_i64()?;
        let why = why(world, 1);
        (count >= 1 && why.contains("safe/one") && why.contains("safe/two")).then_some(())
    });
    let kept = world.ok("GET", "/api/v1/namespaces/safe/pods/db-0", None);
    assert!(kept["metadata"]["deletionTimestamp"].is_null(), "{kept}");
    world.ok("DELETE", "/apis/policy/v1/namespaces/safe/poddisruptionbudgets/two", None);
    world.run(&["rq", "reset-backoff"]);
    world.wait_for_empty_queue(40);
}
