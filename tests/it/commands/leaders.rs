//! Commands that are accepted under each leader, by the built program on a real etcd (I52; docs/beside-cke.md). A CKE
//! leader is a key in `leader/` without a registration, as CKE's election writes it.

use cketerm_actions::Operator;
pub use cketerm_clients::store::{EtcdSettings, Store, StoreError};
pub use cketerm_model::stored::leadership::LeaderGuard;
use cketerm_model::{cketerm_records::Verb, clock::Clock, entry::EntryId};
use serde_json::{Value, json};

use super::rig::{Rig, RunOutput};

const LEADERS: [&str; 5] = ["cketerm", "cketerm, CKE waits", "CKE", "nobody", "unknown"];

/// Creates the leader and removes every other one.
async fn set_leader(rig: &Rig, leader: &str) {
    for key in ["leader//10", "leader//20", "leader//of-another-form", "cketerm/engines/20"] {
        rig.delete(&format!("/cke/{key}")).await;
    }
    let cketerm_state =
        json!({"host": "admin1", "pid": 1, "version": "0", "mode": "daemon", "probes_seen": true}).to_string();
    match leader {
        "nobody" => {}
        "unknown" => rig.put("/cke/leader//of-another-form", "x").await,
        "CKE" => rig.put("/cke/leader//10", "boot-0").await,
        _ => {
            rig.put("/cke/cketerm/engines/20", &cketerm_state).await;
            rig.put("/cke/leader//20", "admin1").await;
            if leader != "cketerm" {
                rig.put("/cke/leader//10", "boot-0").await;
            }
        }
    }
}

