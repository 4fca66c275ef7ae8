//! What `--help` says, word by word: a change of it is a change of the interface.

use super::rig::run;

#[test]
fn the_help_is_as_it_was() {
    let mut all = String::new();
    for words in [
        &["--help"][..],
        &["rq", "--help"],
        &["rq", "add", "--help"],
        &["rq", "wait", "--help"],
        &["cluster", "--help"],
        &["cluster", "identify", "--help"],
        &["constraints", "--help"],
        &["policy", "--help"],
    ] {
        let ran = run(words, "");
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{words:?}");
        all += "$ cketerm ";
        all += &words.join(" ");
        all += "\n";
        all += &ran.stdout;
        all += "\n";
    }
    insta::with_settings!({snapshot_path => "../snapshots"}, { insta::assert_snapshot!("help", all) });
}

#[test]
fn misuse_is_told_with_exit_status_2_before_any_server_is_asked() {
    for (words, said) in [
        (&["nope"][..], "unrecognized subcommand 'nope'"),
        (&["rq", "enable", "x"], "unexpected argument 'x'"),
        (&["rq", "cancel", "x"], "invalid value 'x' for '<INDEX>'"),
        (&["rq", "retry"], "<INDEX>"),
        (&["rq", "list", "-o", "xml"], "[possible values: table, json, yaml]"),
        (&["cluster", "init"], "--from-kubernetes"),
        (&["cluster", "identify", "--replace", "x"], "--confirm"),
        (&["--sandbox"], "later version"),
        (&[], "no etcd is configured"),
        (&["--etcd-endpoints", "http://127.0.0.1:1"], "needs a terminal"),
        (&["--daemon", "--http", "x"], "invalid value"),
    ] {
        let ran = run(words, "");
        assert_eq!(ran.status, 2, "{words:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{words:?}");
    }
}
