//! Kubelets, Nodes and the scheduler.

use cketerm_model::boot_time::Seconds;

use super::*;
use crate::machines::OnBoot;

#[tokio::test(start_paused = true)]
async fn pods_are_spread_over_nodes_and_stop_within_their_grace_period() {
    let cluster = TestCluster::new(2);
    for name in ["a", "b", "c"] {
        cluster.pod(name, &json!({}));
    }
    seconds(0.2).await;
    assert_eq!(cluster.pods(), ["a m1 - unready", "b m2 - unready", "c m1 - unready"]);
    seconds(3.0).await;
    assert_eq!(cluster.pods(), ["a m1 Running ready", "b m2 Running ready", "c m1 Running ready"]);
    cluster.end("a", 30);
    cluster.end("b", 0);
    seconds(0.01).await;
    assert_eq!(cluster.pods(), ["a m1 Running ready ending", "c m1 Running ready"]);
    seconds(3.0).await;
    assert_eq!(cluster.pods(), ["c m1 Running ready"]);
}

#[tokio::test(start_paused = true)]
async fn stuck_pods_and_those_with_finalizers_stay() {
    let cluster = TestCluster::new(1);
    cluster.pod("a", &json!({"metadata": {"annotations": {object_fields::STUCK: "true"}}}));
    cluster.pod("b", &json!({"metadata": {"finalizers": ["x/y"]}}));
    cluster.pod("c", &json!({"metadata": {"annotations": {object_fields::STOPS: "20"}}}));
    seconds(4.0).await;
    for name in ["a", "b", "c"] {
        cluster.end(name, 30);
    }
    seconds(19.0).await;
    assert_eq!(cluster.pods().len(), 3);
    seconds(2.0).await;
    assert_eq!(cluster.pods(), ["a m1 Running ready ending", "b m1 Running ready ending"]);
    cluster
        .objects
        .update(&PODS, "default", "a", |p| {
            p["metadata"]["annotations"] = json!({});
            Ok(())
        })
        .unwrap();
    cluster
        .objects
        .update(&PODS, "default", "b", |p| {
            p["metadata"]["finalizers"] = json!([]);
            Ok(())
        })
        .unwrap();
    seconds(4.0).await;
    assert!(cluster.pods().is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_a_node_that_cordon_taints_and_selector_allow() {
    let cluster = TestCluster::new(2);
    let cordon = |on: bool| {
        cluster.objects.update(&NODES, "", "m1", |n| {
            n["spec"]["unschedulable"] = json!(on);
            Ok(())
        })
    };
    cordon(true).unwrap();
    let taints = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    cluster
        .objects
        .update(&NODES, "", "m2", |n| {
            n["spec"]["taints"] = taints;
            Ok(())
        })
        .unwrap();
    cluster.pod("a", &json!({}));
    cluster.pod("b", &json!({"spec": {"tolerations": [{"key": "k", "value": "v"}]}}));
    cluster.pod("c", &json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "m1"}}}));
    seconds(5.0).await;
    assert_eq!(cluster.pods(), ["a - - unready", "b m2 Running ready", "c - - unready"]);
    assert_eq!(
        object_fields::condition_status(&cluster.objects.get(&PODS, "default", "a").unwrap(), "PodScheduled"),
        "False"
    );
    cordon(false).unwrap();
    seconds(5.0).await;
    assert_eq!(cluster.pods(), ["a m1 Running ready", "b m2 Running ready", "c m1 Running ready"]);
}

