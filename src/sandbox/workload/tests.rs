//! Tests: a population is built, and nothing changes in it by itself.

use std::time::Duration;

use super::*;
use crate::{
    clock::Clock,
    sandbox::{
        durations::Durations,
        kubernetes::{
            Objects,
            controllers::Controllers,
            resource::{BUDGETS, DAEMON_SETS, DEPLOYMENTS, JOBS, NAMESPACES, NODES, PODS},
        },
        machines::Machines,
    },
};

struct Room {
    objects: Objects,
    controllers: Option<Controllers>,
}

fn room(population: &Population) -> Room {
    let clock = Clock::tokio("2026-11-21T00:00:00Z".parse().unwrap());
    let machines = Machines::new(population.machines(), Durations::demo(), clock.clone(), 1);
    let objects = Objects::new(clock);
    population.settle(&objects, &machines).unwrap();
    let controllers = Some(Controllers::start(objects.clone(), machines, Durations::demo(), 2));
    Room { objects, controllers }
}

#[test]
fn machines_have_names_addresses_and_racks_of_their_own() {
    let population = Population { nodes: 5_000, ..Population::default() };
    let machines = population.machines();
    let of = |f: fn(&Machine) -> &String| machines.iter().map(f).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!((of(|m| &m.name), of(|m| &m.address)), (5_000, 5_000));
    assert!(machines.iter().all(|m| m.address.parse::<std::net::Ipv4Addr>().is_ok()));
    assert_eq!(machines.iter().filter(|m| m.control_plane).count(), 3);
    assert_eq!((machines[0].name.as_str(), machines[4_999].name.as_str()), ("cp1", "w4997"));
}

#[test]
fn a_scenario_may_say_it_and_only_what_is_known() {
    let text = "
nodes: 8
pods_per_node: 4
workloads:
  - {namespace: db, name: pg, kind: stateful_set, replicas: 3, budget: {max_unavailable: 1}}
  - {name: stuck, kind: bare, stuck: true, node: w2, budget: {min_available: 50%}}
behaviours:
  w3: {command: hangs}
boots:
  w1: {seconds: 3}
";
    let population: Population = serde_yaml::from_str(text).unwrap();
    assert_eq!(population.workloads[0].kind, Kind::StatefulSet);
    let again: Population = serde_yaml::from_str(&serde_yaml::to_string(&population).unwrap()).unwrap();
    assert_eq!(again, population);
    let machines = population.machines();
    assert_eq!((machines.len(), machines[3].boot), (8, Some(Span::exactly(3.0))));
    assert_ne!(machines[5].behaviour, Behaviour::default());
    assert!(serde_yaml::from_str::<Population>("{node: 8}").is_err());
    assert!(serde_yaml::from_str::<Population>("workloads: [{replica: 8}]").is_err());
}

#[tokio::test(start_paused = true)]
async fn the_usual_population_runs_and_stays_as_it_is() {
    let population = Population { nodes: 23, ..Population::default() };
    let room = room(&population);
    let before: Vec<_> = room.objects.list(&PODS, "").0.iter().map(|p| p["metadata"]["uid"].clone()).collect();
    assert_eq!(room.objects.list(&NODES, "").0.len(), 23);
    assert!((200..=230).contains(&before.len()), "{}", before.len());
    tokio::time::sleep(Duration::from_mins(1)).await;
    let after: Vec<_> = room.objects.list(&PODS, "").0;
    assert!(before.iter().eq(after.iter().map(|p| &p["metadata"]["uid"])), "nobody was replaced");
    assert!(after.iter().all(|p| p["status"]["phase"] == "Running"));
    for budget in room.objects.list(&BUDGETS, "").0 {
        assert!(budget["status"]["disruptionsAllowed"].as_i64().unwrap() > 0, "{budget}");
    }
    for deployment in room.objects.list(&DEPLOYMENTS, "").0 {
        assert_eq!(deployment["status"]["readyReplicas"], deployment["spec"]["replicas"]);
    }
    for set in room.objects.list(&DAEMON_SETS, "").0 {
        assert_eq!(set["status"]["numberReady"], 23);
    }
    let protected = |n: &std::sync::Arc<serde_json::Value>| n["metadata"]["labels"][PROTECTED] == "true";
    assert_eq!(room.objects.list(&NAMESPACES, "").0.iter().filter(|n| protected(n)).count(), 3);
    let revision = room.objects.revision();
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(room.objects.revision(), revision, "idle");
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert!(room.objects.list(&JOBS, "").0.iter().all(|j| j["status"]["succeeded"] == 1));
    drop(room.controllers);
}

#[tokio::test(start_paused = true)]
async fn static_and_bare_pods_stand_where_they_should() {
    let text = "
nodes: 4
control_planes: 1
pods_per_node: 0
workloads:
  - {namespace: kube-system, name: vip, kind: static}
  - {name: one, kind: bare, node: w2}
";
    let room = room(&serde_yaml::from_str(text).unwrap());
    tokio::time::sleep(Duration::from_mins(1)).await;
    let line = |p: &std::sync::Arc<serde_json::Value>| {
        format!("{} {}", p["metadata"]["name"].as_str().unwrap(), p["spec"]["nodeName"].as_str().unwrap())
    };
    let pods: Vec<_> = room.objects.list(&PODS, "").0.iter().map(line).collect();
    assert_eq!(pods, ["one w2", "vip-cp1 cp1"]);
}
