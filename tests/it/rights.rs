//! docs/rbac.yaml: with exactly those rights each user does its work, requests nothing else, and names missing rights.

use serde_json::json;

use crate::world::{
    Options, World,
    cluster::machines,
    program::{Daemon, cketerm, config},
    wait_for,
};

#[test]
fn an_engine_with_exactly_the_documented_rights_reboots_workers_and_api_servers() {
    let Some(world) = World::start(Options { kcm: true, kwok: true, audit: true, ..Options::default() }) else {
        return;
    };
    let all = machines(2, 1);
    world.add_nodes(&all);
    for i in 0..2 {
        world.add_pod("default", &format!("web-{i}"), "w1", "web", None);
    }
    let job = world.add_job("default", "batch");
    world.add_pod("default", "batch-0", "w1", "batch", Some(&job));
    world.wait_for_running_pods("default");
    world.add_budget("default", "web", "web", 0);
    // the job's pods are not protected, so they are deleted
    let reboot = json!({"protected_job_pods": {"matchLabels": {"protected": "yes"}}});
    world.set_up(&all, &reboot);
    let kubeconfig = world.granted("engine", &["cketerm", "cketerm-endpoints", "cketerm-hosts-view"]);
    let settings = config(world.dir(), "least.yaml", &world.etcd, Some(&kubeconfig), 5);
    let daemon = Daemon::start(world.dir(), &settings, "least");
    daemon.ready();
    world.queue(&[&all[0], &all[2]]);
    world.wait_for_empty_queue(120);
    wait_for("the nodes are uncordoned", 20, || world.cordoned().is_empty().then_some(()));
    let begun: Vec<String> = world.power().into_iter().filter(|p| p.what == "begin").map(|p| p.address).collect();
    assert_eq!(
        begun,
        [all[2].address.clone(), all[0].address.clone()],
        "the worker must be rebooted before the API server"
    );
    assert_eq!(
        world.refused("engine"),
        Vec::<String>::new(),
        "the engine uses rights that docs/rbac.yaml does not grant"
    );

    // no granted right is unused, except `patch events`: one reboot repeats no event
    let mut unused = world.unused("engine", "cketerm");
    // `list` is for servers without streaming lists: elsewhere the watch starts with the list
    let streamed = |right: &str| right.strip_prefix("list ").is_some_and(|what| world.asked("engine", "watch", what));
    unused.retain(|right| right != "patch events" && !streamed(right));
    assert_eq!(unused, Vec::<String>::new(), "docs/rbac.yaml grants rights that the engine does not use");

    // a policy that needs one more right: the doctor names the right and its role
    world.run(&["policy", "set", "node_conditions", "true"]);
    let doctor = cketerm(&settings, &["doctor", "--problems"]);
    assert!(doctor.stdout.contains("must not patch nodes/status"), "{} {}", doctor.stdout, doctor.stderr);
    assert!(doctor.stdout.contains("cketerm-conditions"), "{}", doctor.stdout);
    world.run(&["policy", "set", "node_conditions", "false"]);

    // without a right the engine observes, and names the missing right and the document that grants it
    drop(daemon);
    let kubeconfig = world.granted("blind", &["cketerm-hosts"]);
    let settings = config(world.dir(), "blind.yaml", &world.etcd, Some(&kubeconfig), 5);
    let daemon = Daemon::start(world.dir(), &settings, "blind");
    let page = wait_for("/readyz names the missing rights", 30, || {
        let (_, page) = daemon.page("/readyz");
        // before the rights are reviewed, Kubernetes "does not answer yet"
        page.contains("missing rights").then_some(page)
    });
    assert!(page.contains("observing"), "{page}");
    assert!(page.contains("nodes") && page.contains("docs/rbac.yaml"), "{page}");
}

#[test]
fn a_manual_action_without_the_right_names_it_and_does_nothing() {
    let Some(world) = World::start(Options { kwok: true, audit: true, ..Options::default() }) else { return };
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    let kubeconfig = world.granted("looker", &["cketerm-hosts"]);
    let settings = config(world.dir(), "looker.yaml", &world.etcd, Some(&kubeconfig), 5);
    let output = cketerm(&settings, &["nodes", "cordon", "w1"]);
    assert!(
        output.code != 0 && output.stderr.contains("nodes") && output.stderr.contains("docs/rbac.yaml"),
        "{}",
        output.stderr
    );
    assert!(world.cordoned().is_empty());
    let info = cketerm(&settings, &["info", "-o", "json"]);
    let info: serde_json::Value = serde_json::from_str(&info.stdout).expect("JSON");
    let lacking: Vec<&str> =
        info["you may not change"].as_array().expect("a list").iter().filter_map(|w| w.as_str()).collect();
    let [nodes] = lacking.as_slice() else { panic!("{lacking:?}") };
    assert!(nodes.contains("does not let this account patch Nodes; grant"), "{nodes}");
    // commands that need only etcd need no right in Kubernetes
    assert_eq!(cketerm(&settings, &["rq", "disable"]).code, 0);
    assert_eq!(cketerm(&settings, &["rq", "list"]).stdout.trim(), "[]");
}
