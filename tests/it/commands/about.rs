//! Commands about the program itself: `config`, `info`, `man`, `screenshot`.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::rig::{Rig, run};

#[tokio::test]
async fn a_screenshot_shows_the_current_state_and_writes_nothing() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.run_with(&["rq", "add", "-"], "10.0.0.12 10.0.0.13");
    let before = rig.keys().await;
    let frame = rig.run(&["screenshot", "--view", "reboots", "--size", "100x30"]);
    assert_eq!((frame.status, frame.stderr.as_str()), (0, ""), "{frame:?}");
    assert_eq!(frame.stdout.lines().count(), 30);
    assert!(frame.stdout.contains("10.0.0.12") && frame.stdout.contains("queued"), "{}", frame.stdout);
    assert!(frame.stdout.lines().all(|l| l.chars().count() <= 100), "{}", frame.stdout);
    let typed = rig.run(&["screenshot", "--view", "reboots", "--keys", "/ \"node:worker13\" enter"]).stdout;
    assert!(typed.contains("worker13") && !typed.contains("10.0.0.12"), "{typed}");
    // a key that opens a confirmation: the dialog can be shown, its action is not performed
    let dialog = rig.run(&["screenshot", "--view", "reboots", "--keys", "X"]).stdout;
    assert!(dialog.to_lowercase().contains("cancel"), "{dialog}");
    let confirmed = rig.run(&["screenshot", "--view", "reboots", "--keys", "X enter y"]);
    assert!(confirmed.stdout.contains("a screenshot never writes"), "{confirmed:?}");
    let past = rig.run(&["screenshot", "--view", "audit"]).stdout;
    assert!(past.contains("cluster set") && past.contains("reboot add"), "{past}");
    let coloured = rig.run(&["screenshot", "--format", "ansi"]).stdout;
    assert!(coloured.contains("\x1b[0m\n"), "{coloured:?}");
    assert_eq!(rig.keys().await, before, "I45: a screenshot must not write");
}

#[test]
fn screenshots_of_a_sandbox_need_no_server() {
    let shot = |args: &[&str]| {
        let after = if args.contains(&"--after") { &[][..] } else { &["--after", "0.5"] };
        let output = run(&[&["screenshot", "--sandbox", "--nodes", "12"], after, args].concat(), "");
        assert_eq!((output.status, output.stderr.as_str()), (0, ""), "{args:?}");
        output.stdout
    };
    for view in ["overview", "reboots", "nodes", "repairs", "machines", "diff", "hosts", "history", "audit"] {
        let text = shot(&["--view", view]);
        assert_eq!(text.lines().count(), 24, "{view}");
        assert!(text.contains("SANDBOX"), "{view}: {text}");
    }
    // the engine of this process leads, and its log is shown
    let logs = shot(&["--view", "logs", "--after", "3"]);
    assert!(logs.contains("became the leader") && !logs.contains("nothing was logged"), "{logs}");
    let overview = shot(&["--format", "svg", "--size", "120x30"]);
    assert!(overview.contains('\u{25cf}'), "a picture has the console's signs: {overview}");
    let picture = shot(&["--view", "nodes", "--format", "svg", "--size", "120x30"]);
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"), "{picture}");
    assert!(picture.contains("SANDBOX"), "{picture}");
    let open = picture.matches("<text ").count();
    assert!(open > 20 && open == picture.matches("</text>").count(), "{open}");
}

#[test]
fn a_screenshot_with_bad_arguments_is_a_usage_error() {
    for (args, message) in [
        (&["--view", "nope"][..], "there is no view \"nope\""),
        (&["--size", "80"], "expected COLUMNSxROWS"),
        (&["--size", "9999x9"], "expected COLUMNSxROWS"),
        (&["--keys", "hyper-x"], "\"hyper-x\" is not a key"),
        (&["--keys", "/ \"rack"], "closing double quote"),
        (&["--format", "png"], "[possible values: text, ansi, svg]"),
        (&["--nodes", "9"], "require --sandbox"),
        (&["--after", "1"], "--sandbox"),
        (&["--sandbox", "--scenario", "clam"], "unknown scenario \"clam\""),
        (&["--sandbox", "--nodes", "9", "--after", "0", "--keys", "q y"], "these keys quit the console"),
    ] {
        let output = run(&[&["screenshot"], args].concat(), "");
        assert_eq!((output.status, output.stdout.as_str()), (2, ""), "{args:?}: {output:?}");
        assert!(output.stderr.contains(message), "{args:?}: {}", output.stderr);
    }
}