#[tokio::test(start_paused = true)]
async fn a_rebooting_node_is_not_ready_and_gets_a_new_boot_id() {
    let cluster = TestCluster::new(1);
    cluster.pod("a", &json!({}));
    cluster.pod("b", &json!({}));
    seconds(5.0).await;
    let boot = cluster.node("m1")["status"]["nodeInfo"]["bootID"].clone();
    cluster.command("reboot 10.0.0.1").await;
    cluster.end("b", 30);
    seconds(1.0).await;
    assert_eq!(cluster.node_ready("m1"), "True", "the failure is not detected yet");
    seconds(2.0).await;
    assert_eq!(cluster.node_ready("m1"), "Unknown");
    assert_eq!(cluster.pods(), ["a m1 Running unready", "b m1 Running unready ending"]);
    seconds(20.0).await;
    assert_eq!(cluster.node_ready("m1"), "True");
    assert_ne!(cluster.node("m1")["status"]["nodeInfo"]["bootID"], boot);
    assert_eq!(cluster.pods(), ["a m1 Running ready"]);
    let pod = cluster.objects.get(&PODS, "default", "a").unwrap();
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1);
    let revision = cluster.objects.revision();
    seconds(86_400.0).await;
    assert_eq!(cluster.objects.revision(), revision, "nothing is written while nothing happens");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_machine_that_never_boots_stay_terminating() {
    let cluster = TestCluster::with(1, Durations::demo(), &Behaviour { boot: OnBoot::Never, ..Behaviour::default() });
    cluster.pod("a", &json!({}));
    seconds(5.0).await;
    cluster.command("reboot 10.0.0.1").await;
    cluster.end("a", 1);
    seconds(10_000.0).await;
    assert_eq!(
        (cluster.node_ready("m1"), cluster.pods()),
        ("Unknown".into(), vec!["a m1 Running unready ending".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_disk_problem_delays_node_ready() {
    let cluster = TestCluster::with(
        1,
        Durations::demo(),
        &Behaviour { disk_trouble_seconds: Seconds::new(60.0), ..Behaviour::default() },
    );
    cluster.command("reboot 10.0.0.1").await;
    seconds(40.0).await;
    assert_eq!(cluster.node_ready("m1"), "False");
    seconds(60.0).await;
    assert_eq!(cluster.node_ready("m1"), "True");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_registered_with_a_new_uid_at_the_next_boot() {
    let cluster = TestCluster::new(1);
    let uid = cluster.node("m1")["metadata"]["uid"].clone();
    cluster.objects.remove(&NODES, "", "m1", |_| Ok(())).unwrap();
    cluster.command("reboot 10.0.0.1").await;
    seconds(30.0).await;
    assert_eq!(cluster.node_ready("m1"), "True");
    assert_ne!(cluster.node("m1")["metadata"]["uid"], uid);
}

#[tokio::test(start_paused = true)]
async fn mirror_pods_are_recreated_while_their_node_exists() {
    let cluster = TestCluster::new(1);
    let mirror = json!({"metadata": {"annotations": {object_fields::MIRROR: "x"}}, "spec": {"nodeName": "m1"}});
    cluster.pod("api", &mirror);
    seconds(5.0).await;
    cluster.end("api", 0);
    seconds(5.0).await;
    assert_eq!(cluster.pods(), ["api m1 Running ready"]);
}

#[tokio::test(start_paused = true)]
async fn frozen_kubelets_change_no_pods_until_they_thaw() {
    let cluster = TestCluster::new(1);
    cluster.pod("a", &json!({"spec": {"nodeName": "m1"}}));
    seconds(10.0).await;
    cluster.machines.freeze_kubelets(true);
    cluster.end("a", 1);
    cluster.pod("b", &json!({"spec": {"nodeName": "m1"}}));
    seconds(1000.0).await;
    assert_eq!(cluster.pods(), ["a m1 Running ready ending", "b m1 - unready"]);
    cluster.machines.freeze_kubelets(false);
    seconds(1.0).await;
    assert_eq!(cluster.pods(), ["b m1 Running ready"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_added_later_registers_its_node() {
    let cluster = TestCluster::new(1);
    seconds(5.0).await;
    let machine = Machine { name: "m2".to_owned(), address: "10.0.0.2".to_owned(), ..Machine::default() };
    assert!(cluster.machines.rack(machine));
    seconds(5.0).await;
    assert_eq!(cluster.node_ready("m2"), "True");
    assert_eq!(
        cluster.node("m2")["status"]["nodeInfo"]["bootID"],
        cluster.machines.machine_status("10.0.0.2").unwrap().boot_id
    );
}
