//! Results of commands whose leader was killed: any engine of the host records them, and the entry ends.

use serde_json::json;

use crate::world::{Options, World, cluster::machines, history::changes, in_both_worlds, wait_for};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    i25_i47_after_a_kill_during_the_command_the_entry_ends_once_the_machine_is_back,
    i25_i47_a_command_that_fails_after_its_leader_was_killed_is_retried,
    i14_done_ends_the_entry_and_the_cordon_stays_until_the_orphaned_command_ends,
}

/// The command may take an hour. Without its result it would be unknown for an hour whether it still runs.
fn i25_i47_after_a_kill_during_the_command_the_entry_ends_once_the_machine_is_back(world: &World) {
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.set_up(&all, &json!({"command_timeout_seconds": 3600}));
    world.set_command_seconds(6);
    world.queue(&[&all[1]]);
    let first = world.daemon("first");
    wait_for("the command runs", 60, || world.power().iter().any(|p| p.what == "begin").then_some(()));
    let results = world.dir().join("state/results");
    // other files in the directory are not results
    std::fs::write(results.join("reboots-0-1.1.json"), "{\"attempt\":\"reboots-0-1\",\"end\":{\"exit\":0}}").unwrap();
    std::fs::write(results.join("notes.txt"), "somebody's").unwrap();
    let second = world.daemon("second");
    second.ready();
    first.kill();
    world.wait_for_empty_queue(90);
    let once = world.power().iter().map(|p| p.what.clone()).collect::<Vec<_>>();
    assert_eq!(once, ["begin", "end"], "the command must run exactly once");
    wait_for("the node is uncordoned", 30, || world.cordoned().is_empty().then_some(()));

    let published = changes(&world.etcd, "/cke/cketerm/results/");
    let values: Vec<bool> = published.iter().map(|c| c.value.is_some()).collect();
    assert_eq!(values, [true, false], "the result must be created once and deleted once: {published:?}");
    assert_eq!(published[0].json()["outcome"]["end"], json!({"exit": 0}), "{published:?}");
    let left: Vec<_> = std::fs::read_dir(&results).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "only the result's own file is removed: {left:?}");
    assert!(second.logged().contains("notes.txt"), "{}", second.logged());
    let audit = world.run(&["audit", "-o", "json"]);
    assert!(audit.contains("report result") && audit.contains("take result"), "{audit}");
}

fn i25_i47_a_command_that_fails_after_its_leader_was_killed_is_retried(world: &World) {
    let all = machines(1, 1);
    world.add_nodes(&all);
    let log = world.dir().join("commands.log");
    let script = format!("echo begin >>{0}; sleep 4; echo end >>{0}; exit 7", log.display());
    let command = json!(["/bin/sh", "-c", script, "sh"]);
    let reboot = json!({"reboot_command": command, "command_timeout_seconds": 3600, "command_retries": 1});
    world.set_up(&all, &reboot);
    world.queue(&[&all[1]]);
    let seen = || std::fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    let first = world.daemon("first");
    wait_for("the command runs", 60, || (seen() == ["begin"]).then_some(()));
    let second = world.daemon("second");
    second.ready();
    first.kill();
    wait_for("the second attempt has ended", 90, || (seen() == ["begin", "end", "begin", "end"]).then_some(()));
    world.wait_or_explain(0, "the reason names the failed command", 60, || {
        world.run(&["rq", "why", "0", "-o", "json"]).contains("exit 7").then_some(())
    });
    assert_eq!(seen().len(), 4, "the command must be retried exactly once");
}

fn i14_done_ends_the_entry_and_the_cordon_stays_until_the_orphaned_command_ends(world: &World) {
    let all = machines(1, 1);
    world.add_nodes(&all);
    let (log, go) = (world.dir().join("commands.log"), world.dir().join("go"));
    let script = format!(
        "echo begin >>{0}; while [ ! -e {1} ]; do sleep 0.2; done; echo end >>{0}",
        log.display(),
        go.display()
    );
    let command = json!(["/bin/sh", "-c", script, "sh"]);
    world.set_up(&all, &json!({"reboot_command": command, "command_timeout_seconds": 3600}));
    world.queue(&[&all[1]]);
    let seen = || std::fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    let first = world.daemon("first");
    wait_for("the command runs", 60, || (seen() == ["begin"]).then_some(()));
    let second = world.daemon("second");
    second.ready();
    first.kill();
    wait_for("the second engine leads", 60, || (second.page("/readyz").1 == "leading\n").then_some(()));
    world.run(&["rq", "done", "0", "--reason", "the machine is back"]);
    world.wait_for_empty_queue(60);
    assert_eq!(
        (seen(), world.cordoned()),
        (vec!["begin".to_owned()], vec!["w1".to_owned()]),
        "the node stays cordoned while the command may run"
    );
    let history = world.run(&["history", "--ended", "-o", "json"]);
    assert!(history.contains("done by"), "{history}");
    std::fs::write(&go, "").unwrap();
    wait_for("the node is uncordoned", 60, || world.cordoned().is_empty().then_some(()));
    assert_eq!(seen(), ["begin", "end"], "no command may run twice");
    wait_for("the attempt is removed", 30, || {
        let left = changes(&world.etcd, "/cke/cketerm/attempts/");
        left.last().is_some_and(|change| change.value.is_none()).then_some(())
    });
}