#[tokio::test]
async fn a_configuration_is_checked_and_shown_without_its_secrets() {
    let Some(rig) = Rig::start().await else { return };
    let default = run(&["config", "default"], "").stdout;
    let good = rig.file("default.yaml", &default);
    let output = run(&["config", "check", &good], "");
    assert_eq!(output.status, 0, "{output:?}");
    assert!(
        output.stdout.contains("warning: no engine can run with these settings: no Kubernetes is configured"),
        "{output:?}"
    );
    assert!(output.stdout.ends_with(&format!("{good}: ok\n")), "{output:?}");

    for (text, message) in [
        ("etcd: {endpoint: [x]}\n", "the nearest key is etcd.endpoints"),
        ("etcd: {endpoints: [\"10.0.0.1\"]}\n", "etcd.endpoints: \"10.0.0.1\" is not a URL"),
        ("console: {view: nope}\n", "console.view: there is no view \"nope\""),
        ("console: {theme: nope}\n", "console.theme: "),
        ("console: {keys: {cancel: [j]}}\n", "console.keys.cancel: j is the key of down already (the default table)"),
        ("engine: {http: here}\n", "engine.http: \"here\" is not an address"),
        ("log: {level: 'a=b=c'}\n", "log.level: "),
        ("kubernetes: {kubeconfig: /no/such/file}\n", "/no/such/file"),
        ("power: {bmcs: /no/such/file}\n", "/no/such/file"),
        ("[1]\n", "expected keys and values"),
    ] {
        let output = run(&["config", "check", &rig.file("bad.yaml", text)], "");
        assert_eq!(output.status, 1, "{text}: {output:?}");
        assert!(output.stdout.contains(message) && output.stdout.starts_with("error: "), "{text}: {output:?}");
        let json = run(&["config", "check", &rig.file("bad.yaml", text), "-o", "json"], "");
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert!(json["errors"][0].as_str().unwrap().contains(message), "{json}");
    }
    let text = "etcd: {endpoints: [\"http://127.0.0.1:1\"]}\nengine: {state_directory: /etc/passwd/x}\n";
    let output = run(&["config", "check", &rig.file("state.yaml", text)], "");
    assert_eq!(output.status, 0, "{output:?}");
    let message = "warning: engine.state_directory: an engine of user ";
    assert!(output.stdout.contains(message) && output.stdout.contains("/etc/passwd/x`, or set another"), "{output:?}");
    let shown = run(&["--config", &rig.file("state.yaml", text), "config", "show"], "").stdout;
    let row = shown.lines().find(|line| line.starts_with("engine.state_directory")).unwrap();
    assert!(row.contains("/etc/passwd/x") && row.contains("state.yaml"), "{row}");

    let missing = run(&["config", "check", "/no/such/file"], "");
    assert!(missing.status == 1 && missing.stdout.contains("/no/such/file cannot be read"), "{missing:?}");

    let text = format!("etcd: {{endpoints: [\"{}\"], username: root, password: hunter2}}\n", rig.url);
    let secret = rig.file("secret.yaml", &text);
    let output = run(&["config", "check", &secret], "");
    assert!(output.status == 1 && output.stdout.contains("can be read by everyone; chmod o-r"), "{output:?}");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let shown = run(&["--config", &secret, "config", "show", "-o", "json"], "");
    assert!(shown.status == 0 && !shown.stdout.contains("hunter2"), "{shown:?}");
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["etcd.password"]["value"], "(set)");
    assert_eq!(shown["etcd.endpoints"]["from"], secret.as_str());
}

#[tokio::test]
async fn info_prints_what_a_bug_report_needs() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.put("/cke/leader//7a", "boot-0").await;
    let output = rig.run(&["info", "-o", "json"]);
    assert_eq!((output.status, output.stderr.as_str()), (0, ""), "{output:?}");
    let info: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(info["cketerm"], env!("CARGO_PKG_VERSION"));
    assert!(info["etcd"][&rig.url].as_str().unwrap().starts_with("etcd 3."), "{info}");
    assert_eq!(
        (info["kubernetes"].as_str(), info["leader"].as_str()),
        (Some("not configured"), Some("CKE on boot-0, lease 7a"))
    );
    assert_eq!(info["definition"], "test: 4 nodes");
    assert!(info["you"].as_str().unwrap().contains('@'), "{info}");
    let table = rig.run(&["info"]).stdout;
    assert!(table.starts_with("cketerm          0."), "{table}");

    // `info` must work when the servers are unreachable
    let away = run(&["--etcd-endpoints", "http://127.0.0.1:1", "info"], "");
    assert_eq!(away.status, 0, "{away:?}");
    assert!(away.stdout.contains("http://127.0.0.1:1: "), "{away:?}");
}

#[test]
fn man_writes_the_pages_into_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let output = run(&["man", pages.to_str().unwrap()], "");
    assert_eq!(output.status, 0, "{output:?}");
    let page = std::fs::read_to_string(pages.join("cketerm-reboot-queue-add.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("selector"), "{page}");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = run(&["man", file.to_str().unwrap()], "");
    assert!(output.status == 1 && output.stderr.contains("file: "), "{output:?}");
}
