//! Signals of Nodes that need a reboot (policy `reboot_needed_signals`).

use cketerm_model::{
    kube::NodeRow,
    policy::RebootNeeded,
    reboot_signals::{REBOOT_NEEDED_ANNOTATION, Signals},
};

use super::{
    reboot_needed::{annotate, asks, name, scene},
    scene::Scene,
};
use crate::reboot_needed::signals::{ShownSignals, SignalCache, shown};

#[test]
fn each_source_shows_its_cause() {
    let causes = |signals: &str, change: fn(&mut NodeRow)| -> Vec<String> {
        let mut node = NodeRow { kernel: "6.12.58".into(), os_image: "Flatcar 4230".into(), ..NodeRow::default() };
        change(&mut node);
        shown(&Signals::read(signals).unwrap(), &node).into_iter().map(|shown| shown.cause).collect()
    };
    let condition = |node: &mut NodeRow| {
        node.conditions =
            [("KernelDeadlock".to_owned(), "True".to_owned()), ("UpToDate".to_owned(), "False".to_owned())]
                .into_iter()
                .collect();
    };
    assert_eq!(causes("[node-problem-detector]", condition), ["KernelDeadlock"]);
    assert_eq!(causes("[{condition: KernelDeadlock}, node-problem-detector]", condition), ["KernelDeadlock"]);
    assert_eq!(causes("[{condition: UpToDate, status: 'False'}]", condition), ["UpToDate is False"]);
    assert_eq!(causes("[{kernel: 6.12.60}]", |_| ()), ["kernel 6.12.60"]);
    assert!(causes("[{kernel: 6.12.58}]", |_| ()).is_empty());
    assert!(causes("[{kernel: 6.12.60}]", |node| node.kernel = "".into()).is_empty(), "not reported yet");
    assert_eq!(causes("[{os_image: Flatcar 4231}]", |_| ()), ["OS image Flatcar 4231"]);
    let flatcar =
        |node: &mut NodeRow| annotate(node, "flatcar-linux-update.v1.flatcar-linux.net/reboot-needed", "true");
    assert_eq!(causes("[flatcar]", flatcar), ["Flatcar update"]);
    assert!(
        causes("[flatcar]", |n| annotate(n, "flatcar-linux-update.v1.flatcar-linux.net/reboot-needed", "false"))
            .is_empty()
    );
    let own = "[{annotation: cketerm.io/reboot-needed}]";
    assert_eq!(causes(own, |n| annotate(n, REBOOT_NEEDED_ANNOTATION, "new kernel")), ["new kernel"]);
    assert_eq!(causes(own, |n| annotate(n, REBOOT_NEEDED_ANNOTATION, "true")), ["cketerm.io/reboot-needed=true"]);
    assert!(causes(own, |n| annotate(n, REBOOT_NEEDED_ANNOTATION, "false")).is_empty());
    let by_agent = |node: &mut NodeRow| {
        annotate(node, REBOOT_NEEDED_ANNOTATION, "sentinel /run/reboot-required: linux-image-6.1, libc6");
    };
    assert_eq!(causes(own, by_agent), ["sentinel /run/reboot-required"], "one batch for all packages");
    let label =
        |node: &mut NodeRow| node.described.labels = [("a/b".to_owned(), "soon".to_owned())].into_iter().collect();
    assert_eq!(causes("[{label: a/b, value: soon}]", label), ["a/b=soon"]);
    assert!(causes("[{label: a/b, value: now}]", label).is_empty());
}

/// The cache follows changes of the Nodes and of the policy.
#[test]
fn the_cache_gives_the_same_as_a_look_at_all_nodes() {
    let mut cache = SignalCache::default();
    let mut scene = scene(RebootNeeded::Propose);
    let mut check = |scene: &Scene, count: usize| {
        let cached = cache.look(&scene.policy, &scene.kube);
        assert_eq!(*cached, ShownSignals::of(&scene.policy, &scene.kube));
        assert_eq!(cached.by_node.len(), count);
    };
    check(&scene, 0);
    scene = asks(asks(scene, 11, "kernel"), 12, "kernel");
    check(&scene, 2);
    scene = scene.node(11, |node| node.described.annotations = [].into_iter().collect());
    check(&scene, 1);
    scene.kube.remove_node(&name(12));
    check(&scene, 0);
    scene = asks(scene, 13, "kernel");
    scene.policy.reboot_needed_signals = Signals::read("none").unwrap();
    check(&scene, 0);
    scene.policy.reboot_needed_signals = Signals::default();
    check(&scene, 1);
    scene.policy.reboot_needed = RebootNeeded::Off;
    check(&scene, 0);
}
