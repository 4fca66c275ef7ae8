//! The built console in a real terminal.

mod appearance;
mod leading;
pub mod terminal;

use serde_json::json;
use terminal::Console;

use crate::world::{Options, World, cluster::machines, free_port, program::config, wait_for};

/// A configuration that names unreachable servers.
pub(crate) fn unreachable_config(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("cketerm-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let kubeconfig = dir.join("kubeconfig");
    let cluster = json!({"name": "c", "cluster": {"server": format!("http://127.0.0.1:{}", free_port())}});
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    config(&dir, "config.yaml", &format!("http://127.0.0.1:{}", free_port()), Some(&kubeconfig), 5)
}

#[test]
fn the_first_frame_appears_before_etcd_answers_and_q_restores_the_terminal() {
    let mut console = Console::start(&unreachable_config("first"), &[], 80, 24);
    let text = console.wait_for_text("connecting to etcd at http://127.0.0.1:", 5);
    assert!(text.contains("1 Reboots") && text.contains("? help"), "{text}");
    console.wait_for_terminal_mode(true);
    console.resize(50, 10);
    console.wait_for_text("too small: 60x15 at least", 5);
    console.resize(100, 30);
    console.wait_for_text("connecting to etcd", 5);
    console.press("?");
    console.wait_for_text("Keys: j k scroll", 5);
    console.press("q");
    console.wait_for_text("connecting to etcd", 5);
    console.press("q");
    assert_eq!(console.wait_for_end(15), 0);
    console.wait_for_terminal_mode(false);
}

#[test]
fn a_console_without_etcd_shows_the_error_and_keeps_running() {
    let console = Console::start(&unreachable_config("wrong"), &["--observe"], 80, 24);
    console.wait_for_text("refused", 20);
}

/// The console writes the file of a user's columns. A file that cannot be read is never lost.
#[test]
fn column_settings_are_saved_and_an_unreadable_file_is_backed_up() {
    let config = unreachable_config("columns");
    let home = tempfile::TempDir::new().unwrap();
    let path = home.path().join(".config/cketerm/console.yaml");
    let (config, args) = (config.display().to_string(), ["--observe", "--view", "nodes"]);
    let start = || Console::at(home.path(), &[&["--config", &config], args.as_slice()].concat(), 200, 24);
    let mut console = start();
    console.wait_for_text("NODE     STATE", 5);
    console.press(":columns rack,node\r");
    console.wait_for_text("RACK NODE", 5);
    console.press("q");
    assert_eq!(console.wait_for_end(15), 0);
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept.contains("nodes:") && kept.contains("- rack"), "{kept}");
    let mut console = start();
    console.wait_for_text("RACK NODE", 5);
    console.press("q");
    assert_eq!(console.wait_for_end(15), 0);

    std::fs::write(&path, "version: 0\nof: somebody\n").unwrap();
    let mut console = start();
    console.wait_for_text("it is ignored: it has version 0", 5);
    console.press(":columns node\r");
    console.wait_for_text("console.yaml.broken", 5);
    console.press(":settings forget\r");
    console.wait_for_text("NODE     STATE", 5);
    console.press("q");
    assert_eq!(console.wait_for_end(15), 0);
    assert!(!path.exists());
    let aside = std::fs::read_to_string(path.with_extension("yaml.broken")).unwrap();
    assert_eq!(aside, "version: 0\nof: somebody\n");
}

#[test]
fn signals_restore_the_terminal_and_a_stopped_console_resumes() {
    for signal in ["TERM", "HUP", "INT"] {
        let mut console = Console::start(&unreachable_config("signals"), &["--observe"], 80, 24);
        console.wait_for_text("connecting", 5);
        console.signal(signal);
        assert_eq!(console.wait_for_end(15), 0, "{signal}");
        console.wait_for_terminal_mode(false);
    }
    let mut console = Console::start(&unreachable_config("signals"), &["--observe"], 80, 24);
    console.wait_for_text("connecting", 5);
    for stop in ["TSTP", "\u{1a}"] {
        if stop == "TSTP" {
            console.signal(stop);
        } else {
            console.press(stop);
        }
        wait_for("the console is stopped", 15, || (console.state() == 'T').then_some(()));
        console.wait_for_terminal_mode(false);
        console.signal("CONT");
        console.wait_for_text("connecting", 5);
        console.wait_for_terminal_mode(true);
    }
    console.press("q");
    assert_eq!(console.wait_for_end(15), 0);
}