/// Restores the usual state: entry 0 is queued, 1 draining, 2 rebooting; no orders, no settings.
async fn reset_state(rig: &Rig) {
    for (index, status) in ["queued", "draining", "rebooting"].iter().enumerate() {
        let entry = json!({"index": index.to_string(), "node": format!("10.0.0.1{}", index + 2), "status": status,
            "last_transition_time": "2026-08-01T12:00:00Z", "drain_backoff_expire": "0001-01-01T00:00:00Z"});
        rig.put(&format!("/cke/reboots/data/{index:016x}"), &entry.to_string()).await;
        rig.delete(&format!("/cke/cketerm/orders/reboots/{index}")).await;
    }
    for key in ["reboots/disabled", "repairs/disabled", "cketerm/stopped", "cketerm/approvals/hold"] {
        rig.delete(&format!("/cke/{key}")).await;
    }
    rig.put("/cke/cketerm/schema", "1").await;
    rig.put("/cke/cketerm/policy", r#"{"engine": "cketerm"}"#).await;
}

/// Keys below `cketerm/`, except audit records.
async fn cketerm_state(rig: &Rig) -> (Vec<Option<String>>, Option<String>, Option<String>) {
    let mut orders = Vec::new();
    for index in 0..3 {
        orders.push(rig.get(&format!("/cke/cketerm/orders/reboots/{index}")).await);
    }
    (orders, rig.get("/cke/cketerm/policy").await, rig.get("/cke/cketerm/approvals/hold").await)
}

fn refused(ran: &RunOutput, what: &str) {
    assert_eq!(ran.status, 3, "{what}: {ran:?}");
    for words in ["nothing was written", "Instead:"] {
        assert!(ran.stderr.contains(words), "{what}: {}", ran.stderr);
    }
}

/// The commands, each with its exit status under the five leaders.
const COMMANDS: &[(&[&str], [i32; 5])] = &[
    (&["rq", "hold", "0", "--reason", "x"], [0, 3, 3, 0, 3]),
    (&["rq", "hold", "1", "--reason", "x"], [0, 3, 3, 0, 3]),
    (&["rq", "retry", "2", "--reason", "x"], [0, 0, 3, 0, 3]),
    (&["rq", "done", "2", "--reason", "x"], [0, 0, 3, 0, 3]),
    (&["rq", "force", "0", "--reason", "x"], [0, 3, 3, 0, 3]),
    (&["rq", "force", "1", "--reason", "x"], [0, 0, 3, 0, 3]),
    // what is refused asks for no reason
    (&["rq", "force", "1"], [2, 2, 3, 2, 3]),
    (&["rq", "done", "2"], [2, 2, 3, 2, 3]),
    (&["freeze", "--until", "2h"], [2, 3, 3, 2, 3]),
    (&["freeze", "--until", "tomorrow 08:00", "--reason", "x"], [0, 3, 3, 0, 3]),
    (&["freeze", "--until", "2h", "--reason", "x"], [0, 3, 3, 0, 3]),
    (&["freeze", "--until", "2h", "--reason", "x", "--for-handover"], [0, 0, 0, 0, 0]),
    (&["policy", "set", "groups", r#"{"by": "rack"}"#], [0, 3, 3, 0, 3]),
    (&["policy", "set", "groups", r#"{"by": "rack"}"#, "--for-handover"], [0, 0, 0, 0, 0]),
    (&["policy", "set", "windows", "{time_zone: UTC, allow: ['* 1-5 * * *']}"], [0, 3, 3, 0, 3]),
    (&["policy", "set", "windows", "{time_zone: UTC, allow: ['* 1-5 * * *']}", "--for-handover"], [0, 0, 0, 0, 0]),
    (&["policy", "set", "windows", "none"], [0, 0, 0, 0, 0]),
    (&["policy", "set", "stuck_seconds", "60"], [0, 3, 3, 0, 3]),
    (&["policy", "set", "stuck_seconds", "60", "--for-handover"], [0, 0, 0, 0, 0]),
    (&["policy", "set", "engine", "always"], [0, 0, 0, 0, 0]),
    (&["sabakan", "hold", "--reason", "x"], [0, 3, 3, 0, 3]),
    (&["sabakan", "unhold"], [0, 0, 0, 0, 0]),
    (&["unfreeze"], [0, 0, 0, 0, 0]),
    (&["rq", "disable"], [0, 0, 0, 0, 0]),
    (&["rq", "enable"], [0, 0, 0, 0, 0]),
    (&["repair-queue", "disable"], [0, 0, 0, 0, 0]),
    (&["sabakan", "disable"], [0, 0, 0, 0, 0]),
    // no CKE is there that would remove the entries
    (&["rq", "cancel", "2", "--wait=false"], [0, 0, 0, 0, 0]),
    (&["rq", "cancel-all", "--wait=false"], [0, 0, 0, 0, 0]),
    (&["rq", "reset-backoff"], [0, 0, 0, 0, 0]),
    (&["stop", "--reason", "x"], [0, 0, 0, 0, 0]),
    (&["resume"], [0, 0, 0, 0, 0]),
];

#[tokio::test(flavor = "multi_thread")]
async fn i52_under_each_leader_a_command_is_accepted_or_refused_with_3_and_writes_nothing() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    for (at, leader) in LEADERS.iter().enumerate() {
        for (command, statuses) in COMMANDS {
            reset_state(&rig).await;
            set_leader(&rig, leader).await;
            let before = cketerm_state(&rig).await;
            let (ran, what) = (rig.run(command), format!("{command:?} under {leader}"));
            if statuses[at] == 3 {
                refused(&ran, &what);
                assert_eq!(cketerm_state(&rig).await, before, "{what}");
                let who = match *leader {
                    "CKE" => "CKE on boot-0 leads",
                    "unknown" => "neither CKE nor cketerm",
                    _ => "resigns for CKE on boot-0",
                };
                assert!(ran.stderr.contains(who), "{what}: {}", ran.stderr);
            } else {
                assert_eq!(ran.status, statuses[at], "{what}: {ran:?}");
            }
            let stored = command.contains(&"--for-handover") && !["cketerm", "nobody"].contains(leader);
            assert_eq!(ran.stderr.contains("NOT IN FORCE"), stored, "{what}: {}", ran.stderr);
        }
    }
}

/// Runs the program on another thread, so that the test can act meanwhile.
fn meanwhile(rig: &Rig, args: &[&str], act: impl AsyncFnOnce()) -> RunOutput {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| rig.run(args));
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(act()));
        running.join().unwrap()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn under_cke_a_cancel_waits_until_the_entry_is_gone_or_is_unconfirmed() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    reset_state(&rig).await;
    let record = |index: u64| format!("/cke/cketerm/cancels/reboots/{index}");
    let key = |index: u64| format!("/cke/reboots/data/{index:016x}");

    // under cketerm, nothing is waited for and nothing is recorded
    set_leader(&rig, "cketerm").await;
    let ran = rig.run(&["rq", "cancel", "0"]);
    assert_eq!((ran.status, ran.stderr.as_str(), rig.get(&record(0)).await), (0, "cancelled: 0\n", None));

    // CKE removes the entry
    set_leader(&rig, "CKE").await;
    let draining = rig.get(&key(1)).await.unwrap();
    let ran = meanwhile(&rig, &["rq", "cancel", "1", "--reason", "wrong rack"], async || {
        while rig.get(&record(1)).await.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        // CKE's write loses the first cancel
        rig.put(&key(1), &draining).await;
        while !rig.get(&key(1)).await.unwrap().contains("cancelled") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        rig.delete(&key(1)).await;
    });
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.stderr.contains("CKE on boot-0 leads: waiting up to 30 s"), "{ran:?}");
    assert!(ran.stderr.contains("repeated the cancel: CKE's write had lost it"), "{ran:?}");
    assert_eq!(rig.get(&record(1)).await, None);

    // CKE does nothing
    let ran = rig.run(&["rq", "cancel-all", "--wait=false"]);
    assert!(ran.status == 0 && ran.stderr.contains("CKE on boot-0 leads: not confirmed"), "{ran:?}");
    let stored: Value = serde_json::from_str(&rig.get(&record(2)).await.unwrap()).unwrap();
    assert_eq!(stored["address"], "10.0.0.14");
    let began = std::time::Instant::now();
    let ran = rig.run(&["rq", "cancel", "2"]);
    assert!(ran.status == 1 && ran.stderr.contains("unconfirmed: 2: "), "{ran:?}");
    assert!(began.elapsed().as_secs() >= 29, "{:?}", began.elapsed());
}

/// An unhold is accepted under any leader: it withdraws an order that has no effect.
#[tokio::test(flavor = "multi_thread")]
async fn i52_an_earlier_hold_needs_attention_once_cke_leads_and_can_be_withdrawn() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    reset_state(&rig).await;
    set_leader(&rig, "cketerm").await;
    assert_eq!(rig.run(&["rq", "hold", "0", "--reason", "rack is open"]).status, 0);
    let why =
        |rig: &Rig| -> Value { serde_json::from_str(&rig.run(&["rq", "why", "0", "-o", "json"]).stdout).unwrap() };
    assert_eq!((&why(&rig)["reason"]["reason"], &why(&rig)["needs_attention"]), (&json!("OnHold"), &json!(false)));
    set_leader(&rig, "CKE").await;
    let output = why(&rig);
    assert_eq!(
        (&output["reason"]["reason"], &output["needs_attention"]),
        (&json!("OrderIgnored"), &json!(true)),
        "{output}"
    );
    assert!(output["text"].as_str().unwrap().contains("NOT IN FORCE: CKE on boot-0 leads"), "{output}");
    let unheld = rig.run(&["rq", "unhold", "0"]);
    assert_eq!(unheld.status, 0, "{unheld:?}");
    let reading = why(&rig);
    assert_ne!(reading["reason"]["reason"], "OrderIgnored", "{reading}");
    assert_eq!(reading["reading"], "cke", "{reading}");
}

