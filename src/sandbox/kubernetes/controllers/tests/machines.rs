//! Kubelets, Nodes and the scheduler.

use super::*;
use crate::sandbox::machines::OnBoot;

#[tokio::test(start_paused = true)]
async fn pods_are_spread_start_and_end_within_their_grace() {
    let room = Room::new(2);
    for name in ["a", "b", "c"] {
        room.pod(name, &json!({}));
    }
    seconds(0.2).await;
    assert_eq!(room.pods(), ["a m1 - unready", "b m2 - unready", "c m1 - unready"]);
    seconds(3.0).await;
    assert_eq!(room.pods(), ["a m1 Running ready", "b m2 Running ready", "c m1 Running ready"]);
    room.end("a", 30);
    room.end("b", 0);
    seconds(0.01).await;
    assert_eq!(room.pods(), ["a m1 Running ready ending", "c m1 Running ready"]);
    seconds(3.0).await;
    assert_eq!(room.pods(), ["c m1 Running ready"]);
}

#[tokio::test(start_paused = true)]
async fn stuck_pods_and_those_with_finalizers_stay() {
    let room = Room::new(1);
    room.pod("a", &json!({"metadata": {"annotations": {shape::STUCK: "true"}}}));
    room.pod("b", &json!({"metadata": {"finalizers": ["x/y"]}}));
    room.pod("c", &json!({"metadata": {"annotations": {shape::STOPS: "20"}}}));
    seconds(4.0).await;
    for name in ["a", "b", "c"] {
        room.end(name, 30);
    }
    seconds(19.0).await;
    assert_eq!(room.pods().len(), 3);
    seconds(2.0).await;
    assert_eq!(room.pods(), ["a m1 Running ready ending", "b m1 Running ready ending"]);
    room.objects
        .update(&PODS, "default", "a", |p| {
            p["metadata"]["annotations"] = json!({});
            Ok(())
        })
        .unwrap();
    room.objects
        .update(&PODS, "default", "b", |p| {
            p["metadata"]["finalizers"] = json!([]);
            Ok(())
        })
        .unwrap();
    seconds(4.0).await;
    assert!(room.pods().is_empty());
}

#[tokio::test(start_paused = true)]
async fn cordons_taints_and_selectors_keep_pods_away_until_a_node_opens() {
    let room = Room::new(2);
    let cordon = |on: bool| {
        room.objects.update(&NODES, "", "m1", |n| {
            n["spec"]["unschedulable"] = json!(on);
            Ok(())
        })
    };
    cordon(true).unwrap();
    let taints = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    room.objects
        .update(&NODES, "", "m2", |n| {
            n["spec"]["taints"] = taints;
            Ok(())
        })
        .unwrap();
    room.pod("a", &json!({}));
    room.pod("b", &json!({"spec": {"tolerations": [{"key": "k", "value": "v"}]}}));
    room.pod("c", &json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "m1"}}}));
    seconds(5.0).await;
    assert_eq!(room.pods(), ["a - - unready", "b m2 Running ready", "c - - unready"]);
    assert_eq!(shape::says(&room.objects.get(&PODS, "default", "a").unwrap(), "PodScheduled"), "False");
    cordon(false).unwrap();
    seconds(5.0).await;
    assert_eq!(room.pods(), ["a m1 Running ready", "b m2 Running ready", "c m1 Running ready"]);
}

