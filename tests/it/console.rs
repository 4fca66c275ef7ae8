//! The built console in a real terminal.

mod looks;
pub mod terminal;

use serde_json::json;
use terminal::Console;

use crate::world::{Options, World, cluster::machines, free_port, program::config, wait_for};

/// A configuration that names unreachable servers.
pub(crate) fn nowhere(name: &str) -> std::path::PathBuf {
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
fn the_first_frame_stands_before_etcd_answers_and_q_gives_the_terminal_back() {
    let mut console = Console::start(&nowhere("first"), &[], 80, 24);
    let text = console.shows("connecting to etcd at http://127.0.0.1:", 5);
    assert!(text.contains("1 Reboots") && text.contains("? help"), "{text}");
    console.holds_the_terminal(true);
    console.resize(50, 10);
    console.shows("too small: 60x15 at least", 5);
    console.resize(100, 30);
    console.shows("connecting to etcd", 5);
    console.press("?");
    console.shows("the same key in every view", 5);
    console.press("q");
    assert_eq!(console.ended(15), 0);
    console.holds_the_terminal(false);
}

#[test]
fn a_console_without_etcd_says_what_went_wrong_and_stays() {
    let console = Console::start(&nowhere("wrong"), &["--observe"], 80, 24);
    console.shows("refused", 20);
}

/// The console writes the file of a user's columns. A file that cannot be read is never lost.
#[test]
fn columns_are_kept_for_the_next_console_and_a_broken_file_is_kept_aside() {
    let config = nowhere("columns");
    let home = tempfile::TempDir::new().unwrap();
    let path = home.path().join(".config/cketerm/console.yaml");
    let (config, args) = (config.display().to_string(), ["--observe", "--view", "nodes"]);
    let start = || Console::at(home.path(), &[&["--config", &config], args.as_slice()].concat(), 200, 24);
    let mut console = start();
    console.shows("NODE     STATE", 5);
    console.press(":columns rack,node\r");
    console.shows("RACK NODE", 5);
    console.press("q");
    assert_eq!(console.ended(15), 0);
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept.contains("nodes:") && kept.contains("- rack"), "{kept}");
    let mut console = start();
    console.shows("RACK NODE", 5);
    console.press("q");
    assert_eq!(console.ended(15), 0);

    std::fs::write(&path, "version: 0\nof: somebody\n").unwrap();
    let mut console = start();
    console.shows("it is ignored: it has version 0", 5);
    console.press(":columns node\r");
    console.shows("console.yaml.broken", 5);
    console.press(":settings forget\r");
    console.shows("NODE     STATE", 5);
    console.press("q");
    assert_eq!(console.ended(15), 0);
    assert!(!path.exists());
    let aside = std::fs::read_to_string(path.with_extension("yaml.broken")).unwrap();
    assert_eq!(aside, "version: 0\nof: somebody\n");
}

#[test]
fn signals_give_the_terminal_back_and_a_stopped_console_comes_back() {
    for signal in ["TERM", "HUP", "INT"] {
        let mut console = Console::start(&nowhere("signals"), &["--observe"], 80, 24);
        console.shows("connecting", 5);
        console.signal(signal);
        assert_eq!(console.ended(15), 0, "{signal}");
        console.holds_the_terminal(false);
    }
    let mut console = Console::start(&nowhere("signals"), &["--observe"], 80, 24);
    console.shows("connecting", 5);
    for stop in ["TSTP", "\u{1a}"] {
        if stop == "TSTP" {
            console.signal(stop);
        } else {
            console.press(stop);
        }
        wait_for("the console is stopped", 15, || (console.state() == 'T').then_some(()));
        console.holds_the_terminal(false);
        console.signal("CONT");
        console.shows("connecting", 5);
        console.holds_the_terminal(true);
    }
    console.press("q");
    assert_eq!(console.ended(15), 0);
}

#[test]
fn a_blocked_drain_is_cancelled_in_ten_keys_and_a_reboot_queued_by_keyboard_ends() {
    let Some(world) = World::start(Options { kcm: true, kwok: true, ..Options::default() }) else { return };
    let machines = machines(1, 2);
    world.add_nodes(&machines);
    world.set_up(&machines, &json!({"evict_retries": 100, "evict_interval": 2}));
    world.add_pod("default", "web-1", "w1", "web", None);
    world.pods_run("default");
    world.add_budget("default", "web", "web", 1);

    let mut console = Console::start(&world.config(), &[], 80, 24);
    console.shows("leader: this console", 30);
    console.press("2j");
    console.shows("> w1", 5);
    console.press("Rkernel\ry");
    console.shows("queued 1 reboot: reboots/0", 10);
    console.press("1");
    console.shows("pdb default/web", 20);
    console.press("n\r");
    let text = console.shows("default/web-1  pdb default/web", 5);
    assert!(text.contains("Pods left: 1") && text.contains("kernel"), "{text}");
    console.press("X");
    console.shows("Cancel 1 entry on test?", 5);
    console.press("\ry");
    console.shows("cancelled reboots/0", 10);
    world.queue_is_empty(10);
    wait_for("w1 is uncordoned", 20, || world.cordoned().is_empty().then_some(()));

    console.press("2");
    console.shows("NODE", 5);
    console.press("G");
    console.shows("> w2", 5);
    console.press("R\ry");
    console.shows("queued 1 reboot: reboots/1", 10);
    world.queue_is_empty(60);
    assert!(world.power().iter().all(|p| p.address == machines[2].address), "{:?}", world.power());
    console.press("1");
    console.shows("the reboot queue is empty", 10);

    // the console writes nothing while the cluster does not change
    std::thread::sleep(std::time::Duration::from_secs(2));
    let before = console.bytes();
    std::thread::sleep(std::time::Duration::from_secs(5));
    let idle = console.bytes() - before;
    assert!(idle <= 300, "{idle} bytes in 5 s without any news");

    console.press("q");
    console.shows("No other engine stands by", 5);
    console.press("y");
    assert_eq!(console.ended(20), 0);
    console.holds_the_terminal(false);
}

#[test]
fn while_etcd_is_away_the_rows_stay_and_writing_is_refused_and_it_recovers_in_place() {
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let machines = machines(1, 1);
    world.add_nodes(&machines);
    world.set_up(&machines, &json!({}));
    world.word(&["rq", "disable"]);
    world.queue(&[&machines[1]]);
    let mut console = Console::start(&world.config(), &["--observe", "--view", "reboots"], 80, 24);
    console.shows("queued", 20);
    world.act("freeze", "etcd");
    let text = console.shows("! etcd lost, last heard", 30);
    assert!(text.contains("next try in") || text.contains("trying now"), "{text}");
    console.press("X");
    let text = console.shows("nothing is written until it is back", 5);
    assert!(text.contains("w1"), "{text}");
    world.act("thaw", "etcd");
    // the API server was away with its etcd: both are named when both recover at once
    console.shows("back after", 60);
    wait_for("the banner goes", 30, || (!console.text().contains("etcd lost")).then_some(()));
    assert!(console.text().contains("> 0 "), "the cursor is where it was: {}", console.text());
    console.press("X\ry");
    console.shows("cancelled reboots/0", 10);
}