#[test]
fn a_blocked_drain_is_cancelled_and_a_reboot_is_queued_by_keyboard() {
    let Some(world) = World::start(Options { kcm: true, kwok: true, ..Options::default() }) else { return };
    let machines = machines(1, 2);
    world.add_nodes(&machines);
    world.set_up(&machines, &json!({"evict_retries": 100, "evict_interval": 2}));
    world.add_pod("default", "web-1", "w1", "web", None);
    world.wait_for_running_pods("default");
    world.add_budget("default", "web", "web", 1);

    let mut console = Console::start(&world.config(), &[], 80, 24);
    console.wait_for_text("Let this console lead?", 30);
    console.press("y");
    console.wait_for_text("● leading", 30);
    console.press("2j");
    console.wait_for_text("> w1", 5);
    console.press("Rkernel");
    console.wait_for_text("kernel", 10);
    console.press("\ry");
    console.wait_for_text("queued 1 reboot: reboots/0", 10);
    console.press("1");
    // with the cause, which may be looked up meanwhile, the reason says that the budget never allows it
    console.wait_for_text("needs its one pod", 20);
    console.press("n\r");
    let text = console.wait_for_text("default/web-1  pdb default/web", 5);
    assert!(text.contains("Pods: 0 of 1 gone, 1 left") && text.contains("kernel"), "{text}");
    console.press("X");
    console.wait_for_text("Cancel 1 reboot?", 5);
    console.press("\ry");
    console.wait_for_text("cancelled reboots/0", 10);
    world.wait_for_empty_queue(10);
    wait_for("w1 is uncordoned", 20, || world.cordoned().is_empty().then_some(()));

    console.press("2");
    console.wait_for_text("NODE", 5);
    console.press("G");
    console.wait_for_text("> w2", 5);
    console.press("R");
    console.wait_for_text("Reboot 1 machine?", 10);
    console.press("\ry");
    console.wait_for_text("queued 1 reboot: reboots/1", 10);
    world.wait_for_empty_queue(60);
    assert!(world.power().iter().all(|p| p.address == machines[2].address), "{:?}", world.power());
    console.press("1");
    console.wait_for_text("the reboot queue is empty", 10);

    // the console writes nothing while the cluster does not change
    std::thread::sleep(std::time::Duration::from_secs(2));
    let before = console.bytes();
    std::thread::sleep(std::time::Duration::from_secs(5));
    let idle = console.bytes() - before;
    assert!(idle <= 300, "{idle} bytes were written in 5 s although nothing changed");

    // nothing is in progress any more, so it does not ask
    console.press("q");
    assert_eq!(console.wait_for_end(20), 0);
    console.wait_for_terminal_mode(false);
}

#[test]
fn without_etcd_rows_stay_writes_are_refused_and_the_console_recovers() {
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let machines = machines(1, 1);
    world.add_nodes(&machines);
    world.set_up(&machines, &json!({}));
    world.run(&["rq", "disable"]);
    world.queue(&[&machines[1]]);
    let mut console = Console::start(&world.config(), &["--observe", "--view", "reboots"], 80, 24);
    console.wait_for_text("queued", 20);
    world.act("freeze", "etcd");
    let text = console.wait_for_text("! etcd lost, last heard", 30);
    assert!(text.contains("next try in") || text.contains("trying now"), "{text}");
    console.press("X");
    let text = console.wait_for_text("nothing is written until it is back", 5);
    assert!(text.contains("w1"), "{text}");
    world.act("thaw", "etcd");
    // the API server was unreachable together with its etcd: the message names both if both recover at once
    console.wait_for_text("back after", 60);
    wait_for("the banner disappears", 30, || (!console.text().contains("etcd lost")).then_some(()));
    assert!(console.text().contains("> 0 "), "the cursor must stay on its row: {}", console.text());
    console.press("X");
    console.wait_for_text("Cancel 1 reboot?", 10);
    console.press("\ry");
    console.wait_for_text("cancelled reboots/0", 10);
}
