//! Tests: a population is built, and nothing changes in it by itself.

use std::time::Duration;

use super::*;
use crate::{
    durations::Durations,
    kubernetes::{
        Objects,
        controllers::Controllers,
        resource::{BUDGETS, DAEMON_SETS, DEPLOYMENTS, JOBS, NAMESPACES, NODES, PODS},
    },
    machines::Machines,
};

struct TestCluster {
    objects: Objects,
    controllers: Option<Controllers>,
}

fn cluster(population: &Population) -> TestCluster {
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-11-21T00:00:00Z".parse().unwrap());
    let machines = Machines::new(population.machines(), Durations::demo(), clock.clone(), 1);
    let objects = Objects::new(clock);
    population.create_objects(&objects, &machines).unwrap();
    let controllers = Some(Controllers::start(objects.clone(), machines, Durations::demo(), 2));
    TestCluster { objects, controllers }
}

#[test]
fn five_thousand_machines_have_unique_names_and_addresses() {
    let population = Population { nodes: 5_000, ..Population::default() };
    let machines = population.machines();
    let of = |f: fn(&Machine) -> &String| machines.iter().map(f).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!((of(|m| &m.name), of(|m| &m.address)), (5_000, 5_000));
    assert!(machines.iter().all(|m| m.address.parse::<std::net::Ipv4Addr>().is_ok()));
    assert_eq!(machines.iter().filter(|m| m.control_plane).count(), 3);
    assert_eq!((machines[0].name.as_str(), machines[4_999].name.as_str()), ("cp1", "w4997"));
}

#[test]
fn a_population_round_trips_as_yaml_and_rejects_unknown_fields() {
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
    assert_eq!((machines.len(), machines[3].boot), (8, Some(RandomDuration::exactly(3.0))));
    assert_ne!(machines[5].behaviour, Behaviour::default());
    assert!(serde_yaml::from_str::<Population>("{node: 8}").is_err());
    assert!(serde_yaml::from_str::<Population>("workloads: [{replica: 8}]").is_err());
}

#[tokio::test(start_paused = true)]
async fn the_default_population_is_stable() {
    let population = Population { nodes: 23, ..Population::default() };
    let cluster = cluster(&population);
    let before: Vec<_> = cluster.objects.list(&PODS, "").0.iter().map(|p| p["metadata"]["uid"].clone()).collect();
    assert_eq!(cluster.objects.list(&NODES, "").0.len(), 23);
    assert!((200..=230).contains(&before.len()), "{}", before.len());
    tokio::time::sleep(Duration::from_mins(1)).await;
    let after: Vec<_> = cluster.objects.list(&PODS, "").0;
    assert!(before.iter().eq(after.iter().map(|p| &p["metadata"]["uid"])), "no pod was replaced");
    assert!(after.iter().all(|p| p["status"]["phase"] == "Running"));
    for budget in cluster.objects.list(&BUDGETS, "").0 {
        assert!(budget["status"]["disruptionsAllowed"].as_i64().unwrap() > 0, "{budget}");
    }
    for deployment in cluster.objects.list(&DEPLOYMENTS, "").0 {
        assert_eq!(deployment["status"]["readyReplicas"], deployment["spec"]["replicas"]);
    }
    for set in cluster.objects.list(&DAEMON_SETS, "").0 {
        assert_eq!(set["status"]["numberReady"], 23);
    }
    let protected = |n: &std::sync::Arc<serde_json::Value>| n["metadata"]["labels"][PROTECTED] == "true";
    assert_eq!(cluster.objects.list(&NAMESPACES, "").0.iter().filter(|n| protected(n)).count(), 3);
    let revision = cluster.objects.revision();
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(cluster.objects.revision(), revision, "idle");
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert!(cluster.objects.list(&JOBS, "").0.iter().all(|j| j["status"]["succeeded"] == 1));
    drop(cluster.controllers);
}

#[tokio::test(start_paused = true)]
async fn static_and_bare_pods_are_bound_to_their_nodes() {
    let text = "
nodes: 4
control_planes: 1
pods_per_node: 0
workloads:
  - {namespace: kube-system, name: vip, kind: static}
  - {name: one, kind: bare, node: w2}
";
    let cluster = cluster(&serde_yaml::from_str(text).unwrap());
    tokio::time::sleep(Duration::from_mins(1)).await;
    let line = |p: &std::sync::Arc<serde_json::Value>| {
        format!("{} {}", p["metadata"]["name"].as_str().unwrap(), p["spec"]["nodeName"].as_str().unwrap())
    };
    let pods: Vec<_> = cluster.objects.list(&PODS, "").0.iter().map(line).collect();
    assert_eq!(pods, ["one w2", "vip-cp1 cp1"]);
}
