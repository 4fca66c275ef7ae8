//! Output of a command while it runs: visible before the command ends, gone afterwards, and never in its way.

use serde_json::{Value, json};

use crate::world::{
    Options, World,
    cluster::machines,
    history::{changes, value},
    wait_for,
};

const OUTPUT: &str = "/cke/cketerm/output/reboots-0-1";
const ATTEMPT: &str = "/cke/cketerm/attempts/reboots/0/1";

/// Only on real servers: the sandbox cannot stall its etcd.
#[test]
fn the_output_of_a_running_command_is_visible_and_a_stalled_etcd_does_not_delay_its_end() {
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let all = machines(1, 1);
    world.add_nodes(&all);
    let (log, go) = (world.dir().join("commands.log"), world.dir().join("go"));
    let script = format!(
        "echo begin >>{0}; echo 'logged in with password: hunter2'; \
         while [ ! -e {1} ]; do echo waiting for the BMC >&2; sleep 0.3; done; echo done; echo end >>{0}",
        log.display(),
        go.display()
    );
    let command = json!(["/bin/sh", "-c", script, "sh"]);
    world.set_up(&all, &json!({"reboot_command": command, "command_timeout_seconds": 3600}));
    world.queue(&[&all[1]]);
    let ended = || std::fs::read_to_string(&log).unwrap_or_default().contains("end").then_some(());
    let _daemon = world.daemon("only");
    let shown = wait_for("the output is visible while the command runs", 60, || value(&world.etcd, OUTPUT));
    assert!(shown.contains("logged in with password: ***") && !shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("waiting for the BMC"), "{shown}");
    assert!(ended().is_none(), "the command still runs");

    // a write of the output waits for etcd while the command ends
    world.act("freeze", "etcd");
    std::thread::sleep(std::time::Duration::from_secs(3));
    std::fs::write(&go, "").unwrap();
    wait_for("the command ends while etcd is stalled", 30, ended);
    world.act("thaw", "etcd");
    let outcome = wait_for("its outcome is recorded", 90, || {
        let attempt: Value = serde_json::from_str(&value(&world.etcd, ATTEMPT)?).expect("an attempt");
        attempt["outcome"].is_object().then(|| attempt["outcome"].clone())
    });
    assert_eq!(outcome["end"], json!({"exit": 0}), "{outcome}");
    assert!(outcome["stdout"].as_str().is_some_and(|text| text.ends_with("done\n")), "{outcome}");
    wait_for("the published output is gone", 60, || value(&world.etcd, OUTPUT).is_none().then_some(()));
    let written = changes(&world.etcd, OUTPUT);
    assert!(written.iter().all(|c| c.value.as_ref().is_none_or(|text| !text.contains("hunter2"))), "{written:?}");
    assert!(written.last().is_some_and(|c| c.value.is_none()), "{written:?}");
}
