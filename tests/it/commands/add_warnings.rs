//! Warnings of `rq add` and `repair-queue add`, on real servers and with a Kubernetes that does not answer.

use std::net::TcpListener;

use cketerm_actions::Operator;
use cketerm_clients::{
    kubernetes::{Kube, KubeSettings},
    store::{EtcdSettings, Store},
};
use cketerm_model::{clock::Clock, names::Address};
use serde_json::json;

use super::rig::{Rig, RunOutput};
use crate::{
    stalls::Stopwatch,
    world::{Options, World, cluster::machines},
};

fn warnings(ran: &RunOutput) -> Vec<&str> {
    ran.stderr.lines().filter(|line| line.starts_with("warning: ")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_add_warns_of_budgets_and_of_the_other_queue_and_succeeds() {
    let Some(world) = World::start(Options { kcm: true, kwok: true, ..Options::default() }) else { return };
    let rig = Rig::on(&world.etcd).await;
    world.set_up_web(2);
    let (kubeconfig, machines) = (world.kubeconfig.to_str().unwrap(), machines(1, 2));
    let (worker, other) = (machines[1].address.as_str(), machines[2].address.as_str());
    let run = |args: &[&str]| rig.run(&[&["--kubeconfig", kubeconfig, "-o", "json"], args].concat());
    world.add_budget("default", "web", "web", 1);
    let ran = run(&["rq", "add", worker]);
    assert_eq!((ran.status, ran.stdout.as_str(), warnings(&ran).len()), (0, "", 0), "{ran:?}");

    world.add_budget("default", "all-web", "web", 2);
    let repair = json!({"index": "4", "address": other, "machine_type": "t", "operation": "o", "status": "processing",
        "step": 0, "step_status": "draining"});
    rig.put("/cke/repairs/data/0000000000000004", &repair.to_string()).await;
    for args in [&["rq", "add", worker, other][..], &["rq", "add", worker, other, "--dry-run"]] {
        let ran = run(args);
        let expected = [
            format!("warning: {} is in the repair queue already: repairs/4 (draining)", machines[2].name),
            format!(
                "warning: pod default/web-0 on {} can never be evicted: PodDisruptionBudget default/all-web needs 2 \
                 healthy of 2 pods; change the budget, or add replicas",
                machines[1].name
            ),
        ];
        assert_eq!((ran.status, warnings(&ran)), (0, expected.iter().map(String::as_str).collect()), "{ran:?}");
    }
    assert!(rig.get("/cke/reboots/data/0000000000000002").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_kubernetes_is_named_and_delays_an_add_by_two_seconds() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", silent.local_addr().unwrap())}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    let file = rig.file("silent.kubeconfig", &kubeconfig.to_string());
    let etcd = EtcdSettings { endpoints: vec![rig.url.clone()], prefix: rig.key("/cke/"), ..EtcdSettings::default() };
    let store = Store::connect(&etcd, Clock::host()).await.unwrap();
    let settings = KubeSettings { kubeconfig: Some(file.clone().into()), ..KubeSettings::default() };
    let operator = Operator::new(store, Some(Kube::connect(&settings, Clock::host()).await.unwrap()));
    let watch = Stopwatch::start();
    let lines = operator.reboot_warnings(&[Address::new("10.0.0.12")]).await.lines;
    assert_eq!(lines, ["note: checks before the add skipped: Kubernetes did not answer within 2 s"]);
    let waited = watch.elapsed().as_secs_f64();
    assert!((1.9..4.0).contains(&waited), "{waited}");
    let ran = rig.run(&["--kubeconfig", &file, "rq", "add", "10.0.0.12"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.stderr.contains("checks before the add skipped: Kubernetes did not answer within 2 s"), "{ran:?}");
    drop(silent);
}
