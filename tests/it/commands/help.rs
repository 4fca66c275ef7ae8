//! Exact output of `--help`: a change of it is a change of the interface.

use super::rig::run;

#[test]
fn the_help_matches_its_snapshot() {
    let mut all = String::new();
    for args in [
        &["--help"][..],
        &["rq", "--help"],
        &["rq", "add", "--help"],
        &["rq", "wait", "--help"],
        &["repair-queue", "--help"],
        &["repair-queue", "add", "--help"],
        &["repair-queue", "wait", "--help"],
        &["cluster", "--help"],
        &["cluster", "identify", "--help"],
        &["constraints", "--help"],
        &["policy", "--help"],
    ] {
        let output = run(args, "");
        assert_eq!((output.status, output.stderr.as_str()), (0, ""), "{args:?}");
        all += "$ cketerm ";
        all += &args.join(" ");
        all += "\n";
        all += &output.stdout;
        all += "\n";
    }
    insta::with_settings!({snapshot_path => "../snapshots"}, { insta::assert_snapshot!("help", all) });
}

#[test]
fn each_scenario_is_listed_with_a_description() {
    let output = run(&["sandbox", "scenarios"], "");
    assert_eq!((output.status, output.stderr.as_str()), (0, ""));
    let names: Vec<&str> = output.stdout.lines().filter_map(|l| l.split(' ').next()).collect();
    assert_eq!(
        names,
        [
            "calm",
            "budget",
            "flaky-bmc",
            "api-servers",
            "lost-leader",
            "beside-cke",
            "interference",
            "repairs",
            "dead-api-server",
            "windows",
            "large",
            "registry",
            "hosts"
        ]
    );
    assert!(output.stdout.lines().all(|l| l.len() > 40 && l.ends_with('.')), "{}", output.stdout);
}

#[test]
fn a_usage_error_exits_with_2_before_any_server_is_contacted() {
    for (args, message) in [
        (&["nope"][..], "unrecognized subcommand 'nope'"),
        (&["rq", "enable", "x"], "unexpected argument 'x'"),
        (&["rq", "cancel", "x"], "invalid value 'x' for '[INDEX]'"),
        (&["rq", "retry"], "<INDEX>"),
        (&["rq", "list", "-o", "xml"], "[possible values: table, simple, json, yaml]"),
        (&["cluster", "init"], "--from-kubernetes"),
        (&["cluster", "identify", "--replace", "x"], "--confirm"),
        (&["--sandbox"], "needs a terminal"),
        (&["--sandbox", "--scenario", "clam"], "--scenario: unknown scenario \"clam\"; known: calm, budget"),
        (&["--sandbox", "--speed", "0"], "invalid value '0' for '--speed <FACTOR>': expected 0.01 to 1000"),
        (&["--sandbox", "--nodes", "x"], "invalid value 'x' for '--nodes <NUMBER>'"),
        (&["--nodes", "9"], "--nodes, --scenario, --seed and --speed require --sandbox"),
        (&["--etcd-endpoints", "http://127.0.0.1:1", "--nodes", "9"], "--nodes, --scenario"),
        (&["sandbox", "serve", "--scenario", "clam"], "--scenario: unknown scenario"),
        (&["sandbox", "serve", "--speed", "0"], "'--speed <FACTOR>'"),
        (&["sandbox", "serve", "--nodes", "x"], "'--nodes <NUMBER>'"),
        (&["sandbox", "serve", "--empty", "--nodes", "9"], "'--empty' cannot be used with '--nodes <NUMBER>'"),
        (&["sandbox", "serve", "--pace", "/no/such/file"], "--pace /no/such/file: No such file"),
        (&[], "no etcd is configured"),
        (&["--etcd-endpoints", "http://127.0.0.1:1"], "needs a terminal"),
        (&["--daemon", "--http", "x"], "invalid value"),
    ] {
        let output = run(args, "");
        assert_eq!(output.status, 2, "{args:?}: {output:?}");
        assert!(output.stderr.contains(message), "{args:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{args:?}");
    }
}
