//! Reboot commands that do not exist, hang, print too much or die: each has its reason, and no other entry stops.

use cketerm_model::attempt::Attempt;
use serde_json::{Value, json};

use crate::world::{
    Options, World,
    cluster::{Machine, machines},
    history::changes,
    in_both_worlds, wait_for,
};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    a_missing_hanging_noisy_or_killed_command_is_named_and_blocks_no_other_entry,
}

fn a_missing_hanging_noisy_or_killed_command_is_named_and_blocks_no_other_entry(world: &World) {
    let all = machines(1, 5);
    world.add_nodes(&all);
    // the address is the last argument, so $0 in the shell
    let script = r"case $0 in
        10.0.1.11) sleep 600 ;;
        10.0.1.12) head -c 3000000 /dev/zero | tr '\0' x; printf '\033[31mred\a\033[0m\n' >&2; exit 3 ;;
        10.0.1.13) kill -SEGV $$ ;;
        10.0.1.14) exit 0 ;;
    esac";
    let reboot = json!({"reboot_command": ["bash", "-c", script], "boot_check_command": ["bash", "-c", "[ $0 = 10.0.1.14 ] && echo true"],
        "command_timeout_seconds": 3, "max_concurrent_reboots": 5});
    world.set_up(&all, &reboot);
    let daemon = world.daemon("engine");
    daemon.ready();
    let workers: Vec<_> = all.iter().filter(|m| !m.control_plane).take(4).collect();
    world.queue(&workers);
    wait_for("the entry with the working command is done", 30, || (!world.entries().contains_key(&3)).then_some(()));
    let why = |index: &str| world.run(&["rq", "why", index, "-o", "json"]);
    for (index, words) in [("0", "after 3 s"), ("1", "3"), ("2", "signal")] {
        world.wait_or_explain(index.parse().unwrap(), words, 30, || {
            let why = why(index);
            (why.contains("CommandFailed") && why.contains(words)).then_some(())
        });
    }
    assert!(!why("1").contains('\u{1b}') && why("1").contains("red"), "{}", why("1"));
    for change in changes(&world.etcd, "/cke/cketerm/attempts/") {
        let text = change.value.unwrap_or_default();
        assert!(text.len() < 20_000, "only the end of the output may be kept: {} bytes", text.len());
        assert!(!text.contains('\u{1b}') && !text.contains("\\u001b"), "control characters must be replaced: {text}");
    }
    // each command ran once: no retries were configured. On a busy machine one may be withheld first, and runs later
    let mut attempts: std::collections::BTreeMap<String, Attempt> = std::collections::BTreeMap::new();
    for change in changes(&world.etcd, "/cke/cketerm/attempts/").iter().filter(|change| change.value.is_some()) {
        attempts.insert(change.key.clone(), serde_json::from_value(change.json()).unwrap());
    }
    assert_eq!(attempts.values().filter(|attempt| attempt.began()).count(), 4, "{attempts:?}");

    // a missing program blocks only the entries that need it, and the reason names the program
    let mut missing = reboot.clone();
    missing["reboot_command"] = json!(["/no/such/program"]);
    for index in ["0", "1", "2"] {
        world.run(&["rq", "cancel", index]);
    }
    set(world, &all, &missing);
    world.queue(&[&all[5]]);
    world.wait_or_explain(4, "the reason names the missing program", 30, || {
        let why = why("4");
        (why.contains("ProgramMissing") && why.contains("/no/such/program")).then_some(())
    });
    assert_eq!(world.entries()[&4]["status"], "queued", "no drain may start for a command that cannot run");
}

fn set(world: &World, all: &[Machine], reboot: &Value) {
    let file = world.dir().join("cluster.yaml");
    std::fs::write(&file, world.definition(all, reboot).to_string()).unwrap();
    world.run(&["cluster", "set", &file.display().to_string()]);
}
