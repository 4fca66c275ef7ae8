//! Code blocks of docs/notices.md as written: read, checked and sent.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::post::{Habit, Post};
use crate::world::{found, program::cketerm};

/// Blocks of one language, in the document's order.
fn blocks(language: &str) -> Vec<String> {
    let text = include_str!("../../../docs/notices.md");
    let fenced = text.split("```").skip(1).step_by(2);
    fenced.filter_map(|b| b.strip_prefix(&format!("{language}\n"))).map(str::to_owned).collect()
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Writes the block as a whole configuration.
fn config(dir: &Path, name: &str, block: &str) -> PathBuf {
    let path = dir.join(name);
    write(&path, &format!("etcd: {{endpoints: [\"http://127.0.0.1:9\"]}}\n{block}"), 0o600);
    path
}

fn one_of(language: &str, word: &str) -> String {
    blocks(language).into_iter().find(|b| b.contains(word)).unwrap_or_else(|| panic!("no block with {word}"))
}

#[test]
fn the_chat_gets_text_and_its_secret_url_is_never_said() {
    let dir = tempfile::tempdir().unwrap();
    let post = Post::start(|_, _| Habit::Status(200));
    write(&dir.path().join("chat-url"), &format!("{}?secret=SECRET", post.url.replace("/hook", "/hook ")), 0o600);
    let config = config(dir.path(), "chat.yaml", &one_of("yaml", "name: chat"));
    // a URL with a space is invalid, and messages do not repeat it
    let ran = cketerm(&config, &["config", "check"]);
    assert!(ran.code == 1 && ran.stdout.contains("url_file") && !ran.stdout.contains("SECRET"), "{ran:?}");
    write(&dir.path().join("chat-url"), &post.url, 0o644);
    let ran = cketerm(&config, &["config", "check"]);
    assert!(ran.stdout.contains("chmod o-r"), "everyone could read it: {ran:?}");
    write(&dir.path().join("chat-url"), &post.url, 0o600);
    let ran = cketerm(&config, &["config", "check"]);
    assert!(ran.stdout.contains(": ok"), "{ran:?}");
    let ran = cketerm(&config, &["notices", "test", "chat", "--kind", "stuck"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "chat: received: 200 OK: ok\n"), "{ran:?}");
    let text = post.got()[0]["text"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with(":warning: *cluster* TEST: reboots/12 on w12 needs an operator: BlockedByPDB\npod"),
        "{text}"
    );
}

#[test]
fn the_pager_gets_incidents_that_are_resolved() {
    let dir = tempfile::tempdir().unwrap();
    let post = Post::start(|_, _| Habit::Status(202));
    let block = one_of("yaml", "name: pager").replace("https://events.example.com/v2/enqueue", &post.url);
    let config = config(dir.path(), "pager.yaml", &block);
    for kind in ["stuck", "cleared", "many"] {
        let ran = cketerm(&config, &["notices", "test", "--all", "--kind", kind]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let got = post.got();
    let events: Vec<&str> = got.iter().map(|e| e["event_action"].as_str().unwrap()).collect();
    assert_eq!(events, ["trigger", "resolve", "trigger"]);
    assert_eq!(got[0]["dedup_key"], got[1]["dedup_key"], "one incident");
    assert_eq!((&got[0]["payload"]["severity"], &got[0]["payload"]["source"]), (&"warning".into(), &"w12".into()));
    assert_eq!(got[2]["payload"]["severity"], "error");
}

#[test]
fn the_program_mails_with_a_message_id_that_stays() {
    if found("jq").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (script, mailed) = (dir.path().join("mail-notice"), dir.path().join("mailed"));
    let sendmail = format!("#!/bin/sh\n[ \"$1\" = -t ] && cat > {}\n", mailed.display());
    write(&dir.path().join("sendmail"), &sendmail, 0o755);
    let text = one_of("sh", "mail-notice")
        .replace("#!/bin/sh\n", &format!("#!/bin/sh\nPATH={}:$PATH\n", dir.path().display()));
    write(&script, &text, 0o755);
    let block = one_of("yaml", "name: mail").replace("/usr/local/bin/mail-notice", &script.display().to_string());
    let config = config(dir.path(), "mail.yaml", &block);
    assert!(cketerm(&config, &["config", "check"]).stdout.contains(": ok"));
    let ran = cketerm(&config, &["notices", "test", "mail", "--kind", "failed"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "mail: received\n"), "{ran:?}");
    let mail = std::fs::read_to_string(&mailed).unwrap();
    assert!(mail.starts_with(
        "To: ops@example.com\nSubject: [cketerm] TEST: reboot command of reboots/12 on w12 failed: exit 1\n"
    ));
    assert!(mail.contains("\nMessage-ID: <test-") && mail.contains("\ndocs/runbook.md#commandfailed\n"), "{mail}");
}

#[test]
fn a_test_says_what_went_wrong_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let post = Post::start(|n, _| if n == 0 { Habit::Status(500) } else { Habit::Close });
    let block = format!(
        "notices:\n- {{name: hook, url: \"{}\"}}\n- {{name: none, program: [/no/such/program]}}\n- {{name: bad, program: [sh, -c, \
         \"cat >/dev/null; echo no route >&2; exit 7\"]}}\n- {{name: slow, program: [sleep, \"60\"], timeout: 1s}}\n",
        post.url
    );
    let config = config(dir.path(), "bad.yaml", &block);
    let ran = cketerm(&config, &["notices", "test", "--all"]);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "hook: NOT received: 500 Internal Server Error: ok");
    assert!(lines[1].starts_with("none: NOT received: ") && lines[1].contains("/no/such/program"), "{ran:?}");
    assert_eq!(lines[2], "bad: NOT received: exit 7: no route");
    assert!(lines[3].starts_with("slow: NOT received: ") && lines[3].contains("1 s"), "{ran:?}");
    assert_eq!((ran.code, ran.stderr.as_str()), (1, "cketerm: 4 of 4 did not receive it\n"));
    let ran = cketerm(&config, &["notices", "test", "hok"]);
    assert!(ran.code == 2 && ran.stderr.contains("did you mean hook?"), "{ran:?}");
    assert_eq!(post.got()[0]["kind"], Value::from("test"));
}