#[tokio::test(start_paused = true)]
async fn a_reboot_makes_the_node_not_ready_and_gives_it_another_boot_id() {
    let room = Room::new(1);
    room.pod("a", &json!({}));
    room.pod("b", &json!({}));
    seconds(5.0).await;
    let boot = room.node("m1")["status"]["nodeInfo"]["bootID"].clone();
    room.command("reboot 10.0.0.1").await;
    room.end("b", 30);
    seconds(1.0).await;
    assert_eq!(room.node_ready("m1"), "True", "nobody has noticed yet");
    seconds(2.0).await;
    assert_eq!(room.node_ready("m1"), "Unknown");
    assert_eq!(room.pods(), ["a m1 Running unready", "b m1 Running unready ending"]);
    seconds(20.0).await;
    assert_eq!(room.node_ready("m1"), "True");
    assert_ne!(room.node("m1")["status"]["nodeInfo"]["bootID"], boot);
    assert_eq!(room.pods(), ["a m1 Running ready"]);
    let pod = room.objects.get(&PODS, "default", "a").unwrap();
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1);
    let revision = room.objects.revision();
    seconds(86_400.0).await;
    assert_eq!(room.objects.revision(), revision, "nothing is written while nothing happens");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_never_comes_back_holds_its_pods() {
    let room = Room::with(1, Durations::demo(), &Behaviour { boot: OnBoot::Never, ..Behaviour::default() });
    room.pod("a", &json!({}));
    seconds(5.0).await;
    room.command("reboot 10.0.0.1").await;
    room.end("a", 1);
    seconds(10_000.0).await;
    assert_eq!((room.node_ready("m1"), room.pods()), ("Unknown".into(), vec!["a m1 Running unready ending".into()]));
}

#[tokio::test(start_paused = true)]
async fn trouble_with_a_disk_keeps_the_node_not_ready_for_a_while() {
    let room = Room::with(1, Durations::demo(), &Behaviour { disk_trouble_seconds: 60.0, ..Behaviour::default() });
    room.command("reboot 10.0.0.1").await;
    seconds(40.0).await;
    assert_eq!(room.node_ready("m1"), "False");
    seconds(60.0).await;
    assert_eq!(room.node_ready("m1"), "True");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_registered_again_by_the_next_boot_with_another_uid() {
    let room = Room::new(1);
    let uid = room.node("m1")["metadata"]["uid"].clone();
    room.objects.remove(&NODES, "", "m1", |_| Ok(())).unwrap();
    room.command("reboot 10.0.0.1").await;
    seconds(30.0).await;
    assert_eq!(room.node_ready("m1"), "True");
    assert_ne!(room.node("m1")["metadata"]["uid"], uid);
}

#[tokio::test(start_paused = true)]
async fn static_pods_come_back_for_as_long_as_their_node_is_there() {
    let room = Room::new(1);
    let mirror = json!({"metadata": {"annotations": {shape::MIRROR: "x"}}, "spec": {"nodeName": "m1"}});
    room.pod("api", &mirror);
    seconds(5.0).await;
    room.end("api", 0);
    seconds(5.0).await;
    assert_eq!(room.pods(), ["api m1 Running ready"]);
}

#[tokio::test(start_paused = true)]
async fn frozen_kubelets_leave_pods_as_they_are_and_catch_up_when_they_thaw() {
    let room = Room::new(1);
    room.pod("a", &json!({"spec": {"nodeName": "m1"}}));
    seconds(10.0).await;
    room.machines.freeze_kubelets(true);
    room.end("a", 1);
    room.pod("b", &json!({"spec": {"nodeName": "m1"}}));
    seconds(1000.0).await;
    assert_eq!(room.pods(), ["a m1 Running ready ending", "b m1 - unready"]);
    room.machines.freeze_kubelets(false);
    seconds(1.0).await;
    assert_eq!(room.pods(), ["b m1 Running ready"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_brought_later_registers_its_node() {
    let room = Room::new(1);
    seconds(5.0).await;
    let machine = Machine { name: "m2".to_owned(), address: "10.0.0.2".to_owned(), ..Machine::default() };
    assert!(room.machines.rack(machine));
    seconds(5.0).await;
    assert_eq!(room.node_ready("m2"), "True");
    assert_eq!(room.node("m2")["status"]["nodeInfo"]["bootID"], room.machines.look("10.0.0.2").unwrap().boot_id);
}
