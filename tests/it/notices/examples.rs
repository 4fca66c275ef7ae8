//! Code blocks of docs/notices.md as written: read, checked and sent.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::receiver::{Behaviour, Receiver};
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

fn block_containing(language: &str, text_fragment: &str) -> String {
    blocks(language)
        .into_iter()
        .find(|b| b.contains(text_fragment))
        .unwrap_or_else(|| panic!("no block with {text_fragment}"))
}

#[test]
fn the_chat_receives_text_and_its_secret_url_is_never_printed() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_, _| Behaviour::Status(200));
    write(&dir.path().join("chat-url"), &format!("{}?secret=SECRET", receiver.url.replace("/hook", "/hook ")), 0o600);
    let config = config(dir.path(), "chat.yaml", &block_containing("yaml", "name: chat"));
    // a URL with a space is invalid, and messages must not repeat it
    let output = cketerm(&config, &["config", "check"]);
    assert!(output.code == 1 && output.stdout.contains("url_file") && !output.stdout.contains("SECRET"), "{output:?}");
    write(&dir.path().join("chat-url"), &receiver.url, 0o644);
    let output = cketerm(&config, &["config", "check"]);
    assert!(output.stdout.contains("chmod o-r"), "a file that everyone can read must be refused: {output:?}");
    write(&dir.path().join("chat-url"), &receiver.url, 0o600);
    let output = cketerm(&config, &["config", "check"]);
    assert!(output.stdout.contains(": ok"), "{output:?}");
    let output = cketerm(&config, &["notices", "test", "chat", "--kind", "stuck"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "chat: received: 200 OK: ok\n"), "{output:?}");
    let text = receiver.received()[0]["text"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with(":warning: *cluster* TEST: reboots/12 on w12 needs an operator: BlockedByPDB\npod"),
        "{text}"
    );
}

#[test]
fn the_pager_receives_triggered_and_resolved_incidents() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_, _| Behaviour::Status(202));
    let block = block_containing("yaml", "name: pager").replace("https://events.example.com/v2/enqueue", &receiver.url);
    let config = config(dir.path(), "pager.yaml", &block);
    for kind in ["stuck", "cleared", "many"] {
        let output = cketerm(&config, &["notices", "test", "--all", "--kind", kind]);
        assert_eq!(output.code, 0, "{output:?}");
    }
    let notices = receiver.received();
    let events: Vec<&str> = notices.iter().map(|e| e["event_action"].as_str().unwrap()).collect();
    assert_eq!(events, ["trigger", "resolve", "trigger"]);
    assert_eq!(notices[0]["dedup_key"], notices[1]["dedup_key"], "both notices must belong to one incident");
    assert_eq!(
        (&notices[0]["payload"]["severity"], &notices[0]["payload"]["source"]),
        (&"warning".into(), &"w12".into())
    );
    assert_eq!(notices[2]["payload"]["severity"], "error");
}

#[test]
fn the_mail_script_sends_with_a_stable_message_id() {
    if found("jq").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (script, mailed) = (dir.path().join("mail-notice"), dir.path().join("mailed"));
    let sendmail = format!("#!/bin/sh\n[ \"$1\" = -t ] && cat > {}\n", mailed.display());
    write(&dir.path().join("sendmail"), &sendmail, 0o755);
    let text = block_containing("sh", "mail-notice")
        .replace("#!/bin/sh\n", &format!("#!/bin/sh\nPATH={}:$PATH\n", dir.path().display()));
    write(&script, &text, 0o755);
    let block =
        block_containing("yaml", "name: mail").replace("/usr/local/bin/mail-notice", &script.display().to_string());
    let config = config(dir.path(), "mail.yaml", &block);
    assert!(cketerm(&config, &["config", "check"]).stdout.contains(": ok"));
    let output = cketerm(&config, &["notices", "test", "mail", "--kind", "failed"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "mail: received\n"), "{output:?}");
    let mail = std::fs::read_to_string(&mailed).unwrap();
    assert!(mail.starts_with(
        "To: ops@example.com\nSubject: [cketerm] TEST: reboot command of reboots/12 on w12 failed: exit 1\n"
    ));
    assert!(mail.contains("\nMessage-ID: <test-") && mail.contains("\ndocs/runbook.md#commandfailed\n"), "{mail}");
}

#[test]
fn notices_test_reports_failed_deliveries_and_exits_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|n, _| if n == 0 { Behaviour::Status(500) } else { Behaviour::Close });
    let block = format!(
        "notices:\n- {{name: hook, url: \"{}\"}}\n- {{name: none, program: [/no/such/program]}}\n- {{name: bad, program: [sh, -c, \
         \"cat >/dev/null; echo no route >&2; exit 7\"]}}\n- {{name: slow, program: [sleep, \"60\"], timeout: 1s}}\n",
        receiver.url
    );
    let config = config(dir.path(), "bad.yaml", &block);
    let output = cketerm(&config, &["notices", "test", "--all"]);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[0], "hook: NOT received: 500 Internal Server Error: ok");
    assert!(lines[1].starts_with("none: NOT received: ") && lines[1].contains("/no/such/program"), "{output:?}");
    assert_eq!(lines[2], "bad: NOT received: exit 7: no route");
    assert!(lines[3].starts_with("slow: NOT received: ") && lines[3].contains("1 s"), "{output:?}");
    assert_eq!((output.code, output.stderr.as_str()), (1, "cketerm: 4 of 4 receivers did not receive it\n"));
    let output = cketerm(&config, &["notices", "test", "hok"]);
    assert!(output.code == 2 && output.stderr.contains("did you mean hook?"), "{output:?}");
    assert_eq!(receiver.received()[0]["kind"], Value::from("test"));
}
