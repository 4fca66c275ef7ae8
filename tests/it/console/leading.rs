//! Consoles that lead only after an operator has agreed, and not once a daemon has registered (SAF-5).

use etcd_client::{Client, GetOptions};
use serde_json::json;

use super::terminal::Console;
use crate::world::{Options, World, cluster::machines, history::value, leader, wait_for};

/// Number of keys below this prefix.
fn keys(etcd: &str, prefix: &str) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::connect([etcd], None).await.unwrap();
        let options = GetOptions::new().with_prefix().with_count_only();
        client.get(prefix, Some(options)).await.unwrap().count()
    })
}

#[test]
fn a_console_campaigns_only_by_its_operators_answer_and_not_after_a_daemon() {
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let machines = machines(1, 1);
    world.add_nodes(&machines);
    world.set_up(&machines, &json!({}));
    let candidates = || (keys(&world.etcd, "/cke/leader/"), keys(&world.etcd, "/cke/cketerm/engines/"));
    let config = world.config().display().to_string();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = |home: &tempfile::TempDir| Console::at(home.path(), &["--config", &config], 80, 24);

    let mut console = start(&first);
    console.wait_for_text("Let this console lead?", 60);
    assert_eq!(candidates(), (0, 0), "an engine that waits for the answer registers nothing");
    console.press("y");
    console.wait_for_text("● leading", 30);
    assert_eq!(candidates(), (1, 1));

    // a second console observes when its operator goes back, and keeps that answer
    let mut other = start(&second);
    other.wait_for_text("Let this console lead?", 60);
    other.press("\r");
    other.wait_for_text("this console only observes", 10);
    assert_eq!(candidates(), (1, 1));
    assert_eq!(other.quit(30), 0);

    // the answer is kept: no question at the next start
    assert_eq!(console.quit(30), 0);
    let mut console = start(&first);
    console.wait_for_text("● leading", 60);
    assert_eq!(console.quit(30), 0);
    assert_eq!(candidates(), (0, 0));
    assert_eq!(value(&world.etcd, "/cke/cketerm/daemon"), None);

    // the first daemon leaves a record that outlives it
    let daemon = world.daemon("engine");
    wait_for("the daemon leads", 60, || leader::now(&world.etcd).filter(|(_, pid)| *pid == Some(daemon.pid())));
    let record: serde_json::Value =
        serde_json::from_str(&value(&world.etcd, "/cke/cketerm/daemon").expect("a record")).unwrap();
    assert!(record["host"].is_string() && record["at"].is_string(), "{record}");
    let (status, _) = daemon.terminate();
    assert!(status.success());
    wait_for("nobody leads", 30, || (candidates() == (0, 0)).then_some(()));
    let mut console = start(&first);
    console.wait_for_text("a daemon has registered", 60);
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(candidates(), (0, 0), "it does not campaign by itself any more");

    // the key lets it lead for this session
    console.press("T");
    console.wait_for_text("Let this console lead?", 10);
    console.press("y");
    console.wait_for_text("● leading", 30);
    world.run(&["policy", "set", "console_leads", "never"]);
    wait_for("it resigns by the policy", 30, || (candidates() == (0, 0)).then_some(()));
    console.press("T");
    console.wait_for_text("console_leads", 10);
    assert_eq!(console.quit(30), 0);
}