/// A stored rule that is not in force is shown as such everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn i52_rules_that_cke_does_not_know_are_shown_as_not_in_force() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    reset_state(&rig).await;
    set_leader(&rig, "CKE").await;
    assert_eq!(rig.run(&["freeze", "--until", "2h", "--reason", "move", "--for-handover"]).status, 0);
    for command in [&["policy", "show"][..], &["windows"], &["rq", "list", "-o", "table"]] {
        let ran = rig.run(command);
        assert!(ran.stderr.contains("NOT IN FORCE: CKE on boot-0 leads"), "{command:?}: {ran:?}");
    }
    set_leader(&rig, "cketerm").await;
    for command in [&["policy", "show"][..], &["windows"], &["rq", "list", "-o", "table"]] {
        assert!(!rig.run(command).stderr.contains("NOT IN FORCE"), "{command:?}");
    }
    let audit = rig.run(&["audit", "-o", "json"]).stdout;
    assert!(audit.contains("freeze for handover"), "{audit}");
}

/// `resume` enables what `stop` disabled, nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn stop_disables_both_queues_and_resume_enables_only_those_that_stop_disabled() {
    let Some(rig) = Rig::start().await else { return };
    for leader in LEADERS {
        reset_state(&rig).await;
        set_leader(&rig, leader).await;
        let switches = async || {
            (
                rig.get("/cke/reboots/disabled").await.unwrap_or_default(),
                rig.get("/cke/repairs/disabled").await.unwrap_or_default(),
            )
        };
        let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        // the repair queue was disabled before, and stays disabled
        assert_eq!(rig.run(&["repair-queue", "disable"]).status, 0);
        assert_eq!(rig.run(&["stop", "--reason", "power"]).status, 0, "{leader}");
        assert_eq!(switches().await, both("true", "true"), "{leader}");
        // a second stop keeps the record of the first
        assert_eq!(rig.run(&["stop"]).status, 0);
        let resumed = rig.run(&["resume"]);
        assert_eq!((resumed.status, switches().await), (0, both("false", "true")), "{leader}: {resumed:?}");
        assert!(resumed.stderr.contains("enabled: the reboot queue"), "{}", resumed.stderr);
        let again = rig.run(&["resume"]);
        assert!(again.status == 0 && again.stderr.contains("nothing to resume"), "{again:?}");
        assert_eq!(switches().await, both("false", "true"));
        // both were enabled before the stop; one is switched after it, with ckecli or cketerm
        rig.put("/cke/repairs/disabled", "false").await;
        assert_eq!(rig.run(&["stop"]).status, 0);
        rig.put("/cke/repairs/disabled", "true").await;
        let resumed = rig.run(&["resume"]);
        assert_eq!(switches().await, both("false", "true"), "{leader}: a queue disabled after the stop stays disabled");
        assert!(resumed.stderr.contains("the repair queue was changed since the stop"), "{}", resumed.stderr);
        // enabled manually after a stop, then stopped again and resumed
        rig.put("/cke/repairs/disabled", "false").await;
        assert_eq!(rig.run(&["stop"]).status, 0);
        assert_eq!(rig.run(&["rq", "enable"]).status, 0);
        assert_eq!(rig.run(&["stop"]).status, 0);
        assert_eq!(switches().await, both("true", "true"));
        assert_eq!(rig.run(&["resume"]).status, 0);
        assert_eq!(switches().await, both("false", "false"), "{leader}");
    }
    // other work continues, and the message names the command that stops it
    reset_state(&rig).await;
    let output = rig.run(&["stop"]).stderr;
    assert!(!output.contains("still"), "no other work is configured: {output}");
    rig.put("/cke/sabakan/template", "{}").await;
    rig.put("/cke/sabakan/url", "http://127.0.0.1:1").await;
    assert_eq!(rig.run(&["constraints", "set", "maximum-repair-queue-entries", "2"]).status, 0);
    rig.put("/cke/cketerm/policy", r#"{"engine": "cketerm", "metal3_controller": true}"#).await;
    let output = rig.run(&["stop"]).stderr;
    for stops in
        ["`cketerm sabakan disable`", "`cketerm auto-repair disable`", "`cketerm policy set metal3_controller false`"]
    {
        assert!(output.contains(stops), "{output}");
    }
    assert_eq!(rig.run(&["auto-repair", "disable"]).status, 0);
    assert_eq!(rig.run(&["sabakan", "disable"]).status, 0);
    let output = rig.run(&["stop"]).stderr;
    assert!(!output.contains("sabakan") && !output.contains("auto-repair") && output.contains("Metal3"), "{output}");
    let audit = rig.run(&["audit", "-o", "json"]).stdout;
    assert!(audit.contains(r#""stop""#) && audit.contains(r#""resume""#) && audit.contains("power"), "{audit}");
    // an unreadable record does not prevent a stop
    rig.put("/cke/cketerm/stopped", "{").await;
    let resumed = rig.run(&["resume"]);
    assert!(resumed.status == 1 && resumed.stderr.contains("etcdctl del"), "{resumed:?}");
    assert_eq!(rig.run(&["stop"]).status, 0);
    assert_eq!(rig.get("/cke/reboots/disabled").await.as_deref(), Some("true"));
}

/// The write itself compares the leader: between the read and the write another program may become leader.
#[tokio::test(flavor = "multi_thread")]
async fn i52_an_order_is_written_only_if_the_leader_has_not_changed_since_the_check() {
    let Some(rig) = Rig::dedicated().await else { return };
    rig.define();
    reset_state(&rig).await;
    let settings = EtcdSettings { endpoints: vec![rig.url.clone()], ..EtcdSettings::default() };
    let store = Store::connect(&settings, Clock::host()).await.unwrap();
    let person = Operator::new(store.clone(), None).person;
    let id = EntryId::reboot(0);
    let hold = async |under: &LeaderGuard| store.put_order(id, Verb::Hold, None, &person, None, Some(under)).await;
    let mut seen = Vec::new();
    for leader in ["cketerm", "nobody", "CKE"] {
        set_leader(&rig, leader).await;
        seen.push(store.leadership().await.unwrap().under);
    }
    // CKE leads now, so the leader that was read earlier is out of date
    for under in &seen[..2] {
        assert_eq!(hold(under).await, Err(StoreError::LeaderChanged), "{under:?}");
        assert_eq!(rig.get("/cke/cketerm/orders/reboots/0").await, None);
    }
    set_leader(&rig, "nobody").await;
    assert_eq!(hold(&seen[0]).await, Err(StoreError::LeaderChanged));
    assert_eq!(hold(&LeaderGuard::Nobody).await, Ok(()));
    set_leader(&rig, "cketerm").await;
    assert_eq!(hold(&LeaderGuard::Nobody).await, Err(StoreError::LeaderChanged));
    assert_eq!(hold(&store.leadership().await.unwrap().under).await, Ok(()));
}
